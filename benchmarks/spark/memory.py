"""How much of a library the workers of a machine share, as Linux reports it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

KILOBYTE = 1024


class Mapped(NamedTuple):
    """Memory of one process, mapped from the files in a folder and private; in bytes."""

    process: int
    size: int
    resident: int
    share: int
    """Its proportional share: a page that two processes have counts half."""
    private: int
    """What it has of the files and no other process has."""
    own: int
    """All that is private to the process, with its Python, Arrow and kernels."""


def processes_that_map(folder: str) -> list[Mapped]:
    """Return what every process has that maps files of a folder."""
    found = (_mapped(process, folder) for process in _processes())
    return [mapped for mapped in found if mapped is not None and mapped.size]


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _mapped(process: int, folder: str) -> Mapped | None:
    try:
        lines = Path(f"/proc/{process}/smaps").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None  # It has ended, or is another user's.
    files, every = Counter[str](), Counter[str]()
    for path, name, size in _sizes(lines):
        every[name] += size
        if path.startswith(folder):
            files[name] += size
    return Mapped(
        process, files["Size"], files["Rss"], files["Pss"], _private(files), _private(every)
    )


def _sizes(lines: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the path of a mapping, the name of a figure, and its bytes."""
    path = ""
    for line in lines:
        words = line.split(maxsplit=5)
        if not words[0].endswith(":"):
            path = words[5] if len(words) > 5 else ""
        elif words[-1] == "kB":
            yield path, words[0].rstrip(":"), int(words[1]) * KILOBYTE


def _private(sizes: Counter[str]) -> int:
    return sizes["Private_Clean"] + sizes["Private_Dirty"]
