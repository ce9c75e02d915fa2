"""A stream from a topic to a topic by TLS, to be killed, and what goes before and after it.

python -m spark.kafka.exactly_once STEP SERVERS FOLDER JARS

The steps: `fill` compiles the library and sends events; `stream` streams to the end of them; `read`
writes what two consumers see, one of them reading what is committed, to FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from spark.contract import Sub, compiled
from tamis.spark import KafkaSink, local_session, stream
from tamis.spark.runtime.session import JAVA_OPTIONS

SUBS = [Sub("cheap", "price < 50"), Sub("acme", 'symbol = "ACME"'), Sub("all", "price >= 0")]
EVENTS = 60_000
PER_BATCH = 2_000
PARTITIONS = 2
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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
        settings = {
            "spark.jars": self._jars,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {FAST_START}",
        }
        # Without the second number, Spark gives up when the first task fails.
        return local_session("local[2,4]", settings=settings)

    def fill(self) -> None:
        producer = Producer(self.client)
        for n in range(EVENTS):
            producer.produce("trades", event(n), partition=n % PARTITIONS)
            producer.poll(0)
            if n % 10_000 == 0:
                producer.flush()
        producer.flush()
        compiled(self.session(), SUBS, self.folder / "library")

    def messages(self, spark: SparkSession) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "cert.pem"),
            "subscribe": "trades",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(PER_BATCH),
        }
        return spark.readStream.format("kafka").options(**options).load()

    def stream(self) -> None:
        tls = {name: self.client[name] for name in ("security.protocol", "ssl.ca.location")}
        stream(
            self.messages(self.session()),
            self.folder / "library",
            json="value",
            keep=POSITION,
            output="pairs",
            to=KafkaSink(self.servers, "matches", options=tls),
            checkpoint=self.folder / "checkpoint",
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
