"""The broker: `python -m benchmarks.broker [--many] [--beside] [--stalled] …`, or all parts.

Real processes on the loopback interface: the broker, publishers and subscribers. The parts: with
very many subscriptions (`--many`); beside other brokers (`--beside`, and with
`--earlier CHECKOUT` beside the Tamis of another checkout); with a tenth of the
subscribers stalled (`--stalled`); restarting with very many (`--restart`); creating very many
(`--install`); beside a client that abuses it (`--noisy`; `--abuses` are numbers from 1, and with
`--noisy-equal` the abuser has the priority of the broker). Other brokers need
`apt-get install mosquitto nats-server` and `pip install paho-mqtt nats-py`; those that are missing
are left out.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import harness
from benchmarks.broker import beside, install, many, noisy, restart, stalled, systems
from benchmarks.broker.abuse import ABUSES
from benchmarks.broker.plots import rates_and_times, times_and_memory
from benchmarks.broker.stalled import CALM, STALLED
from benchmarks.harness import options
from benchmarks.reporting import bars, file_name, report

MANY: Final = "The broker with one subscription and with very many"
BESIDE: Final = "From a publisher to a subscriber that wants one event in a hundred"
STALL: Final = "A tenth of the subscribers does not read"
RESTART: Final = "A broker that starts again"
INSTALL: Final = "Creating very many subscriptions"
NOISY: Final = "A neighbour that does everything it can"
ROOMS: Final = 10
"""One subscriber in this many stalls."""


def report_many(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write the rates with many subscriptions."""
    before = os.getloadavg()
    found = many.measured(folder, chosen.subscriptions, chosen.events)
    report(
        file_name("broker-many", (chosen.subscriptions,)),
        MANY,
        many.sheets(found),
        bars(MANY, "events", found.rows),
        notes=[load_since(before)],
        folder=chosen.out,
    )


def report_beside(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write the figures of all brokers."""
    before = os.getloadavg()
    earlier = [] if chosen.earlier is None else [systems.earlier(chosen.earlier.resolve())]
    contenders = [*systems.SYSTEMS[:1], *earlier, *systems.SYSTEMS[1:]]
    found = beside.measured(folder, chosen.events, chosen.paces, chosen.paced_seconds, contenders)
    report(
        "broker-beside",
        BESIDE,
        beside.sheets(found),
        rates_and_times(BESIDE, found.rows, found.latencies),
        notes=[*found.notes, load_since(before)],
        folder=chosen.out,
    )


def report_stalled(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write how a stall affects the other subscribers."""
    before = os.getloadavg()
    rooms = max(1, chosen.subscribers // ROOMS)
    found = stalled.measured(folder, chosen.subscribers, rooms, chosen.rate, chosen.stalled_seconds)
    times = {phase: [turn.times for turn in found.of(phase)] for phase in (CALM, STALLED)}
    report(
        file_name("broker-stalled", (chosen.subscribers,)),
        STALL,
        stalled.sheets(found, chosen.subscribers, rooms),
        times_and_memory(STALL, times, found.memory),
        notes=[load_since(before)],
        folder=chosen.out,
    )


def report_restart(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write how fast a broker restarts."""
    before = os.getloadavg()
    rows = restart.measured(folder, chosen.subscriptions)
    report(
        file_name("broker-restart", (chosen.subscriptions,)),
        RESTART,
        restart.sheets(rows),
        bars(RESTART, "starts", rows),
        notes=[load_since(before)],
        folder=chosen.out,
    )


def report_install(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write how fast subscriptions are created."""
    before = os.getloadavg()
    found = install.measured(folder, chosen.subscriptions)
    report(
        file_name("broker-install", (chosen.subscriptions,)),
        INSTALL,
        install.sheets(found),
        bars(INSTALL, "subscriptions", found.rows),
        notes=[load_since(before)],
        folder=chosen.out,
    )


def report_noisy(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write how an abusive client affects another."""
    before = os.getloadavg()
    pace = noisy.Pace(chosen.noisy_rate, chosen.noisy_seconds, chosen.noisy_turns)
    names = [[*ABUSES][number - 1] for number in chosen.abuses]
    found = noisy.measured(folder, pace, names, is_equal=chosen.noisy_equal)
    figure = bars(NOISY, "", noisy.rows(found))
    figure.axes[0].set_xlabel("99th percentile of another client, abused / calm")
    report(
        "broker-noisy",
        NOISY,
        noisy.sheets(found),
        figure,
        notes=[load_since(before)],
        folder=chosen.out,
    )


def load_since(before: tuple[float, float, float]) -> str:
    """Return a sentence about the load of the machine before and after."""
    start, end = before[0], os.getloadavg()[0]
    return f"Load of the {os.cpu_count()} cores: {start:.1f} before, {end:.1f} at the end."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with all data in a temporary folder."""
    chosen = options(
        __doc__,
        arguments,
        many=False,
        beside=False,
        stalled=False,
        restart=False,
        install=False,
        noisy=False,
        subscriptions=100_000,
        events=50_000,
        paces=(500, 2_000),
        paced_seconds=8,
        subscribers=1_000,
        rate=50,
        stalled_seconds=20,
        noisy_rate=200,
        noisy_seconds=4,
        noisy_turns=harness.REPEATS,
        noisy_equal=False,
        abuses=(*range(1, len(ABUSES) + 1),),
        earlier=None,
    )
    parts = {
        "many": report_many,
        "beside": report_beside,
        "stalled": report_stalled,
        "restart": report_restart,
        "install": report_install,
        "noisy": report_noisy,
    }
    wanted = [name for name in parts if getattr(chosen, name)] or [*parts]
    for name in wanted:
        with TemporaryDirectory(prefix=f"tamis-{name}-") as folder:
            parts[name](chosen, Path(folder))


if __name__ == "__main__":
    main()
