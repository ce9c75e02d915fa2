"""Conjunctions as BE-Gen draws them: A, B and C of issue 3, and one that grows.

A  events of eight fields; subscriptions with `=` on the first three
B  1,000 attributes of 100 values; five `=` each; events of 20 attributes, one match planted
C  20 attributes of 1,000 values; three ranges 100 wide each
growth  as A, with cardinalities that grow so that an event always has about ten matches
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.building import filters_of, number_atoms, part_of
from benchmarks.workloads.drawing import distinct
from benchmarks.workloads.events import Events, Field
from benchmarks.workloads.forms import (
    BETWEEN,
    EQ,
    Predicates,
    Programs,
    Rows,
    conjunctions,
    predicates,
)
from tamis.filters import Filter

CARDINALITIES_A: Final = (1000, 100, 100, 50, 20, 10, 5, 2)
WIDTH_C: Final = 100
MATCHES: Final = 10

Draw = Callable[[np.random.Generator, int], Rows]


class Workload:
    """Conjunctions over whole numbers."""

    def __init__(
        self, fields: Sequence[Field], tests: Predicates, terms: NDArray[np.int32], draw: Draw
    ) -> None:
        self.fields = fields
        self.predicates = tests
        self.terms = terms
        """The predicates of each subscription, a row each."""
        self.programs: Programs = conjunctions(terms)
        self._draw = draw

    @cached_property
    def atoms(self) -> list[Filter]:
        """Return the atom of each predicate."""
        return number_atoms(self.fields, self.predicates)

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]:
        """Return the subscriptions, or some of them, as filters."""
        end = len(self.programs) if last is None else last
        return filters_of(part_of(self.programs, first, end), self.atoms)

    def events(self, count: int, seed: int) -> Events:
        """Return events of this workload."""
        return Events(self.fields, self._draw(np.random.default_rng((seed, 2)), count))


def workload_a(count: int, seed: int) -> Workload:
    """Return equalities on three of eight fields."""
    return _three_equalities(count, seed, CARDINALITIES_A)


def workload_b(count: int, seed: int) -> Workload:
    """Return five equalities on a few of very many attributes."""
    rng = np.random.default_rng((seed, 1))
    cardinality, per_event = 100, 20
    fields = _fields((cardinality,) * 1000)
    attribute = distinct(rng, count, len(fields), 5)
    value = rng.integers(cardinality, size=attribute.shape, dtype=np.int32)
    terms = attribute * cardinality + value

    def draw(rng: np.random.Generator, events: int) -> Rows:
        planted = terms[rng.integers(count, size=events)]
        attributes = np.empty((events, per_event), np.int32)
        for row, (mine, others) in enumerate(
            zip(planted // cardinality, distinct(rng, events, len(fields), per_event), strict=True)
        ):
            rest = rng.permutation(np.setdiff1d(others, mine))[: per_event - len(mine)]
            attributes[row] = np.concatenate((mine, rest))
        values = rng.integers(cardinality, size=attributes.shape)
        values[:, : planted.shape[1]] = planted % cardinality
        return _table(attributes, values)

    return Workload(fields, _all_equalities(fields), terms, draw)


def workload_c(count: int, seed: int) -> Workload:
    """Return three ranges on a few of twenty attributes."""
    rng = np.random.default_rng((seed, 1))
    fields = _fields((1000,) * 20)
    lows = 1000 - WIDTH_C + 1
    attribute = distinct(rng, count, len(fields), 3)
    terms = attribute * lows + rng.integers(lows, size=attribute.shape, dtype=np.int32)
    low = np.tile(np.arange(lows, dtype=np.float64), len(fields))
    tests = predicates(
        np.repeat(np.arange(len(fields), dtype=np.int32), lows),
        np.full(len(low), BETWEEN, np.int8),
        low,
        low + WIDTH_C - 1,
    )
    return Workload(fields, tests, terms, _total(fields))


def growth(count: int, seed: int, *, even: bool = True, matches: int = MATCHES) -> Workload:
    """Return conjunctions of which an event matches as many, however many there are.

    Either all three cardinalities grow evenly, so that no equality alone is selective, or only
    the first one does, as the number of users or devices would.
    """
    combinations = count / matches
    if even:
        side = max(2, round(combinations ** (1 / 3)))
        three = (max(1, round(combinations / side**2)), side, side)
    else:
        three = (max(1, round(combinations / 10)), 5, 2)
    return _three_equalities(count, seed, (*three, *CARDINALITIES_A[3:]))


def _three_equalities(count: int, seed: int, cardinalities: Sequence[int]) -> Workload:
    rng = np.random.default_rng((seed, 1))
    fields = _fields(cardinalities)
    base = np.cumsum((0, *cardinalities[:2]), dtype=np.int32)
    terms = base + rng.integers(cardinalities[:3], size=(count, 3), dtype=np.int32)
    return Workload(fields, _all_equalities(fields[:3]), terms, _total(fields))


def _fields(cardinalities: Sequence[int]) -> tuple[Field, ...]:
    return tuple(Field(f"f{n}", int, cardinality) for n, cardinality in enumerate(cardinalities))


def _all_equalities(fields: Sequence[Field]) -> Predicates:
    values = [np.arange(field.cardinality, dtype=np.float64) for field in fields]
    attribute = np.repeat(np.arange(len(fields), dtype=np.int32), [len(v) for v in values])
    return predicates(attribute, np.full(len(attribute), EQ, np.int8), np.concatenate(values))


def _total(fields: Sequence[Field]) -> Draw:
    cardinalities = [field.cardinality for field in fields]

    def draw(rng: np.random.Generator, events: int) -> Rows:
        values = rng.integers(cardinalities, size=(events, len(fields)))
        return _table(np.tile(np.arange(len(fields), dtype=np.int32), (events, 1)), values)

    return draw


def _table(attributes: NDArray[np.int32], values: NDArray[np.int64]) -> Rows:
    events, width = attributes.shape
    start = np.arange(events + 1, dtype=np.int64) * width
    return Rows(start, attributes.reshape(-1), values.reshape(-1).astype(np.float64))
