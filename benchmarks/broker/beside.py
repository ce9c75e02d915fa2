"""From a publisher over the network to a subscriber that wants one event in a hundred.

Tamis filters in the broker. The others bring everything to the subscriber, which filters for itself
with the same filter in the same language. Rates are of all events, wanted or not; the time of an
event runs from the moment it was due until the subscriber has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

import tamis
from benchmarks import harness
from benchmarks.broker.servers import MissingError, package
from benchmarks.broker.systems import EARLIER, NOW, SYSTEMS, Client, System
from benchmarks.broker.workers import Worker, worker
from benchmarks.harness import Contender, DisagreementError, Latency, Row, measure, step
from benchmarks.reporting import Sheet, latencies, rates
from tamis.languages import parse
from tamis.workloads import Workload

WANTED: Final = "f0 < 10"
"""True of one event in a hundred: the field has a thousand values."""
# An asyncio timer may be this late, which is not the broker's fault.
TIMER_SECONDS: Final = 0.002
RECEIVE_SECONDS: Final = 300.0

T = TypeVar("T")


class BesideResult(NamedTuple):
    """The results."""

    rows: list[Row]
    paced: list[PacedTurns]
    notes: list[str]

    @property
    def latencies(self) -> list[Latency]:
        """Return the times at each pace, those of all turns together."""
        return [Latency(one.name, [*chain(*one.turns)]) for one in self.paced]


class PacedTurns(NamedTuple):
    """The times of wanted events through one system at one pace, turn by turn."""

    system: str
    pace: int
    turns: list[list[float]]

    @property
    def name(self) -> str:
        """Return the name of the row."""
        return f"{self.pace:,} events/s: {self.system}"

    def quantile(self, part: float) -> float:
        """Return a quantile of all turns together."""
        return float(np.quantile([*chain(*self.turns)], part))

    def medians(self) -> list[float]:
        """Return the median of each turn."""
        return [float(np.median(times)) for times in self.turns]


# --- in other processes ----------------------------------------------------------------------


class Connected:
    """A client in its own thread, which stays alive between calls."""

    def __init__(self, system: System, port: int) -> None:
        if system.checkout is not None:
            require_checkout(system.checkout)
        self.system = system
        self._loop = asyncio.new_event_loop()
        Thread(target=self._loop.run_forever, daemon=True).start()
        self._stack = AsyncExitStack()
        self.client: Client = self.run(self._stack.enter_async_context(self.system.connect(port)))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's thread and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Close the connection."""
        self.run(self._stack.aclose())


class Publisher(Connected):
    """Publishes as fast as it can, or at a given rate."""

    def __init__(self, system: System, port: int) -> None:
        super().__init__(system, port)
        self._events: list[dict[str, Any]] = []
        self._texts: list[bytes] = []

    def prepare(self, count: int) -> int:
        """Draw events; return how many of them are wanted."""
        self._events = drawn(count)
        self._texts = [msgspec.json.encode(event | {"sent": 0.0}) for event in self._events]
        wanted = parse(WANTED)
        return sum(wanted.matches(event) for event in self._events)

    def publish_all(self) -> None:
        """Publish all events as fast as possible."""
        self.run(self.client.publish_all(self._texts))

    def publish_paced(self, rate: int) -> None:
        """Publish each event at its time, however long the broker takes."""
        self.run(self._publish_paced(rate))

    async def _publish_paced(self, rate: int) -> None:
        start = monotonic() + 0.1
        for number, event in enumerate(self._events):
            due = start + number / rate
            while (now := monotonic()) < due:
                await asyncio.sleep(due - now)
            sent = now if now - due < TIMER_SECONDS else due
            await self.client.publish(msgspec.json.encode(event | {"sent": sent}))
        await self.client.flush()


class Subscriber(Connected):
    """Receives the wanted events, or all events and filters them itself."""

    def __init__(self, system: System, port: int) -> None:
        super().__init__(system, port)
        self._last = -1
        self._times: list[float] = []
        self._done = asyncio.Event()
        self._wanted = parse(WANTED)
        take = self._take if self.system.filters else self._look_at
        self.run(self.client.subscribe(WANTED, take))

    def expect(self, count: int) -> None:
        """Start collecting a number of events, the last of which matches."""
        self._times, self._last, self._done = [], count - 1, asyncio.Event()

    def received(self) -> list[float]:
        """Wait for the last event; return how long each wanted one took."""
        return self.run(self._received())

    async def _received(self) -> list[float]:
        async with asyncio.timeout(RECEIVE_SECONDS):
            await self._done.wait()
        return self._times

    def _look_at(self, text: bytes) -> None:
        event = msgspec.json.decode(text)
        if self._wanted.matches(event):
            self._note(event)

    def _take(self, text: bytes) -> None:
        self._note(msgspec.json.decode(text))

    def _note(self, event: dict[str, Any]) -> None:
        self._times.append(monotonic() - event["sent"])
        if event["n"] == self._last:
            # Some clients call from their own thread.
            self._loop.call_soon_threadsafe(self._done.set)


def require_checkout(checkout: Path) -> None:
    """Refuse to measure Tamis of another checkout than this one."""
    found = Path(tamis.__file__)
    if not found.is_relative_to(checkout):
        raise DisagreementError(f"{found} would be measured, not {checkout}")


def drawn(count: int) -> list[dict[str, Any]]:
    """Return events; the last one is wanted, so its arrival marks the end."""
    events = Workload.load("be-a").events(0, count, 2).to_pylist()
    events[-1]["f0"] = 0
    return [{"n": number, **event} for number, event in enumerate(events)]


# --- measuring -----------------------------------------------------------------------------------


class Pair(NamedTuple):
    """A publisher and a subscriber of one broker."""

    system: System
    publisher: Worker
    subscriber: Worker

    def pids(self) -> dict[str, int]:
        """Return the process ids of both."""
        return {"publisher": self.publisher.pid, "subscriber": self.subscriber.pid}

    def run(self, method: str, count: int, wanted: int, *arguments: int) -> list[float]:
        """Send events through the broker; return the times of the wanted ones."""
        self.subscriber.call("expect", count)
        self.publisher.call(method, *arguments)
        times: list[float] = self.subscriber.call("received")
        if len(times) != wanted:
            raise DisagreementError(
                f"{self.system.name} brought {len(times):,} events that were wanted, not {wanted:,}"
            )
        return times


@contextmanager
def connected(system: System, port: int) -> Iterator[Pair]:
    """Start a publisher and a subscriber, each in a process with the client of the system."""
    with ExitStack() as stack:
        subscriber, publisher = (
            stack.enter_context(worker(make, system, port, checkout=system.checkout))
            for make in (Subscriber, Publisher)
        )
        yield Pair(system, publisher, subscriber)


def measured(
    folder: Path,
    count: int,
    paces: Sequence[int],
    seconds: int,
    systems: Sequence[System] = SYSTEMS,
) -> BesideResult:
    """Measure all systems in turns, those that are installed."""
    with ExitStack() as stack:
        pairs, notes = _pairs(stack, folder, systems)
        wanted = [pair.publisher.call("prepare", count) for pair in pairs]
        rows = measure(
            [
                Contender(pair.system.name, partial(pair.run, "publish_all", count, due), count)
                for pair, due in zip(pairs, wanted, strict=True)
            ],
            harness.REPEATS,
        )
        found = [one for pace in paces for one in _paced(pairs, pace, seconds)]
        for pair in pairs:
            pair.publisher.call("close")
            pair.subscriber.call("close")
    return BesideResult(rows, found, notes)


def _pairs(
    stack: ExitStack, folder: Path, systems: Sequence[System]
) -> tuple[list[Pair], list[str]]:
    """Start all brokers and their clients; report those that are not installed."""
    pairs, notes = [], []
    for number, system in enumerate(systems):
        try:
            if system.needs is not None:
                package(*system.needs)
            server = stack.enter_context(system.serve(folder / str(number)))
        except MissingError as error:
            notes.append(f"{system.name} is left out: {error}.")
            continue
        pairs.append(stack.enter_context(connected(system, server.port)))
        notes.append(f"{system.name}: {system.promise}.")
    return pairs, notes


def _paced(pairs: Sequence[Pair], pace: int, seconds: int) -> list[PacedTurns]:
    """Publish at a given rate, for some seconds in each turn."""
    count = pace * seconds
    found = [PacedTurns(pair.system.name, pace, []) for pair in pairs]
    with step(f"measured {pace:,} events/s") as show:
        wanted = [pair.publisher.call("prepare", count) for pair in pairs]
        # Brokers do some things only once they have been quick for a while.
        for pair, due in zip(pairs, wanted, strict=True):
            pair.run("publish_paced", count, due, pace)
        for turn in range(harness.REPEATS):
            show(f"turn {turn + 1} of {harness.REPEATS}")
            order = [(turn + offset) % len(pairs) for offset in range(len(pairs))]
            # To and fro, so that nobody always runs after the same other one.
            for number in order if turn % 2 == 0 else reversed(order):
                times = pairs[number].run("publish_paced", count, wanted[number], pace)
                found[number].turns.append(times)
    return found


def sheets(found: BesideResult) -> list[Sheet]:
    """Return the rates and the times, and what has become of those of an earlier checkout."""
    tables = [rates("events", found.rows), latencies(found.latencies)]
    return [*tables, since(found)] if EARLIER in {row.name for row in found.rows} else tables


def since(found: BesideResult) -> Sheet:
    """Return what Tamis does now as multiples of what the earlier checkout does."""
    rate = {row.name: row.rate for row in found.rows}
    lines = [("events/s, more is better", f"{rate[NOW] / rate[EARLIER]:.2f}", "")]
    times = {(one.pace, one.system): one for one in found.paced}
    for pace in dict.fromkeys(one.pace for one in found.paced):
        now, earlier = times[pace, NOW], times[pace, EARLIER]
        ratio = now.quantile(0.5) / earlier.quantile(0.5)
        turns = np.divide(now.medians(), earlier.medians())
        spread = f"{turns.min():.2f} to {turns.max():.2f}"
        label = f"{pace:,} events/s: time"
        lines.append((f"{label}, median, less is better", f"{ratio:.2f}", spread))
        # A turn has too few wanted events for a ratio of its own.
        high = now.quantile(0.99) / earlier.quantile(0.99)
        lines.append((f"{label}, 99 of 100, less is better", f"{high:.2f}", ""))
    return Sheet(("Tamis now / earlier checkout", "ratio", "of single turns"), lines)
