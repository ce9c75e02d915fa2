"""Killed streams into Delta and Iceberg tables: nothing is lost, and nothing is there twice.

Each format has an environment with the newest Spark that it supports. A file is a batch, so the
rows of a file must be exactly what the oracle says of its events with one version of the library.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark.environments import TIMEOUT_SECONDS, environment
from spark.jars import fetch_jars
from spark.killing import workers_of
from spark.lake.program import VERSIONS, WAYS, subscriptions
from spark.streams import add_file, wait_until
from tamis.languages import parse
from waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it kills groups of processes"),
]
TESTS = Path(__file__).parents[2]
POM = Path(__file__).with_name("pom.xml")
RELEASES = {"delta": "4.2", "iceberg": "4.1"}
DRIVER_KILLS = 6
WORKER_KILLS = 4
FILES = 36
EVENTS = 300


class Lake:
    """A library, events, tables and checkpoints below one folder, and programs that use them."""

    def __init__(self, folder: Path, format_: str, python: str, jars: list[Path]) -> None:
        self.folder, self.format, self._python = folder, format_, python
        self._jars = ",".join(map(str, jars))
        self._log = folder / "log"
        # Of the classes that a rehearsal loads; a planted bug makes no others.
        self._archive = folder.with_name("classes.jsa")
        folder.mkdir()

    def command(self, step: str, *more: str) -> list[str]:
        program = [self._python, "-m", "spark.lake.program", step, str(self.folder)]
        return [*program, self.format, str(self._archive), self._jars, *more]

    def run(self, step: str, *more: str) -> None:
        with self._log.open("ab") as log:
            subprocess.run(  # noqa: S603
                self.command(step, *more),
                cwd=TESTS,
                stdout=log,
                stderr=log,
                timeout=TIMEOUT_SECONDS,
                check=True,
            )

    def publish(self, way: str, version: int) -> None:
        """Publish a version that is compiled already; by a rename, as publishing is."""
        name, versions = f"{version:08}", self.folder / f"{way}-library" / "versions"
        shutil.copytree(self.folder / "staged" / "versions" / name, versions / f".{name}")
        (versions / f".{name}").rename(versions / name)

    def committed(self, way: str) -> int:
        """Return how many batches Spark has noted as done."""
        return len(list((self.folder / f"{way}-checkpoint" / "commits").glob("[0-9]*")))

    def begun(self, way: str) -> int:
        return len(list((self.folder / f"{way}-checkpoint" / "offsets").glob("[0-9]*")))

    def table_commits(self, way: str) -> int:
        if self.format == "delta":
            return len(list((self.folder / way / "_delta_log").glob("*.json")))
        # A commit is the rename of the metadata, and the first of them made the table.
        metadata = self.folder / "warehouse" / self.folder.name / way / "metadata"
        return max(0, len(list(metadata.glob("v*.metadata.json"))) - 1)

    def is_at(self, way: str, moment: str, batch: int) -> bool:
        if self.begun(way) <= batch or self.committed(way) >= self.begun(way):
            return False
        return moment == "begun" or self.table_commits(way) >= self.begun(way)

    def start(self, way: str, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                self.command(way, *more), cwd=TESTS, stdout=log, stderr=log, start_new_session=True
            )

    def kill_workers(self, way: str, kills: int) -> None:
        """Run a stream to its end, and kill Python workers on the way."""
        driver = self.start(way)
        killed = 0
        while killed < kills and driver.poll() is None:
            batch = self.committed(way)
            eventually(
                lambda at=batch: driver.poll() is not None or self.is_at(way, "begun", at),  # type: ignore[misc]
                self._tail,
                timeout=600,
            )
            victims = workers_of(driver.pid, busy=True)
            for worker in victims[:1]:
                os.kill(worker, signal.SIGKILL)
                killed += 1
                eventually(
                    lambda at=batch: driver.poll() is not None or self.committed(way) > at,  # type: ignore[misc]
                    self._tail,
                    timeout=600,
                )
        assert driver.wait(TIMEOUT_SECONDS) == 0, self._tail()
        assert killed == kills

    def kill_once(self, way: str, rng: Random, *more: str, moment: str = "") -> str:
        """Kill a stream in the middle of a batch; return the moment."""
        moment = moment or rng.choice(("begun", "written"))
        target = self.committed(way) + rng.randrange(2)
        driver = self.start(way, *more)
        try:
            # Looking often: the table and Spark note a batch within a few milliseconds.
            wait_until(
                lambda: driver.poll() is not None or self.is_at(way, moment, target),
                TIMEOUT_SECONDS,
            )
            assert driver.poll() is None, f"the stream ended before its kill: {self._tail()}"
            if moment == "begun":
                time.sleep(rng.uniform(0, 1.5))  # somewhere in the batch
        finally:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        return moment

    def _tail(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def found(self) -> dict[str, list[dict[str, Any]]]:
        self.run("read")
        data: dict[str, list[dict[str, Any]]] = json.loads((self.folder / "found.json").read_text())
        return data


def write_events(folder: Path, rng: Random, files: int) -> dict[str, list[dict[str, Any]]]:
    written = {}
    for number in range(files):
        name = f"{number:04}.json"
        events = [
            {
                "n": number * EVENTS + at,
                "file": name,
                "price": round(rng.uniform(0, 100), 2),
                "symbol": rng.choice(("ACME", "BOLT")),
            }
            for at in range(EVENTS)
        ]
        add_file(folder, name, events)
        written[name] = events
    return written


Pairs = Counter[tuple[int, str]]


def by_the_oracle(events: list[dict[str, Any]], version: int) -> Pairs:
    filters = [(sub.id, parse(sub.filter)) for sub in subscriptions(version)]
    return Counter((e["n"], id_) for e in events for id_, filter_ in filters if filter_.matches(e))


def compare(
    rows: list[dict[str, Any]], written: dict[str, list[dict[str, Any]]]
) -> tuple[Counter[str], set[int]]:
    """Return how many pairs are lost and how many are too many, and the versions of the files."""
    by_file: dict[str, Pairs] = defaultdict(Counter)
    for row in rows:
        by_file[row["file"]][row["n"], row["subscription"]] += 1
    difference: Counter[str] = Counter()
    versions = set()
    for name, events in written.items():
        wanted = {version: by_the_oracle(events, version) for version in range(1, VERSIONS + 1)}
        found = by_file.pop(name, Counter())
        nearest = min(
            wanted, key=lambda v: (wanted[v] - found).total() + (found - wanted[v]).total()
        )
        versions.add(nearest)
        difference["lost"] += (wanted[nearest] - found).total()
        difference["too many"] += (found - wanted[nearest]).total()
    difference["unknown"] = len(by_file)
    return +difference, versions


@pytest.fixture(scope="module", params=list(RELEASES))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    format_ = request.param
    home = tmp_path_factory.mktemp(format_)
    python = environment(home / "environment", RELEASES[format_])
    folder = home / "lake"
    return Lake(folder, format_, python, fetch_jars(POM, format_, home))


def test_killed_streams_lose_nothing_and_write_nothing_twice(made: Lake) -> None:
    rng = Random(17)
    made.run("compile")
    written = write_events(made.folder / "events", rng, FILES)
    moments: Counter[str] = Counter()
    for way in WAYS:
        made.publish(way, 1)
    for way in ("plain", "sink"):
        for number in range(DRIVER_KILLS):
            moments[made.kill_once(way, rng)] += 1
            if number % 2:
                made.publish(way, 2 + number // 2)
        made.kill_workers(way, WORKER_KILLS)
    made.run("batch")
    found = made.found()
    for way in WAYS:
        difference, versions = compare(found[way], written)
        kills = 0 if way == "batch" else DRIVER_KILLS + WORKER_KILLS
        print(
            f"\n{made.format}, {way}: {kills} kills, {len(found[way]):,} pairs of "
            f"{FILES * EVENTS:,} events by versions {sorted(versions)}: {dict(difference)}"
        )
        assert not difference
        is_pinned = way == "batch" or (way, made.format) == ("plain", "iceberg")
        assert is_pinned == (len(versions) == 1)
    print(dict(moments))
    for row in found["sink"]:
        subs = {sub.id: parse(sub.filter) for sub in subscriptions(row["version"])}
        assert subs[row["subscription"]].matches(written[row["file"]][row["n"] % EVENTS])


def test_the_comparison_sees_a_sink_that_forgets(made: Lake) -> None:
    """Plant a bug: a sink that takes itself for new after every start."""
    rng = Random(4)
    other = made.folder.with_name("planted")
    planted = Lake(other, made.format, made._python, [Path(p) for p in made._jars.split(",")])
    shutil.copytree(made.folder / "staged", other / "staged")
    for way in WAYS:
        planted.publish(way, 1)
    written = write_events(other / "events", rng, 6)
    for _ in range(5):
        # Killed after the table has the batch, and before Spark knows.
        planted.kill_once("sink", rng, "forgets", moment="written")
        if planted.committed("sink") < planted.table_commits("sink"):
            break
    planted.run("sink", "forgets")
    planted.run("plain")
    planted.run("batch")
    difference, _ = compare(planted.found()["sink"], written)
    print(f"\n{made.format}, planted: {dict(difference)}")
    assert difference["too many"] > EVENTS // 4
