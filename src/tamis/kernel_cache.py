"""Where compiled kernels are cached: as Numba does it, in a folder for each version of Tamis.

This builds on internals of Numba, which tests/test_numba_contract.py checks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    InTreeCacheLocator,
    IPythonCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
    ZipCacheLocator,
)


def _folder_of_version() -> str:
    try:
        return f"tamis-{version('tamis')}"
    except PackageNotFoundError:
        return "tamis-from-source"


# An upgrade leaves the caches of the older version behind. Numba cannot even read one of those
# once a tuple that a kernel took has gone or moved, so each version has a folder of its own.
CACHE_FOLDER = _folder_of_version()


@cache
def _stamps_of_kernels() -> tuple[tuple[str, float, int], ...]:
    """Return what changes when any file of kernels does; nothing if they are in an archive."""
    root = Path(__file__).parent
    files = sorted(root.rglob("*kernels.py")) if root.is_dir() else []
    return tuple((one.name, one.stat().st_mtime, one.stat().st_size) for one in files)


class _NamedFolder:
    """A cache path with the version's folder at its end."""

    def get_cache_path(self) -> str:
        return os.path.join(super().get_cache_path(), CACHE_FOLDER)  # type: ignore[misc]

    def get_source_stamp(self) -> Any:
        # A kernel depends on the kernels that it calls, and on tuples of other files: compiled with
        # earlier ones, it would read and write the wrong memory.
        return super().get_source_stamp(), _stamps_of_kernels()  # type: ignore[misc]


class _InUserFolder(_NamedFolder, UserProvidedCacheLocator):
    """Caches in NUMBA_CACHE_DIR, if that is set."""


class _InTree(_NamedFolder, InTreeCacheLocator):
    """Caches beside the module, if that can be written."""


class _UserWide(_NamedFolder, UserWideCacheLocator):
    """Caches in the home directory."""


class _OfIPython(_NamedFolder, IPythonCacheLocator):
    """Caches in IPython's folder, for functions entered at its prompt."""


class _OfArchive(_NamedFolder, ZipCacheLocator):
    """Caches in the home directory, for modules in an archive, whatever that is called."""

    @staticmethod
    def _split_zip_path(py_file: str) -> tuple[str, str]:
        path = Path(py_file)
        for archive in path.parents:
            if archive.is_file():
                return str(archive), path.relative_to(archive).as_posix()
        raise ValueError(f"{py_file} is not in an archive")

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _OfArchive | None:
        try:
            self = cls(py_func, py_file)
            self.ensure_cache_path()  # type: ignore[no-untyped-call]
        except (OSError, ValueError):
            return None
        return self


class _KernelCacheFiles(CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [  # noqa: RUF012
        _InUserFolder,
        _InTree,
        _UserWide,
        _OfIPython,
        _OfArchive,
    ]


class KernelCache(FunctionCache):
    """The cache of one kernel."""

    _impl_class = _KernelCacheFiles

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is cached, and nothing if a tuple has moved within this version."""
        found = None
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except (AttributeError, ImportError):
            self.flush()  # type: ignore[no-untyped-call]
        if found is None:
            _announce_compilation()
        return found


_announced = False


_terminals_only = False


@contextmanager
def announced_in_terminals_only() -> Iterator[None]:
    """Announce no compilation if standard error is no terminal: servers have their logs."""
    global _terminals_only  # noqa: PLW0603
    before, _terminals_only = _terminals_only, True
    try:
        yield
    finally:
        _terminals_only = before


def _announce_compilation() -> None:
    """Say once why nothing happens for a while."""
    global _announced  # noqa: PLW0603
    if _announced or sys.stderr is None:
        return
    _announced = True
    if sys.stderr.isatty() or not _terminals_only:
        # A reader that has gone is no reason to fail.
        with suppress(OSError, ValueError):
            sys.stderr.write(
                "compiling kernels that this machine has not used yet, each of them once; all "
                "together take about a minute\n"
            )
            sys.stderr.flush()
