"""Cases of `benchmarks.compare` with a broker in a process of its own."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import tamis
from benchmarks.compare.runs import Rows, Run, Timed, dicts, events, texts

SERVER_START_SECONDS = 60.0
MANY_SUBSCRIPTIONS = 20_000
SUBSCRIBED_TOGETHER = 200
STALL_SUBSCRIBERS = 20
PACE = 500
STALL_PACE = 100
FILTERING = "Tamis"
"""The name of the system that is measured beside others."""
BESIDE_EVENTS = 40_000
BESIDE_PACED = 2_000
PACED = 300
"""Events of a paced run."""


@contextmanager
def broker(inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Publish to a broker with many subscriptions, and receive and acknowledge every event."""
    found = dicts(events(inputs, "be-a"))[:2000]
    with ExitStack() as stack, asyncio.Runner() as runner:
        rows = {}
        for count in (1_000, MANY_SUBSCRIPTIONS):
            others = [f"{text} and f1 < 0" for text in texts(inputs, "be-a")[:count]]
            folder = scratch / str(count)
            folder.mkdir()
            bus = runner.run(tamis.connect(stack.enter_context(_served(folder))).open())
            stack.callback(lambda bus: runner.run(bus.close()), bus)
            wanted = runner.run(_subscribed(bus, others))
            name = f"{len(others):,} others: publish, match, deliver, acknowledge"
            rows[name] = Run(len(found), partial(_run_through, runner, bus, wanted, found))
            rows[f"{len(others):,} others: latency at {PACE} events a second"] = Run(
                PACED, partial(_run_paced, runner, bus, [wanted], found, PACE)
            )
        yield rows


@contextmanager
def beside(_inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Publish in one process and receive one event in a hundred in another, as others do it, too.

    `benchmarks.broker --beside` measures the same beside other brokers.
    """
    # Only here: a checkout that is too old for it has the other cases.
    from benchmarks.broker import servers  # noqa: PLC0415
    from benchmarks.broker.beside import connected  # noqa: PLC0415
    from benchmarks.broker.systems import by_name  # noqa: PLC0415

    with ExitStack() as stack:
        server = stack.enter_context(servers.tamis(scratch / "broker"))
        pair = stack.enter_context(connected(by_name(FILTERING), server.port))

        def run(method: str, count: int, *arguments: int) -> tuple[list[float], float]:
            wanted = pair.publisher.call("prepare", count)
            began = time.perf_counter()
            return pair.run(method, count, wanted, *arguments), time.perf_counter() - began

        def publish_all() -> Timed:
            times, seconds = run("publish_all", BESIDE_EVENTS)
            return Timed(len(times), seconds)

        def publish_paced() -> Timed:
            times, _ = run("publish_paced", BESIDE_PACED, PACE)
            return Timed(len(times), median(times) * BESIDE_PACED)

        yield {
            "one event in a hundred is wanted": Run(BESIDE_EVENTS, publish_all),
            f"1 / median latency of these at {PACE} events a second": Run(
                BESIDE_PACED, publish_paced
            ),
        }


@contextmanager
def stalled(inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Receive while all subscribers read, and while a tenth of them does not."""
    found = dicts(events(inputs, "be-a"))[:2000]
    with _served(scratch) as url, asyncio.Runner() as runner:
        bus = runner.run(tamis.connect(url).open())
        reading = runner.run(_subscribed_all(bus, "reads", STALL_SUBSCRIBERS))
        yield {
            "latency, all read": Run(
                PACED * len(reading), partial(_run_paced, runner, bus, reading, found, STALL_PACE)
            ),
            "latency, a tenth stalled": Run(
                PACED * len(reading), _StalledRun(runner, url, bus, reading, found, STALL_PACE)
            ),
        }
        runner.run(bus.close())


class _StalledRun:
    """A paced run beside subscribers that never read; they come with its first call."""

    def __init__(self, runner: asyncio.Runner, url: str, *rest: Any) -> None:
        self._runner, self._url, self._rest = runner, url, rest
        self._stalled: list[Any] = []

    def __call__(self) -> Timed:
        if not self._stalled:
            other = self._runner.run(tamis.connect(self._url).open())
            self._stalled = self._runner.run(
                _subscribed_all(other, "stalls", STALL_SUBSCRIBERS // 10)
            )
        return _run_paced(self._runner, *self._rest)


@contextmanager
def restart(inputs: Path, scratch: Path) -> Iterator[Rows]:
    """Start a broker that has subscriptions."""
    filters = texts(inputs, "be-a")
    with _served(scratch) as url, asyncio.Runner() as runner:
        bus = runner.run(tamis.connect(url).open())
        runner.run(_subscribed(bus, filters))
        runner.run(bus.close())

    def start(*, keeps_engine: bool) -> Timed:
        if not keeps_engine:
            shutil.rmtree(scratch / "data" / "engine")
        began = time.perf_counter()
        with _served(scratch):
            return Timed(len(filters), time.perf_counter() - began)

    yield {
        "with what was compiled before": Run(len(filters), partial(start, keeps_engine=True)),
        "all compiled anew": Run(len(filters), partial(start, keeps_engine=False)),
    }


def _run_through(runner: asyncio.Runner, *arguments: Any) -> int:
    return runner.run(_through(*arguments))


def _run_paced(runner: asyncio.Runner, *arguments: Any) -> Timed:
    return runner.run(_paced(*arguments))


async def _subscribed_all(bus: Any, name: str, count: int) -> list[Any]:
    """Make durable subscriptions that match every event."""
    return [await bus.subscribe("f0 >= 0", durable=f"{name}-{n}") for n in range(count)]


async def _paced(
    bus: Any, readers: Sequence[Any], found: Sequence[Mapping[str, object]], pace: int
) -> Timed:
    """Publish at a steady pace; return the sum of the times from publishing to each delivery."""
    sent: list[float] = []
    total = 0.0

    async def read(consumer: Any) -> None:
        nonlocal total
        received = 0
        async for _ in consumer:
            total += time.perf_counter() - sent[received]
            received += 1
            if received == PACED:
                return

    reading = [asyncio.ensure_future(read(consumer)) for consumer in readers]
    publishing = []
    began = time.perf_counter()
    for number, event in enumerate(islice(cycle(found), PACED)):
        await asyncio.sleep(began + number / pace - time.perf_counter())
        sent.append(time.perf_counter())
        publishing.append(asyncio.ensure_future(bus.publish(event)))
    await asyncio.gather(*publishing, *reading)
    return Timed(PACED * len(readers), total)


async def _subscribed(bus: Any, others: Sequence[str]) -> Any:
    """Make durable subscriptions that match nothing, and one that matches every event."""

    async def other(number: int, text: str) -> None:
        async with bus.subscribe(text, durable=f"other-{number}"):
            pass

    # Together: those that arrive together share a sync.
    for first in range(0, len(others), SUBSCRIBED_TOGETHER):
        some = enumerate(others[first : first + SUBSCRIBED_TOGETHER], first)
        await asyncio.gather(*(other(number, text) for number, text in some))
    return await bus.subscribe("f0 >= 0", durable="wanted")


async def _through(bus: Any, wanted: Any, found: Sequence[Mapping[str, object]]) -> int:
    publishing = asyncio.ensure_future(bus.publish_many(found))
    received = 0
    async for _ in wanted:
        received += 1
        if received == len(found):
            break
    await publishing
    return received


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    # The client answers no pings between two turns.
    settings = {
        "port": port,
        "data": folder / "data",
        "log_level": "warning",
        "ping_interval": 3600,
    }
    options = [f"--set={name}={value}" for name, value in settings.items()]
    command = [sys.executable, "-m", "tamis.cli", "serve", *options]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603
    try:
        _await_listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _await_listening(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + SERVER_START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the broker does not listen; see server.log")
