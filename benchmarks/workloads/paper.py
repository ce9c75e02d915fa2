"""Section 8 of the paper on BDD filtering: ten attributes, 208 atoms, 7.6 of them in a filter.

Its query generator is not public. What is known of it is kept: the attributes, constants and
operators, 7.6 atoms and 7.7 Boolean operators per filter, messages over 0 to 80 and twenty texts.
The grammar is ours: a filter joins groups and a group joins terms, each by `and` or `or`, and
atoms or whole groups may be negated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.building import filters_of, part_of
from benchmarks.workloads.events import Events, Field, schema_of
from benchmarks.workloads.forms import COMPARISONS, EQ, GT, LT, TEXT, Predicates, Programs, rows_of
from benchmarks.workloads.paper_kernels import Grammar, draw_programs
from tamis.events import Schema
from tamis.filters import Filter
from tamis.filters.atoms import ValueAtom
from tamis.filters.build import compare, text_test

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

GRAMMAR: Final = Grammar(
    groups=np.cumsum([0.06, 0.34, 0.38, 0.22]),
    terms=np.cumsum([0.06, 0.34, 0.38, 0.22]),
    conjunction=0.52,
    negated_group=0.15,
    negated_atom=0.09,
)


class Atom(NamedTuple):
    """One of the comparisons that filters are made of."""

    field: int
    op: str
    constant: int | str

    def as_filter(self) -> Filter:
        """Return the atom of the IR."""
        name = FIELDS[self.field].name
        if isinstance(self.constant, str) and self.op not in COMPARISONS:
            return text_test(name, self.op, self.constant)
        return compare(name, self.op, self.constant)


ATOMS: Final = tuple(
    Atom(number, op, constant)
    for number, field in enumerate(FIELDS)
    for constant in (TEXTS if field.type is str else NUMBERS)
    for op in (TEXT_OPERATORS if field.type is str else COMPARISONS)
)

# What section 4 of the paper calls atomic; the others are abbreviations of these.
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
    """Return the atom as what tests values."""
    filter_ = atom.as_filter()
    assert isinstance(filter_, ValueAtom)  # noqa: S101 - every atom of this workload is one
    return filter_


class Workload(NamedTuple):
    """Subscriptions drawn by the grammar."""

    programs: Programs
    predicates: Predicates
    atoms: tuple[Filter, ...]

    @property
    def fields(self) -> Sequence[Field]:
        """Return the ten attributes."""
        return FIELDS

    @property
    def schema(self) -> Schema:
        """Return the schema, which mode `total` needs."""
        return schema_of(FIELDS)

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]:
        """Return the subscriptions, or some of them, as filters."""
        end = len(self.programs) if last is None else last
        return filters_of(part_of(self.programs, first, end), self.atoms)

    def events(self, count: int, seed: int, density: float = 1.0) -> Events:
        """Return messages that define each attribute with a probability."""
        rng = np.random.default_rng((seed, 2))
        present = rng.random((count, len(FIELDS))) < density
        return Events(FIELDS, rows_of(present, _values(rng, count)), ALTERNATIVES)


def subscriptions(count: int, seed: int, grammar: Grammar = GRAMMAR) -> Workload:
    """Draw subscriptions."""
    rng = np.random.default_rng((seed, 1))
    longest = 4 * (len(grammar.groups) * len(grammar.terms))
    code = np.empty(longest * count, np.int32)
    start = np.zeros(count + 1, np.int64)
    draw_programs(rng, grammar, len(ATOMS), code, start)
    programs = Programs(code[: start[-1]].copy(), start)
    return Workload(programs, predicates_of(ATOMS), tuple(atom.as_filter() for atom in ATOMS))


def _values(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    values = np.empty((count, len(FIELDS)))
    for number, field in enumerate(FIELDS):
        if field.type is float:
            # One decimal, so that a double is sometimes equal to a constant.
            values[:, number] = np.round(rng.random(count) * TOP, 1)
        else:
            values[:, number] = rng.integers(field.cardinality, size=count)
    return values
