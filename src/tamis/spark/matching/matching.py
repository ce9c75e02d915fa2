"""Matching: a DataFrame of events becomes one that tells which subscriptions each satisfies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    quoted,
    select_columns,
    wanted_attributes,
    ways_to,
)
from tamis.spark.matching.dealing import EVENT, SHARE, deal_by_key, deal_to_all, joined
from tamis.spark.matching.outputs import Output, result_fields
from tamis.spark.matching.planning import Plan, Strategy
from tamis.spark.matching.questions import Question, ask
from tamis.spark.matching.running import Job, Layout, match_rows
from tamis.spark.matching.tallying import Tally

RESERVED: Final = ("subscriptions", "subscription", "matches", "error", EVENT.name, SHARE.name)


class Source(NamedTuple):
    """Where in a row the event is: in its columns, or in one of them as text."""

    json: str | None = None
    variant: str | None = None
    xml: str | None = None

    @property
    def column(self) -> Column | None:
        """Return the column that holds the event as JSON, if one does."""
        if self.xml is not None:
            raise SchemaError(
                f"the column {self.xml!r} cannot be read as XML, which Tamis does not do on Spark "
                "yet; Spark's from_xml makes columns of it"
            )
        if self.json is not None and self.variant is not None:
            raise SchemaError("an event is in a JSON column or in a Variant column, not in both")
        if self.variant is not None:
            return F.to_json(F.col(quoted(self.variant)))
        return None if self.json is None else F.col(quoted(self.json))

    @property
    def name(self) -> str | None:
        """Return the name of that column."""
        return self.json or self.variant


class Rows(NamedTuple):
    """What of a DataFrame reaches the workers, the kept columns first."""

    columns: list[Column]
    kept: list[T.StructField]
    wanted: frozenset[str]
    attributes: tuple[tuple[str, int], ...] = ()
    text: int | None = None
    key: Column | None = None

    def layout(self, more: Sequence[T.StructField] = ()) -> Layout:
        """Return what the columns are for; `more` stand behind them, and come out as well."""
        kept = [(field.name, place) for place, field in enumerate(self.kept)]
        added = [(field.name, len(self.columns) + place) for place, field in enumerate(more)]
        share = dict(added).get(SHARE.name)
        return Layout((*kept, *added), self.attributes, self.text, share)


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
    """Return what makes matches of events: `events.transform(match(library))`.

    A library's newest version is taken now, and stays; so is the time that expiry goes by. The
    columns in `keep`, or else all, stand beside the results; fewer are faster. The plan is chosen
    by the memory that a machine has for subscriptions, in bytes, unless it is named.
    """
    question = ask(
        library,
        output=output,
        unmatched=unmatched,
        now=now,
        tally=tally,
        plan=plan,
        memory=memory,
    )
    source = Source(json, variant, xml)
    return lambda events: matched(events, question, source, keep)


def matched(
    events: DataFrame, question: Question, source: Source, keep: Sequence[str] | None
) -> DataFrame:
    """Answer a question about the rows of a DataFrame."""
    kept = checked_keep(events, keep)
    rows = (
        _with_attributes(events, question.version, kept)
        if source.column is None
        else _with_text(events, question.version, source, kept)
    )
    plan = question.planned(has_key=rows.key is not None)
    return question.finish(_STRATEGIES[plan.strategy](events, rows, question, plan))


# --- what reaches the workers --------------------------------------------------------------------


def _with_attributes(events: DataFrame, version: Version, kept: Sequence[str]) -> Rows:
    total = version.manifest.mode == Mode.TOTAL
    wanted = wanted_attributes(events, version.attributes, version.schema, total=total)
    selection = select_columns(events, kept, wanted)
    # A column that Tamis has no values for is refused here, not in the middle of a job.
    table = empty_table(events.select(*selection.columns).schema)
    columns = [table.column(place) for _, place in selection.attributes]
    names = [name for name, _ in selection.attributes]
    batch_of_arrow(pa.Table.from_arrays(columns, names), version.schema, wanted=wanted)
    fields = [events.schema[name] for name in kept]
    key = key_of(events, version)
    return Rows(selection.columns, fields, wanted, selection.attributes, key=key)


def key_of(events: DataFrame, version: Version) -> Column | None:
    """Return the key of a library where it is a column of texts, one in each event."""
    key = version.manifest.key
    ways = [] if key is None else list(ways_to(events.schema, key))
    if len(ways) == 1 and isinstance(ways[0].type, T.StringType) and not ways[0].arrays:
        return ways[0].column
    return None


def _with_text(events: DataFrame, version: Version, source: Source, kept: Sequence[str]) -> Rows:
    name, column = source.name, source.column
    if name is None or column is None or name not in events.columns:
        raise SchemaError(f"the events have no column {name!r} to read them from")
    type_ = events.schema[name].dataType
    if source.json and not isinstance(type_, T.StringType | T.BinaryType):
        raise SchemaError(
            f"the column {name!r} should hold JSON as text, and has the type {type_.simpleString()}"
        )
    columns = [F.col(quoted(one)) for one in kept]
    text = list(kept).index(name) if name in kept and source.json else len(columns)
    if text == len(columns):
        columns.append(column)
    named = [one.alias(f"c{place}") for place, one in enumerate(columns)]
    return Rows(named, [events.schema[one] for one in kept], version.attributes, text=text)


def checked_keep(
    events: DataFrame, keep: Sequence[str] | None, *, beside: Sequence[str] = ()
) -> list[str]:
    """Return the names of the columns to keep, or say which cannot be kept."""
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


# --- strategies ----------------------------------------------------------------------------------


def _single(events: DataFrame, rows: Rows, question: Question, plan: Plan) -> DataFrame:
    job = question.job(rows.layout(), rows.wanted, plan)
    return run(events.select(*rows.columns), job, rows.kept)


def _keyed(events: DataFrame, rows: Rows, question: Question, plan: Plan) -> DataFrame:
    assert rows.key is not None  # noqa: S101 - a plan by key is made only where there is one
    job = question.job(rows.layout([SHARE]), rows.wanted, plan)
    dealt = deal_by_key(events, rows.columns, rows.key, question.version.manifest.buckets)
    return run(dealt, job, [*rows.kept, SHARE]).drop(SHARE.name)


def _in_a_grid(events: DataFrame, rows: Rows, question: Question, plan: Plan) -> DataFrame:
    job = question.job(rows.layout([EVENT, SHARE]), rows.wanted, plan)
    dealt = deal_to_all(events.select(*rows.columns), len(plan.shares))
    results = run(dealt, job, [*rows.kept, EVENT, SHARE])
    kept = [field.name for field in rows.kept]
    return joined(results, [EVENT.name], kept, question.output)


_STRATEGIES: Final = {
    Strategy.SINGLE: _single,
    Strategy.KEYED: _keyed,
    Strategy.GRID: _in_a_grid,
}


def run(rows: DataFrame, job: Job, kept: Sequence[T.StructField]) -> DataFrame:
    """Return the results of a job as workers tell them."""

    def results(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return match_rows(batches, job)

    return rows.mapInArrow(results, result_schema(job, kept))


def result_schema(job: Job, kept: Sequence[T.StructField]) -> T.StructType:
    """Return the columns of the results."""
    fields = [T.StructField(field.name, field.dataType) for field in kept]
    return T.StructType([*fields, *result_fields(job.output, job.numbering)])
