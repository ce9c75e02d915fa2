"""Matching a DataFrame: each row gets the subscriptions that its event satisfies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import SchemaError
from tamis.events.arrow import batch_of_arrow
from tamis.filters import Mode
from tamis.spark.library.library import Library, Version
from tamis.spark.matching.columns import (
    empty_table,
    paths_to,
    quoted,
    select_columns,
    wanted_attributes,
)
from tamis.spark.matching.counts import Tally
from tamis.spark.matching.outputs import Output
from tamis.spark.matching.plan import Plan, Strategy
from tamis.spark.matching.request import MatchInput, MatchOptions, MatchRequest
from tamis.spark.matching.shuffle import EVENT, GROUP, copy_to_groups, shuffle_by_key
from tamis.spark.matching.worker import MatchJob, match_rows
from tamis.spark.runtime.versions import require_spark

RESERVED: Final = ("subscriptions", "subscription", "matches", "error", EVENT.name, GROUP.name)
_ADDED: Final = {Strategy.SINGLE: [], Strategy.KEYED: [GROUP], Strategy.GRID: [EVENT, GROUP]}


class EventColumn(NamedTuple):
    """The column of whole events as JSON, Variant or XML; none if attributes are columns."""

    json: str | None = None
    variant: str | None = None
    xml: str | None = None

    @property
    def name(self) -> str | None:
        """Return the name of the column."""
        return self.json or self.variant or self.xml

    @property
    def column(self) -> Column | None:
        """Return the events as JSON, or as XML."""
        if sum(name is not None for name in self) > 1:
            raise SchemaError(
                "an event is in one column, of JSON, of Variant or of XML, not in several"
            )
        if self.xml is not None:
            return F.col(quoted(self.xml))
        if self.variant is not None:
            require_spark((4, 0), "a column of type Variant takes")
            return F.to_json(F.col(quoted(self.variant)))
        return None if self.json is None else F.col(quoted(self.json))


def match(
    library: Library | Version | str | PathLike[str],
    *,
    output: str = Output.IDS,
    keep: Sequence[str] | None = None,
    json: str | None = None,
    variant: str | None = None,
    xml: str | None = None,
    unmatched: bool | None = None,
    now: float | datetime | None = None,
    tally: Tally | None = None,
    plan: str | None = None,
    memory: int | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that matches events: `events.transform(match(library))`.

    The call pins the newest version of the library, and the time by which subscriptions expire.
    The results repeat the columns in `keep`, or all columns; fewer are faster. Unless `plan` names
    one, the plan depends on the memory, in bytes, that a machine has for subscriptions.
    """
    request = MatchOptions(output, unmatched, plan, memory).request(library, now, tally)
    source = EventColumn(json, variant, xml)
    return lambda events: match_frame(events, request, source, keep)


def match_frame(
    events: DataFrame, request: MatchRequest, source: EventColumn, keep: Sequence[str] | None
) -> DataFrame:
    """Match the rows of a DataFrame."""
    kept = checked_keep(events, keep)
    if source.column is None:
        return request.match(_attribute_rows(events, request.version, kept))
    return request.match(_json_rows(events, request.version, source, kept))


@dataclass(frozen=True)
class FrameInput(MatchInput):
    """Events in the rows of a DataFrame."""

    events: DataFrame
    columns: list[Column]
    key: Column | None = None
    buckets: int = 0

    event_id = (EVENT.name,)

    @property
    def has_key(self) -> bool:
        """Return whether the rows have the library's key in a string column."""
        return self.key is not None

    def added_fields(self, strategy: Strategy) -> list[T.StructField]:
        """Return the columns that a strategy adds."""
        return _ADDED[strategy]

    def run(self, job: MatchJob, plan: Plan, schema: T.StructType) -> DataFrame:
        """Shuffle the rows as planned, and match them."""

        def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return match_rows(batches, job)

        return self._shuffled(plan).mapInArrow(results, schema)

    def _shuffled(self, plan: Plan) -> DataFrame:
        if plan.strategy is Strategy.KEYED:
            assert self.key is not None  # noqa: S101 - a keyed plan needs `has_key`
            return shuffle_by_key(self.events, self.columns, self.key, self.buckets)
        rows = self.events.select(*self.columns)
        if plan.strategy is Strategy.GRID:
            return copy_to_groups(rows, len(plan.shard_groups))
        return rows


def _attribute_rows(events: DataFrame, version: Version, kept: Sequence[str]) -> FrameInput:
    total = version.manifest.mode == Mode.TOTAL
    wanted = wanted_attributes(events, version.attributes, version.schema, total=total)
    selection = select_columns(events, kept, wanted)
    # Refuse a column of an unsupported type here, not in the middle of a job.
    table = empty_table(events.select(*selection.columns).schema)
    columns = [table.column(place) for _, place in selection.attributes]
    names = [name for name, _ in selection.attributes]
    batch_of_arrow(pa.Table.from_arrays(columns, names), version.schema, wanted=wanted)
    return FrameInput(
        kept=[events.schema[name] for name in kept],
        width=len(selection.columns),
        wanted=wanted,
        attributes=selection.attributes,
        text=None,
        events=events,
        columns=selection.columns,
        key=key_column(events, version),
        buckets=version.manifest.buckets,
    )


def key_column(events: DataFrame, version: Version) -> Column | None:
    """Return the library's key if the events have it in a string column."""
    key = version.manifest.key
    paths = [] if key is None else list(paths_to(events.schema, key))
    if len(paths) == 1 and isinstance(paths[0].type, T.StringType) and not paths[0].arrays:
        return paths[0].column
    return None


def _json_rows(
    events: DataFrame, version: Version, source: EventColumn, kept: Sequence[str]
) -> FrameInput:
    name, column = source.name, source.column
    if name is None or column is None or name not in events.columns:
        raise SchemaError(f"the events have no column {name!r} to read them from")
    type_ = events.schema[name].dataType
    if not source.variant and not isinstance(type_, T.StringType | T.BinaryType):
        kind = "XML" if source.xml else "JSON"
        raise SchemaError(
            f"the column {name!r} should hold {kind} as text, but has the type "
            f"{type_.simpleString()}"
        )
    columns = [F.col(quoted(one)) for one in kept]
    text = list(kept).index(name) if name in kept and not source.variant else len(columns)
    if text == len(columns):
        columns.append(column)
    return FrameInput(
        kept=[events.schema[one] for one in kept],
        width=len(columns),
        wanted=version.attributes,
        attributes=(),
        text=text,
        events=events,
        columns=[one.alias(f"c{place}") for place, one in enumerate(columns)],
        xml=source.xml is not None,
    )


def checked_keep(
    events: DataFrame, keep: Sequence[str] | None, *, beside: Sequence[str] = ()
) -> list[str]:
    """Return the names of the columns to keep, or raise if one cannot be kept."""
    kept = events.columns if keep is None else list(keep)
    for name in kept:
        if name not in events.columns:
            known = ", ".join(events.columns)
            raise SchemaError(f"there is no column {name!r} to keep; the columns are {known}")
        if name in (*RESERVED, *beside) or events.columns.count(name) > 1:
            raise SchemaError(
                f"the column {name!r} cannot be kept beside the results; rename it, or name in "
                "`keep` the columns to keep"
            )
    return kept
