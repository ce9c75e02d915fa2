"""The one way in which Tamis compiles a loop: ahead of nothing, once, cached, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import IndexDataCacheFile

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


_load_index = IndexDataCacheFile._load_index  # noqa: SLF001 - there is no public way


def _load_index_if_current(self: IndexDataCacheFile) -> dict[Any, Any]:
    """Return what the cache of a module has, nothing if an older Tamis wrote it.

    Numba looks whether a cache is older than its source only after it has read it, and cannot read
    it once a tuple that a kernel took has gone or moved. An upgrade leaves such files behind.
    """
    try:
        return cast("dict[Any, Any]", _load_index(self))  # type: ignore[no-untyped-call]
    except (AttributeError, ImportError):
        return {}


IndexDataCacheFile._load_index = _load_index_if_current  # type: ignore[method-assign]  # noqa: SLF001


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
