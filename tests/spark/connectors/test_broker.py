"""Streams from and to a Tamis broker: a real one, in a process of its own."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import tamis
from broker.server import ServerProcess, make_token, running
from spark.contract import Answer, Sub, by_the_oracle, compiled
from spark.streams import TIMEOUT, Site, add_file
from spark.test_cli import facts, run
from tamis.errors import SparkError
from tamis.protocol.views import HistoryView
from tamis.spark import BrokerSink, read_batches, read_broker, stream, stream_files
from tamis.spark.connectors.broker_log import BrokerLog, BrokerOptions
from tamis.spark.connectors.broker_stream import POSITION
from tamis.spark.connectors.folder import FolderSink
from tamis.spark.connectors.sink import SinkOwner
from tamis.spark.runtime.failures import reason_of
from tamis.spark.runtime.records import record_folder
from tamis.spark.streaming.stream import sink_of
from tamis.storage import NewRecord, Storage

SUBS = [
    Sub("cheap", "price < 10"),
    Sub("acme", 'symbol = "ACME"'),
    Sub("dear", "price >= 90 or not (symbol = 'BOLT')"),
]


@pytest.fixture(scope="module")
def library(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library")
    compiled(spark, SUBS, path)
    return path


@pytest.fixture
def site(library: Path, tmp_path: Path) -> Site:
    return Site.with_library(tmp_path, library)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with running(tmp_path / "broker") as server:
        yield server


def publish(server: ServerProcess, events: list[dict[str, Any]]) -> int:
    with tamis.connect_sync(server.url) as bus:
        return bus.publish_many(events).first or 0


def run_stream(spark: SparkSession, url: str, site: Site, **options: Any) -> None:
    """Stream a broker's events to their end."""
    names = ("filter", "start", "maxEventsPerTrigger", "tasks", "failOnDataLoss", "token")
    given = {name: options.pop(name) for name in names if name in options}
    where = {"to": site.results, "checkpoint": site.checkpoint, "keep": POSITION, **options}
    events = read_broker(spark, url, **given)
    query = stream(events, site.library, json="value", once=True, **where)
    assert query.awaitTermination(TIMEOUT)


class CrashError(Exception):
    """The driver is gone."""


def crash(*_: object) -> None:
    raise CrashError


@pytest.mark.slow
def test_every_event_is_matched_exactly_once_despite_failures(
    spark: SparkSession, server: ServerProcess, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle agrees, though the driver is gone in the middle and the broker is killed."""
    dice = random.Random(4)
    events: dict[str, Any] = {}

    def send(number: int) -> None:
        drawn = [
            {"price": dice.randrange(100), "symbol": dice.choice(["ACME", "BOLT"]), "use": n % 2}
            for n in range(number)
        ]
        first = publish(server, drawn)
        events.update({str(first + n): one for n, one in enumerate(drawn) if one["use"]})

    send(400)
    options: dict[str, Any] = {
        "output": "pairs",
        "filter": "use = 1",
        "start": "earliest",
        "maxEventsPerTrigger": "250",
        "tasks": "2",
    }
    commit = FolderSink.commit
    with monkeypatch.context() as patch:
        patch.setattr(FolderSink, "commit", lambda *given: (crash if given[2] else commit)(*given))
        with pytest.raises(StreamingQueryException, match="CrashError"):
            run_stream(spark, server.url, site, **options)
    assert len(read_batches(site.results)) == 1
    server.settings["port"] = server.port
    server.kill()
    server.start()
    send(30)
    run_stream(spark, server.url, site, **options)

    rows = site.rows(spark, "sequence", "subscription", "outcome")
    assert len(rows) == len(set(rows))
    pairs = {(str(row[0]), row[1]) for row in rows if row[2] == "matched"}
    assert Answer(pairs, set()) == by_the_oracle(events, SUBS, None, "sql")
    assert [batch.events for batch in read_batches(site.results)] == [125, 75, 15]


def test_all_there_is_can_be_read_at_once(spark: SparkSession, server: ServerProcess) -> None:
    first = publish(server, [{"n": n} for n in range(2_300)])
    read = spark.read.format("tamis").option("url", server.url)
    rows = read.option("filter", "n >= 5").option("start", "earliest").option("tasks", "3").load()
    found = [(row.sequence, json.loads(row.value)["n"]) for row in rows.collect()]
    assert found == [(first + n, n) for n in range(5, 2_300)]
    some = read.option("start", str(first + 10)).option("end", str(first + 12)).load()
    assert [row.sequence for row in some.collect()] == [first + 10, first + 11]
    assert read.option("start", "latest").load().collect() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "localhost"}, "the option url is missing"),
        ({"tasks": "0"}, "the option tasks cannot be '0'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss cannot be 'maybe'"),
        ({"topic": "trades"}, "there is no option 'topic'"),
    ],
)
def test_a_wrong_option_is_an_error_with_its_name(options: dict[str, str], words: str) -> None:
    with pytest.raises(SparkError, match=words):
        BrokerOptions.parse({"url": "http://localhost:1", **options})


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (HistoryView([], 9, 9, damaged=2), "2 events before 9 are damaged on its disk"),
        (HistoryView([], 9, 9, invalid=3), "3 events before 9 no longer conform to its schema"),
    ],
)
def test_events_that_the_broker_cannot_search_are_data_loss(page: HistoryView, words: str) -> None:
    where = {"url": "http://localhost:1"}
    with patch.object(BrokerLog, "_read", return_value=page):
        with pytest.raises(SparkError, match=words):
            [*BrokerLog(BrokerOptions.parse(where)).pages(1, 9)]
        patient = BrokerOptions.parse({**where, "failOnDataLoss": "false"})
        assert [*BrokerLog(patient).pages(1, 9)] == []


def test_what_the_broker_refuses_is_said_by_spark(
    spark: SparkSession, server: ServerProcess
) -> None:
    with pytest.raises(SparkError, match="missing at the end"):
        read_broker(spark, server.url, "price <")
    with pytest.raises(PySparkException, match=r"start is .{0,2}tomorrow.{0,2}; it must be"):
        spark.read.format("tamis").options(url=server.url, start="tomorrow").load().collect()
    with pytest.raises(PySparkException, match="the option tasks cannot be '0'"):
        spark.read.format("tamis").options(url=server.url, tasks="0").load().collect()


def test_an_unreachable_broker_is_reported_at_once(spark: SparkSession) -> None:
    with pytest.raises(SparkError, match="cannot be reached"):
        read_broker(spark, "http://127.0.0.1:9", patience="0.1")
    owner = SinkOwner("a", record_folder("."), has_begun=False)
    with pytest.raises(SparkError, match="cannot be published at"):
        BrokerSink("http://127.0.0.1:9", patience="0.1").check(owner)


@pytest.mark.slow
def test_what_was_removed_before_it_was_read_fails_the_stream(
    spark: SparkSession, tmp_path: Path, site: Site
) -> None:
    folder = tmp_path / "broker"
    with running(folder) as server:
        publish(server, [{"price": 1}])
        run_stream(spark, server.url, site, start="earliest")
    with Storage.open(folder / "data", segment_bytes=500) as store:
        for _ in range(20):
            store.log.append([NewRecord("", 0, 1, b'{"price": 2}')] * 5)
        store.state.commit_matches(store.log.next_sequence - 1, (), {})
        first = store.retain(max_bytes=1).removed.stop
    assert 2 < first < 102
    with running(folder) as server:
        words = f"has removed the events 2 to {first - 1} before they were read"
        with pytest.raises(StreamingQueryException) as caught:
            run_stream(spark, server.url, site)
        assert words in reason_of(str(caught.value))
        run_stream(spark, server.url, site, failOnDataLoss="false")
    assert sorted(site.rows(spark, "sequence")) == [(1,), *((n,) for n in range(first, 102))]


def test_rights_are_those_of_the_token(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(
        "[roles.feed]\npublish = true\n"
        "[roles.reader]\nsee = { filter = 'level < 3', hide = ['level'] }\n"
    )
    feed = make_token(tmp_path, policy, "feed", "feed")
    reader = make_token(tmp_path, policy, "ann", "reader")
    with running(tmp_path, policy=policy) as server:
        with tamis.connect_sync(server.url, token=feed) as bus:
            bus.publish_many([{"a": 1, "level": 1}, {"a": 2, "level": 5}])
        given = {"url": server.url, "start": "earliest"}
        rows = spark.read.format("tamis").options(**given, token=reader).load().collect()
        assert [row.value for row in rows] == ['{"a":1}']
        with pytest.raises(PySparkException, match="a token is required"):
            spark.read.format("tamis").options(**given).load().collect()
        monkeypatch.setenv("TAMIS_TOKEN", feed)
        with pytest.raises(SparkError, match="see no events"):
            read_broker(spark, server.url)


def test_results_are_published_once_however_often_they_are_sent(
    spark: SparkSession, server: ServerProcess, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that is gone between sending and noting it sends all again."""
    lines = [json.dumps({"symbol": "ACME", "price": n % 20}) for n in range(300)]
    lines.append('{"price": ')
    add_file(site.events, "first.jsonl", lines)
    where: dict[str, Any] = {"format_": "json", "once": True}

    def start() -> Any:
        return stream_files(
            spark, site.library, site.events, to=server.url, checkpoint=site.checkpoint, **where
        )

    write = BrokerSink.write

    def write_and_crash(sink: BrokerSink, *given: Any) -> None:
        sink._publish(*given[:2])
        raise CrashError

    with monkeypatch.context() as patch:
        patch.setattr(BrokerSink, "write", write_and_crash)
        with pytest.raises(StreamingQueryException, match="CrashError"):
            assert start().awaitTermination(TIMEOUT)
    assert BrokerSink.write is write
    start().awaitTermination(TIMEOUT)
    add_file(site.events, "second.jsonl", [{"symbol": "BOLT", "price": 95}])
    start().awaitTermination(TIMEOUT)
    with tamis.connect_sync(server.url) as bus:
        got = [*bus.history("true")]
    starts = accumulate((len(line) + 1 for line in lines), initial=0)
    expected = {
        (start, json.dumps(_found(line))) for start, line in zip(starts, lines, strict=False)
    }
    seen = [(event["position"], json.dumps(event.get("subscriptions", []))) for event in got]
    assert seen[-1] == (0, '["dear"]')
    assert Counter(seen[:-1]) == Counter(expected)
    assert Counter(event["outcome"] for event in got) == {"matched": 301, "rejected": 1}


def _found(line: str) -> list[str]:
    if not line.endswith("}"):
        return []
    return ["acme", "cheap", "dear"] if json.loads(line)["price"] < 10 else ["acme", "dear"]


@pytest.mark.slow
def test_the_command_line_streams_from_broker_to_broker(
    server: ServerProcess, site: Site, tmp_path: Path
) -> None:
    publish(server, [{"symbol": "ACME", "price": n} for n in range(30)])
    with running(tmp_path / "other") as other:
        result = run(
            "stream",
            server.url,
            *("--library", site.library, "--to", other.url),
            *("--checkpoint", site.checkpoint, "--once", "--output", "counts"),
            *("--option", "start=earliest", "--option", "filter=price < 20"),
            *("--to-option", "publishers=2", "--events-per-batch", "25"),
        )
        assert result.exit_code == 0, result.output
        assert facts(result)["events"] == "20"
        with tamis.connect_sync(other.url) as bus:
            got = {event["sequence"]: event["matches"] for event in bus.history()}
    assert got == {n + 1: 3 if n < 10 else 2 for n in range(20)}


def test_an_address_of_a_broker_is_a_sink(server: ServerProcess) -> None:
    assert isinstance(sink_of(server.url), BrokerSink)
    assert "4 publishers" in sink_of(server.url).name
