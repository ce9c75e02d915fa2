"""Events in our own files or in an SQLite table: `python -m benchmarks.storage [--events 100000]`.

Both sync every group of events to disk before they continue: the log with one write and one sync,
SQLite in WAL mode with `synchronous = FULL`. As a bound, the same payloads are written and synced
as plain bytes, into a file that does not have to grow. Then all events are read in order, and the
older half is removed. Events have 300 bytes, plus what the log stores with them. SQLite writes
everything twice, to its WAL and then to its place, so the number of bytes written per byte of
payload is reported as well.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

import numpy as np

from benchmarks import harness
from benchmarks.harness import (
    Contender,
    DisagreementError,
    Latency,
    Row,
    agree,
    measure,
    options,
    step,
    timed,
)
from benchmarks.reporting import bars, file_name, latencies, rates, report
from tamis.ports import SYSTEM_FILES
from tamis.storage import EventLog, NewRecord, PublisherTail, Retry, StateStore, StoredSubscription

TITLE = "Events in own files or in SQLite"
PAYLOAD = 300
GROUPS = (1, 16, 256)
SYNCS = 200
BATCH = 1024
FILL = 100
# The log is removed segment by segment, so it needs several.
SEGMENTS = 16
OPERATIONS = 300
LARGE_FILE_BYTES = 1 << 30
"""It takes no space before it is written."""


class Sink(Protocol):
    """Something that stores events."""

    def append(self, events: Sequence[NewRecord]) -> object:
        """Write events to disk."""

    def close(self) -> None:
        """Close the files."""


class EventStore(Sink, Protocol):
    """Something that stores events and reads them back."""

    def payloads(self) -> Iterator[Sequence[bytes]]:
        """Read all payloads in order, some at a time."""

    def remove_below(self, sequence: int) -> int:
        """Remove as many events before a sequence as possible; return the number."""


class Log:
    """The log of the broker."""

    def __init__(self, folder: Path, segment_bytes: int = 64 << 20) -> None:
        self._log = EventLog(folder, segment_bytes=segment_bytes)

    def append(self, events: Sequence[NewRecord]) -> object:
        return self._log.append(events)

    def payloads(self) -> Iterator[Sequence[bytes]]:
        at = 1
        while found := self._log.read(at, BATCH):
            at = found[-1].sequence + 1
            yield [record.payload for record in found]

    def remove_below(self, sequence: int) -> int:
        return len(self._log.retain(max_bytes=0, keep_from=sequence))

    def close(self) -> None:
        self._log.close()


class Table:
    """A table with the same columns."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._database = sqlite3.connect(folder / "events.db", isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE events (sequence INTEGER PRIMARY KEY, time REAL, publisher TEXT, "
            "publisher_sequence INTEGER, format INTEGER, payload BLOB)"
        )

    def append(self, events: Sequence[NewRecord]) -> None:
        self._database.execute("BEGIN")
        rows = [event[:4] for event in events]
        self._database.executemany("INSERT INTO events VALUES (NULL, 1.0, ?, ?, ?, ?)", rows)
        self._database.execute("COMMIT")

    def payloads(self) -> Iterator[Sequence[bytes]]:
        question = "SELECT * FROM events WHERE sequence > ? ORDER BY sequence LIMIT ?"
        at = 0
        while found := self._database.execute(question, (at, BATCH)).fetchall():
            at = found[-1][0]
            yield [row[-1] for row in found]

    def remove_below(self, sequence: int) -> int:
        return self._database.execute("DELETE FROM events WHERE sequence < ?", (sequence,)).rowcount

    def close(self) -> None:
        self._database.close()


class Bytes:
    """A plain file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._file = os.open(folder / "bytes", os.O_WRONLY | os.O_CREAT)
        os.truncate(self._file, LARGE_FILE_BYTES)

    def append(self, events: Sequence[NewRecord]) -> None:
        os.write(self._file, b"".join([event.payload for event in events]))
        SYSTEM_FILES.sync_data(self._file)

    def close(self) -> None:
        os.close(self._file)


STORES: dict[str, Callable[[Path], EventStore]] = {"own files": Log, "SQLite": Table}


def new_events(number: int) -> list[NewRecord]:
    rng = Random(7)
    return [NewRecord("sensor-17", n, 0, rng.randbytes(PAYLOAD)) for n in range(1, number + 1)]


def filled(
    make: Callable[[Path], EventStore], folder: Path, events: Sequence[NewRecord]
) -> EventStore:
    store = make(folder)
    for first in range(0, len(events), FILL):
        store.append(events[first : first + FILL])
    return store


# --- measurements ------------------------------------------------------------------------


class Appended(NamedTuple):
    """How fast groups were appended, how long each took, and how much was written."""

    rows: list[Row]
    times: list[Latency]
    notes: list[str]


def appending(folder: Path, events: Sequence[NewRecord]) -> Appended:
    """Append groups of several sizes."""
    contenders, times, notes = [], [], []
    sinks: dict[str, Callable[[Path], Sink]] = {**STORES, "write and sync alone": Bytes}
    with ExitStack() as opened:
        for size in GROUPS:
            for name, make in sinks.items():
                sink = opened.enter_context(closing(make(folder / f"{name} {size}")))
                group = f"append {size} at a time"
                appender = Appender(sink, events[: size * SYNCS], size)
                contenders.append(Contender(name, appender.run, size * SYNCS, group))
                times.append(Latency(f"{group}: {name}", appender.times))
                if size == GROUPS[-1]:
                    notes.append(f"{name}: {appender.amplification():.1f} bytes written per byte.")
        rows = measure(contenders)
    return Appended(rows, times, notes)


class Appender:
    """Appends events in groups and records the time of each."""

    def __init__(self, sink: Sink, events: Sequence[NewRecord], size: int) -> None:
        self._groups = [
            partial(sink.append, events[first : first + size])
            for first in range(0, len(events), size)
        ]
        self._bytes = PAYLOAD * len(events)
        self.times: list[float] = []

    def run(self) -> None:
        """Append all of them."""
        self.times += timed(self._groups)

    def amplification(self) -> float:
        """Return how many bytes are written for each byte of payload."""
        before = _written()
        self.run()
        self.times.clear()
        return (_written() - before) / self._bytes


def _written() -> int:
    lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


def reading(folder: Path, events: Sequence[NewRecord]) -> list[Row]:
    """Read everything in order."""
    stores = {name: filled(make, folder / name, events) for name, make in STORES.items()}
    agree({name: _sums(store) for name, store in stores.items()})
    contenders = [
        Contender(name, partial(_read, store), len(events), f"read {len(events):,} in order")
        for name, store in stores.items()
    ]
    rows = measure(contenders)
    for store in stores.values():
        store.close()
    return rows


def _read(store: EventStore) -> int:
    return sum(len(found) for found in store.payloads())


def _sums(store: EventStore) -> np.ndarray:
    return np.array([sum(payload) for found in store.payloads() for payload in found], np.int64)


def removing(folder: Path, events: Sequence[NewRecord]) -> list[Row]:
    """Remove the older half, each time from a fresh copy."""
    half = len(events) // 2
    group = f"remove {half:,} of {len(events):,}"
    segment_bytes = PAYLOAD * len(events) // SEGMENTS
    makers = STORES | {"own files": partial(Log, segment_bytes=segment_bytes)}
    contenders = []
    with step(f"filled, to {group}"):
        for name, make in makers.items():
            copies = [
                filled(make, folder / f"{name} {turn}", events)
                for turn in range(harness.REPEATS + 1)
            ]
            contenders.append(Contender(name, partial(_remove, iter(copies), half), half, group))
    return measure(contenders)


def _remove(copies: Iterator[EventStore], half: int) -> None:
    with closing(next(copies)) as store:
        removed = store.remove_below(half + 1)
    # The log keeps the segment in which the other half begins.
    if removed < half * 0.8:
        raise DisagreementError(f"{removed:,} events were removed, not {half:,}")


class Operation(NamedTuple):
    name: str
    run: Callable[[int], object]


def state(folder: Path) -> list[Latency]:
    """Time the changes of the state that a broker waits for."""
    folder.mkdir()
    kept = StateStore(folder / "state.db")
    kept.add_subscriptions([_subscription(f"s{n}") for n in range(256)])
    pairs = [[(n % 256 + 1, 256 * turn + n) for n in range(1, 257)] for turn in range(OPERATIONS)]
    operations = [
        Operation("add a subscription", lambda n: kept.add_subscription(_subscription(f"n{n}"))),
        Operation(
            "256 matches",
            lambda n: kept.commit_matches(
                256 * (n + 1), pairs[n], {"sensor-17": PublisherTail(256 * (n + 1))}
            ),
        ),
        Operation("find 100 that are due", lambda n: kept.pending(n % 256 + 1, 0, 1.0, 100)),
        Operation("one retry", lambda n: kept.settle(retries=[Retry(*pairs[n][0], 1, 1.0)])),
        Operation("256 acknowledgements", lambda n: kept.settle(acknowledged=pairs[n])),
    ]
    found = [
        Latency(name, timed(partial(run, n) for n in range(OPERATIONS))) for name, run in operations
    ]
    kept.close()
    return found


def _subscription(name: str) -> StoredSubscription:
    return StoredSubscription(
        owner="bob",
        name=name,
        filter="price < 5",
        language="tamis",
        mode="sql",
        created_at=1.0,
        start=1,
        overflow="wait",
        durable=True,
        max_attempts=5,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, events=100_000)
    chosen.out.mkdir(parents=True, exist_ok=True)
    events = new_events(max(chosen.events, max(GROUPS) * SYNCS))
    some = events[: chosen.events]
    # Next to the results: the folder for temporary files may be in memory.
    with tempfile.TemporaryDirectory(prefix="storage-", dir=chosen.out) as name:
        places = (Path(name) / str(number) for number in count())
        rows, found, notes = appending(_made(next(places)), events)
        rows += reading(_made(next(places)), some)
        rows += removing(_made(next(places)), some)
        found += state(next(places))
    sheets = [rates("events", rows), latencies(found)]
    name = file_name("storage", [chosen.events])
    report(name, TITLE, sheets, bars(TITLE, "events", rows), notes=notes, folder=chosen.out)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main()
