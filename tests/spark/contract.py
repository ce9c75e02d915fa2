"""Subscriptions and events through Spark, and what the oracle says of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from tamis.errors import EventError
from tamis.events import Event, Schema, Type
from tamis.languages import parse
from tamis.spark import CompileReport, Tally, compile_subscriptions, match
from tamis.spark.runtime.versions import SPARK

Pairs = set[tuple[str, str]]


class Sub(NamedTuple):
    id: str
    filter: str
    language: str = "tamis"
    mode: str | None = None


def compiled(spark: SparkSession, subs: Sequence[Sub], path: Path, **options: Any) -> CompileReport:
    names = "id string, filter string, language string, mode string"
    # Spark 3.5 refuses members of enumerations, though they are texts.
    rows = [tuple(None if value is None else str(value) for value in sub) for sub in subs]
    return compile_subscriptions(spark.createDataFrame(rows, names), path, **options)


class Answer(NamedTuple):
    pairs: Pairs
    refused: set[str]


def by_spark(events: DataFrame, report: CompileReport, **options: Any) -> Answer:
    """Match events that have a column `name`, and check that all are accounted for."""
    tally = Tally()
    matched = match(report.version, output="pairs", keep=["name"], tally=tally, **options)
    rows = events.transform(matched).collect()
    pairs = {(row["name"], row["subscription"]) for row in rows if row["error"] is None}
    refused = {row["name"] for row in rows if row["error"] is not None}
    counts = tally.counts()
    assert counts.events == counts.matched + counts.unmatched + counts.rejected
    assert counts.events == events.count()
    assert counts.matched == len({name for name, _ in pairs})
    assert (counts.matches, counts.rejected) == (len(pairs), len(refused))
    assert len(rows) == len(pairs) + len(refused)
    return Answer(pairs, refused)


def by_the_oracle(
    events: Mapping[str, Event | Mapping[str, object]],
    subs: Iterable[Sub],
    schema: Schema | None,
    mode: str,
) -> Answer:
    filters = [(sub.id, parse(sub.filter, sub.language), sub.mode or mode) for sub in subs]
    if schema is not None:
        filters = [(id_, filter_.bind(schema), mode) for id_, filter_, mode in filters]
    pairs: Pairs = set()
    refused = set()
    for name, event in events.items():
        try:
            pairs |= {(name, id_) for id_, f, m in filters if f.matches(event, m, schema)}
        except EventError:
            refused.add(name)
    return Answer(pairs, refused)


# --- events as columns -------------------------------------------------------------------------

ARROW = {
    Type.INT: pa.int64(),
    Type.FLOAT: pa.float64(),
    Type.BOOL: pa.bool_(),
    Type.STR: pa.string(),
    Type.TIMESTAMP: pa.timestamp("us", "UTC"),
    Type.BITS: pa.int64(),
    Type.DATE: pa.date32(),
    Type.UUID: pa.string(),
    Type.BYTES: pa.binary(),
}


def as_columns(spark: SparkSession, events: Mapping[str, Event], schema: Schema) -> DataFrame:
    """Return typed events as a DataFrame, with a list where several values are declared."""
    columns: dict[str, Any] = {"name": pa.array(events, pa.string())}
    for name, declared in schema.items():
        type_ = ARROW[declared.type]
        values = [_plain(event.get(name), many=declared.many) for event in events.values()]
        columns[name] = pa.array(values, pa.list_(type_) if declared.many else type_)
    return frame_of(spark, pa.table(columns))


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame, which Spark 3.5 makes of a file only."""
    if SPARK >= (4, 0):
        return spark.createDataFrame(table)
    with TemporaryDirectory() as folder:
        pq.write_table(table, Path(folder) / "table.parquet")
        # Otherwise it refuses dates of the old calendar.
        frame = spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(folder).cache()
        assert frame.count() == table.num_rows
        return frame


def _plain(values: Sequence[Any] | None, *, many: bool) -> Any:
    if values is None:
        return None
    plain = [str(v) if isinstance(v, UUID) else getattr(v, "mask", v) for v in values]
    return plain if many else plain[0]
