"""Results as messages that a batch sends in the same way however often it runs.

Each row is JSON and belongs to a publisher by its content, and a publisher's rows have one order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.spark.connectors.batches import Pin
from tamis.spark.matching.columns import quoted
from tamis.spark.matching.counts import outcome

_NO_PUBLISHER: Final = -1


def messages_of(results: DataFrame, pin: Pin, publishers: int) -> DataFrame:
    """Return results as JSON, each with its publisher, in the order of publishing."""
    added = {
        "version": F.lit(pin.version),
        "outcome": outcome(results),
        "batch": F.lit(pin.batch),
    }
    rows = results.withColumns(added)
    columns = [_ordered(field) for field in rows.schema if field.name != "nth"]
    rows = rows.select(F.to_json(F.struct(*columns)).alias("value"))
    key = F.md5("value")
    publisher = F.pmod(F.crc32(key), F.lit(publishers))
    messages = rows.select("value", key.alias("key"), publisher.alias("publisher"))
    # Spark skips everything before an exchange without rows, and with it the counting.
    return (
        messages.unionByName(_unpublished_row(rows))
        .repartition(publishers, "publisher")
        # Rows with the same key are equal, so this order is unique.
        .sortWithinPartitions("publisher", "key")
    )


def _ordered(field: T.StructField) -> Column:
    """Return a column; sort arrays of ids, which another plan may find in another order."""
    column = F.col(quoted(field.name))
    is_ids = field.name == "subscriptions" and isinstance(field.dataType, T.ArrayType)
    return (F.array_sort(column) if is_ids else column).alias(field.name)


def _unpublished_row(rows: DataFrame) -> DataFrame:
    value, key = (F.lit("").alias(name) for name in ("value", "key"))
    return rows.sparkSession.range(1).select(value, key, F.lit(_NO_PUBLISHER).alias("publisher"))


def by_publisher(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[str]]]:
    """Yield each publisher of a partition with its messages, in order."""
    rows = (
        row
        for batch in batches
        for row in zip(*(batch.column(n).to_pylist() for n in ("publisher", "value")), strict=True)
    )
    for publisher, some in groupby(rows, itemgetter(0)):
        if publisher != _NO_PUBLISHER:
            yield publisher, map(itemgetter(1), some)
