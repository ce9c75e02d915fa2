"""How many changes the state was promised to keep, beside it.

SQLite ends its write-ahead log at the first page that is not as it was written, and says nothing of
what came after; and people take the file for a temporary one and remove it. Then the state is as it
was some time ago: a revoked token holds again. This count tells. It is written after the change is
on the disk, so it is never ahead of it.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Final

from tamis.storage.files import write_all

_COUNT: Final = struct.Struct("<Q")
_CRC: Final = struct.Struct("<I")


class ChangeCount:
    """A file with a number and its checksum."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._file: Final = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int | None:
        """Return the number, 0 if the file is new; None if it is damaged."""
        data = os.pread(self._file, _COUNT.size + _CRC.size + 1, 0)
        if not data:
            return 0
        number, crc = data[: _COUNT.size], data[_COUNT.size :]
        if _CRC.pack(zlib.crc32(number)) != crc:
            return None
        return int(_COUNT.unpack(number)[0])

    def write(self, number: int) -> None:
        """Write a number; the state is right without it."""
        data = _COUNT.pack(number)
        with suppress(OSError):
            write_all(self._file, data + _CRC.pack(zlib.crc32(data)), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
