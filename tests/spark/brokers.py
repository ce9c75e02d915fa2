"""Brokers of Kafka for tests: those inside librdkafka, with real sockets and the real protocol.

confluent-kafka starts them, but has no words for what befalls them; librdkafka has.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import files
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

Event = Mapping[str, object] | str | bytes | None


def _library() -> Any:
    """Return librdkafka as confluent-kafka brought it, with the types of what is called."""
    brought = [file for file in files("confluent-kafka") or () if "librdkafka" in file.name]
    path = next(file for file in brought if not file.name.endswith((".py", ".pyc")))
    library = ctypes.CDLL(str(path.locate()))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    types: dict[str, tuple[Any, list[Any]]] = {
        "new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "conf_new": (pointer, []),
        "conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "destroy": (None, [pointer]),
        "mock_cluster_new": (pointer, [pointer, number]),
        "mock_cluster_destroy": (None, [pointer]),
        "mock_cluster_bootstraps": (text, [pointer]),
        "mock_topic_create": (number, [pointer, text, number, number]),
        "mock_topic_delete": (number, [pointer, text]),
        "mock_partition_delete_records": (
            number,
            [pointer, text, ctypes.c_int32, ctypes.c_int64],
        ),
        "mock_broker_set_down": (number, [pointer, ctypes.c_int32]),
        "mock_broker_set_up": (number, [pointer, ctypes.c_int32]),
    }
    for name, (result, arguments) in types.items():
        function = getattr(library, f"rd_kafka_{name}")
        function.restype, function.argtypes = result, arguments
    return library


class Brokers:
    """One broker, and what one can do to it."""

    def __init__(self) -> None:
        self._library = _library()
        settings = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(settings, b"log_level", b"0", None, 0)
        self._client = self._library.rd_kafka_new(0, settings, None, 0)
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, 1)
        self.servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def add_topic(self, topic: str, partitions: int = 1) -> None:
        self._call("topic_create", topic.encode(), partitions, 1)

    def delete_topic(self, topic: str) -> None:
        self._call("topic_delete", topic.encode())

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Let messages be too old to be kept."""
        self._call("partition_delete_records", topic.encode(), partition, offset)

    def go_down(self) -> None:
        self._call("broker_set_down", 1)

    def come_up(self) -> None:
        self._call("broker_set_up", 1)

    def _call(self, name: str, *arguments: object) -> None:
        fault = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        assert not fault, f"{name} {arguments}: fault {fault}"

    def send(self, topic: str, events: Iterable[Event], partition: int = 0) -> None:
        # One that is older may not know of a partition yet.
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for event in events:
            value = json.dumps(event) if isinstance(event, Mapping) else event
            producer.produce(topic, value, partition=partition)
        assert producer.flush(30) == 0

    def messages(self, topic: str, partition: int = 0) -> list[Message]:
        """Return all that is in a partition."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "tests", "log_level": 0}
        )
        place = TopicPartition(topic, partition, 0)
        begin, end = consumer.get_watermark_offsets(place, timeout=10)
        consumer.assign([TopicPartition(topic, partition, begin)])
        found = consumer.consume(end - begin, 10) if end > begin else []
        consumer.close()
        assert [message.offset() for message in found] == list(range(begin, end))
        return found
