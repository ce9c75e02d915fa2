"""The kernel of `disk_writer`: it writes and syncs without the interpreter's lock."""

from __future__ import annotations

import errno
import time
from typing import Any, Final

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]
from numpy.typing import NDArray

from tamis.jit import kernel

# What is asked for, what came of it, and room for the eight bytes of an eventfd.
IS_LAST, FILE, SIZE, OFFSET, COUNT_FILE, COUNT_SIZE, STAGE, ERROR, BELL = range(9)
BEGUN, ENDED = 9, 11
REQUEST_WORDS: Final = 13
"""The last four are the times of the begin and of the end, in seconds and nanoseconds."""
# How far it came.
DONE, IN_WRITE, IN_SYNC = range(3)

_WORD_BYTES: Final = 8
_INTERRUPTED: Final = errno.EINTR
_NOTHING_WRITTEN: Final = errno.EIO
_MONOTONIC: Final = time.CLOCK_MONOTONIC

_transfer: Final = types.int64(types.int32, types.uintp, types.uintp)
_read: Final[Any] = types.ExternalFunction("read", _transfer)
_write: Final[Any] = types.ExternalFunction("write", _transfer)
_pwrite: Final[Any] = types.ExternalFunction(
    "pwrite", types.int64(types.int32, types.uintp, types.uintp, types.int64)
)
_fdatasync: Final[Any] = types.ExternalFunction("fdatasync", types.int32(types.int32))
_clock_gettime: Final[Any] = types.ExternalFunction(
    "clock_gettime", types.int32(types.int32, types.uintp)
)
_errno_location: Final[Any] = types.ExternalFunction(
    "__errno_location",
    types.CPointer(types.int32)(),  # type: ignore[no-untyped-call]
)


@kernel
def write_when_asked(
    request: NDArray[np.int64],
    data: NDArray[np.uint8],
    count: NDArray[np.uint8],
    ask: int,
    answer: int,
) -> None:
    """Write and sync what is asked for, then ring, until the last request."""
    bell = request.ctypes.data + BELL * _WORD_BYTES
    while True:
        while _read(ask, bell, _WORD_BYTES) < 0:
            if carray(_errno_location(), 1)[0] != _INTERRUPTED:
                return
        if request[IS_LAST]:
            return
        _clock_gettime(_MONOTONIC, request.ctypes.data + BEGUN * _WORD_BYTES)
        request[STAGE] = request[ERROR] = written = 0
        while written < request[SIZE]:
            more = _pwrite(
                request[FILE],
                data.ctypes.data + written,
                request[SIZE] - written,
                request[OFFSET] + written,
            )
            error = carray(_errno_location(), 1)[0] if more < 0 else _NOTHING_WRITTEN
            if more > 0:
                written += more
            elif error != _INTERRUPTED:
                request[STAGE], request[ERROR] = IN_WRITE, error
                break
        while request[STAGE] == DONE and _fdatasync(request[FILE]) < 0:
            error = carray(_errno_location(), 1)[0]
            if error != _INTERRUPTED:
                request[STAGE], request[ERROR] = IN_SYNC, error
        _clock_gettime(_MONOTONIC, request.ctypes.data + ENDED * _WORD_BYTES)
        if request[STAGE] == DONE and request[COUNT_FILE] >= 0:
            # Evidence only: everything is correct without it.
            _pwrite(request[COUNT_FILE], count.ctypes.data, request[COUNT_SIZE], 0)
        request[BELL] = 1
        _write(answer, bell, _WORD_BYTES)
