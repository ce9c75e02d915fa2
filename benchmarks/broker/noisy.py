"""One client does everything it can at full speed; another should not notice.

Both have tokens of the same role, whose quotas are the defaults. Each abuse meets a broker of its
own, and turns without it and with it alternate. The broker and the other client go before
everything else on the machine, also before the abuser, as if they had machines of their own. Events
that were due while the machine itself stood still are left out, in both kinds of turns.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from itertools import count
from pathlib import Path
from select import select
from statistics import median
from typing import Final, NamedTuple

import msgspec
import numpy as np

from benchmarks.broker.abuse import ABUSES, Abuser
from benchmarks.broker.priorities import run_first
from benchmarks.broker.servers import Server, tamis
from benchmarks.broker.stalled import MEGABYTE, Memory
from benchmarks.broker.stalls import StallWatches, watched
from benchmarks.broker.wire import Wire
from benchmarks.broker.workers import Worker, worker
from benchmarks.harness import DisagreementError, Row, step
from benchmarks.reporting import Sheet
from tamis.protocol import Acknowledge, Credit, Deliver, Publish, Published, Subscribe, Subscribed

POLICY: Final = """
[roles.user]
see = true
publish = true
"""
CREDIT: Final = 1_000
ABUSED_SECONDS: Final = 1.0
"""How long an abuse lasts before its effect is measured."""
LATE_SECONDS: Final = 60.0
MOST_RATIO: Final = 2.0


class Neighbour:
    """Publishes events at a steady rate, receives them and acknowledges them."""

    def __init__(self, port: int, token: str) -> None:
        self._publisher = Wire(port, token=token)
        self._subscriber = Wire(port, token=token)
        wanted = Subscribe(
            ref=1, filter="neighbour >= 0", durable="n", credit=CREDIT, acknowledge="manual"
        )
        self._subscriber.send(wanted)
        self._subscriber.expect(Subscribed)
        self._sequence = count(1)

    def pace(self, rate: int, seconds: float) -> list[tuple[float, float]]:
        """Publish for some seconds; return when each event was due, and its latency from then."""
        total = round(rate * seconds)
        start, sent, stored = time.monotonic() + 0.05, 0, 0
        times: list[tuple[float, float]] = []
        while len(times) < total or stored < total:
            due = start + sent / rate
            if sent < total and time.monotonic() >= due:
                self._publish(due)
                sent += 1
                continue
            left = max(0.0, due - time.monotonic()) if sent < total else 1.0
            readable = select([self._publisher, self._subscriber], [], [], left)[0]
            if self._publisher in readable:
                answers = self._publisher.replies()
                stored += sum(isinstance(answer, Published) for answer in answers)
            if self._subscriber in readable:
                times += self._received()
            if time.monotonic() > start + seconds + LATE_SECONDS:
                raise DisagreementError(f"{len(times):,} of {total:,} events came")
        return times

    def _publish(self, due: float) -> None:
        text = msgspec.Raw(msgspec.json.encode({"neighbour": due, "text": "x" * 100}))
        number = next(self._sequence)
        self._publisher.send(Publish(ref=number, events=[text], publisher="n", sequence=number))

    def _received(self) -> list[tuple[float, float]]:
        times: list[tuple[float, float]] = []
        for reply in self._subscriber.replies():
            if isinstance(reply, Deliver):
                now = time.monotonic()
                sequences = [one.sequence for one in reply.events]
                dues = [msgspec.json.decode(one.data)["neighbour"] for one in reply.events]
                times += [(due, now - due) for due in dues]
                self._subscriber.send(Acknowledge(subscription="n", sequences=sequences))
                self._subscriber.send(Credit(subscription="n", events=len(sequences)))
        return times


class Turns(NamedTuple):
    """The latencies of one abuse's turns, and the peak memory of the broker."""

    name: str
    calm: list[list[float]]
    abused: list[list[float]]
    resident: int
    answers: dict[int, int]
    """How many requests of the abuser were answered with each status."""
    asked: int
    """How many events there were in all turns; of some the latency says nothing."""

    def quantiles(self, part: float) -> tuple[list[float], list[float]]:
        """Return a quantile of each turn, calm and abused."""
        calm, abused = ([float(np.quantile(t, part)) for t in turns] for turns in self[1:3])
        return calm, abused

    def ratio(self, part: float) -> float:
        """Return how many times as long it takes under the abuse, by the medians of turns."""
        calm, abused = self.quantiles(part)
        return median(abused) / median(calm)


class Pace(NamedTuple):
    """How fast the neighbour publishes, and for how long, in how many turns of each kind."""

    rate: int
    seconds: float
    turns: int


def measured(
    folder: Path, pace: Pace, names: Sequence[str] = (), *, is_equal: bool = False
) -> list[Turns]:
    """Measure each abuse on a broker of its own; perhaps with equal priorities."""
    return [
        _measure(folder / str(number), name, pace, is_equal=is_equal)
        for number, name in enumerate(names or ABUSES)
    ]


def _measure(folder: Path, name: str, pace: Pace, *, is_equal: bool) -> Turns:
    folder.mkdir(parents=True)
    policy = folder / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    tokens = {who: _token(folder / "data", who) for who in ("neighbour", "abuser")}
    with ExitStack() as stack, step(f"measured {name}") as show:
        # The clients do not answer pings between turns.
        server = stack.enter_context(tamis(folder, policy=policy, ping_interval=3600))
        neighbour = stack.enter_context(worker(Neighbour, server.port, tokens["neighbour"]))
        abuser = stack.enter_context(worker(Abuser, server.port, tokens["abuser"]))
        # The abuser has the usual priority: with a lower one it is interrupted while it holds locks
        # of sockets, and the broker waits for those.
        run_first(server.pid, neighbour.pid, *([abuser.pid] if is_equal else []))
        stalls = stack.enter_context(watched())
        memory = Memory(server)
        stack.enter_context(memory.watched())
        show("preparing")
        abuser.call("prepare", name)
        neighbour.call("pace", pace.rate, 1.0)
        turns = Turns(name, [], [], 0, {}, 2 * pace.turns * round(pace.rate * pace.seconds))
        for number in range(pace.turns):
            show(f"turn {number + 1} of {pace.turns}")
            times = neighbour.call("pace", pace.rate, pace.seconds)
            turns.calm.append(stalls.outside(times))
            turns.abused.append(_abused(neighbour, abuser, turns, pace, stalls))
            _settle(server, neighbour)
    if HTTPStatus.BAD_REQUEST in turns.answers:
        raise DisagreementError(
            f"{name}: requests of the abuser are not valid, so it abuses nothing"
        )
    return turns._replace(resident=max(sample.resident for sample in memory.samples))


def _abused(
    neighbour: Worker, abuser: Worker, turns: Turns, pace: Pace, stalls: StallWatches
) -> list[float]:
    abuser.call("begin", turns.name)
    try:
        neighbour.call("pace", pace.rate, ABUSED_SECONDS)
        times = neighbour.call("pace", pace.rate, pace.seconds)
    finally:
        turns.answers.update(abuser.call("end"))
    return stalls.outside(times)


def _settle(server: Server, neighbour: Worker) -> None:
    """Wait until the broker has finished what the abuser left behind."""
    before = server.cpu_seconds()
    for _ in range(20):
        time.sleep(0.5)
        now = server.cpu_seconds()
        if now - before < 0.1:
            break
        before = now
    neighbour.call("pace", 20, 0.5)


def _token(data: Path, principal: str) -> str:
    command = [sys.executable, "-m", "tamis.cli", "token", "create", principal]
    options = ["--role", "user", "--data", str(data), *([] if data.exists() else ["--new"])]
    done = subprocess.run([*command, *options], capture_output=True, check=True, text=True)  # noqa: S603
    return done.stdout.split()[-1]


def rows(found: Sequence[Turns]) -> list[Row]:
    """Return the ratio of the 99th percentiles of each abuse, with its spread over turns."""
    result = []
    for turns in found:
        calm, abused = turns.quantiles(0.99)
        each = [after / median(calm) for after in abused]
        result.append(Row("", turns.name, turns.ratio(0.99), min(each), max(each), 1.0))
    return result


def sheets(found: Sequence[Turns]) -> list[Sheet]:
    """Return the latencies of the neighbour, calm and abused, and the memory."""
    columns = (
        "abuse",
        "ms, half within: calm",
        "abused",
        "ms, 99 of 100 within: calm",
        "abused",
        "their ratio",
        f"≤ {MOST_RATIO:g}",
        "MB, most",
        "requests done",
        "refused",
        "left out",
    )
    return [Sheet(columns, [_line(turns) for turns in found])]


def _line(turns: Turns) -> tuple[str, ...]:
    middle = [f"{1e3 * median(each):.1f}" for each in turns.quantiles(0.5)]
    late = [f"{1e3 * median(each):.1f}" for each in turns.quantiles(0.99)]
    ratio = turns.ratio(0.99)
    verdict = "yes" if ratio <= MOST_RATIO else "no"
    memory = f"{turns.resident / MEGABYTE:,.0f}"
    done = sum(n for status, n in turns.answers.items() if 0 < status < HTTPStatus.BAD_REQUEST)
    refused = sum(turns.answers.values()) - done
    kept = sum(map(len, turns.calm + turns.abused))
    counts = f"{done:,}", f"{refused:,}", f"{1 - kept / turns.asked:.0%}"
    return (turns.name, *middle, *late, f"{ratio:.2f}", verdict, memory, *counts)
