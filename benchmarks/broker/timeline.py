"""Where the time of an event goes, from its publisher to its subscriber, as the kernel sees it.

`python -m benchmarks.broker.timeline`, as root on Linux. Publisher, broker and subscriber are those
of `--beside`, at 500 events a second; the kernel traces the system calls of all three. Nothing is
measured inside a process, so nothing there becomes slower, and what a process does between two
calls counts as a whole. The last part, from the read to the application, cannot be seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.broker import servers
from benchmarks.broker.beside import connected
from benchmarks.broker.plots import QUARTILES, stages
from benchmarks.broker.systems import by_name
from benchmarks.harness import RESULTS, Latency, options, step
from benchmarks.reporting import Sheet, report

TITLE: Final = "One event, from its publisher to its subscriber"
SYSTEM: Final = "Tamis"
PACE: Final = 500
TRACING: Final = Path("/sys/kernel/tracing")
CALLS: Final = ("raw_syscalls/sys_enter", "raw_syscalls/sys_exit")
BUFFER_KILOBYTES: Final = 100_000
# System calls by their numbers on x86-64.
READ, WRITE, PWRITE, SEND, RECEIVE, SYNC, WAIT = 0, 1, 18, 44, 45, 75, 232
# Frames with an event are longer than answers and acknowledgements.
MIN_EVENT_BYTES: Final = 100
STAGES: Final = {
    "sent": "",
    "read": "network, and waking the broker",
    "writing": "broker: frame, event, rights, numbers; waking the thread that stores",
    "syncing": "broker: writing to the log",
    "synced": "disk",
    "delivered": "broker: back to the event loop, and to the subscriber's socket",
    "woken": "network, and waking the subscriber",
    "received": "subscriber: asyncio, up to the read",
}
"""Moments in the life of an event, in order, and what happens before each."""


class Call(NamedTuple):
    """The begin or the end of a system call."""

    time: float
    process: str
    number: int
    result: int | None
    """None at the begin."""


@contextmanager
def traced() -> Iterator[list[str]]:
    """Have the kernel trace some system calls; the list has the lines at the end."""
    lines: list[str] = []
    chosen = " || ".join(f"id == {one}" for one in (READ, WRITE, PWRITE, SEND, RECEIVE, SYNC, WAIT))
    _set("tracing_on", "0")
    _set("trace", "")
    _set("trace_clock", "mono")
    _set("buffer_size_kb", str(BUFFER_KILOBYTES))
    try:
        for call in CALLS:
            _set(f"events/{call}/filter", chosen)
            _set(f"events/{call}/enable", "1")
        _set("tracing_on", "1")
        yield lines
        _set("tracing_on", "0")
        lines += (TRACING / "trace").read_text(encoding="utf-8").splitlines()
    finally:
        for call in CALLS:
            _set(f"events/{call}/enable", "0")
            _set(f"events/{call}/filter", "0")
        _set("buffer_size_kb", "1")


def _set(name: str, value: str) -> None:
    (TRACING / name).write_text(value, encoding="utf-8")


def calls_of(lines: Sequence[str], processes: Mapping[int, str]) -> list[Call]:
    """Return the traced calls of some threads."""
    pattern = re.compile(
        r".*-(\d+)\s+\[\d+\] \S+\s+([\d.]+): sys_(?:enter|exit): NR (\d+)(?: = (-?\d+))?"
    )
    found = (pattern.match(line) for line in lines)
    return [
        Call(float(one[2]), processes[int(one[1])], int(one[3]), int(one[4]) if one[4] else None)
        for one in found
        if one is not None and int(one[1]) in processes
    ]


def threads_of(pids: Mapping[str, int]) -> dict[int, str]:
    """Return the processes of all threads."""
    return {
        int(thread.name): name
        for name, pid in pids.items()
        for thread in Path(f"/proc/{pid}/task").iterdir()
    }


def moments_of(calls: Sequence[Call]) -> list[dict[str, float]]:
    """Return the moments of each event that a subscriber received, found backwards from that."""
    found = []
    for place, call in enumerate(calls):
        is_event = (call.result or 0) > MIN_EVENT_BYTES
        if (call.process, call.number) == ("subscriber", RECEIVE) and is_event:
            moments = _moments_before(calls, place)
            if moments is not None:
                found.append(moments)
    return found


def _moments_before(calls: Sequence[Call], place: int) -> dict[str, float] | None:
    """Return the moments of an event; None if the trace does not have all of them."""
    moments = {"received": calls[place].time}
    wanted = {
        "woken": ("subscriber", WAIT, True),
        "delivered": ("broker", WRITE, False),
        "synced": ("broker", SYNC, True),
        "syncing": ("broker", SYNC, False),
        "writing": ("broker", PWRITE, False),
        "read": ("broker", READ, True),
        "sent": ("publisher", SEND, False),
    }
    for moment, (process, number, is_end) in wanted.items():
        # The broker also reads eight bytes when one of its threads has a result.
        least = MIN_EVENT_BYTES if moment == "read" else -1
        while place >= 0 and not (
            (calls[place].process, calls[place].number) == (process, number)
            and (calls[place].result is not None) == is_end
            and (calls[place].result or 0) >= (least if is_end else 0)
        ):
            place -= 1
        if place < 0:
            return None
        moments[moment] = calls[place].time
    return moments


def measured(folder: Path, events: int) -> list[Latency]:
    """Publish events, and return how long each stage took of those that were wanted."""
    with ExitStack() as stack:
        server = stack.enter_context(servers.tamis(folder))
        pair = stack.enter_context(connected(by_name(SYSTEM), server.port))

        def publish() -> list[float]:
            wanted: int = pair.publisher.call("prepare", events)
            return pair.run("publish_paced", events, wanted, PACE)

        pids = {"broker": server.pid, **pair.pids()}
        times, traced_times, found = list[float](), list[float](), list[dict[str, float]]()
        with step(f"published {events:,} events, traced and not") as show:
            publish()
            for turn in range(harness.REPEATS):
                show(f"turn {turn + 1} of {harness.REPEATS}")
                times += publish()
                with traced() as lines:
                    traced_times += publish()
                found += moments_of(calls_of(lines, threads_of(pids)))
    stages = [
        Latency(STAGES[end], [moments[end] - moments[begin] for moments in found])
        for begin, end in pairwise(STAGES)
    ]
    whole = Latency("from when it was due to the application", times)
    return [*stages, whole, Latency("the same, while the kernel traces", traced_times)]


def sheet(found: Sequence[Latency]) -> Sheet:
    """Return a line for each stage."""
    columns = ("", "µs, median", "the middle half", "mean")
    lines = []
    for name, times in found:
        low, middle, high = (1e6 * np.quantile(times, q) for q in QUARTILES)
        spread = f"{low:,.0f} to {high:,.0f}"
        lines.append((name, f"{middle:,.0f}", spread, f"{1e6 * np.mean(times):,.0f}"))
    return Sheet(columns, lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the timeline."""
    chosen = options(__doc__, arguments, events=1_500)
    if os.uname().machine != "x86_64" or not os.access(TRACING / "trace", os.W_OK):
        print(
            "The timeline is left out: it needs Linux on x86-64, root, and the kernel's tracing at "
            f"{TRACING} (mount -t tracefs nodev {TRACING})."
        )
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="tamis-timeline-", dir=RESULTS) as folder:
        found = measured(Path(folder), chosen.events)
    note = f"Medians of {len(found[0].times):,} events at {PACE} a second, of all turns."
    figure = stages(TITLE, found)
    report("broker-timeline", TITLE, [sheet(found)], figure, notes=[note], folder=chosen.out)


if __name__ == "__main__":
    main()
