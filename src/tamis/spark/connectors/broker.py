"""Events from a Tamis broker, by Spark."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tamis.spark.connectors.broker_log import BrokerLog
from tamis.spark.connectors.broker_options import Settings
from tamis.spark.connectors.broker_source import BrokerSource

POSITION: Final = ("sequence",)


def read_broker(
    spark: SparkSession,
    url: str,
    filter: str = "true",  # noqa: A002 - what it is called everywhere
    **options: str,
) -> DataFrame:
    """Return the events of a broker that match a filter as a stream, each with its sequence.

    `stream(read_broker(…), …, json="value", keep=["sequence"])` matches them. The same without a
    stream: `spark.read.format("tamis").option("url", url).load()`.
    """
    given = {**options, "url": url, "filter": filter}
    settings = Settings.of(given)
    if settings.token is not None:
        # Batches are planned in another process, which may not have our variables.
        given["token"] = settings.token
    # Whoever starts a stream is waiting: what is wrong is said at once.
    BrokerLog(settings).place("latest")
    spark.dataSource.register(BrokerSource)
    return spark.readStream.format(BrokerSource.name()).options(**given).load()
