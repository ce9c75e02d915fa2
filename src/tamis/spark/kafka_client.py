"""Asking Kafka, by confluent-kafka, and what may go wrong with that."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tamis.errors import SparkError
from tamis.spark.kafka_offsets import Offsets, Place, Span
from tamis.spark.kafka_options import Settings

LOG: Final = logging.getLogger("tamis.spark.kafka")

SECONDS_OF_A_LOOK: Final = 0.1
# Faults that librdkafka found itself, and not a broker, have an underscore.
ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
NO_SUCH_OFFSET: Final = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
GONE: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
UNSENT_IN_TIME: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
_PASSING: Final = GONE | frozenset(
    {
        ALL_DOWN,
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
    }
)
READING: Final = {
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    # A day: nobody else is waiting for these partitions.
    "max.poll.interval.ms": "86400000",
}
Answer = TypeVar("Answer")


class Complaints:
    """The last thing that a client said had gone wrong."""

    def __init__(self) -> None:
        self.last = ""

    def note(self, error: KafkaError) -> None:
        """Remember an error, unless it says less than the one before."""
        # That all are down says less than why one is.
        if error.code() != ALL_DOWN or not self.last:
            self.last = error.str()


def passes(fault: KafkaError) -> bool:
    """Tell whether a fault may be gone when one tries again."""
    return fault.code() in _PASSING or fault.retriable()


@contextmanager
def made_right(settings: Settings) -> Iterator[Complaints]:
    """Give a client that is being made something to complain to, and say why it cannot be."""
    try:
        yield Complaints()
    except (KafkaException, TypeError, ValueError) as error:
        (fault,) = error.args
        reason = fault.str() if isinstance(fault, KafkaError) else fault
        raise SparkError(f"the client of Kafka at {settings.servers} cannot be: {reason}") from None


class Cluster:
    """What brokers hold, as seen from the driver."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        with made_right(settings) as self._complaints:
            self._consumer = Consumer(
                {**settings.client, **READING, "error_cb": self._complaints.note}
            )

    def close(self) -> None:
        """Hang up."""
        self._consumer.close()

    def held(self, topics: Iterable[str], *, patience: float | None = None) -> Offsets:
        """Return the offsets that there are in each partition; a topic that is not has none."""
        end = time.monotonic() + (self._settings.patience if patience is None else patience)
        return self._patiently(lambda: self._held(topics, end), end)

    def _held(self, topics: Iterable[str], end: float) -> Offsets:
        places = [place for topic in topics for place in self._partitions(topic, end)]
        return held_in(self._consumer, places, _left(end))

    def _partitions(self, topic: str, end: float) -> list[Place]:
        found: Any = self._consumer.list_topics(topic, timeout=_left(end)).topics[topic]
        if found.error is not None and found.error.code() not in GONE:
            raise KafkaException(found.error)
        return [Place(topic, number) for number in sorted(found.partitions)]

    def _patiently(self, ask: Callable[[], Answer], end: float) -> Answer:
        """Ask until there is an answer, or it is time to give up."""
        while True:
            try:
                return ask()
            except KafkaException as error:
                fault: KafkaError = error.args[0]
            if not passes(fault):
                raise SparkError(f"Kafka at {self._settings.servers} refused: {fault.str()}")
            self._consumer.poll(SECONDS_OF_A_LOOK)
            if time.monotonic() > end:
                raise away(self._settings, self._complaints.last or fault.str())


def held_in(consumer: Consumer, places: Sequence[Place], timeout: float) -> Offsets:
    """Return the offsets that there are in some partitions."""
    begins = _offsets(consumer, places, OFFSET_BEGINNING, timeout)
    ends = _offsets(consumer, places, OFFSET_END, timeout)
    return {place: Span(begins[place], ends[place]) for place in places}


def _offsets(
    consumer: Consumer, places: Sequence[Place], which: int, timeout: float
) -> dict[Place, int]:
    if not places:
        return {}
    # Times before all and after all stand for the first and the last offset.
    answers = consumer.offsets_for_times(
        [TopicPartition(*place, which) for place in places], timeout
    )
    for one in answers:
        if one.error is not None:
            raise KafkaException(one.error)
    return {Place(one.topic, one.partition): one.offset for one in answers}


def _left(end: float) -> float:
    return max(SECONDS_OF_A_LOOK, end - time.monotonic())


def away(settings: Settings, reason: str) -> SparkError:
    """Return the error that Kafka does not answer."""
    return SparkError(f"Kafka at {settings.servers} does not answer: {reason}")


def tell_of(losses: Iterable[str], settings: Settings) -> None:
    """Fail because events are lost, or tell of it."""
    told = "; ".join(losses)
    if not told:
        return
    if settings.fails_on_loss:
        raise SparkError(
            f"events are lost: {told}; to go on without them, set the option failOnDataLoss to "
            "false"
        )
    LOG.warning("events are lost: %s", told)
