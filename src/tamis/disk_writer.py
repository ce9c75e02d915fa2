"""A thread that writes to files and syncs them, and never needs the interpreter's lock.

A thread of Python needs that lock before it can write, and before anybody hears that it has: it and
the event loop take turns, and each turn takes as long as a third of a sync. This one runs a kernel,
and is asked and answers through eventfds.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from threading import Lock, Thread
from typing import Any, Final

import numpy as np

from tamis.bindings import IS_COMPILED

MAX_BYTES: Final = 64 * 1024
_MAX_COUNT_BYTES: Final = 16
# How long whoever waits for the end keeps others from looking whether it has come.
_HEARING_SECONDS: Final = 0.05


class DiskWriter:
    """Does what `ports.Writer` says, with the calls of Linux."""

    max_bytes: Final = MAX_BYTES

    def __init__(self) -> None:
        from tamis.disk_kernels import REQUEST_WORDS, write_when_asked  # noqa: PLC0415

        self._request = np.zeros(REQUEST_WORDS, np.int64)
        data, count = np.zeros(MAX_BYTES, np.uint8), np.zeros(_MAX_COUNT_BYTES, np.uint8)
        # Python's own views are quicker to write to.
        arrays: tuple[Any, ...] = (self._request, data, count)
        self._words, self._data, self._count = (memoryview(one) for one in arrays)
        self._ask = os.eventfd(0, os.EFD_CLOEXEC)
        self._answer = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._answer, select.POLLIN)
        self._has_answer = True
        self._hearing = Lock()
        """Held by the one thread that waits for the answer."""
        work: Callable[[], Any] = lambda: write_when_asked(  # noqa: E731
            self._request, data, count, self._ask, self._answer
        )
        # Compile it, or find that this is impossible, before anybody waits for it.
        self._ask_last()
        self._thread = Thread(target=work, name="tamis-disk", daemon=True)
        try:
            work()
            self._words[0] = 0
            self._thread.start()
        except BaseException:
            self._close_files()
            raise

    def begin(
        self, file: int, data: bytes, offset: int, count_file: int = -1, count: bytes = b""
    ) -> None:
        """Begin to write and to sync; once that is done, write a count at the start of a file."""
        words, size = self._words, len(data)
        words[1], words[2], words[3], words[4], words[5] = (
            file,
            size,
            offset,
            count_file,
            len(count),
        )
        self._data[:size] = data
        self._count[: len(count)] = count
        self._has_answer = False
        os.eventfd_write(self._ask, 1)

    def is_stored(self, seconds: float) -> bool:
        """Wait for so long at most; return whether everything is stored."""
        if not self._has_answer and self._hearing.acquire(timeout=seconds):
            try:
                # Somebody else may have heard it meanwhile.
                if not self._has_answer and self._poll.poll(ceil(seconds * 1_000)):
                    os.eventfd_read(self._answer)
                    self._has_answer = True
            finally:
                self._hearing.release()
        return self._has_answer and not self._words[6]

    def end(self) -> OSError | None:
        """Wait for the end; return what went wrong."""
        while not self._has_answer:
            self.is_stored(_HEARING_SECONDS)
        number = int(self._words[7])
        return OSError(number, os.strerror(number)) if self._words[6] else None

    @property
    def seconds(self) -> float:
        """How long it was written and synced."""
        begun, begun_ns, ended, ended_ns = self._words[9:]
        return float(ended - begun + (ended_ns - begun_ns) * 1e-9)

    @property
    def is_written(self) -> bool:
        """Whether everything was written, so that an error is one of the sync."""
        return bool(self._words[6] != 1)

    def close(self) -> None:
        """End the thread; a fork has none, and leaves that of the other process alone."""
        if self._thread.is_alive():
            self.end()
            self._ask_last()
            self._thread.join()
        self._close_files()

    def _close_files(self) -> None:
        os.close(self._ask)
        os.close(self._answer)

    def _ask_last(self) -> None:
        self._words[0] = 1
        os.eventfd_write(self._ask, 1)


def disk_writer() -> DiskWriter | None:
    """Return a writer; None where the system or Numba lacks what it needs.

    Elsewhere a symbol that the kernel names may be missing, and calling it ends the process.
    """
    if IS_COMPILED and sys.platform == "linux":
        # Whatever it is: a broker without it is a little slower, and that is all.
        with suppress(Exception):
            return DiskWriter()
    return None
