"""Conjunctions as BE-Gen draws them: A, B and C are shipped workloads, and one that grows.

A  events of eight fields; subscriptions with `=` on the first three
B  1,000 attributes of 100 values; five `=` each; events of 20 attributes, one match planted
C  20 attributes of 1,000 values; three ranges 100 wide each
texts  as A, but all fields are texts, and the second test is a prefix
growth  as A, with cardinalities that grow so that an event always has about ten matches
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.workloads.drawn import Drawn, parsed
from benchmarks.workloads.events import Events
from benchmarks.workloads.forms import Rows
from tamis.filters import Filter
from tamis.workloads import Workload

CARDINALITIES_A: Final = (1000, 100, 100, 50, 20, 10, 5, 2)
MATCHES: Final = 10
TEXTS: Final = """
[attributes]
host = { type = "str", texts = "host-{1..1000}.example" }
path = { type = "str", texts = "/{1..100}/page-{1..40}.html" }
user = { type = "str", texts = "user {1..100}" }
agent = { type = "str", texts = "agent/{1..50}" }
zone = { type = "str", texts = "zone-{1..20}" }
level = { type = "str", texts = "level {1..10}" }
kind = { type = "str", texts = "kind {1..5}" }
live = { type = "str", texts = ["yes", "no"] }

[values]
folder = { type = "str", texts = "/{1..100}/" }

[rules]
filter = "host = {host} and path starts with {folder} and user = {user}"
"""


class Conjunctions(Drawn):
    """Conjunctions with the same number of comparisons each."""

    @property
    def terms(self) -> NDArray[np.int32]:
        """Return a row of predicates for each subscription."""
        return self.programs.code.reshape(self.count, -1)[:, :-1]


class TextEvents(NamedTuple):
    """Events with texts, as Arrow's columns only: the baselines take numbers."""

    batch: pa.RecordBatch

    def record_batch(self) -> pa.RecordBatch:
        """Return the columns."""
        return self.batch


class TextConjunctions:
    """Conjunctions of tests of text, for the engine and for peers that read JSON."""

    def __init__(self, count: int, seed: int) -> None:
        self._workload = Workload(TEXTS, "texts")
        self.count = count
        self._seed = seed

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]:
        """Return the subscriptions, or some of them, as filters."""
        end = self.count if last is None else last
        texts = self._workload.subscriptions(first, end, self._seed).column("filter")
        return [parsed(text) for text in texts.to_pylist()]

    def events(self, count: int, seed: int) -> TextEvents:
        """Return events."""
        return TextEvents(self._workload.events(0, count, seed))


class PlantedConjunctions(Conjunctions):
    """Conjunctions so selective that an event would match none; one match is planted in each.

    A workload file draws events and filters independently, so it cannot express this.
    """

    def events(self, count: int, seed: int, density: float = 1.0) -> Events:
        """Return events that satisfy a subscription by a few of their attributes."""
        rows = super().events(count, seed, density).rows
        rng = np.random.default_rng((seed, 2))
        terms = self.terms[rng.integers(self.count, size=count)]
        width = terms.shape[1]
        attributes = rows.attribute.reshape(count, -1).copy()
        values = rows.value.reshape(count, -1).copy()
        for event, planted in enumerate(self.predicates.attribute[terms]):
            rest = ~np.isin(attributes[event], planted)
            order = np.argsort(~rest, kind="stable")
            # The attributes to keep come first, and as many as are planted are dropped.
            attributes[event], values[event] = attributes[event][order], values[event][order]
            attributes[event, -width:] = planted
        values[:, -width:] = self.predicates.low[terms]
        return Events(self.fields, Rows(rows.start, attributes.reshape(-1), values.reshape(-1)))


def workload_a(count: int, seed: int) -> Conjunctions:
    """Return equalities on three of eight fields."""
    return Conjunctions(Workload.load("be-a"), count, seed, CARDINALITIES_A)


def workload_texts(count: int, seed: int) -> TextConjunctions:
    """Return an equality, a prefix and an equality of text."""
    return TextConjunctions(count, seed)


def workload_b(count: int, seed: int) -> Conjunctions:
    """Return five equalities on a few of very many attributes."""
    return PlantedConjunctions(Workload.load("be-b"), count, seed, (100,) * 1000)


def workload_c(count: int, seed: int) -> Conjunctions:
    """Return three ranges on a few of twenty attributes."""
    return Conjunctions(Workload.load("be-c"), count, seed, (1000,) * 20)


def growth(count: int, seed: int, *, even: bool = True, matches: int = MATCHES) -> Conjunctions:
    """Return conjunctions of which an event matches about ten, regardless of their number.

    Either all three cardinalities grow evenly, so that no equality alone is selective, or only
    the first one does, as the number of users or devices would.
    """
    combinations = count / matches
    if even:
        side = max(2, round(combinations ** (1 / 3)))
        three = (max(1, round(combinations / side**2)), side, side)
    else:
        three = (max(1, round(combinations / 10)), 5, 2)
    cardinalities = (*three, *CARDINALITIES_A[3:])
    return Conjunctions(_three_equalities(cardinalities), count, seed, cardinalities)


def _three_equalities(cardinalities: Sequence[int]) -> Workload:
    declared = [
        f'attributes.f{number} = {{ type = "int", range = [0, {cardinality - 1}] }}'
        for number, cardinality in enumerate(cardinalities)
    ]
    rule = 'rules.filter = "f0 = {f0} and f1 = {f1} and f2 = {f2}"'
    return Workload("\n".join([*declared, rule]), "growth")
