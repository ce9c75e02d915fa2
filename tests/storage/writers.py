"""Writers in plain Python: one that is late by chance, and one with a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from threading import Thread

from tamis.ports import Files
from tamis.storage.files import WaitingWriter


class LateWriter(WaitingWriter):
    """Writes at once, when it is asked whether it has, or not before it has to."""

    def __init__(self, files: Files, rng: Random) -> None:
        # Decisions that depend on it must not depend on this machine.
        super().__init__(files, lambda: 0.0)
        self._rng = rng
        self._work: Callable[[], None] | None = None

    def begin(self, file: int, data: bytes, offset: int, count_file: int, count: bytes) -> None:
        assert self._work is None, "one thing at a time"
        self._work = partial(super().begin, file, data, offset, count_file, count)
        if self._rng.random() < 0.3:
            self._do()

    def is_stored(self, seconds: float) -> bool:
        if self._rng.random() < 0.5:
            self._do()
        return self._work is None and super().is_stored(seconds)

    def end(self) -> OSError | None:
        self._do()
        return super().end()

    def _do(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


class ThreadedWriter(WaitingWriter):
    """Writes in a thread that is begun for it."""

    _thread: Thread | None = None

    def begin(self, file: int, data: bytes, offset: int, count_file: int, count: bytes) -> None:
        work = super().begin
        self._thread = Thread(target=work, args=(file, data, offset, count_file, count))
        self._thread.start()

    def is_stored(self, seconds: float) -> bool:
        assert self._thread is not None
        self._thread.join(seconds)
        return not self._thread.is_alive() and super().is_stored(seconds)

    def end(self) -> OSError | None:
        assert self._thread is not None
        self._thread.join()
        return super().end()
