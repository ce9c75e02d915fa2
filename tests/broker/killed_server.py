"""`tamis serve` that loses its power at a named point: `python killed_server.py POINT TURNS …`.

The process cuts its log back to what was synced, as a disk without power would have it, and kills
itself, when it comes to the point for so manieth time. With the point `never` it is a plain server,
with `lying sync` one whose syncs do nothing until its power goes: the planted mistake. It does not
match either, as an event that was sent before the power went would not be missed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from tamis.broker.publish.event_cache import EventCache
from tamis.cli import main
from tamis.ports import SystemFiles, Writer
from tamis.storage import EventLog, StateStore, Storage

# It is a script, beside which there are no packages of tests.
sys.path.insert(0, str(Path(__file__).parents[1]))
from storage.writers import ThreadedWriter

POINTS = (
    "before the write",
    "in the sync",
    "after the sync",
    "before the match",
    "before matches are kept",
    "after matches are kept",
    "before settling",
    "after settling",
    "before a subscription",
    "after a subscription",
)
LYING = "lying sync"
DEATHS = "deaths"
"""The file, in the server's folder, in which it writes where its power went."""


class Power(SystemFiles):
    """Goes when a point is come to for the last of its turns."""

    def __init__(self, point: str, turns: int) -> None:
        self._point = point
        self._turns = turns
        self._written: dict[str, int] = {}
        """How far each log was written; files are longer, so that they need not grow."""
        self._synced: dict[str, int] = {}
        self._going = Lock()

    def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:  # type: ignore[override]
        written = os.pwrite(file, data, offset)
        path = os.readlink(f"/proc/self/fd/{file}")
        if path.endswith(".log"):
            self._written[path] = offset + written
        return written

    def sync(self, file: int) -> None:  # type: ignore[override]
        path = os.readlink(f"/proc/self/fd/{file}")
        if self._point == LYING and path.endswith(".log"):
            self._synced.setdefault(path, self._end(path))
            self.come_to(LYING)
            return
        self.come_to("in the sync")
        os.fsync(file)
        # A sync that ends while the power goes has not ended: nobody may hear of it.
        with self._going:
            if path.endswith(".log"):
                self._synced[path] = self._end(path)
        self.come_to("after the sync")

    sync_data = sync  # type: ignore[assignment]

    def writer(self) -> Writer:
        return ThreadedWriter(self, monotonic)

    def _end(self, path: str) -> int:
        # It was closed properly, if nothing was written since: then nothing follows the events.
        return self._written.get(path, Path(path).stat().st_size)

    def come_to(self, point: str) -> None:
        if point != self._point:
            return
        self._turns -= 1
        if self._turns <= 0:
            self._go()

    def _go(self) -> None:
        with self._going:
            with Path(DEATHS).open("a", encoding="utf-8") as deaths:
                deaths.write(f"{self._point}\n")
            for path, size in self._synced.items():
                if Path(path).exists():
                    os.truncate(path, min(size, Path(path).stat().st_size))
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: type, name: str, before: str, after: str = "") -> None:
        """Come to points before and after a method."""
        method: Callable[..., Any] = getattr(owner, name)

        @wraps(method)
        def wrapped(*given: Any, **named: Any) -> Any:
            self.come_to(before)
            result = method(*given, **named)
            self.come_to(after)
            return result

        setattr(owner, name, wrapped)


async def _leave_for_later(cache: EventCache, events: object, found: object = None) -> None:
    """Do nothing: what is in the log is matched after the next start."""


def run(point: str, turns: int) -> None:
    power = Power(point, turns)
    # Each append begins with it, wherever it is written.
    power.around(EventLog, "begin", "before the write")
    if point == LYING:
        EventCache.put = _leave_for_later  # type: ignore[assignment, method-assign]
    power.around(EventCache, "put", "before the match")
    power.around(StateStore, "commit_matches", "before matches are kept", "after matches are kept")
    power.around(StateStore, "settle", "before settling", "after settling")
    power.around(StateStore, "add_subscriptions", "before a subscription", "after a subscription")
    opened = Storage.open
    Storage.open = lambda *given, **named: opened(*given, **{**named, "files": power})  # type: ignore[method-assign]
    main()


if __name__ == "__main__":
    point, turns = sys.argv[1], int(sys.argv[2])
    sys.argv = ["tamis", "serve", *sys.argv[3:]]
    run(point, turns)
