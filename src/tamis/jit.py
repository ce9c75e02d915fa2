"""The one way in which Tamis compiles a loop: ahead of nothing, once, cached, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(function: Kernel) -> Kernel:
    """Compile a function over arrays at its first call; later processes load it from the cache.

    With NUMBA_DISABLE_JIT=1 in the environment the function runs as it stands, for debugging and
    for the tests that compare both.
    """
    return cast("Kernel", numba.njit(cache=True, nogil=True)(function))


@kernel
def mixed_in(mixed: int, value: int) -> int:
    """Return a hash with one more value in it, of 42 bits, so that no step takes more than 64."""
    return (mixed * 1_000_003 + int(value)) & 0x3FF_FFFF_FFFF


def inlined(function: Kernel) -> Kernel:
    """Compile a part of other kernels into each of them.

    A call passes every array of every tuple by itself, which costs more than a small loop does.
    """
    return cast("Kernel", numba.njit(cache=True, nogil=True, inline="always")(function))
