"""A stream from a topic to a topic by TLS, to be killed, and what goes before and after it.

python -m spark.kafka.exactly_once STEP SERVERS FOLDER JARS

The steps: `fill` sends events, compiles the library and rehearses a stream; `stream` streams to the
end of them; `read` writes what two consumers see, one of them reading what is committed, to
FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from spark.quick_java import end_java, quick_session
from tamis.spark import KafkaSink, stream

SUBS = [Sub("cheap", "price < 50"), Sub("acme", 'symbol = "ACME"'), Sub("all", "price >= 0")]
EVENTS = 100_000
PER_BATCH = 2_000
PARTITIONS = 2
POSITION = ["partition", "offset"]


def event(n: int) -> str:
    """Return an event as JSON; some are cut off."""
    text = json.dumps({"n": n, "price": n % 100, "symbol": ("ACME", "BOLT")[n % 2]})
    return text[:-1] if n % 1000 == 999 else text


class Route:
    """The steps of the test."""

    def __init__(self, servers: str, folder: Path, jars: str) -> None:
        self.servers, self.folder, self._jars = servers, folder, jars
        self.client = {
            "bootstrap.servers": servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(folder / "cert.pem"),
        }

    def session(self) -> SparkSession:
        return quick_session(self.folder / "classes.jsa", self._jars.split(","), {}, cores=2)

    def fill(self) -> None:
        self._send("trades", EVENTS)
        self._send("rehearsal", PARTITIONS)
        spark = self.session()
        compiled(spark, SUBS, self.folder / "library")
        self._stream(spark, "rehearsal", "rehearsed")
        end_java(spark)

    def _send(self, topic: str, events: int) -> None:
        producer = Producer(self.client)
        for n in range(events):
            producer.produce(topic, event(n), partition=n % PARTITIONS)
            producer.poll(0)
            if n % 10_000 == 0:
                producer.flush()
        producer.flush()

    def messages(self, spark: SparkSession, topic: str) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "cert.pem"),
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(PER_BATCH),
        }
        return spark.readStream.format("kafka").options(**options).load()

    def stream(self) -> None:
        self._stream(self.session(), "trades", "matches")

    def _stream(self, spark: SparkSession, source: str, target: str) -> None:
        tls = {name: self.client[name] for name in ("security.protocol", "ssl.ca.location")}
        stream(
            self.messages(spark, source),
            self.folder / "library",
            json="value",
            keep=POSITION,
            output="pairs",
            to=KafkaSink(self.servers, target, options=tls),
            checkpoint=self.folder / f"{target}-checkpoint",
            once=True,
        ).awaitTermination()

    def read(self) -> None:
        found = {level: self._topic(level) for level in ("read_committed", "read_uncommitted")}
        (self.folder / "found.json").write_text(json.dumps(found), encoding="utf-8")

    def _topic(self, level: str) -> list[Any]:
        consumer = Consumer(
            {
                **self.client,
                "group.id": level,
                "isolation.level": level,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        places = [TopicPartition("matches", number, 0) for number in range(PARTITIONS)]
        consumer.assign(places)
        rows, ended = [], 0
        while ended < PARTITIONS:
            for message in consumer.consume(10_000, timeout=10):
                if message.error():
                    ended += 1
                else:
                    rows.append(json.loads(message.value() or b""))
        consumer.close()
        return [(row["partition"], row["offset"], row.get("subscription")) for row in rows]


def main(step: str, servers: str, folder: str, jars: str) -> None:
    getattr(Route(servers, Path(folder), jars), step)()


if __name__ == "__main__":
    main(*sys.argv[1:])
