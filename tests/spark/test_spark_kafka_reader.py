"""What a stream reads from Kafka, batch by batch, and what it says when something is not there."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Consumer, Message
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark.brokers import Brokers
from tamis.errors import SparkError
from tamis.spark.kafka_offsets import Offsets, Place, Span, Step, of_json, shares, tasks, to_json
from tamis.spark.kafka_options import Settings
from tamis.spark.kafka_sending import Sender
from tamis.spark.kafka_source import KafkaReader

ALL = ReadAllAvailable()


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    brokers = Brokers()
    brokers.add_topic("t", 2)
    yield brokers
    brokers.close()


def options(brokers: Brokers, **more: str) -> dict[str, str]:
    given = {"kafka.bootstrap.servers": brokers.servers, "subscribe": "t"}
    hurried = {"kafka.fetch.wait.max.ms": "10", "kafka.fetch.error.backoff.ms": "10"}
    return {**given, **hurried, "startingOffsets": "earliest", **more}


class Run:
    """A reader, used as Spark does."""

    def __init__(self, brokers: Brokers, **more: str) -> None:
        self.reader = KafkaReader(Settings.of(options(brokers, **more)))
        self.last = self.reader.initialOffset()

    def batch(self, limit: Any = ALL) -> list[tuple[int, int]]:
        """Return the partition and offset of all messages in the next batch."""
        start, self.last = self.last, self.reader.latestOffset(self.last, limit)
        return self.read(start, self.last)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
        parts = self.reader.partitions(start, end)
        return [place for part in parts for place in self._places(part)]

    def _places(self, part: InputPartition) -> Iterator[tuple[int, int]]:
        for rows in self.reader.read(part):
            yield from zip(
                rows.column("partition").to_pylist(),
                rows.column("offset").to_pylist(),
                strict=True,
            )


def span(partition: int, begin: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(begin, end)]


# --- batches -------------------------------------------------------------------------------------


def test_batches_follow_one_another(brokers: Brokers) -> None:
    run = Run(brokers, maxOffsetsPerTrigger="4")
    assert run.reader.getDefaultReadLimit() == ReadMaxRows(4)
    assert run.batch() == []
    brokers.send("t", ["{}"] * 5, 0)
    brokers.send("t", ["{}"] * 1, 1)
    assert run.batch(ReadMaxRows(4)) == [*span(0, 0, 3), *span(1, 0, 1)]
    assert run.batch(ReadMaxRows(4)) == span(0, 3, 5)
    last = run.last
    assert run.batch(ReadMaxRows(4)) == []
    assert run.last == last, "Spark takes what is not equal for a batch"


def test_a_run_of_what_is_there_ends(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    run = Run(brokers)
    run.reader.prepareForTriggerAvailableNow()
    brokers.send("t", ["{}"] * 3, 0)
    brokers.send("t", ["{}"] * 3, 1)
    assert run.batch(ReadMaxRows(2)) == span(0, 0, 2)
    assert run.batch() == span(0, 2, 3)
    assert run.batch() == []


def test_a_batch_that_runs_again_is_the_same_wherever_the_latest_is(brokers: Brokers) -> None:
    brokers.send("t", ["{}"], 0)
    first = Run(brokers, startingOffsets="latest")
    brokers.send("t", ["{}"], 0)
    assert first.batch() == span(0, 1, 2)
    brokers.send("t", ["{}"], 0)
    again = Run(brokers, startingOffsets="latest")
    assert of_json(again.last)[Place("t", 0)] == (3, 3)
    assert again.read(again.last, first.last) == span(0, 1, 2)
    assert again.read(first.last, first.last) == []


def test_a_stream_may_begin_anywhere(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    brokers.send("t", ["{}"] * 3, 1)
    assert Run(brokers, startingOffsets='{"t": {"0": 1, "1": -1}}').batch() == span(0, 1, 3)
    with pytest.raises(
        SparkError, match="startingOffsets says nothing of partition 1 of the topic"
    ):
        Run(brokers, startingOffsets='{"t": {"0": -2}}')
    with pytest.raises(
        SparkError, match=r"says 9 of partition 1 .*, which has offsets from 0 to 3"
    ):
        Run(brokers, startingOffsets='{"t": {"0": -2, "1": 9}}')


def test_a_partition_may_be_cut_into_several_tasks(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 10, 0)
    run = Run(brokers, minPartitions="4")
    end = run.reader.latestOffset(run.last, ALL)
    assert len(run.reader.partitions(run.last, end)) == 5
    assert run.batch() == span(0, 0, 10)


def test_keys_values_and_times_come_through(brokers: Brokers) -> None:
    sender = Sender(Settings.of(options(brokers)))
    sender.send("t", b"key", b"\x00\xff")
    sender.send("t", b"key", None)
    sender.wait()
    run = Run(brokers)
    (part,) = run.reader.partitions(run.last, run.reader.latestOffset(run.last, ALL))
    (rows,) = run.reader.read(part)
    told = rows.to_pylist()
    sent = brokers.messages("t", told[0]["partition"])
    assert [row["key"] for row in told] == [b"key", b"key"], "one key has one partition"
    assert [row["value"] for row in told] == [b"\x00\xff", None]
    assert [row["timestampType"] for row in told] == [0, 0]
    times = [row["timestamp"].timestamp() * 1000 for row in told]
    assert times == [message.timestamp()[1] for message in sent]


# --- what is gone --------------------------------------------------------------------------------


def test_a_new_partition_is_read_from_its_beginning(brokers: Brokers) -> None:
    run = Run(brokers, startingOffsets="latest")
    brokers.delete_topic("t")
    brokers.add_topic("t", 3)
    brokers.send("t", ["{}"] * 2, 2)
    assert run.batch() == span(2, 0, 2)


def grow_late(brokers: Brokers) -> None:
    brokers.delete_topic("t")
    brokers.add_topic("t", 3)
    brokers.send("t", ["{}"] * 3, 2)
    brokers.delete_before("t", 2, 2)


def expire(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    brokers.delete_before("t", 0, 5)


def make_anew(brokers: Brokers) -> None:
    brokers.delete_topic("t")
    brokers.add_topic("t", 2)
    brokers.send("t", ["{}"], 0)


def vanish(brokers: Brokers) -> None:
    brokers.delete_topic("t")


# What happens after three messages were read, what is said of it, and what a stream that may go on
# reads then.
LOSSES: list[tuple[Any, str, list[tuple[int, int]]]] = [
    (expire, "the offsets 3 to 4 of partition 0 of the topic t are gone", span(0, 5, 6)),
    (make_anew, "ends at 1, and the stream has been at 3: it was cut, or made anew", span(0, 0, 1)),
    (vanish, "partition 0 of the topic t is gone; partition 1 of the topic t is gone", []),
    (grow_late, "partition 2 of the topic t is new, and its first 2 offsets", span(2, 2, 3)),
]


@pytest.mark.parametrize(("happens", "sentence", "rest"), LOSSES)
def test_what_is_lost_is_told_once(
    brokers: Brokers,
    caplog: pytest.LogCaptureFixture,
    happens: Any,
    sentence: str,
    rest: list[tuple[int, int]],
) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    strict, lenient = Run(brokers), Run(brokers, failOnDataLoss="false")
    assert strict.batch() == lenient.batch() == span(0, 0, 3)
    happens(brokers)
    with pytest.raises(SparkError, match=f"events are lost: .*{sentence}.*failOnDataLoss to false"):
        strict.batch()
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == rest
        assert lenient.batch() == []
    assert [sentence in record.getMessage() for record in caplog.records] == [True]


def test_a_topic_that_comes_back_goes_on_from_where_it_was(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    run = Run(brokers, failOnDataLoss="false")
    assert run.batch() == span(0, 0, 3)
    brokers.delete_topic("t")
    assert run.batch() == []
    brokers.add_topic("t", 2)
    brokers.send("t", ["{}"] * 4, 0)
    assert run.batch() == span(0, 3, 4)


def test_what_is_lost_before_a_batch_runs_again_is_told(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    brokers.send("t", ["{}"] * 4, 0)
    strict, lenient = Run(brokers), Run(brokers, failOnDataLoss="false")
    end = strict.reader.latestOffset(strict.last, ALL)
    brokers.delete_before("t", 0, 2)
    sentence = "has come to 0 in partition 0 of the topic t, which has offsets from 2 to 4"
    with pytest.raises(SparkError, match=sentence):
        strict.read(strict.last, end)
    with caplog.at_level(logging.WARNING):
        assert lenient.read(lenient.last, end) == span(0, 2, 4)
    assert sentence in caplog.text
    brokers.delete_before("t", 0, 4)
    assert lenient.read(lenient.last, end) == []


class Compacted(Consumer):
    """A client of a topic from which Kafka cleared some messages, as it does for later ones."""

    def consume(self, *arguments: Any, **more: Any) -> list[Message]:
        found = super().consume(*arguments, **more)
        return [one for one in found if one.error() or one.offset() not in {0, 2, 4}]


def test_what_kafka_was_asked_to_clear_is_no_loss(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tamis.spark.kafka_reading.Consumer", Compacted)
    brokers.send("t", ["{}"] * 5, 0)
    run = Run(brokers)
    assert run.batch(ReadMaxRows(3)) == [(0, 1)]
    assert run.batch() == [(0, 3)]
    brokers.send("t", ["{}"] * 2, 0)
    assert run.batch() == span(0, 5, 7)


def test_an_end_that_is_no_longer_there_is_a_loss(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    run = Run(brokers, **{"kafkaConsumer.pollTimeoutMs": "500"})
    end = run.reader.latestOffset(run.last, ALL)
    make_anew(brokers)
    with pytest.raises(SparkError, match="events are lost: the stream has come to 1 in partition"):
        run.read(run.last, end)


# --- brokers that are away -----------------------------------------------------------------------


def test_a_stream_waits_for_brokers_that_come_back(brokers: Brokers) -> None:
    brokers.send("t", ["{}"] * 3, 0)
    run = Run(brokers)
    brokers.go_down()
    back = Timer(0.5, brokers.come_up)
    back.start()
    assert run.batch() == span(0, 0, 3)
    back.join()


def test_brokers_that_stay_away_are_told(brokers: Brokers) -> None:
    brokers.send("t", ["{}"], 0)
    impatient = {"kafkaConsumer.pollTimeoutMs": "300"}
    run = Run(brokers, **impatient)
    end = run.reader.latestOffset(run.last, ALL)
    brokers.go_down()
    sentence = f"Kafka at {brokers.servers} does not answer: .*onne"
    with pytest.raises(SparkError, match=sentence):
        run.batch()
    with pytest.raises(SparkError, match=sentence):
        run.read(run.last, end)
    sender = Sender(Settings.of(options(brokers, **impatient)))
    sender.send("t", b"key", b"value")
    with pytest.raises(SparkError, match=sentence):
        sender.wait()


def test_what_cannot_be_sent_is_told(brokers: Brokers) -> None:
    small = Sender(Settings.of(options(brokers, **{"kafka.message.max.bytes": "1000"})))
    with pytest.raises(
        SparkError, match=r"cannot be sent to the topic t: .*Message size too large"
    ):
        small.send("t", b"key", b"x" * 10_000)


# --- options -------------------------------------------------------------------------------------

WRONG = [
    ({"maxOffsetsPerTrigger": "0"}, "the option maxOffsetsPerTrigger is '0', and should be a numb"),
    ({"failOnDataLoss": "perhaps"}, "the option failOnDataLoss is 'perhaps', and should be true"),
    ({"startingOffsets": "early"}, "is 'early', and should be earliest, latest, or an offset for"),
    ({"startingOffsets": '{"t": 3}'}, "should be earliest, latest, or an offset for every part"),
    ({"subscribePattern": "t.*"}, "there is no option subscribepattern; there are those that beg"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set; the stream"),
    ({"kafka.bootstrap.servers": ""}, "the option kafka.bootstrap.servers is missing"),
    ({"subscribe": " ,"}, "the option subscribe names no topic"),
    ({"kafka.no.such": "1"}, 'cannot be: No such configuration property: "no.such"'),
    ({"kafka.security.protocol": "x"}, 'cannot be: Invalid value "x" for configuration property'),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_options_that_are_wrong_are_told(wrong: dict[str, str], sentence: str) -> None:
    right = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(SparkError) as caught:
        KafkaReader(Settings.of({**right, **wrong})).initialOffset()
    assert sentence in str(caught.value)


def test_options_for_the_client_reach_it() -> None:
    given = {
        "kafka.bootstrap.servers": "a:1",
        "kafka.client.id": "me",
        "kafka.SSL.ca.location": "/x",
    }
    client = Settings.of(given).client
    assert (client["client.id"], client["ssl.ca.location"]) == ("me", "/x")
    assert client["isolation.level"] == "read_committed"


# --- laws ----------------------------------------------------------------------------------------

SIZES = st.dictionaries(st.builds(Place, st.just("t"), st.integers(0, 9)), st.integers(0, 50))


@given(st.integers(1, 100), SIZES)
@settings(deadline=None)
def test_shares_use_the_limit_and_no_more(limit: int, sizes: dict[Place, int]) -> None:
    taken = shares(limit, sizes)
    assert sum(taken.values()) == min(limit, sum(sizes.values()))
    assert all(0 <= taken[place] <= size for place, size in sizes.items())


@given(SIZES, st.integers(0, 40))
@settings(deadline=None)
def test_tasks_cover_a_batch(sizes: dict[Place, int], least: int) -> None:
    spans = {place: Span(3, 3 + size) for place, size in sizes.items()}
    parts = list(tasks(spans, least))
    found = [(place, offset) for place, part in parts for offset in range(*part)]
    assert found == [(place, at) for place, span in sorted(spans.items()) for at in range(*span)]
    assert len(parts) >= min(least, len(found))


GROWTH = st.lists(st.tuples(SIZES, st.none() | st.integers(1, 30)), max_size=20)


@given(GROWTH)
@settings(deadline=None)
def test_every_offset_is_in_one_batch(growth: list[tuple[dict[Place, int], int | None]]) -> None:
    """Partitions grow, and new ones come, while batches of any limit are taken."""
    held: Offsets = {}
    last: Offsets = {}
    read: list[tuple[Place, int]] = []
    for sizes, limit in [*growth, ({}, None)]:
        for place, size in sizes.items():
            held[place] = Span(0, held.get(place, Span(0, 0)).end + size)
        step = Step.after(last, held, limit)
        assert not step.losses
        assert of_json(to_json(step.offsets)) == step.offsets
        if step.offsets != last:
            read += [(place, at) for place, span in step.offsets.items() for at in range(*span)]
        last = step.offsets
    assert sorted(read) == [
        (place, at) for place, span in sorted(held.items()) for at in range(*span)
    ]
    assert Step.after(last, held) == (last, [])
