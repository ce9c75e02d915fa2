"""Events over hops: how many a second, and how late, through a line of real brokers.

    python -m benchmarks.overlay_hops [--quick]

Each broker is a process of its own on this machine, so with more hops they share the processors.
What a hop costs is therefore told by the processor time of the brokers, which others on the machine
hardly change.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import tamis
from tamis.client.consumer import Consumer

HOPS = (0, 1, 2, 4)
LISTENING = re.compile(r"listening on (\S+)")


class LineBroker(NamedTuple):
    """A broker of a line."""

    address: str
    process: int

    def processor_seconds(self) -> float:
        """Return what its process has used, as Linux counts it."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Passage(NamedTuple):
    """What was measured of one line."""

    rate: float
    """Events per second."""
    middle: float
    """The median of single events' delays, in seconds."""
    tail: float
    """The 99th percentile."""
    work: float
    """Processor seconds of all brokers for each event of many."""


@contextmanager
def broker(folder: Path, peer: str | None) -> Iterator[LineBroker]:
    """Run a broker that links to another."""
    options = ["--port", "0", "--data", str(folder), "--accept-peers", "true"]
    options += [] if peer is None else ["--peer", peer]
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-m", "tamis.cli", "serve", *options, "--log-level", "error"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        found = LISTENING.search(line)
        if found is None:
            raise RuntimeError(f"the broker did not start: {line!r}")
        yield LineBroker(found[1], process.pid)
    finally:
        process.terminate()
        process.wait()


async def measure(line: list[LineBroker], events: int) -> Passage:
    """Send single events, then many, from one end of a line to the other."""
    first, last = line[0].address, line[-1].address
    async with tamis.connect(first) as publisher, tamis.connect(last) as subscriber:
        consumer = await subscriber.subscribe("number >= 0")
        await reach(publisher, consumer)
        delays = []
        for _ in range(200):
            begun = time.perf_counter()
            await publisher.publish({"number": 1})
            await consumer.next(20)
            delays.append(time.perf_counter() - begun)
        used = sum(one.processor_seconds() for one in line)
        begun = time.perf_counter()
        sending = asyncio.create_task(
            publisher.publish_many([{"number": n, "text": "x" * 100} for n in range(events)])
        )
        for _ in range(events):
            await consumer.next(60)
        seconds = time.perf_counter() - begun
        await sending
        used = sum(one.processor_seconds() for one in line) - used
    tail = statistics.quantiles(delays, n=100)[-1]
    return Passage(events / seconds, statistics.median(delays), tail, used / events)


async def reach(publisher: tamis.Bus, consumer: Consumer) -> None:
    """Publish until something arrives: then the filter is known everywhere; take what is left."""
    while True:
        await publisher.publish({"number": 0})
        try:
            await consumer.next(0.2)
        except TimeoutError:
            continue
        break
    while True:
        try:
            await consumer.next(1.0)
        except TimeoutError:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    events, repeats = (2_000, 1) if quick else (20_000, 5)
    print("| hops | events/s | median delay | 99 % of delays below | processor time per event |")
    print("|---:|---:|---:|---:|---:|")
    for hops in HOPS:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            line: list[LineBroker] = []
            for place in range(hops + 1):
                peer = line[-1].address if line else None
                line.append(stack.enter_context(broker(Path(folder, str(place)), peer)))
            found = [asyncio.run(measure(line, events)) for _ in range(repeats)]
        print(row(hops, found))


def row(hops: int, found: list[Passage]) -> str:
    """Return a line of the table: medians of all repeats."""
    rates = [one.rate for one in found]
    cells = (
        f"{hops}",
        f"{statistics.median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})",
        f"{1e3 * statistics.median(one.middle for one in found):.1f} ms",
        f"{1e3 * statistics.median(one.tail for one in found):.1f} ms",
        f"{1e6 * statistics.median(one.work for one in found):.0f} µs",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
