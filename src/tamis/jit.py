"""How Tamis compiles a loop: at its first call, cached on disk, without the GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.dispatcher import Dispatcher

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _folder_of_version() -> str:
    try:
        return f"tamis-{version('tamis')}"
    except PackageNotFoundError:
        return "tamis-from-source"


# An upgrade leaves the caches of the older version behind. Numba cannot even read one of those
# once a tuple that a kernel took has gone or moved, so each version has a folder of its own.
CACHE_FOLDER = _folder_of_version()


class _NamedFolder:
    """A cache path with the version's folder at its end."""

    def get_cache_path(self) -> str:
        return os.path.join(super().get_cache_path(), CACHE_FOLDER)  # type: ignore[misc]


class _InUserFolder(_NamedFolder, UserProvidedCacheLocator):
    """Caches in NUMBA_CACHE_DIR, if that is set."""


class _InTree(_NamedFolder, InTreeCacheLocator):
    """Caches beside the module, if that can be written."""


class _UserWide(_NamedFolder, UserWideCacheLocator):
    """Caches in the home directory."""


class _KernelCacheFiles(CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_InUserFolder, _InTree, _UserWide]  # noqa: RUF012


class _KernelCache(FunctionCache):
    _impl_class = _KernelCacheFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is cached, and nothing if a tuple has moved within this version."""
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            self.flush()  # type: ignore[no-untyped-call]
            return None


def _compiled(function: Kernel, **options: Any) -> Kernel:
    compiled: Any = numba.njit(nogil=True, **options)(function)
    if isinstance(compiled, Dispatcher):
        # As `cache=True` does, but only for this kernel: the host process and its own kernels keep
        # the cache that Numba gives them.
        compiled._cache = _KernelCache(function)  # type: ignore[attr-defined,no-untyped-call]  # noqa: SLF001
    return cast("Kernel", compiled)


def kernel(function: Kernel) -> Kernel:
    """Compile a function over arrays at its first call; later processes load it from the cache.

    With NUMBA_DISABLE_JIT=1 in the environment the function runs as plain Python, for debugging and
    for the tests that compare both.
    """
    return _compiled(function)


def inlined(function: Kernel) -> Kernel:
    """Compile a part of other kernels into each of them.

    A call passes every array of every tuple on its own, which costs more than a small loop.
    """
    return _compiled(function, inline="always")


@kernel
def mixed_in(mixed: int, value: int) -> int:
    """Return a hash with one more value in it, of 42 bits, so that no step takes more than 64."""
    return (mixed * 1_000_003 + int(value)) & 0x3FF_FFFF_FFFF
