"""How long it takes to create very many durable subscriptions over the network.

Workload A, with the client: a thousand in each request, and one in each frame with many frames in
flight. The two take turns, each time on a new broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from benchmarks import harness
from benchmarks.broker import many
from benchmarks.broker.servers import Server, tamis
from benchmarks.harness import DisagreementError, Row, step
from benchmarks.reporting import Sheet, rates

MOST_SECONDS: Final = 10.0
"""For 100,000 subscriptions."""
ASKED_COUNT: Final = 100_000
FRAMES_SHARE: Final = 200
"""One in this many is created with a frame of its own: each takes a sync, on one connection."""

FIRST_COUNT: Final = 100
SETTLING_SECONDS: Final = 30.0


class Turn(NamedTuple):
    """What some subscriptions took, each."""

    seconds: float
    cpu_seconds: float
    """Of the broker; other load hardly changes them."""
    memory: float
    """In bytes, of the broker."""


class InstallResult(NamedTuple):
    """The turns of each way."""

    together: list[Turn]
    alone: list[Turn]

    @property
    def rows(self) -> list[Row]:
        """Return the rates."""
        first, second = (
            _row("1,000 in a request", self.together),
            _row("one in a frame", self.alone),
        )
        return [first, second._replace(ratio=second.rate / first.rate)]


def measured(folder: Path, count: int) -> InstallResult:
    """Create subscriptions in both ways, in turns."""
    found = InstallResult([], [])
    with step(f"created {count:,} subscriptions in both ways") as show:
        for turn in range(harness.REPEATS):
            show(f"turn {turn + 1} of {harness.REPEATS}")
            found.together.append(_turn(folder, count, many.install))
            few = max(1, count // FRAMES_SHARE)
            found.alone.append(_turn(folder, few, many.install_by_frames))
    return found


def _turn(folder: Path, count: int, install: Callable[[Server, int], float]) -> Turn:
    with TemporaryDirectory(dir=folder) as data, tamis(Path(data)) as server:
        # The first ones load what the others use, such as the kernels that compile them.
        install(server, FIRST_COUNT)
        _await_settled(server)
        _clear(server)
        cpu, memory = server.cpu_seconds(), server.resident()
        seconds = install(server, count)
        there = server.status()["subscriptions"]
        if there != count:
            raise DisagreementError(f"{there:,} subscriptions are there, not {count:,}")
        return Turn(
            seconds / count,
            (server.cpu_seconds() - cpu) / count,
            (server.resident() - memory) / count,
        )


def _await_settled(server: Server) -> None:
    """Wait until the memory of a broker does not change for a while: it loads things meanwhile."""
    before, until = -1, time.monotonic() + SETTLING_SECONDS
    while (now := server.resident()) != before and time.monotonic() < until:
        before = now
        time.sleep(1.0)


def _clear(server: Server) -> None:
    with server.connected() as bus:
        for one in bus.subscriptions():
            bus.delete(one.id)


def _row(name: str, turns: list[Turn]) -> Row:
    found = [1 / turn.seconds for turn in turns]
    return Row("", name, median(found), min(found), max(found), 1.0)


def sheets(found: InstallResult) -> list[Sheet]:
    """Return the rates, what each subscription costs, and the requirement."""
    ways = zip(found.rows, found, strict=True)
    costs = [
        (
            row.name,
            f"{1e6 * median(turn.cpu_seconds for turn in turns):.0f}",
            f"{median(turn.memory for turn in turns):,.0f}",
        )
        for row, turns in ways
    ]
    seconds = ASKED_COUNT / found.rows[0].rate
    return [
        rates("subscriptions", found.rows),
        Sheet(("", "µs of CPU of the broker, each", "bytes of memory, each"), costs),
        Sheet(
            ("required", "found", "asked"),
            [(f"{ASKED_COUNT:,} subscriptions", f"{seconds:.1f} s", f"≤ {MOST_SECONDS:.0f} s")],
        ),
    ]
