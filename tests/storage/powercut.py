"""What the disk holds when the power goes: what was synced, and by chance some of the rest."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

# Smaller than any real one, so that small files have many.
SECTOR = 64


class PowerCutError(BaseException):
    """The power goes: nobody gets to handle it."""


class Disk:
    """The files of one folder as they are on the disk.

    A file goes by its name without the suffix, which it keeps when it is renamed into its place.
    `plan` tells what the next syncs do: work (the default), fail, or be cut off by the power.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.syncs = 0
        self.plan: list[str] = []
        self.forgets_files = False
        """The planted mistake: a sync of a file does nothing."""
        paths = list(folder.iterdir()) if folder.exists() else []
        self._names = {path.name for path in paths}
        self._contents = {path.stem: path.read_bytes() for path in paths}

    def sync(self, file: int) -> None:
        self.syncs += 1
        todo = self.plan.pop(0) if self.plan else "work"
        if todo == "cut":
            raise PowerCutError
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        if stat.S_ISDIR(os.fstat(file).st_mode):
            self._sync_folder(path, todo)
        else:
            self._sync_file(path, todo)
        if todo == "fail":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _sync_folder(self, path: Path, todo: str) -> None:
        if path == self.folder and todo == "work":
            self._names = {entry.name for entry in path.iterdir()}

    def _sync_file(self, path: Path, todo: str) -> None:
        synced, now = self._contents.get(path.stem, b""), path.read_bytes()
        if todo == "fail":
            # Some of it may have come through.
            now = _mixed(synced, now, Random(self.syncs))
        if not self.forgets_files:
            self._contents[path.stem] = now

    def cut(self, target: Path, rng: Random) -> None:
        """Write what may be left to another folder."""
        target.mkdir()
        now = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        for name in sorted(self._names | set(now)):
            # What was done to the list of files since it was synced may be there or not.
            if (name in self._names) == (name in now) or rng.random() < 0.5:
                synced = self._contents.get(Path(name).stem, b"")
                left = _mixed(synced, now.get(name, synced), rng)
                (target / name).write_bytes(left)


def _mixed(synced: bytes, now: bytes, rng: Random) -> bytes:
    """Return what was synced with some sectors of what was written since."""
    longer, shorter = max(len(synced), len(now)), min(len(synced), len(now))
    size = rng.choice((len(synced), len(now), rng.randint(shorter, longer)))
    likely = rng.choice((0.0, 0.3, 0.7, 1.0))
    parts = []
    for at in range(0, size, SECTOR):
        source = now if rng.random() < likely else synced
        parts.append(source[at : at + SECTOR].ljust(SECTOR, b"\0"))
    return b"".join(parts)[:size]


@contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """Limit the size of files: writing stops in the middle, and then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
