"""Events from Kafka: by Spark's own connector where it is, else by one that needs no Java."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tamis.spark.kafka_extra import provide_source, require_topics
from tamis.spark.kafka_options import ISOLATION, SERVERS, Settings

POSITION: Final = ("topic", "partition", "offset")
# Java's client would also read what a transaction took back; both shall read the same.
_COMMITTED: Final = {ISOLATION: "read_committed"}


def read_kafka(
    spark: SparkSession, servers: str, topics: str | Sequence[str], **options: str
) -> DataFrame:
    """Return the messages of topics as a stream, each with its topic, partition and offset.

    `stream(read_kafka(…), …, json="value", keep=["topic", "partition", "offset"])` matches them.
    """
    names = topics if isinstance(topics, str) else ",".join(topics)
    isolated = {} if any(name.lower() == ISOLATION for name in options) else _COMMITTED
    given = {**isolated, **options, SERVERS: servers, "subscribe": names}
    if not has_connector(spark):
        require_topics(Settings.of(given))
        return spark.readStream.format(provide_source(spark)).options(**given).load()
    return spark.readStream.format("kafka").options(**given).load()


def has_connector(spark: SparkSession) -> bool:
    """Tell whether a session was started with Spark's own connector to Kafka."""
    try:
        spark.readStream.format("kafka").option("subscribe", "any").load()
    except PySparkException as error:
        return error.getCondition() != "KAFKA_DATA_SOURCE_NOT_ENABLED"
    return True
