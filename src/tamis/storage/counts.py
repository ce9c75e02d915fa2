"""A number in a file of its own, as evidence: how much there must be elsewhere.

A count is written after each change that it counts, without a sync, so it is never ahead. The end
of the process does not lose it. A power failure may leave an earlier number, which proves less.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from tamis.ports import Files
from tamis.storage.files import write_all

COUNT: Final = struct.Struct("<Q")
CRC: Final = struct.Struct("<I")
_BYTES: Final = COUNT.size + CRC.size


class CountFile:
    """A file with a number and its checksum."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path: Final = path
        self._files = files
        self.file: Final = files.open(path, os.O_RDWR | os.O_CREAT)
        self.is_new: Final = not any(self._content())
        """Whether nothing was ever written; a power failure may have left zeros of the first."""

    def _content(self) -> bytes:
        return self._files.pread(self.file, _BYTES + 1, 0)

    def read(self) -> int | None:
        """Return the number; None if the file is new or damaged."""
        data = self._content()
        number, crc = data[: COUNT.size], data[COUNT.size :]
        if len(number) < COUNT.size or CRC.pack(zlib.crc32(number)) != crc:
            return None
        return int(COUNT.unpack(number)[0])

    def begin(self, number: int) -> None:
        """Write a number, and sync it: a later one replaces it within one sector, or does not."""
        with suppress(OSError):
            self.write_synced(number)

    def write_synced(self, number: int) -> None:
        """Write a number and sync it, or raise OSError; this needs no free space."""
        data = COUNT.pack(number)
        write_all(self._files, self.file, data + CRC.pack(zlib.crc32(data)), 0)
        if self._files.size(self.file) > _BYTES:
            self._files.truncate(self.file, _BYTES)
        self._files.sync(self.file)

    def write(self, number: int) -> None:
        """Write a number; everything is correct without it."""
        data = COUNT.pack(number)
        with suppress(OSError):
            self._files.pwrite(self.file, data + CRC.pack(zlib.crc32(data)), 0)

    def close(self) -> None:
        """Close the file."""
        self._files.close(self.file)
