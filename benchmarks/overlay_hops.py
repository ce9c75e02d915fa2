"""Events over hops: how many a second, and how late, through a line of real brokers.

    python -m benchmarks.overlay_hops [--quick]

Each broker is a process of its own on this machine, so with more hops they share the processors.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tamis
from tamis.client.consumer import Consumer

HOPS = (0, 1, 2, 4)
LISTENING = re.compile(r"listening on (\S+)")


@contextmanager
def broker(folder: Path, peer: str | None) -> Iterator[str]:
    """Run a broker that links to another; yield its address."""
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
        yield found[1]
    finally:
        process.terminate()
        process.wait()


async def measure(first: str, last: str, events: int) -> tuple[float, float, float]:
    """Return events per second, and the median and 99th percentile of single events' delays."""
    async with tamis.connect(first) as publisher, tamis.connect(last) as subscriber:
        consumer = await subscriber.subscribe("number >= 0")
        await reach(publisher, consumer)
        delays = []
        for _ in range(200):
            begun = time.perf_counter()
            await publisher.publish({"number": 1})
            await consumer.next(20)
            delays.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        sending = asyncio.create_task(
            publisher.publish_many([{"number": n, "text": "x" * 100} for n in range(events)])
        )
        for _ in range(events):
            await consumer.next(60)
        seconds = time.perf_counter() - begun
        await sending
    return events / seconds, statistics.median(delays), statistics.quantiles(delays, n=100)[-1]


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
    print("| hops | events/s | median delay | 99 % of delays below |")
    print("|---:|---:|---:|---:|")
    for hops in HOPS:
        rates, medians, tails = [], [], []
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            addresses: list[str] = []
            for place in range(hops + 1):
                peer = addresses[-1] if addresses else None
                addresses.append(stack.enter_context(broker(Path(folder, str(place)), peer)))
            for _ in range(repeats):
                rate, middle, tail = asyncio.run(measure(addresses[0], addresses[-1], events))
                rates.append(rate)
                medians.append(middle)
                tails.append(tail)
        spread = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})"
        delays = [f"{1000 * statistics.median(one):.1f} ms" for one in (medians, tails)]
        print(f"| {hops} | {spread} | {' | '.join(delays)} |")


if __name__ == "__main__":
    main()
