"""Events from Kafka, by Spark's own connector."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark import __version__ as spark_version
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from tamis.errors import SparkError


def read_kafka(
    spark: SparkSession, servers: str, topics: str | Sequence[str], **options: str
) -> DataFrame:
    """Return the messages of topics as a stream, each with its topic, partition and offset.

    `stream(read_kafka(…), …, json="value", keep=["topic", "partition", "offset"])` matches them.
    """
    names = topics if isinstance(topics, str) else ",".join(topics)
    reader = spark.readStream.format("kafka").options(**options)
    reader = reader.option("kafka.bootstrap.servers", servers).option("subscribe", names)
    try:
        return reader.load()
    except AnalysisException as error:
        if error.getCondition() != "KAFKA_DATA_SOURCE_NOT_ENABLED":
            raise
        raise SparkError(
            "Spark has no connector to Kafka here: start the session with the setting "
            f"spark.jars.packages = org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
        ) from None
