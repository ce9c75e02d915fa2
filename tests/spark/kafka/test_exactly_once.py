"""Kafka to Kafka with TLS and kills: who reads what is committed sees each match once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from broker.server import make_certificate
from spark.jars import fetch_jars
from spark.kafka.exactly_once import EVENTS, PARTITIONS, SUBS, event
from spark.kafka.server import POM, running_kafka
from spark.killing import workers_of
from tamis.errors import SchemaError, SparkError
from tamis.languages import parse
from tamis.spark import KafkaSink
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.runtime.records import record_folder
from waiting import eventually

TESTS = Path(__file__).parents[2]
TIMEOUT = 1_800
DRIVER_KILLS = 10
WORKER_KILLS = 10


class Killer:
    """Starts the stream again and again, and kills it while it sends."""

    def __init__(self, servers: str, folder: Path, jars: str) -> None:
        self._arguments = [servers, str(folder), jars]
        self._folder = folder
        self.log = folder / "driver.log"

    def start(self, step: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "spark.kafka.exactly_once", step, *self._arguments]
        with self.log.open("ab") as log:
            return subprocess.Popen(  # noqa: S603
                command, cwd=TESTS, stdout=log, stderr=log, start_new_session=True
            )

    def run(self, step: str) -> None:
        assert self.start(step).wait(TIMEOUT) == 0, self.tail()

    def tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def noted(self) -> int:
        return len(list((self._folder / "matches-checkpoint" / "commits").glob("[0-9]*")))

    def begun(self) -> int:
        return len(list((self._folder / "matches-checkpoint" / "offsets").glob("[0-9]*")))

    def sent_bytes(self) -> int:
        segments = (self._folder / "log").glob("matches-*/*.log")
        return sum(segment.stat().st_size for segment in segments)

    def wait_until_it_sends(self, driver: subprocess.Popen[bytes], after: int) -> None:
        """Wait for messages of a batch that Spark does not know to be done."""
        eventually(
            lambda: driver.poll() is not None or self.noted() >= after, self.tail, timeout=600
        )
        before = self.sent_bytes()
        eventually(
            lambda: driver.poll() is not None or self.sent_bytes() > before, self.tail, timeout=600
        )
        assert driver.poll() is None, self.tail()


def expected() -> Counter[tuple[int, int, str | None]]:
    """Return what the oracle says, and a row without subscription for each broken event."""
    filters = [(sub.id, parse(sub.filter)) for sub in SUBS]
    pairs: Counter[tuple[int, int, str | None]] = Counter()
    for n in range(EVENTS):
        place = (n % PARTITIONS, n // PARTITIONS)
        try:
            one = json.loads(event(n))
        except ValueError:
            pairs[*place, None] += 1
        else:
            pairs.update((*place, id_) for id_, filter_ in filters if filter_.matches(one))
    return pairs


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_a_reader_of_what_is_committed_sees_each_match_once(tmp_path: Path) -> None:
    rng = Random(17)
    certificate = make_certificate(tmp_path)
    jars = ",".join(map(str, fetch_jars(POM, "connector", tmp_path)))
    server = fetch_jars(POM, "server", tmp_path)
    with running_kafka(server, tmp_path, certificate) as servers:
        killer = Killer(servers, tmp_path, jars)
        killer.run("fill")
        for _ in range(DRIVER_KILLS):
            driver = killer.start("stream")
            killer.wait_until_it_sends(driver, killer.noted() + rng.randrange(2))
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
        driver = killer.start("stream")
        killed = 0
        while killed < WORKER_KILLS:
            killer.wait_until_it_sends(driver, killer.noted() + 1)
            for worker in workers_of(driver.pid)[:1]:
                os.kill(worker, signal.SIGKILL)
                killed += 1
        assert driver.wait(TIMEOUT) == 0, killer.tail()
        killer.run("read")
    found = json.loads((tmp_path / "found.json").read_text())
    seen = Counter(tuple(row) for row in found["read_committed"])
    wanted = expected()
    lost, twice = (wanted - seen).total(), (seen - wanted).total()
    aborted = len(found["read_uncommitted"]) - len(found["read_committed"])
    print(
        f"\n{DRIVER_KILLS} drivers and {killed} workers killed, {seen.total():,} matches and "
        f"rejected events: {lost} lost, {twice} twice; {aborted:,} messages were aborted"
    )
    assert (lost, twice) == (0, 0)
    assert aborted > 0, "no kill hit a transaction"


def test_a_server_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    sink = KafkaSink("127.0.0.1:9", "matches", timeout=0.2)
    with pytest.raises(SparkError, match=r"^results cannot be sent to the topic matches of Kafka"):
        sink.check(SinkOwner("stream", record_folder(tmp_path), has_begun=False))


@pytest.mark.parametrize(
    ("options", "publishers", "reason"),
    [
        ({"transactional.id": "mine"}, 2, "the option 'transactional.id' of Kafka belongs to the"),
        ({}, 0, "a sink needs a publisher, and not 0"),
    ],
)
def test_what_a_sink_refuses(options: dict[str, str], publishers: int, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        KafkaSink("127.0.0.1:9", "matches", publishers=publishers, options=options)
