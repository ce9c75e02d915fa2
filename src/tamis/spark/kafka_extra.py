"""The way to what needs confluent-kafka, which is an extra: nothing else imports those modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Final

import pyarrow as pa
from pyspark import __version__ as spark_version
from pyspark.sql import DataFrame, SparkSession

from tamis.errors import SparkError
from tamis.spark.kafka_options import Settings

# Whoever starts a stream is waiting; one that runs has the patience of its option.
_SECONDS_AT_START: Final = 10.0


def require_client() -> None:
    """Say how to get a client of Kafka where there is none."""
    if find_spec("confluent_kafka") is None:
        raise SparkError(
            "there is no client of Kafka here: pip install 'tamis[kafka]'; to read, Spark's own "
            "connector will do, if the session is started with the setting spark.jars.packages = "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
        )


def provide_source(spark: SparkSession) -> str:
    """Let a session know the data source that needs no Java package; return its name."""
    require_client()
    from tamis.spark.kafka_source import KafkaSource  # noqa: PLC0415 - see above

    spark.dataSource.register(KafkaSource)
    return KafkaSource.name()


def send(messages: DataFrame, settings: Settings) -> None:
    """Send rows with a topic, a key and a value, and return when Kafka has them."""
    require_client()
    from tamis.spark.kafka_sending import send_rows  # noqa: PLC0415 - see above

    def sent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return send_rows(batches, settings)

    # Not as a data source: Spark would start several processes more for that.
    messages.mapInArrow(sent, "sent long").write.format("noop").mode("overwrite").save()


def require_topics(settings: Settings) -> None:
    """Say before anything is started that Kafka is away, or that a topic is missing."""
    require_client()
    from tamis.spark.kafka_client import Cluster  # noqa: PLC0415 - see above

    cluster = Cluster(settings)
    try:
        held = cluster.held(settings.topics, patience=min(_SECONDS_AT_START, settings.patience))
    finally:
        cluster.close()
    if settings.fails_on_loss:
        settings.require(held)
