"""Workloads of `tamis.workloads`, with the flat form that baselines read."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.workloads.events import Events, Field
from benchmarks.workloads.forms import (
    AND,
    BETWEEN,
    COMPARISONS,
    NOT,
    OR,
    XOR,
    Predicates,
    Programs,
    Rows,
    connective,
    predicates,
)
from tamis.filters import Filter
from tamis.filters.atoms import Between, Compare
from tamis.filters.boolean import And, Connective, Not, Or, Xor
from tamis.languages import parse
from tamis.workloads import Workload

OPERATORS: Final = {And: AND, Or: OR, Xor: XOR}
# Filters are parsed in parts, since a million of them at once need more memory than the engine.
PART: Final = 50_000


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking over millions of objects that stay alive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Drawn:
    """Subscriptions and events of one workload and one seed."""

    def __init__(
        self, workload: Workload, count: int, seed: int, cardinalities: Sequence[int]
    ) -> None:
        self.workload = workload
        self.count = count
        self._seed = seed
        types = {"int": int, "float": float, "str": str}
        self.fields = tuple(
            Field(name, types[declared.type.value], cardinality)
            for (name, declared), cardinality in zip(
                workload.schema.items(), cardinalities, strict=True
            )
        )

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]:
        """Return the subscriptions, or some of them, as filters."""
        end = self.count if last is None else last
        texts = self.workload.subscriptions(first, end, self._seed).column("filter")
        with collector_paused():
            return [parsed(text) for text in texts.to_pylist()]

    @cached_property
    def programs(self) -> Programs:
        """Return the subscriptions as postfix programs over the atoms."""
        return self._flat[0]

    @cached_property
    def predicates(self) -> Predicates:
        """Return the atoms as flat arrays."""
        return self._predicates(self._flat[1])

    def events(self, count: int, seed: int, density: float = 1.0) -> Events:
        """Return events; with a density below 1, each attribute is there with this probability."""
        share = density if density < 1 else None
        batch = self.workload.events(0, count, seed, share)
        return Events(self.fields, rows_of_batch(batch, self.texts), self.texts)

    @property
    def texts(self) -> Sequence[str]:
        """Return the texts that events have; the flat form has their numbers."""
        return ()

    def _atoms(self) -> Sequence[Filter]:
        """Return atoms that have numbers before any filter is drawn."""
        return ()

    def _predicates(self, atoms: Sequence[Filter]) -> Predicates:
        places = {field.name: number for number, field in enumerate(self.fields)}
        found = np.array([_comparison(atom, places) for atom in atoms], np.float64).T
        attribute, op = found[0].astype(np.int32), found[1].astype(np.int8)
        return predicates(attribute, op, found[2].copy(), found[3].copy())

    @cached_property
    def _flat(self) -> tuple[Programs, list[Filter]]:
        numbers = {atom: number for number, atom in enumerate(self._atoms())}
        code, start = array("i"), array("q", [0])
        for first in range(0, self.count, PART):
            for filter_ in self.filters(first, min(first + PART, self.count)):
                _append(code, filter_, numbers)
                start.append(len(code))
        return Programs(np.array(code, np.int32), np.array(start, np.int64)), list(numbers)


def parsed(text: str) -> Filter:
    """Return a filter.

    A conjunction of comparisons is put together from atoms that are parsed once each: to parse
    millions of them in full would take longer than everything that is measured.
    """
    if any(word in text for word in ("(", " or ", " xor ", " between ", "not ")):
        return parse(text)
    return And.of([_atom(term) for term in text.split(" and ")])


@cache
def _atom(text: str) -> Filter:
    return parse(text)


def _append(code: array[int], filter_: Filter, numbers: dict[Filter, int]) -> None:
    """Append a filter in postfix form; atoms get the next numbers."""
    if isinstance(filter_, Connective):
        for term in filter_.terms:
            _append(code, term, numbers)
        code.append(connective(OPERATORS[type(filter_)], len(filter_.terms)))
    elif isinstance(filter_, Not):
        _append(code, filter_.term, numbers)
        code.append(connective(NOT, 1))
    else:
        code.append(numbers.setdefault(filter_, len(numbers)))


def _comparison(atom: Filter, places: dict[str, int]) -> tuple[int, int, float, float]:
    match atom:
        case Compare(attribute=attribute, op=op, value=int() as value):
            return places[attribute], COMPARISONS.index(op), value, value
        case Between(attribute=attribute, low=low, high=high):
            return places[attribute], BETWEEN, low, high
    raise ValueError(f"{atom} is no comparison of whole numbers")


def rows_of_batch(batch: pa.RecordBatch, texts: Sequence[str]) -> Rows:
    """Return events as the attributes that they have, texts by their numbers."""
    known = pa.array(texts, pa.string())
    events: list[NDArray[np.int64]] = []
    values: list[NDArray[np.float64]] = []
    for column in batch.columns:
        events.append(np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)))
        found = column.drop_null()
        if pa.types.is_string(found.type):
            found = pc.index_in(found, known)
        values.append(found.to_numpy(zero_copy_only=False).astype(np.float64))
    event = np.concatenate(events)
    order = np.argsort(event, kind="stable")
    attribute = np.repeat(np.arange(len(events), dtype=np.int32), [len(each) for each in events])
    start = np.zeros(len(batch) + 1, np.int64)
    np.cumsum(np.bincount(event, minlength=len(batch)), out=start[1:])
    return Rows(start, attribute[order], np.concatenate(values)[order])
