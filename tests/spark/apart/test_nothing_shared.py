"""A cluster whose machines share no folder, with nothing but a store between them.

A master, two workers and each driver have a mount namespace of their own (`machines.py`), and reach
the store over a wire that can fail (`proxy.py`). What they find is what the oracle says, or there
is one sentence; never is there a wrong match.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from spark.apart.machines import copies, on_a_machine, variables, why_not
from spark.apart.program import EVENTS, events, subscriptions
from spark.apart.proxy import WRONG_KEY, Wire, wire_to
from spark.cluster import Cluster, standalone
from spark.environments import TIMEOUT_SECONDS
from spark.jars import fetch_jars
from spark.killing import descendants
from spark.library.object_store import connected, object_store
from tamis.languages import parse
from waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="it takes namespaces of Linux"),
]
DRIVER_KILLS = 3
POM = Path(__file__).with_name("pom.xml")
Pairs = Counter[tuple[int, str]]


@cache
def expected() -> Pairs:
    filters = [(sub.id, parse(sub.filter)) for sub in subscriptions()]
    return Counter(
        (n, id_)
        for n, symbol, price in events()
        for id_, filter_ in filters
        if filter_.matches({"n": n, "symbol": symbol, "price": price})
    )


class Apart(NamedTuple):
    """The cluster, the wire to the store, and the store without the wire."""

    cluster: Cluster
    wire: Wire
    service: str
    jars: list[Path]
    filled: dict[str, Any]

    def start(self, step: str, key: str = "key") -> subprocess.Popen[str]:
        jars = ",".join(map(str, self.jars))
        program = [sys.executable, "-m", "spark.apart.program", step, self.cluster.master]
        return subprocess.Popen(  # noqa: S603
            on_a_machine([*program, self.wire.address, key, jars], [self.jars[0].parent]),
            env=variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def answer(self, driver: subprocess.Popen[str]) -> dict[str, Any]:
        output, errors = driver.communicate(timeout=TIMEOUT_SECONDS)
        assert driver.returncode == 0, output + errors
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found

    def run(self, step: str, key: str = "key") -> dict[str, Any]:
        return self.answer(self.start(step, key))

    def pairs(self, folder: str) -> Pairs:
        """Read the results, past Spark and the wire."""
        rows = pq.read_table(f"bucket/{folder}", filesystem=connected(self.service)).to_pylist()
        assert all(row["error"] is None for row in rows)
        return Counter((row["n"], row["subscription"]) for row in rows)


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    if reason := why_not():
        pytest.skip(f"there can be no namespaces here: {reason}")
    home = tmp_path_factory.mktemp("apart")
    jars = fetch_jars(POM, "s3a", home)
    with (
        object_store(home / "store") as service,
        wire_to(service) as wire,
        standalone(home / "cluster", 2, variables(), on_a_machine) as cluster,
    ):
        ready = Apart(cluster, wire, service, jars, {})
        ready.filled.update(ready.run("fill"))
        yield ready


def test_batches_find_what_the_oracle_says(apart: Apart) -> None:
    assert apart.filled["rejected"] == 1
    assert apart.run("match") == {}
    assert apart.pairs("pairs") == expected()
    print(f"\n{EVENTS:,} events, {expected().total():,} pairs, {apart.wire.fetches} fetches")
    # Each machine fetched what it needed by itself.
    assert all(len(copies(worker)) > 1 for worker in apart.cluster.workers)


def test_streams_find_it_too(apart: Apart) -> None:
    assert apart.run("plain") == {}
    assert apart.pairs("plain") == expected()


def test_killed_drivers_write_each_batch_once(apart: Apart) -> None:
    store = connected(apart.service)
    written = fs.FileSelector("bucket/sink", recursive=True, allow_not_found=True)
    for _ in range(DRIVER_KILLS):
        before = len(store.get_file_info(written))
        driver = apart.start("sink")
        # Somewhere in a batch: while it writes rows, or between them and the commit.
        eventually(
            lambda before=before: len(store.get_file_info(written)) > before + 2,  # type: ignore[misc]
            timeout=TIMEOUT_SECONDS,
        )
        for process in [*descendants(driver.pid)]:
            os.kill(process.id, signal.SIGKILL)
        driver.kill()
        driver.communicate()
    counts = apart.run("sink")
    assert apart.pairs("read") == expected()
    assert counts == {"events": EVENTS, "matches": expected().total()}


def forget(apart: Apart) -> None:
    """Remove what machines have fetched, as if they were new."""
    for worker in apart.cluster.workers:
        for copy in copies(worker):
            copy.unlink()


def fetching(apart: Apart) -> list[int]:
    """Return the processes that have a half copy open."""
    found = []
    for machine in apart.cluster.workers:
        for process in descendants(machine):
            files = Path(f"/proc/{process.id}/fd").glob("*")
            if any(file.is_symlink() and os.readlink(file).endswith(".part") for file in files):
                found.append(process.id)
    return found


def test_a_worker_killed_while_it_fetches_costs_nothing(apart: Apart) -> None:
    forget(apart)
    apart.wire.stall(1)
    driver = apart.start("match")
    assert apart.wire.is_stalled.wait(TIMEOUT_SECONDS)
    # The one that is stalled; on a busy machine, perhaps another that is not done yet, too.
    victims = fetching(apart)
    assert victims
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    apart.wire.release()
    assert apart.answer(driver) == {}
    assert apart.pairs("pairs") == expected()


def test_connections_cut_in_the_middle_of_a_fetch_cost_nothing(apart: Apart) -> None:
    forget(apart)
    apart.wire.cut(3)
    assert apart.run("match") == {}
    assert apart.pairs("pairs") == expected()


def test_a_copy_with_a_flipped_byte_is_fetched_again(apart: Apart) -> None:
    before = apart.wire.fetches
    for worker in apart.cluster.workers:
        for copy in copies(worker):
            data = bytearray(copy.read_bytes())
            data[len(data) // 2] ^= 1
            copy.write_bytes(data)
    assert apart.run("match") == {}
    assert apart.pairs("pairs") == expected()
    assert apart.wire.fetches > before


def test_wrong_credentials_are_one_sentence(apart: Apart) -> None:
    refused = apart.run("match", WRONG_KEY)["error"]
    assert "the store refuses the credentials" in refused
    assert "\n" not in refused


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_object_is_one_sentence(apart: Apart, damage: str) -> None:
    forget(apart)
    store = connected(apart.service)
    victim = f"bucket/library/{apart.filled['snapshot']}"
    whole = store.open_input_stream(victim).read()
    half = len(whole) // 2
    damaged = whole[:half] if damage == "truncated" else bytes([*whole[:half], whole[half] ^ 1])
    damaged += whole[half + 1 :] if damage == "flipped" else b""
    with store.open_output_stream(victim) as stream:
        stream.write(damaged)
    try:
        refused = apart.run("match")["error"]
    finally:
        with store.open_output_stream(victim) as stream:
            stream.write(whole)
    assert "the object is damaged" in refused
    assert "\n" not in refused
