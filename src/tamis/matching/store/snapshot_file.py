"""One file of named arrays, each with its checksum, opened by memory map.

::

    magic, 16 bytes | length of the header, 8 bytes | its CRC-32, 8 bytes | header, JSON | arrays

The header contains the type, shape, place and CRC-32 of each array. Arrays start at multiples of 64
bytes, so that they can be used in place.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import SnapshotError

MAGIC: Final = b"tamis snapshot 2"
CHECKED_MAGIC: Final = b"tamis snapshot 3"
"""Of a file that leaves something to check, which earlier versions of Tamis would not do."""
_ALIGNED: Final = 64
_PREFIX: Final = len(MAGIC) + 16


class ArrayRecord(NamedTuple):
    """The place of an array, and its checksum."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    crc: int


def write_file(
    path: Path,
    about: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    is_left_to_check: bool = False,
) -> None:
    """Write a file atomically: under another name first, then rename it."""
    parts, end = [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array)
        parts.append(ArrayRecord(name, data.dtype.str, data.shape, end, zlib.crc32(data.data)))
        end = _aligned(end + data.nbytes)
    header = json.dumps({"about": about, "size": end, "parts": parts}).encode()
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    with beside.open("wb") as file:
        file.write(CHECKED_MAGIC if is_left_to_check else MAGIC)
        file.write(len(header).to_bytes(8, "little"))
        file.write(zlib.crc32(header).to_bytes(8, "little"))
        file.write(header)
        start = _aligned(_PREFIX + len(header))
        for part, array in zip(parts, arrays.values(), strict=True):
            file.seek(start + part.offset)
            file.write(np.ascontiguousarray(array).data)
        file.truncate(start + end)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header of a file, and its arrays as they lie in it; never write to them.

    They are mapped as if they were writable, because kernels are compiled again for read-only
    arrays: half of the kernels would exist twice.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _PREFIX:
                raise SnapshotError(path, "", "it is not a Tamis snapshot: the file is too short")
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    except OSError as error:
        raise SnapshotError(path, "", f"it cannot be opened: {error.strerror}") from None
    header, start = _header(path, mapped)
    if size < start + header["size"]:
        missing = start + header["size"] - size
        raise SnapshotError(path, "its end", f"{missing:,} bytes are missing")
    parts = (ArrayRecord(*part) for part in header["parts"])
    return header["about"], {part.name: _array(path, mapped, start, part) for part in parts}


def _header(path: Path, mapped: memoryview) -> tuple[dict[str, Any], int]:
    if bytes(mapped[: len(MAGIC)]) not in {MAGIC, CHECKED_MAGIC}:
        raise SnapshotError(path, "", "it is not a Tamis snapshot, or one of another version")
    length, crc = (
        int.from_bytes(mapped[at : at + 8], "little") for at in (len(MAGIC), len(MAGIC) + 8)
    )
    text = bytes(mapped[_PREFIX : _PREFIX + length])
    if len(text) != length or zlib.crc32(text) != crc:
        raise SnapshotError(path, "its header", "the checksum is wrong")
    return json.loads(text), _aligned(_PREFIX + length)


def _array(path: Path, mapped: memoryview, start: int, part: ArrayRecord) -> NDArray[Any]:
    dtype = np.dtype(part.dtype)
    size = dtype.itemsize * int(np.prod(part.shape))
    data = mapped[start + part.offset : start + part.offset + size]
    if zlib.crc32(data) != part.crc:
        raise SnapshotError(path, part.name, "the checksum is wrong")
    return np.frombuffer(data, dtype).reshape(part.shape)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNED) * _ALIGNED
