"""The options of a stream from or to Kafka: the names are those of Spark's connector.

Options that begin with `kafka.` go to the client. Spark's connector has Kafka's own in Java, which
is told its keys and passwords in other words than librdkafka; all else is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tamis.errors import SparkError
from tamis.spark.kafka_offsets import Offsets, Place, Span

CLIENT: Final = "kafka."
SERVERS: Final = "kafka.bootstrap.servers"
ISOLATION: Final = "kafka.isolation.level"
ADDRESS: Final = "kafka://"

# Numbers that Kafka has for these, and people in their options.
_EARLIEST: Final = -2
_LATEST: Final = -1
_STARTS: Final = {"earliest": _EARLIEST, "latest": _LATEST}
_DEFAULTS: Final = {
    "client.id": "tamis",
    # Nobody joins it, but clients that read must name one.
    "group.id": "tamis",
    "isolation.level": "read_committed",
    # What goes wrong is told in our sentences; librdkafka would repeat it every second.
    "log_level": "2",
}
_OURS: Final = ("auto.offset.reset", "enable.auto.commit", "enable.auto.offset.store")
_SECONDS: Final = 60.0


class Address(NamedTuple):
    """Brokers, and topics of theirs."""

    servers: str
    topics: str

    @classmethod
    def of(cls, text: str) -> Address:
        """Read an address.

        >>> Address.of("kafka://one:9092,two:9092/trades,quotes")
        Address(servers='one:9092,two:9092', topics='trades,quotes')
        """
        servers, _, topics = text.removeprefix(ADDRESS).partition("/")
        if not text.startswith(ADDRESS) or not servers or not topics or "/" in topics:
            raise SparkError(
                f"{text!r} is not an address of a topic; write it as kafka://host:port/topic"
            )
        return cls(servers, topics)


class Settings(NamedTuple):
    """What a stream from Kafka goes by, wherever a part of it runs."""

    client: dict[str, str]
    topics: tuple[str, ...] = ()
    start: int | dict[str, dict[str, int]] = _LATEST
    limit: int | None = None
    tasks: int = 0
    fails_on_loss: bool = True
    patience: float = _SECONDS
    """How long Kafka may be away, in seconds."""

    @property
    def servers(self) -> str:
        """Return where the brokers are."""
        return self.client["bootstrap.servers"]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Read options, or say which is wrong."""
        given = {name.lower(): value for name, value in options.items()}
        client = {
            name.removeprefix(CLIENT): given.pop(name)
            for name in list(given)
            if name.startswith(CLIENT)
        }
        for name in _OURS:
            if name in client:
                raise SparkError(f"the option kafka.{name} cannot be set; the stream decides it")
        if not client.get("bootstrap.servers"):
            raise SparkError(f"the option {SERVERS} is missing: where the brokers are")
        return cls({**_DEFAULTS, **client}, **dict(_read(*option) for option in given.items()))

    def require(self, held: Offsets) -> None:
        """Say that a topic is not there."""
        there = {place.topic for place in held}
        for topic in self.topics:
            if topic not in there:
                raise SparkError(f"Kafka at {self.servers} has no topic {topic}")

    def first(self, held: Offsets) -> Offsets:
        """Return where a new stream begins, by what Kafka holds."""
        begins = {place: self._begin(place, span) for place, span in held.items()}
        return {place: Span(at, at) for place, at in begins.items()}

    def _begin(self, place: Place, held: Span) -> int:
        at = self._start(place)
        if at in (_EARLIEST, _LATEST):
            return held.begin if at == _EARLIEST else held.end
        if not held.begin <= at <= held.end:
            raise SparkError(
                f"startingOffsets says {at} of {place}, which has offsets from {held.begin} "
                f"to {held.end}"
            )
        return at

    def _start(self, place: Place) -> int:
        if isinstance(self.start, int):
            return self.start
        try:
            return self.start[place.topic][str(place.partition)]
        except KeyError:
            raise SparkError(f"startingOffsets says nothing of {place}") from None


# --- the values of options -----------------------------------------------------------------------


def _read(name: str, value: str) -> tuple[str, Any]:
    """Return the setting that an option stands for; the case of its name does not matter."""
    for known, (setting, read) in _OPTIONS.items():
        if known.lower() == name:
            return setting, read(known, value)
    raise SparkError(
        f"there is no option {name}; there are those that begin with kafka., and "
        f"{', '.join(_OPTIONS)}"
    )


def _topics(name: str, value: str) -> tuple[str, ...]:
    topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
    if not topics:
        raise SparkError(f"the option {name} names no topic")
    return topics


def _start(name: str, value: str) -> int | dict[str, dict[str, int]]:
    if value.lower() in _STARTS:
        return _STARTS[value.lower()]
    try:
        data: Any = json.loads(value)
        return {
            topic: {partition: int(at) for partition, at in partitions.items()}
            for topic, partitions in data.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise SparkError(
            f"the option {name} is {value!r}, and should be earliest, latest, or an offset for "
            'every partition: {"topic": {"0": 23, "1": -2}}, with -2 for the earliest and -1 for '
            "the latest"
        ) from None


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or not int(value):
        raise SparkError(f"the option {name} is {value!r}, and should be a number from 1 up")
    return int(value)


def _seconds(name: str, value: str) -> float:
    return _number(name, value) / 1000


def _truth(name: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise SparkError(f"the option {name} is {value!r}, and should be true or false")
    return value.lower() == "true"


_OPTIONS: Final[dict[str, tuple[str, Callable[[str, str], Any]]]] = {
    "subscribe": ("topics", _topics),
    "startingOffsets": ("start", _start),
    "maxOffsetsPerTrigger": ("limit", _number),
    "minPartitions": ("tasks", _number),
    "failOnDataLoss": ("fails_on_loss", _truth),
    "kafkaConsumer.pollTimeoutMs": ("patience", _seconds),
}
