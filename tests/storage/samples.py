"""Logs and states to try things on, and what they must hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from tamis.ports import SystemClock, SystemFiles
from tamis.storage import EventLog, EventOrigin, NewRecord, Record, StoredSubscription

PUBLISHERS = ("", "p", "Ünï", "a publisher with a longer name")


def new_records(rng: Random, count: int, largest: int = 60) -> list[NewRecord]:
    return [
        NewRecord(
            rng.choice(PUBLISHERS),
            rng.choice((0, 1, rng.randrange(1 << 63))),
            rng.randrange(128),
            rng.randbytes(rng.randrange(largest)),
            new_origin(rng) if rng.random() < 0.3 else None,
        )
        for _ in range(count)
    ]


def new_origin(rng: Random) -> EventOrigin:
    broker, hop = rng.randbytes(16).hex(), rng.randbytes(16).hex()
    return EventOrigin(broker, rng.randrange(1 << 63), rng.random() * 1e9, hop)


def everything(log: EventLog, limit: int = 7) -> list[Record]:
    """Read a log from its beginning, a few records at a time."""
    found: list[Record] = []
    at = 0
    while some := log.read(at, limit):
        found += some
        at = some[-1].sequence + 1
    return found


def appended(log: EventLog, groups: Sequence[Sequence[NewRecord]]) -> list[list[Record]]:
    """Append groups, and return them as they must be read again."""
    return [log.read(log.append(group)[0], len(group)) for group in groups]


def one_file(folder: Path) -> Path:
    (path,) = folder.glob("*.log")
    return path


def subscription(
    name: str = "laptop-7", owner: str = "bob", **fields: object
) -> StoredSubscription:
    chosen: dict[str, object] = {
        "filter": "price < 5",
        "language": "tamis",
        "mode": "sql",
        "created_at": 1.5,
        "start": 1,
        "overflow": "wait",
        "durable": True,
        "max_attempts": 5,
    }
    return StoredSubscription(owner=owner, name=name, **chosen | fields)  # type: ignore[arg-type]


def frozen(time: float) -> Callable[[], float]:
    return lambda: time


class FrozenClock(SystemClock):
    def time(self) -> float:
        return 1000.0


def quick_folder() -> Path | None:
    """Return where thousands of small files need no disk, if there is such a place."""
    memory = Path("/dev/shm")  # noqa: S108
    return memory if os.access(memory, os.W_OK) else None


class UnsyncedFiles(SystemFiles):
    """Files without syncs: most tests are not about them, and would wait for them."""

    def sync(self, file: int) -> None:  # type: ignore[override]
        """Do nothing."""

    sync_data = sync  # type: ignore[assignment]


UNSYNCED = UnsyncedFiles()
