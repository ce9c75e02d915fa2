"""The ways in which events enter the engine, each as a function that counts their matches."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.json

from benchmarks.baselines.counting import CountingMatcher
from benchmarks.engines import Counts
from benchmarks.workloads.conjunctions import Conjunctions
from benchmarks.workloads.forms import Rows
from tamis.events import decode_json
from tamis.filters import Filter
from tamis.filters.atoms import Compare, TextTest
from tamis.filters.boolean import And
from tamis.matching import Engine, Matches

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
        "Arrow": lambda n: ids(engine.match_batch(events.columns.slice(0, n))),
        "JSON lines": lambda n: ids(engine.match_json_lines(text(n))),
        "list of dicts": lambda n: ids(engine.match_batch(events.dicts[:n])),
        "JSON by hand, pyarrow.json": lambda n: ids(engine.match_batch(_by_arrow(text(n)))),
        "JSON, decode_json each": lambda n: ids(
            engine.match_batch([decode_json(line) for line in events.lines[:n]])
        ),
    }


def counting_way(work: Conjunctions, events: DoorEvents) -> dict[str, Way]:
    """Return the counting algorithm, which reads flat arrays, and counts without making ids."""
    counting = CountingMatcher(work.fields, work.predicates, work.programs)
    numbers = {field.name: number for number, field in enumerate(work.fields)}
    held = [(numbers[name], value) for each in events.dicts for name, value in each.items()]
    attribute, value = zip(*held, strict=True)
    ends = np.cumsum([0, *map(len, events.dicts)], dtype=np.int64)
    rows = Rows(ends, np.array(attribute, np.int32), np.array(value, np.float64))
    return {"counting": lambda n: counting.counts(rows.part(0, n))}


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
