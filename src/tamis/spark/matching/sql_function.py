"""A library as functions of SQL: of an event, and of a table of events.

::

    SELECT *, alerts(struct(*)) FROM events
    SELECT * FROM alerts_pairs(TABLE(events))
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from os import PathLike
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from tamis.errors import EventError, SchemaError
from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.filters.any_text import text_attributes
from tamis.filters.printing import ANY
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.columns import paths_to, show_names, text_names
from tamis.spark.matching.outputs import Output, ShardMatches, result_columns, result_fields
from tamis.spark.matching.plan import Machine, Strategy, choose_plan
from tamis.spark.matching.request import MatchOptions, numbers_of, require_no_elements
from tamis.spark.matching.row_times import zoned_values
from tamis.spark.matching.shard_cache import SHARDS
from tamis.spark.matching.worker import EventDecoder, MatchJob, RowLayout, RowMatcher
from tamis.spark.runtime.versions import require_spark

ERROR_SUFFIX: Final = "_error"
PAIRS_SUFFIX: Final = "_pairs"
ROWS_PER_CALL: Final = 10_000
_NUMBER: Final = "_number"


def register(
    spark: SparkSession,
    library: Library | Version | str | PathLike[str],
    name: str,
    *,
    output: str = Output.IDS,
    now: float | datetime | None = None,
) -> None:
    """Register a function of SQL that matches an event: a struct, or JSON as text or binary.

    It gives what `match` has in its first column, in the form of an output other than pairs, and
    NULL for a rejected event, for which the function with the suffix `_error` gives the reason.
    The function with the suffix `_pairs` takes a table of events, and gives their columns with
    `subscription` and `error`: a row for each match, and one for each rejected event. The call pins
    the newest version, and the time by which subscriptions expire.
    """
    require_spark((4, 1), "a function of SQL takes")
    function = SqlFunction(_job(library, output, now))
    _check_name(name)
    field = result_fields(function.job.output, function.job.numbers)[0]

    def matches(events: pa.Array) -> pa.Array:
        return function.matches(events)

    def error(events: pa.Array) -> pa.Array:
        return function.errors(events)

    # Its name, new in Spark 4.1, is not among those that PySpark declares.
    arrow_udf: Any = getattr(F, "arrow_udf")  # noqa: B009
    spark.udf.register(name, arrow_udf(matches, field.dataType))
    spark.udf.register(f"{name}{ERROR_SUFFIX}", arrow_udf(error, T.StringType()))
    # Spark 3.5 has not what functions of tables are made of.
    from tamis.spark.matching.pairs_function import pairs_handler  # noqa: PLC0415

    udtf: Any = F.udtf
    handler = pairs_handler(function.pairs, function.job.numbers.spark_type, ROWS_PER_CALL)
    spark.udtf.register(f"{name}{PAIRS_SUFFIX}", udtf(handler))


class SqlFunction(NamedTuple):
    """A match job whose rows are the values of one column."""

    job: MatchJob

    def matches(self, events: pa.Array[Any]) -> pa.Array[Any]:
        """Return what each event matches."""
        job = self.job
        batch = self._events(events)
        found = ShardMatches(batch, SHARDS.open(job.place, job.shards), job.now)
        return result_columns(found, job.output, job.numbers, unmatched=True).columns[0]

    def errors(self, events: pa.Array[Any]) -> pa.Array[Any]:
        """Return why an event is rejected; null if it is not."""
        found = self._events(events).errors
        reasons = [str(found[row]) if row in found else None for row in range(len(events))]
        return pa.array(reasons, pa.string())

    def pairs(self, rows: Sequence[Any], columns: pa.Schema) -> Iterator[tuple[Any, ...]]:
        """Yield rows of events with a subscription each, or with an error."""
        wanted = _wanted(self.job, columns)
        mentioned = _mentioned(columns, wanted)
        job = self.job._replace(
            output=Output.PAIRS,
            unmatched=False,
            wanted=wanted,
            layout=RowLayout(
                ((_NUMBER, len(mentioned)),),
                tuple((name, at) for at, name in enumerate(mentioned.names)),
            ),
        )
        numbered = _numbered(rows, mentioned)
        for found in RowMatcher(job).results(numbered):
            places = (found.column(name).to_pylist() for name in (_NUMBER, "subscription", "error"))
            for at, subscription, error in zip(*places, strict=True):
                yield (*rows[at], subscription, error)

    def _events(self, events: pa.Array[Any]) -> EventBatch:
        type_ = events.type
        if pa.types.is_struct(type_):
            batch = self._columns(events)
        elif _is_text(type_):
            return self.job.decoder().from_json(events)
        else:
            raise SchemaError(
                f"an event should be a struct, as in struct(*), or JSON as text, but is {type_}"
            )
        if not events.null_count:
            return batch
        nulls = [row for row, valid in enumerate(events.is_valid().to_pylist()) if not valid]
        missing = dict.fromkeys(nulls, EventError("there is no event: the struct is null"))
        return EventBatch(
            len(batch), batch.columns, dict(sorted({**batch.errors, **missing}.items()))
        )

    def _columns(self, events: pa.Array[Any]) -> EventBatch:
        job, names = self.job, [field.name for field in events.type]
        rows = pa.RecordBatch.from_arrays(events.flatten(), names)
        decoder = job.decoder()
        wanted = _wanted(job, rows.schema)
        return EventDecoder(decoder.schema, job.mode == Mode.TOTAL, wanted).from_columns(rows)


def _is_text(type_: pa.DataType) -> bool:
    """Return whether a type is one of those that Spark has for texts and binary, by a setting."""
    return type_ in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _mentioned(columns: pa.Schema, wanted: Collection[str]) -> pa.Schema:
    """Return the columns that hold an attribute to decode; others may have any type."""
    struct = from_arrow_schema(columns)
    names = {path.keys[0] for name in wanted for path in paths_to(struct, name)}
    return pa.schema([field for field in columns if field.name in names])


def _numbered(rows: Sequence[Any], columns: pa.Schema) -> pa.RecordBatch:
    """Return some columns of the rows that Spark hands over, and the number of each row."""
    events = [row.asDict(recursive=True) for row in rows]
    arrays: list[pa.Array[Any]] = []
    for field in columns:
        values = [event[field.name] for event in events]
        convert = zoned_values(field.type)
        arrays.append(pa.array(map(convert, values) if convert else values, field.type))
    numbers = pa.array(range(len(rows)))
    return pa.RecordBatch.from_arrays([*arrays, numbers], [*columns.names, _NUMBER])


def _wanted(job: MatchJob, columns: pa.Schema) -> frozenset[str]:
    """Return the attributes to decode, or raise if the events have none that a filter mentions."""
    schema = job.decoder().schema
    struct = from_arrow_schema(columns)
    mentioned = job.wanted - {ANY}
    if ANY in job.wanted:
        texts = text_names(struct) if schema is None else text_attributes(schema)
        mentioned |= {*texts}
    if mentioned and not any(any(paths_to(struct, name)) for name in mentioned):
        raise SchemaError(
            "the events have no attribute that a filter mentions: filters mention "
            f"{show_names(mentioned)}, and the fields are {show_names(columns.names)}"
        )
    return mentioned | frozenset(schema or ())


def _job(
    library: Library | Version | str | PathLike[str], output: str, now: float | datetime | None
) -> MatchJob:
    request = MatchOptions(output).request(library, now)
    if request.output is Output.PAIRS:
        raise SchemaError(
            "a function gives one value for each event; for pairs, register another output, and "
            "use the function of a table, whose name ends in _pairs"
        )
    version = request.version
    require_no_elements(version, "a function of SQL may get structs, which have")
    plan = choose_plan(version, Machine.like_this(), has_key=False)
    if plan.strategy is not Strategy.SINGLE:
        raise SchemaError(
            f"a function of SQL needs all subscriptions in every worker, but {plan.reason}; use "
            "`match`, which divides them"
        )
    return MatchJob(
        place=version.place,
        shards=version.manifest.shards,
        numbers=numbers_of(version),
        schema=version.manifest.schema,
        mode=version.manifest.mode,
        wanted=version.attributes,
        output=request.output,
        unmatched=True,
        now=request.now,
        layout=RowLayout(()),
    )


def _check_name(name: str) -> None:
    if not name.isidentifier() or not name.isascii():
        raise SchemaError(
            f"{name!r} cannot be the name of a function of SQL: it has letters, digits and _"
        )
