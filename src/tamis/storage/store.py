"""A folder with a log and a state that belong together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self
from zlib import crc32

from tamis.errors import StorageError, StorageFullError
from tamis.ports import (
    SYSTEM_FILES,
    Clock,
    Files,
    RandomBytes,
    SystemClock,
    system_random,
)
from tamis.storage.counts import CountFile
from tamis.storage.damage import Damage
from tamis.storage.database import VERSION
from tamis.storage.files import FULL, FolderLock, make_folder, refusal, sync_folder
from tamis.storage.log import SEGMENT_BYTES, EventLog
from tamis.storage.records import ID_BYTES
from tamis.storage.state import StateStore
from tamis.storage.tables import DamagedRow, PublisherTail


def is_store(folder: Path) -> bool:
    """Return whether a folder holds the data of a broker, or what is left of them."""
    return (folder / "state.db").exists() or (folder / "log").is_dir()


class Recovery(NamedTuple):
    """The result of opening a store; `str()` of it is text for people."""

    seconds: float
    first_sequence: int
    next_sequence: int
    matched_up_to: int
    cut_bytes: int
    """What was being written when the process ended, and was never acknowledged."""
    damaged: tuple[Damage, ...]
    damaged_rows: tuple[DamagedRow, ...]
    lost_changes: int
    """Durable changes of the state that are missing."""

    @property
    def is_clean(self) -> bool:
        """Return whether nothing acknowledged is damaged or lost."""
        return not (self.damaged or self.damaged_rows or self.lost_changes)

    def __str__(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        events = self.next_sequence - self.first_sequence
        behind = self.next_sequence - 1 - self.matched_up_to
        yield f"Opened in {self.seconds:.2f} s: {events:,} events, {behind:,} of them to match."
        if self.cut_bytes:
            yield (
                "The last append was cut short by the end of the process: "
                f"{self.cut_bytes:,} bytes that were not acknowledged are gone."
            )
        for damage in self.damaged:
            yield f"Damaged: log, {damage}."
        for row in self.damaged_rows:
            yield f"Damaged: state, {row}."
        if self.lost_changes:
            yield (
                f"Lost: the last {self.lost_changes:,} changes of subscriptions, tokens and audit. "
                "The state is as it was before them; was state.db-wal removed?"
            )


_FULL_ADVICE: Final = "free space on the disk, and start again"
_EVENTS_PER_READ: Final = 4096
# What is read to compare with events that are published again.
_RECENT_EVENTS: Final = 10_000
_RECENT_BYTES: Final = 16 << 20


class Retention(NamedTuple):
    """What retention removed: sequences of the log, and pending events by subscription number."""

    removed: range
    dropped: dict[int, int]


class Storage:
    """A folder with a log and a state, used by one process at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int,
        clock: Clock,
        files: Files,
        random: RandomBytes,
        accept_lost_changes: bool,
    ) -> None:
        started = clock.monotonic()
        make_folder(files, folder)
        with ExitStack() as opened:
            lock = FolderLock(files, folder / "LOCK")
            opened.callback(lock.release)
            self.state: Final = StateStore(
                folder / "state.db", files=files, accept_lost_changes=accept_lost_changes
            )
            opened.callback(self.state.close)
            count = CountFile(folder / "log.count", files)
            appended = count.read()
            self._removed = CountFile(folder / "log.first", files)
            opened.callback(self._removed.close)
            removed_below = self._removed.read()
            self.log: Final = EventLog(
                folder / "log",
                # Matching reads only what is on disk.
                synced_up_to=max(self.state.matched_up_to, appended or 0),
                removed_below=removed_below,
                count=count,
                segment_bytes=segment_bytes,
                clock=clock.time,
                files=files,
                random=random,
                monotonic=clock.monotonic,
            )
            opened.callback(self.log.close)
            if removed_below is None:
                self._removed.begin(self.log.first_sequence)
            sync_folder(files, folder)
            # The files are new in a new folder, and in one that an earlier version wrote.
            if self.state.version_found == VERSION and self.log.next_sequence > 1:
                self._report_unknown(count, appended)
                self._report_unknown(self._removed, removed_below)
            self.state.check_sequences(self.log.next_sequence)
            if not self.state.broker_id:
                self.state.name_broker(random(ID_BYTES).hex())
            self.publishers: Final = self._publishers()
            """What is known of each publisher when the store was opened, matched or not."""
            self._opened = opened.pop_all()
        # A power failure may have brought them back: dropping them is not synced.
        self._kept_below = min(removed_below or 0, self.log.first_sequence)
        """Pending events below it, which the log no longer has, could not be dropped yet; or 0."""
        self.recovery: Final = self._recovery(clock.monotonic() - started)

    @classmethod
    def open(
        cls,
        folder: str | PathLike[str],
        *,
        segment_bytes: int = SEGMENT_BYTES,
        clock: Clock | None = None,
        files: Files = SYSTEM_FILES,
        random: RandomBytes = system_random,
        accept_lost_changes: bool = False,
    ) -> Self:
        """Open a folder, create it if there is none, and recover from a crash.

        Refuse if durable changes of the state are missing: a revoked token may be valid again.
        """
        path = Path(folder).absolute()
        clock = clock or SystemClock()
        try:
            return cls(
                path,
                segment_bytes=segment_bytes,
                clock=clock,
                files=files,
                random=random,
                accept_lost_changes=accept_lost_changes,
            )
        except (OSError, StorageFullError) as error:
            refused: StorageError = (
                refusal(error.filename or path, "opening the store", error)
                if isinstance(error, OSError)
                else error
            )
            if isinstance(refused, StorageFullError):
                # Whoever cannot open it ends, and does not go on by itself when there is room.
                refused = StorageFullError(refused.path, refused.reason, advice=_FULL_ADVICE)
            raise refused from error

    def _report_unknown(self, count: CountFile, number: int | None) -> None:
        if number is None:
            what = "missing" if count.is_new else "damaged"
            reason = f"the file is {what}, and was written anew"
            self.log.damage.add(Damage(count.path.name, 0, 0, range(0), reason))

    def _publishers(self) -> dict[str, PublisherTail]:
        """Return each publisher's numbers: from the state if matched, else from the log."""
        found, unmatched = self.state.publishers(), self.state.matched_up_to + 1
        for name, tail in found.items():
            if not tail.time:  # It was stored before times were.
                found[name] = tail._replace(time=self.log.last_time)
        runs: dict[str, PublisherTail] = {}
        position = min(unmatched, self._recent_sequence())
        while records := self.log.read(position, _EVENTS_PER_READ):
            for record in records:
                name, number = record.publisher, record.publisher_sequence
                if record.origin is not None:
                    name, number = record.origin.publisher, record.origin.sequence
                    one = array("I", [crc32(record.payload, record.format)])
                    own = array("q", [number])
                    runs[name] = runs.get(name, PublisherTail()).followed_by(own, one)
                    known = found.get(name, PublisherTail())
                    if record.sequence >= unmatched and number > known.last:
                        found[name] = known.followed_by(own, one)._replace(time=record.time)
                elif number:
                    one = array("I", [crc32(record.payload, record.format)])
                    run = runs.get(name) or PublisherTail(number - 1)
                    runs[name] = run.append(number, one, record.time)
                    known = found.get(name, PublisherTail())
                    if record.sequence >= unmatched and number > known.last:
                        found[name] = known.append(number, one, record.time)
            position = records[-1].sequence + 1
        for name, run in runs.items():
            if name in found and found[name].last == run.last:
                found[name] = PublisherTail(*found[name][:3], *run[3:])
        return found

    def _recent_sequence(self) -> int:
        """Return where the latest events begin, which publishers may publish again."""
        log = self.log
        count = log.next_sequence - log.first_sequence
        fitting = _RECENT_BYTES * count // max(1, log.bytes)
        return log.next_sequence - min(count, _RECENT_EVENTS, fitting)

    def _recovery(self, seconds: float) -> Recovery:
        return Recovery(
            seconds=seconds,
            first_sequence=self.log.first_sequence,
            next_sequence=self.log.next_sequence,
            matched_up_to=self.state.matched_up_to,
            cut_bytes=self.log.cut_bytes,
            damaged=self.log.damage.places,
            damaged_rows=self.state.damaged,
            lost_changes=self.state.lost_changes,
        )

    def retain(self, *, max_age: float | None = None, max_bytes: int | None = None) -> Retention:
        """Remove old segments that are matched, and their pending events."""
        matched = self.state.matched_up_to
        stop = self.log.first_to_stay(max_age=max_age, max_bytes=max_bytes, keep_from=matched + 1)
        if stop <= self.log.first_sequence:
            return Retention(range(self._kept_below, self._kept_below), self._drop_kept())
        try:
            # Otherwise what retention removes would look like lost files.
            self._removed.write_synced(stop)
        except OSError as error:
            if error.errno in FULL:
                # Some file systems need space even for that, and this is what makes room.
                return self._remove(stop)
            raise refusal(self._removed.path, "noting what is removed", error) from error
        return self._remove(stop)

    def _remove(self, stop: int) -> Retention:
        # Once the log removes events, only the state knows the numbers of their publishers, and
        # must survive a power failure.
        self.state.make_lasting()
        removed = self.log.remove_below(stop)
        if removed:
            self._kept_below = removed.stop
        return Retention(removed, self._drop_kept())

    def _drop_kept(self) -> dict[int, int]:
        """Drop the pending events that the log no longer has, unless that was done before."""
        if self._kept_below <= 1:
            return {}
        dropped = self.state.drop_pending_below(self._kept_below)
        self._kept_below = 0
        return dropped

    def close(self) -> None:
        """Release the folder; nothing is lost otherwise."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
