"""A stream of the events of a Tamis broker, by the data source `tamis`."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from tamis.spark.connectors.broker_log import BrokerLog, BrokerOptions
from tamis.spark.runtime.versions import require_spark

NAME: Final = "tamis"
# The column that identifies an event.
POSITION: Final = ("sequence",)


def read_broker(
    spark: SparkSession,
    url: str,
    filter: str = "true",  # noqa: A002 - its name everywhere else
    **options: str,
) -> DataFrame:
    """Return a stream of a broker's events that match a filter, each with its sequence.

    Match them with `stream(read_broker(…), …, json="value", keep=["sequence"])`. For a batch job:
    `spark.read.format("tamis").option("url", url).load()`.
    """
    require_spark((4, 0), "reading events from a broker takes")
    from tamis.spark.connectors.broker_source import (  # noqa: PLC0415 - fails before Spark 4.0
        BrokerSource,
    )

    given = {**options, "url": url, "filter": filter}
    parsed = BrokerOptions.parse(given)
    if parsed.limit is not None:
        require_spark((4, 2), "the option maxEventsPerTrigger takes")
    if parsed.token is not None:
        # Another process, which may lack our environment variables, plans the batches.
        given["token"] = parsed.token
    # Report mistakes at once, while the caller waits.
    BrokerLog(parsed).position("latest")
    spark.dataSource.register(BrokerSource)
    return spark.readStream.format(NAME).options(**given).load()
