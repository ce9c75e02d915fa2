"""Ports: time, threads, files and randomness, which the broker reaches only through these.

A simulation replaces them by its own, and then decides what happens when (tests/simulation).
"""

from __future__ import annotations

import asyncio
import atexit
import fcntl
import math
import os
import secrets
import time
from _thread import LockType, allocate_lock
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")


# Differences up to this are corrections, as time servers cause them.
CORRECTION_SECONDS: Final = 2.0
# The clock of the machine is believed once it has been wrong by the same amount for this long.
TRUST_SECONDS: Final = 600.0
# Linux stops its monotonic clock while the machine sleeps, but not this one.
_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """Tells the time."""

    def time(self) -> float:
        """Return the seconds since 1970; somebody may set this clock at any moment."""

    def monotonic(self) -> float:
        """Return the seconds since some moment; they never go back or jump."""


class MachineClock(Clock, Protocol):
    """Tells the time, and how long processors have worked."""

    def thread_time(self) -> float:
        """Return the seconds of processor time that this thread has used."""

    def process_time(self) -> float:
        """Return the seconds of processor time that all threads have used."""


class SystemClock:
    """The clock of the machine."""

    # Not wrapped: every publication asks some of them. `time`, the last one, hides the module.
    thread_time = staticmethod(time.thread_time)
    process_time = staticmethod(time.process_time)
    monotonic = staticmethod(partial(time.clock_gettime, _MONOTONIC))
    """The time that the machine sleeps counts."""
    time = staticmethod(time.time)


class ClockJump(NamedTuple):
    """A change of the machine's clock that may be a mistake."""

    seconds: float
    since: float
    """When it was noticed, by the monotonic clock."""


class SteadyClock:
    """The time at the start of the broker and what has passed since; nobody can set it.

    It measures intervals: leases, pauses, lifetimes.
    """

    def __init__(self, clock: Clock) -> None:
        self._offset = clock.time() - clock.monotonic()
        self.monotonic = clock.monotonic

    def time(self) -> float:
        """Return the seconds since 1970, if the clock was right at the start."""
        return self.monotonic() + self._offset


class HeldClock:
    """The steady clock, held while a request waits that must be decided by when it was made.

    Matching goes by it. For any thread; one thread holds it.
    """

    def __init__(self, clock: SteadyClock) -> None:
        self._time = clock.time
        self.monotonic = clock.monotonic
        self._holders: OrderedDict[object, float] = OrderedDict()
        """When each request was made; unlike a dict, it finds the first at once after deletions."""
        self._at = math.inf

    def time(self) -> float:
        """Return the time of the earliest request that waits, or else the time."""
        return min(self._time(), self._at)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the clock until the end of the block."""
        holder = object()
        self._holders[holder] = self._time()
        try:
            self._at = self._earliest()
            yield
        finally:
            del self._holders[holder]
            self._at = self._earliest()

    def _earliest(self) -> float:
        return next(iter(self._holders.values()), math.inf)


class CautiousClock:
    """The machine's clock, except that a jump is followed only once it has lasted.

    Events get its time, and retention goes by it. For any thread.
    """

    def __init__(self, clock: MachineClock) -> None:
        self._clock = clock
        self._start_offset = self._offset = clock.time() - clock.monotonic()
        self.monotonic = clock.monotonic
        self.thread_time, self.process_time = clock.thread_time, clock.process_time
        self.observed_since: Final = clock.monotonic()
        self.jump: ClockJump | None = None

    def time(self) -> float:
        """Return the seconds since 1970."""
        shown, passed = self._clock.time(), self._clock.monotonic()
        gap, jump = shown - passed - self._offset, self.jump
        if abs(gap) <= CORRECTION_SECONDS:
            self._offset, self.jump = shown - passed, None
        elif jump is None or abs(gap - jump.seconds) > CORRECTION_SECONDS:
            self.jump = ClockJump(gap, passed)
        elif passed - jump.since >= TRUST_SECONDS:
            self._offset, self.jump = shown - passed, None
        return passed + self._offset

    def can_tell_age(self, seconds: float) -> bool:
        """Return whether the clock has been right for long enough to call something this old."""
        self.time()
        observed = self.monotonic() - self.observed_since
        return self.jump is None and observed >= min(seconds, TRUST_SECONDS)

    def latest(self) -> float:
        """Return the latest of the times: what ends by any of the clocks has ended."""
        return max(self._clock.time(), self.time(), self._start_offset + self.monotonic())


class Executor(Protocol):
    """Runs functions that block or compute, beside the event loop."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, without delaying the event loop."""

    def close(self) -> None:
        """Accept no more work."""


class PromptExecutor(Executor, Protocol):
    """One that can be told to begin, so that the caller can do something else meanwhile."""

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Return the future of the result of a function."""

    def begin(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Return the same, once the function has begun."""


THREAD_PREFIX: Final = "tamis-"
# A thread begins within some 0.05 ms. If it does not, the machine is busy, and nobody waits for it.
MAX_SECONDS_TO_BEGIN: Final = 0.0005


_ThreadCall = tuple[
    asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any], LockType | None
]
"""Whom to tell, something to do, and what to release when it begins."""


class ThreadExecutor:
    """A fixed number of threads of its own, which begin with the first work for them.

    Python's `ThreadPoolExecutor` makes a second future with a lock for each call, and takes twice
    as long from the event loop to a thread and back: 0.14 ms instead of 0.07.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._name = f"{THREAD_PREFIX}{name}"
        self._work: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._left = threads
        """How many threads have not begun."""
        self._begun = 0
        self._is_closed = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that runs in one of the threads."""
        return await self.submit(work, *args, **kwargs)

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Return the future of the result of a function that runs in one of the threads."""
        return self._submit(partial(work, *args, **kwargs))

    def begin(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """Return the future of a result once a thread has begun to work for it.

        If this one went on at once, it would keep the interpreter's lock, and on a busy machine the
        processor. So work that is to wait for a disk would not begin before this thread has
        nothing more to do, and the two would not happen at the same time.
        """
        has_begun = allocate_lock()
        has_begun.acquire()
        done = self._submit(partial(work, *args, **kwargs), has_begun)
        has_begun.acquire(timeout=MAX_SECONDS_TO_BEGIN)
        return done

    def _submit(
        self, call: Callable[[], T], has_begun: LockType | None = None
    ) -> asyncio.Future[T]:
        if self._is_closed:
            raise RuntimeError(f"{self._name} accepts no more work")
        if self._left:
            self._begin()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._work.put((loop, done, call, has_begun))
        return done

    def close(self) -> None:
        """Accept no more work; what waits and what runs is finished."""
        if not self._is_closed:
            self._is_closed = True
            for _ in range(self._begun):
                self._work.put(None)

    __del__ = close

    def _begin(self) -> None:
        name = f"{self._name}_{self._begun}"
        thread = Thread(target=_work_off, args=(self._work,), name=name, daemon=True)
        self._left, self._begun = self._left - 1, self._begun + 1
        _threads[thread] = self._work
        thread.start()


def _work_off(waiting: SimpleQueue[_ThreadCall | None]) -> None:
    """Do what waits, until there is nothing to come."""
    while (work := waiting.get()) is not None:
        loop, done, call, has_begun = work
        if has_begun is not None:
            has_begun.release()
        outcome: Callable[[], None] | None = None
        if not done.cancelled():
            try:
                outcome = partial(_resolve, done, call(), None)
            except BaseException as error:
                outcome = partial(_resolve, done, None, error)
            try:  # noqa: SIM105 - `suppress` is three calls, and somebody waits
                loop.call_soon_threadsafe(outcome)
            except RuntimeError:
                # A loop that is closed waits for nothing.
                pass
        # Otherwise the last work and its outcome would live as long as the thread waits.
        del work, loop, done, call, has_begun, outcome


def _resolve(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    elif isinstance(error, StopIteration):
        done.set_exception(RuntimeError(f"the work raised {error!r}"))
    else:
        done.set_exception(error)


_threads: Final[WeakKeyDictionary[Thread, SimpleQueue[_ThreadCall | None]]] = WeakKeyDictionary()


@atexit.register
def _finish_threads() -> None:
    """Let the process end no sooner than what threads have begun."""
    running = [*_threads.items()]
    for _, waiting in running:
        waiting.put(None)
    for thread, _ in running:
        thread.join()


class Writer(Protocol):
    """Writes to a file and syncs it beside its caller, one thing at a time."""

    @property
    def max_bytes(self) -> int:
        """Return how much it can write at a time."""

    @property
    def is_written(self) -> bool:
        """Return whether everything was written, so that an error is one of the sync."""

    @property
    def seconds(self) -> float:
        """Return how long it was written and synced."""

    def begin(self, file: int, data: bytes, offset: int, count_file: int, count: bytes) -> None:
        """Begin to write and to sync; once that is done, write a count at the start of a file.

        Without a count file, -1, there is none. Nobody hears of it if the count cannot be written.
        """

    def is_stored(self, seconds: float) -> bool:
        """Wait for so long at most; return whether everything is written and synced."""

    def end(self) -> OSError | None:
        """Wait for the end; return what went wrong."""

    def close(self) -> None:
        """Write nothing more."""


class Files(Protocol):
    """Opens, reads, writes and syncs files; raises OSError on failure."""

    @property
    def vfs(self) -> str:
        """Return the name of the VFS through which SQLite reaches its files; "" for its own."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file or folder with flags of `os.open`; return its number."""

    def close(self, file: int) -> None:
        """Close a file."""

    def pread(self, file: int, size: int, offset: int, /) -> bytes:
        """Return bytes at an offset, perhaps fewer."""

    def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:
        """Write bytes at an offset, perhaps fewer; return how many."""

    def truncate(self, file: int, size: int, /) -> None:
        """Set the size of a file."""

    def size(self, file: int) -> int:
        """Return the size of a file."""

    def sync(self, file: int, /) -> None:
        """Sync a file, or a folder's list of files, to disk."""

    def sync_data(self, file: int, /) -> None:
        """Sync what was written to a file, and its size if it has grown; perhaps no more."""

    def writer(self) -> Writer | None:
        """Return what writes beside its caller; None if there is nothing like it."""

    def lock(self, file: int) -> bool:
        """Lock a file until it is closed; return False if somebody else has."""

    def drop_cache(self, file: int) -> bool:
        """Read from the disk what is read next of a file; return False if that is impossible."""

    def make_folder(self, path: Path) -> None:
        """Make a private folder in one that exists."""

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder."""

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file; replace one that has the name."""

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""


class SystemFiles:
    """The files of the machine."""

    vfs = ""
    # Not wrapped: appending takes each of them on its way.
    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    truncate = staticmethod(os.ftruncate)
    sync = staticmethod(os.fsync)
    sync_data = staticmethod(getattr(os, "fdatasync", os.fsync))
    rename = staticmethod(os.rename)

    def open(self, path: Path, flags: int) -> int:
        """Open a file or folder; only its owner can read a new one."""
        return os.open(path, flags | os.O_CLOEXEC, 0o600)

    def size(self, file: int) -> int:
        """Return the size of a file."""
        return os.fstat(file).st_size

    def writer(self) -> Writer | None:
        """Return what writes beside its caller; None for files whose calls are other ones."""
        if type(self) is not SystemFiles:
            return None
        # Only a broker needs it, and loads Numba anyway.
        from tamis.disk_writer import disk_writer  # noqa: PLC0415

        return disk_writer()

    def lock(self, file: int) -> bool:
        """Lock a file until it is closed; return False if somebody else has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def drop_cache(self, file: int) -> bool:
        """Drop the cached pages of a file."""
        with suppress(AttributeError, OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            return True
        return False

    def make_folder(self, path: Path) -> None:
        """Make a private folder in one that exists."""
        path.mkdir(mode=0o700)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(folder))

    def remove(self, path: Path) -> None:
        """Remove a file, if there is one."""
        path.unlink(missing_ok=True)


SYSTEM_FILES: Final = SystemFiles()

RandomBytes = Callable[[int], bytes]
"""Returns this many bytes that nobody can predict."""
system_random: Final[RandomBytes] = secrets.token_bytes
