"""A tenth of the subscribers stops reading; the others should not notice.

Every event is for one room: nine of its subscribers always read, and one may stall. Turns in which
all read and turns with a stall alternate. When a stall begins, the stalled subscribers are flooded
until the kernel's buffers and the broker's are full. The broker is configured not to disconnect
them, so that the stall lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.broker.fleet import FLOOD, NOBODY, Account, Fleet, Publisher
from benchmarks.broker.servers import Server, tamis
from benchmarks.broker.workers import Worker, worker
from benchmarks.harness import DisagreementError, Latency, step
from benchmarks.reporting import Sheet, latencies

FLOODED: Final = 2_000
"""Events of one flood: more than the broker's buffer for a subscriber, 1,000, and the kernel's."""
FLOODS: Final = 5
"""Floods in a row, at the end, to see whether memory grows with them."""
FILLING: Final = 50_000
"""Events that match nothing, at the beginning, to fill the broker's event cache of 64 MB."""
SAMPLE_SECONDS: Final = 0.25
SETTLE_SECONDS: Final = 2.0
WAIT_SECONDS: Final = 60.0
MOST_RATIO: Final = 1.3
CALM: Final = "all read"
STALLED: Final = "a tenth stalled"
LONGER: Final = "stalled and flooded"
MEGABYTE: Final = 1e6


class Sample(NamedTuple):
    """The memory of the broker at one time."""

    seconds: float
    resident: int
    phase: str


class Turn(NamedTuple):
    """The results of one turn."""

    phase: str
    times: Sequence[float]
    busy: float
    """How much of one core the broker used."""

    def quantile(self, part: float) -> float:
        """Return a quantile of the latencies."""
        return float(np.quantile(self.times, part))


class StalledResult(NamedTuple):
    """The results."""

    turns: list[Turn]
    memory: list[Sample]

    def of(self, phase: str) -> list[Turn]:
        """Return the turns of one phase."""
        return [turn for turn in self.turns if turn.phase == phase]

    def p99(self, phase: str) -> float:
        """Return the median over the turns of the 99th percentile."""
        return median(turn.quantile(0.99) for turn in self.of(phase))

    def ratios(self) -> list[float]:
        """Return the ratio of the 99th percentile with a stall to that of the turn before it."""
        pairs = zip(self.of(STALLED), self.of(CALM), strict=True)
        return [stalled.quantile(0.99) / calm.quantile(0.99) for stalled, calm in pairs]

    def most(self, phase: str) -> float:
        """Return the peak memory of the broker in the turns of one phase, in bytes."""
        return max(sample.resident for sample in self.memory if sample.phase == phase)


class Memory:
    """Samples the memory of a broker periodically."""

    def __init__(self, server: Server) -> None:
        self.samples: list[Sample] = []
        self.phase = ""
        self._server = server
        self._start = monotonic()
        self._over = Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take samples in a thread."""
        thread = Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            now = monotonic() - self._start
            self.samples.append(Sample(now, self._server.resident(), self.phase))


class Setup:
    """A broker, its subscribers and its publisher."""

    def __init__(
        self, server: Server, fleet: Worker, publisher: Worker, *, rooms: int, steady: int
    ) -> None:
        self.server = server
        self.fleet = fleet
        self.publisher = publisher
        self.rooms = rooms
        self.steady = steady
        """Subscribers in each room that never stall."""
        self.memory = Memory(server)
        self.due = 0
        """Events for each stalled subscriber since it stalled."""

    def turn(self, phase: str, rate: int, seconds: int) -> Turn:
        """Publish at a steady rate for a while."""
        # The same number to each room, so that all can be accounted for.
        count = -(-rate * seconds // self.rooms) * self.rooms
        self.fleet.begin("take", count * self.steady)
        start, used = monotonic(), self.server.cpu_seconds()
        self.publisher.call("pace", rate, count)
        times: list[float] = self.fleet.result()
        busy = (self.server.cpu_seconds() - used) / (monotonic() - start)
        self.due += count // self.rooms
        return Turn(phase, times, busy)

    @contextmanager
    def stalled(self, phase: str) -> Iterator[None]:
        """Make some stop reading for a while, and check that they receive everything afterwards."""
        self.memory.phase = phase
        self.fleet.call("stall")
        self.due = 0
        self.flood(FLOOD)
        yield
        self.memory.phase = ""
        for account in self.fleet.call("resume"):
            check(account, self.due)

    def flood(self, room: int, count: int = FLOODED) -> None:
        """Publish more than any buffer holds."""
        self.publisher.call("flood", room, count)
        self.due += count if room == FLOOD else 0
        self.settle()

    def settle(self) -> None:
        """Wait until the broker has processed everything, and a moment longer."""
        until = monotonic() + WAIT_SECONDS
        while monotonic() < until and not is_idle(self.server.status()):
            sleep(SAMPLE_SECONDS)
        sleep(SETTLE_SECONDS)


def is_idle(status: dict[str, Any]) -> bool:
    """Return whether everything stored is matched and nothing is queued."""
    log = status["log"]
    return not any(status["queues"].values()) and log["matched_up_to"] == log["next"] - 1


def check(account: Account, due: int) -> None:
    """Refuse the figures of a broker that loses events silently, and of a stall without effect."""
    overflow, received, dropped, was_ended = account
    summary = (
        f"overflow {overflow!r}: {received:,} of {due:,} events came, {dropped:,} were dropped"
    )
    is_whole = received + dropped == due
    is_fine = {
        "wait": is_whole and not dropped,
        "drop": is_whole and dropped > 0,
        "disconnect": was_ended,
    }
    if not is_fine[overflow]:
        raise DisagreementError(summary)


def measured(folder: Path, subscribers: int, rooms: int, rate: int, seconds: int) -> StalledResult:
    """Measure calm and stalled turns, then flood for longer."""
    settings = {
        "connections_per_principal": subscribers + 10,
        "send_timeout": 3600,
        "ping_interval": 3600,
    }
    with ExitStack() as stack:
        server = stack.enter_context(tamis(folder, **settings))
        with step(f"connected {subscribers:,} subscribers"):
            fleet = stack.enter_context(worker(Fleet, server.port, subscribers, rooms))
        publisher = stack.enter_context(worker(Publisher, server.port, rooms))
        steady = subscribers // rooms - 1
        setup = Setup(server, fleet, publisher, rooms=rooms, steady=steady)
        setup.flood(NOBODY, FILLING)
        setup.turn("", rate, 1)
        with setup.memory.watched():
            turns = _turns(setup, rate, seconds)
            _flood_for_longer(setup)
    return StalledResult(turns, setup.memory.samples)


def _turns(setup: Setup, rate: int, seconds: int) -> list[Turn]:
    turns = []
    with step(f"measured {rate:,} events/s, calm and stalled") as show:
        for number in range(harness.REPEATS):
            show(f"turn {number + 1} of {harness.REPEATS}")
            setup.memory.phase = CALM
            turns.append(setup.turn(CALM, rate, seconds))
            with setup.stalled(STALLED):
                turns.append(setup.turn(STALLED, rate, seconds))
    return turns


def _flood_for_longer(setup: Setup) -> None:
    with step(f"flooded {FLOODS} times"), setup.stalled(LONGER):
        for _ in range(FLOODS):
            setup.flood(FLOOD)


def sheets(found: StalledResult, subscribers: int, rooms: int) -> list[Sheet]:
    """Return latencies, memory and the requirements."""
    times = [
        Latency(phase, [time for turn in found.of(phase) for time in turn.times])
        for phase in (CALM, STALLED)
    ]
    ratios, what = found.ratios(), f"99 of 100, {rooms:,} of {subscribers:,} stalled / none"
    before = found.memory[0].resident
    return [
        latencies(times),
        Sheet(
            ("", "ms, 99 of 100, each turn", "their median", "of one core", "MB, most"),
            [
                ("before the first stall", "", "", "", f"{before / MEGABYTE:,.0f}"),
                *(_line(found, phase) for phase in (CALM, STALLED)),
                (LONGER, "", "", "", f"{found.most(LONGER) / MEGABYTE:,.0f}"),
            ],
        ),
        Sheet(
            ("required", "found", "asked"),
            [
                (
                    f"{what}, median of {len(ratios)} pairs of turns",
                    f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                    f"≤ {MOST_RATIO}",
                ),
                (
                    f"{what}, medians of all turns",
                    f"{found.p99(STALLED) / found.p99(CALM):.2f}",
                    f"≤ {MOST_RATIO}",
                ),
                (
                    f"memory, flooded {FLOODS} times more / with one flood",
                    f"{found.most(LONGER) / found.most(STALLED):.2f}",
                    "bounded",
                ),
            ],
        ),
    ]


def _line(found: StalledResult, phase: str) -> tuple[str, ...]:
    turns = found.of(phase)
    return (
        phase,
        ", ".join(f"{1e3 * turn.quantile(0.99):.1f}" for turn in turns),
        f"{1e3 * found.p99(phase):.1f}",
        f"{median(turn.busy for turn in turns):.0%}",
        f"{found.most(phase) / MEGABYTE:,.0f}",
    )
