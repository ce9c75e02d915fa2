"""Streams from and to Kafka without a Java package, against the brokers inside librdkafka."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from spark.brokers import Brokers
from spark.contract import Answer, Sub, by_the_oracle, compiled
from spark.streams import TIMEOUT, Site, assert_all_are_counted
from spark.test_spark_cli import facts, run
from tamis.errors import SparkError, StreamError
from tamis.spark import KafkaTopic, read_batches, read_kafka, stream
from tamis.spark.failures import reason_of
from tamis.spark.kafka import POSITION
from tamis.spark.sinks import Folder

SUBS = [
    Sub("cheap", "price < 10"),
    Sub("acme", 'symbol = "ACME"'),
    Sub("both", 'symbol = "ACME" and price < 10'),
    Sub("dear", "price >= 90 or not (symbol = 'BOLT')"),
]


@pytest.fixture(scope="module")
def library(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library")
    compiled(spark, SUBS, path)
    return path


@pytest.fixture
def site(library: Path, tmp_path: Path) -> Site:
    site = Site(tmp_path)
    shutil.copytree(library, site.library)
    return site


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    yield brokers
    brokers.close()


def run_stream(spark: SparkSession, brokers: Brokers, site: Site, **options: Any) -> None:
    """Stream a topic to its end."""
    names = ("startingOffsets", "maxOffsetsPerTrigger")
    given = {name: options.pop(name) for name in names if name in options}
    messages = read_kafka(spark, brokers.servers, "trades", **given)
    where = {"to": site.results, "checkpoint": site.checkpoint, "keep": POSITION, **options}
    query = stream(messages, site.library, json="value", once=True, **where)
    assert query.awaitTermination(TIMEOUT)


class CrashError(Exception):
    """The driver is gone."""


def crash(*_: object) -> None:
    raise CrashError


# --- every message once --------------------------------------------------------------------------


def test_all_messages_meet_all_subscriptions_once_whatever_happens(
    spark: SparkSession, brokers: Brokers, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle agrees, though a driver is gone in the middle and a partition is new after it."""
    dice = random.Random(4)
    brokers.add_topic("trades", 2)
    events = {}

    def send(partition: int, first: int, number: int) -> None:
        sent = [
            {"price": dice.randrange(100), "symbol": dice.choice(["ACME", "BOLT"])}
            for _ in range(number)
        ]
        brokers.send("trades", sent, partition)
        events.update({f"{partition}/{first + n}": event for n, event in enumerate(sent)})

    send(0, 0, 150)
    send(1, 0, 20)
    wish = {"output": "pairs", "maxOffsetsPerTrigger": "100", "startingOffsets": "earliest"}
    commit = Folder.commit
    with monkeypatch.context() as patch:
        patch.setattr(Folder, "commit", lambda *given: (crash if given[2] else commit)(*given))
        with pytest.raises(StreamingQueryException, match="CrashError"):
            run_stream(spark, brokers, site, **wish)
    assert len(read_batches(site.results)) == 1
    # A topic cannot grow here, so it is made anew with the same messages and one partition more.
    kept = [brokers.messages("trades", partition) for partition in range(2)]
    brokers.delete_topic("trades")
    brokers.add_topic("trades", 3)
    for partition, messages in enumerate(kept):
        brokers.send("trades", [message.value() for message in messages], partition)
    send(2, 0, 30)
    send(1, 20, 1)
    run_stream(spark, brokers, site, **wish)

    rows = site.rows(spark, "partition", "offset", "subscription", "outcome")
    assert len(rows) == len(set(rows))
    pairs = {(f"{row[0]}/{row[1]}", row[2]) for row in rows if row[3] == "matched"}
    assert Answer(pairs, set()) == by_the_oracle(events, SUBS, None, "sql")
    assert [batch.events for batch in read_batches(site.results)] == [100, 70, 31]


def test_a_stream_of_the_latest_begins_where_it_was_started(
    spark: SparkSession, brokers: Brokers, site: Site
) -> None:
    brokers.add_topic("trades")
    brokers.send("trades", [{"price": 1}])
    run_stream(spark, brokers, site)
    assert [batch.events for batch in read_batches(site.results)] == [0]
    brokers.send("trades", [{"price": 2}, '{"price": ', None, b"\xff"])
    run_stream(spark, brokers, site)
    assert site.rows(spark, *POSITION, "batch", "error") == [
        ("trades", 0, 1, 1, None),
        ("trades", 0, 2, 1, "line 1, column 11: this is not JSON: expecting value"),
        ("trades", 0, 3, 1, "there is no event: the text is null"),
        ("trades", 0, 4, 1, "line 1, column 1: the byte 0xff is not part of valid UTF-8"),
    ]
    assert_all_are_counted(spark, site, events=4)
    more = read_kafka(spark, brokers.servers, ["trades", "quotes"], failOnDataLoss="false")
    given: dict[str, Any] = {"to": site.results, "checkpoint": site.checkpoint, "keep": POSITION}
    with pytest.raises(StreamError, match=r"whose source is tamis_kafka\[subscribe trades\], and"):
        stream(more, site.library, json="value", **given)
    brokers.send("trades", 2 * [{"price": 3}])
    brokers.delete_before("trades", 0, 6)
    with pytest.raises(StreamingQueryException) as caught:
        run_stream(spark, brokers, site)
    assert reason_of(str(caught.value)) == (
        "events are lost: the offsets 5 to 5 of partition 0 of the topic trades are gone; to go "
        "on without them, set the option failOnDataLoss to false"
    )


def test_sparks_connector_is_taken_where_it_is_and_something_where_it_is_not(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its package cannot be had in tests, so that Spark misses it tells who was asked."""
    with monkeypatch.context() as patch:
        patch.setattr("tamis.spark.kafka.has_connector", lambda _: True)
        with pytest.raises(AnalysisException, match="Failed to find data source: kafka"):
            read_kafka(spark, "127.0.0.1:1", "trades")
    monkeypatch.setattr("tamis.spark.kafka_extra.find_spec", lambda _: None)
    with pytest.raises(
        SparkError, match=r"pip install 'tamis\[kafka\]'.*spark\.jars\.packages = org"
    ):
        read_kafka(spark, "127.0.0.1:1", ["trades", "quotes"])


# --- to Kafka ------------------------------------------------------------------------------------


def sent_to(brokers: Brokers, topic: str) -> list[dict[str, Any]]:
    return [json.loads(message.value() or b"") for message in brokers.messages(topic)]


def test_results_are_sent_at_least_once_with_keys_that_tell(
    spark: SparkSession, brokers: Brokers, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("trades", "matches", "rejected"):
        brokers.add_topic(topic)
    brokers.send("trades", [{"price": 5, "symbol": "ACME"}, {"price": 50, "symbol": "BOLT"}, "{"])
    told: list[int] = []
    to = KafkaTopic(brokers.servers, "matches", rejected="rejected")
    wish = {"startingOffsets": "earliest", "told": lambda batch: told.append(batch.events)}
    with monkeypatch.context() as patch:
        patch.setattr("tamis.spark.message_sink.write_record", crash)
        with pytest.raises(StreamingQueryException, match="CrashError"):
            run_stream(spark, brokers, site, to=to, **wish)
    assert not to.has(site.pins()[0])
    run_stream(spark, brokers, site, to=to, **wish)
    assert to.has(site.pins()[0])
    assert told == [3]

    place = {"topic": "trades", "partition": 0, "version": 1, "batch": 0}
    acme = {"subscriptions": ["acme", "both", "cheap", "dear"], "matches": 4}
    matched = {**place, "offset": 0, "outcome": "matched", **acme}
    unmatched = {**place, "offset": 1, "outcome": "unmatched", "subscriptions": [], "matches": 0}
    reason = "line 1, column 2: this is not JSON: expecting property name enclosed in double quotes"
    assert sent_to(brokers, "matches") == 2 * [matched, unmatched]
    assert sent_to(brokers, "rejected") == 2 * [
        {**place, "offset": 2, "outcome": "rejected", "error": reason}
    ]
    messages = brokers.messages("matches") + brokers.messages("rejected")
    values = {message.key(): message.value() for message in messages}
    assert Counter(message.key() for message in messages) == dict.fromkeys(values, 2)
    assert len(values) == len(set(values.values())) == 3


def test_a_topic_that_is_not_there_is_told_before_anything_is_sent(
    spark: SparkSession, brokers: Brokers, site: Site
) -> None:
    brokers.add_topic("trades")
    with pytest.raises(SparkError, match=r"Kafka at 127\.0\.0\.1:\d+ has no topic nowhere"):
        run_stream(spark, brokers, site, to=f"kafka://{brokers.servers}/nowhere")
    with pytest.raises(SparkError, match="has no topic nowhere"):
        read_kafka(spark, brokers.servers, "trades,nowhere")
    assert not site.checkpoint.exists()
    impatient = {"kafkaConsumer.pollTimeoutMs": "300"}
    with pytest.raises(SparkError, match=r"127\.0\.0\.1:1 does not answer: .* Connection refused"):
        read_kafka(spark, "127.0.0.1:1", "trades", **impatient)


# --- from the command line -----------------------------------------------------------------------


def test_a_stream_from_a_topic_to_a_topic(
    spark: SparkSession,  # noqa: ARG001 - the command takes the session that there is
    brokers: Brokers,
    site: Site,
) -> None:
    for topic in ("trades", "matches", "rejected"):
        brokers.add_topic(topic)
    brokers.send("trades", [{"price": 5}, {"price": 50}, "{"])
    trades, matches = (f"kafka://{brokers.servers}/{topic}" for topic in ("trades", "matches"))
    where = ("--library", site.library, "--checkpoint", site.checkpoint, "--once")
    start = ("--option", "startingOffsets=earliest", "--events-per-batch", "2")
    result = run(
        "stream", trades, *where, *start, "--to", matches, "--to-option", "rejected=rejected"
    )
    assert result.exit_code == 0, result.output
    told = facts(result)
    assert (told["batches"], told["events"], told["rejected"]) == ("2", "3", "1")
    assert told["written to"].endswith("/matches")
    assert [row["offset"] for row in sent_to(brokers, "matches")] == [0, 1]
    assert [row["offset"] for row in sent_to(brokers, "rejected")] == [2]


MISTAKES = [
    (("kafka://broker:9092", "--to", "x"), "write it as kafka://host:port/topic"),
    (("kafka://h:1/t", "--to", "kafka:///t"), "write it as kafka://host:port/topic"),
    (("kafka://h:1/t", "--to", "x", "--option", "y"), "write it as NAME=VALUE"),
    (("kafka://h:1/t", "--to", "x", "--option", "y=z"), "there is no option y; there are"),
    (("kafka://h:1/t", "--to", "x", "--files-per-batch", "3"), "--files-per-batch is for files"),
    (("events", "--to", "x", "--events-per-batch", "3"), "--events-per-batch is for Kafka"),
    (("events", "--to", "x", "--to-option", "a=b"), "--to-option is for results that go to Kafka"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_mistakes_are_sentences(
    spark: SparkSession,  # noqa: ARG001 - as above
    site: Site,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    where = ("--library", site.library, "--checkpoint", site.checkpoint)
    result = run("stream", *arguments, *where)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output
