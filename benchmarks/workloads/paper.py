"""Section 8 of the paper on BDD filtering: ten attributes, 208 atoms, 7.6 of them in a filter.

The shipped workload `paper` draws the filters and messages. Here are its atoms as the paper's BDD
numbers them, one Boolean variable each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from benchmarks.workloads.drawn import Drawn
from benchmarks.workloads.events import Field
from benchmarks.workloads.forms import COMPARISONS, EQ, GT, LT, TEXT, Predicates
from tamis.events import Schema
from tamis.filters import Filter
from tamis.filters.atoms import ValueAtom
from tamis.filters.build import comparison_of, text_test
from tamis.workloads import Workload

TOP: Final = 80
FIELDS: Final = (
    *(Field(f"int{i}", int, TOP + 1) for i in range(3)),
    *(Field(f"double{i}", float, TOP + 1) for i in range(3)),
    *(Field(f"string{i}", str, 20) for i in range(4)),
)
NUMBERS: Final = (10, 30, 50, 70)
TEXTS: Final = ("aa", "bb", "a", "b")
TEXT_OPERATORS: Final = ("=", "!=", "within", "contains")

# Twenty texts of varying length; the shortest decide `=` and `within`, the longer `contains`.
ALTERNATIVES: Final = (
    *("a", "b", "aa", "bb", "ab", "ba", "aaa", "bbb", "aab", "bab"),
    *("abab", "abba", "aaaa", "babb", "aabbb", "babab", "bbbbbb", "ababab", "baabaab", "aabbaabb"),
)

DENSITIES: Final = (0.077, 0.154, 0.231, 0.308, 1.0)


class Atom(NamedTuple):
    """A comparison of the workload."""

    field: int
    op: str
    constant: int | str

    def as_filter(self) -> Filter:
        """Return the atom of the IR."""
        name = FIELDS[self.field].name
        if isinstance(self.constant, str) and self.op not in COMPARISONS:
            return text_test(name, self.op, self.constant)
        return comparison_of(name, self.op, self.constant)


ATOMS: Final = tuple(
    Atom(number, op, constant)
    for number, field in enumerate(FIELDS)
    for constant in (TEXTS if field.type is str else NUMBERS)
    for op in (TEXT_OPERATORS if field.type is str else COMPARISONS)
)

# The atomic formulas of section 4 of the paper; the others are abbreviations of these.
PRIMITIVES: Final = tuple(
    atom for atom in ATOMS if atom.op in ("=", "<", ">", "within", "contains")
)


def predicates_of(atoms: Sequence[Atom]) -> Predicates:
    """Return the flat form of some atoms; texts are looked up in a table of the alternatives."""
    codes = {"=": EQ, "<": LT, ">": GT} | {op: n for n, op in enumerate(COMPARISONS)}
    tables: list[list[bool]] = []
    rows = np.zeros((len(atoms), 2))
    op = np.full(len(atoms), TEXT, np.int8)
    for number, atom in enumerate(atoms):
        if isinstance(atom.constant, str):
            rows[number] = 0, len(tables)
            accepts = value_atom(atom).accepts
            tables.append([accepts(text) for text in ALTERNATIVES])
        else:
            rows[number], op[number] = atom.constant, codes[atom.op]
    return Predicates(
        attribute=np.array([atom.field for atom in atoms], np.int32),
        op=op,
        low=np.ascontiguousarray(rows[:, 0]),
        high=np.ascontiguousarray(rows[:, 1]),
        member_start=np.zeros(len(atoms) + 1, np.int32),
        members=np.zeros(0),
        texts=np.array(tables, np.bool_).reshape(len(tables), len(ALTERNATIVES)),
    )


def value_atom(atom: Atom) -> ValueAtom:
    """Return the atom of the IR, as one that tests values."""
    filter_ = atom.as_filter()
    assert isinstance(filter_, ValueAtom)  # noqa: S101 - every atom of this workload is one
    return filter_


class PaperWorkload(Drawn):
    """Subscriptions of the paper's grammar; atoms have the numbers of ATOMS."""

    @property
    def schema(self) -> Schema:
        """Return the schema, which mode `total` needs."""
        return self.workload.schema

    @property
    def texts(self) -> Sequence[str]:
        """Return the texts that messages have."""
        return ALTERNATIVES

    def _atoms(self) -> Sequence[Filter]:
        return [atom.as_filter() for atom in ATOMS]

    def _predicates(self, atoms: Sequence[Filter]) -> Predicates:
        if len(atoms) > len(ATOMS):
            raise ValueError(f"{atoms[len(ATOMS)]} is none of the paper's atoms")
        return predicates_of(ATOMS)


def subscriptions(count: int, seed: int) -> PaperWorkload:
    """Return subscriptions of the shipped workload."""
    cardinalities = [field.cardinality for field in FIELDS]
    return PaperWorkload(Workload.load("paper"), count, seed, cardinalities)
