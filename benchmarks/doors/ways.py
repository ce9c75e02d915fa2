"""The ways in which events enter the engine, each as a function that counts their matches."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json
from numpy.typing import NDArray

from benchmarks.baselines.counting import CountingMatcher
from benchmarks.engines import Counts
from benchmarks.workloads.conjunctions import Conjunctions
from benchmarks.workloads.forms import Rows
from tamis.events import decode_json
from tamis.events.arrow import ArrowEvents
from tamis.events.batch import EventBatch, Projection
from tamis.events.packed import packed
from tamis.filters import Filter
from tamis.filters.atoms import Compare, TextTest
from tamis.filters.boolean import And
from tamis.matching import Engine, Matches
from tamis.matching.evaluate.batch_kernels import CellsByAttribute, sort_by_event

Way = Callable[[int], Counts]
"""Counts the matches of the first N events."""


class DoorEvents(NamedTuple):
    """The same events in every form, so that no way pays for another's."""

    columns: pa.RecordBatch
    dicts: Sequence[Mapping[str, Any]]
    lines: Sequence[bytes]

    @classmethod
    def of(cls, columns: pa.RecordBatch, matched: Filter) -> DoorEvents:
        """Return events given as columns, with nulls for what they lack.

        The first is made to satisfy a filter, because few filters might match nothing.
        """
        rows = columns.to_pylist()
        rows[0].update(_satisfying(matched))
        columns = pa.RecordBatch.from_pylist(rows, columns.schema)
        dicts = [{n: v for n, v in row.items() if v is not None} for row in rows]
        lines = [json.dumps(each, separators=(",", ":")).encode() for each in dicts]
        return cls(columns, dicts, lines)

    def table(self, count: int) -> pa.RecordBatch:
        """Return the first events as columns; to slice a thousand of them takes a while."""
        return self.columns if count == len(self.columns) else self.columns.slice(0, count)

    def text(self, count: int) -> bytes:
        """Return the first events as JSON lines."""
        return b"\n".join(self.lines[:count])


def _satisfying(filter_: Filter) -> dict[str, object]:
    """Return values that satisfy the equalities and prefixes of a conjunction."""
    values: dict[str, object] = {}
    for term in filter_.terms if isinstance(filter_, And) else ():
        match term:
            case Compare(attribute=name, op="=", value=value):
                values[name] = value
            case TextTest(attribute=name, op="starts with", text=text):
                values[name] = f"{text}page-1.html"
    return values


def ids(matches: Matches) -> Counts:
    """Make the lists of ids, which is what one matches for, and count them."""
    lists = matches.to_arrow()
    counts: Counts = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return counts


def batch_ways(engine: Engine, events: DoorEvents) -> dict[str, Way]:
    """Return the ways of many events at a time."""
    texts = {len(events.lines): events.text(len(events.lines))}

    def text(count: int) -> bytes:
        if count not in texts:
            texts[count] = events.text(count)
        return texts[count]

    return {
        "Arrow": lambda n: ids(engine.match_batch(events.table(n))),
        "JSON lines": lambda n: ids(engine.match_json_lines(text(n))),
        "list of dicts": lambda n: ids(engine.match_batch(events.dicts[:n])),
        "JSON by hand, pyarrow.json": lambda n: ids(engine.match_batch(_by_arrow(text(n)))),
        "JSON, decode_json each": lambda n: ids(
            engine.match_batch([decode_json(line) for line in events.lines[:n]])
        ),
    }


def counting_ways(work: Conjunctions, events: DoorEvents) -> dict[str, Way]:
    """Return the counting algorithm, which counts without making ids.

    It reads flat arrays of what each event has. They are there beforehand, or made from Arrow's
    columns by the reader of Tamis.
    """
    counting = CountingMatcher(work.fields, work.predicates, work.programs)
    numbers = {field.name: number for number, field in enumerate(work.fields)}
    held = [(numbers[name], value) for each in events.dicts for name, value in each.items()]
    attribute, value = zip(*held, strict=True)
    ends = np.cumsum([0, *map(len, events.dicts)], dtype=np.int64)
    rows = Rows(ends, np.array(attribute, np.int32), np.array(value, np.float64))
    attributes = np.array([numbers[name] for name in events.columns.schema.names], np.int32)
    everything = Projection()

    def from_arrow(count: int) -> Counts:
        [batch] = ArrowEvents(events.table(count)).event_batches(everything)
        return counting.counts(_rows(batch, attributes))

    return {
        "counting": lambda n: counting.counts(rows.part(0, n)),
        "counting, from Arrow": from_arrow,
    }


def _rows(batch: EventBatch, attributes: NDArray[np.int32]) -> Rows:
    """Return what each event has, given the number of each column's attribute; values are small."""
    read = packed(batch.columns).numbers
    starts, blocks = np.zeros(batch.length + 1, np.int64), np.empty_like(read.events)
    values = np.empty_like(read.events)
    by_column = CellsByAttribute(
        read.starts, read.events, read.values.astype(np.int32), np.empty((0, 0), np.uint64)
    )
    sort_by_event(by_column, starts, blocks, values)
    return Rows(starts, attributes[blocks], values.astype(np.float64))


def single_ways(engine: Engine, events: DoorEvents) -> dict[str, Way]:
    """Return the ways of one event at a time."""
    return {
        "one JSON event at a time": lambda n: _counted(
            [engine.match_json(line) for line in events.lines[:n]]
        ),
        "one dict at a time": lambda n: _counted([engine.match(each) for each in events.dicts[:n]]),
    }


def _counted(found: Sequence[Sequence[object]]) -> Counts:
    return np.array([len(each) for each in found], np.int64)


def _by_arrow(text: bytes) -> pa.Table:
    return pyarrow.json.read_json(io.BytesIO(text))
