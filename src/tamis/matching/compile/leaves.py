"""Leaves, and the shapes of those that differ only in their integers.

A leaf is an atom under one rule of absence. It has two sides, where it is true and where it is
false; each side is a set of cells in its attribute's value order, or a predicate outside that
order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.atom_intervals import intervals_of
from tamis.diagrams.value_order import BEGIN, END, Interval, ValueOrder, merged, outside
from tamis.events import Type
from tamis.filters import Filter, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom, Between, Compare, In
from tamis.filters.element_test import ElementTest, refuse_element_tests
from tamis.matching.compile.leaf_kernels import MAX_INTEGERS


class AbsenceRule(Enum):
    """How a leaf treats absence."""

    UNKNOWN = "sql"
    FALSE = "total"
    DEFAULT = "default"

    # Members are equal only to themselves; the hash of Enum takes a call in Python.
    __hash__ = object.__hash__


ABSENCE_RULE_OF_MODE: Final = {
    Mode.SQL: AbsenceRule.UNKNOWN,
    Mode.STRICT: AbsenceRule.UNKNOWN,
    Mode.TOTAL: AbsenceRule.FALSE,
    Mode.DEFAULT: AbsenceRule.DEFAULT,
}


class Predicate(NamedTuple):
    """A test that the value order cannot decide, evaluated for every event."""

    atom: Filter
    truth: bool = True
    """Whether it tests that the atom is true, or that it is false."""
    completed: bool = False
    """Whether the schema's defaults replace absent values."""


class Side(NamedTuple):
    """One side of a leaf: some cells, and a predicate that holds or does not hold."""

    intervals: tuple[Interval, ...]
    predicate: Predicate | None = None
    negated: bool = False


class Leaf(NamedTuple):
    """An atom under one rule: its attribute, if its value order matters, and its two sides."""

    attribute: str
    true: Side
    false: Side


EVERYWHERE: Final = Side(((BEGIN, END),))
NOWHERE: Final = Side(())


def make_leaf(atom: Filter, rule: AbsenceRule, value_order: ValueOrder | None) -> Leaf:
    """Return the leaf of an atom, given the value order of its attribute if it has one."""
    if isinstance(atom, ElementTest):
        refuse_element_tests(atom, "subscriptions here")
    if value_order is None:
        return _predicate_leaf(atom, "", (BEGIN, END), rule)
    assert isinstance(atom, Atom)  # noqa: S101 - all other filters are already decomposed
    within = (BEGIN, END)
    known = atom.known() if rule is AbsenceRule.UNKNOWN else None
    if known is not None:
        (within,) = intervals_of(known, value_order) or (within,)
    intervals = intervals_of(atom, value_order)
    if intervals is None:
        return _predicate_leaf(atom, atom.attribute, within, rule)
    if rule is AbsenceRule.DEFAULT and atom.passes(value_order.default):
        intervals = (*intervals, (BEGIN, value_order.present()[0]))
    inside = merged(intervals)
    return Leaf(atom.attribute, Side(inside), Side(outside(inside, within)))


def _predicate_leaf(atom: Filter, name: str, within: Interval, rule: AbsenceRule) -> Leaf:
    holds = Predicate(atom, completed=rule is AbsenceRule.DEFAULT)
    if isinstance(atom, Relation | AnyText) and rule is AbsenceRule.UNKNOWN:
        # The value order cannot show where it is unknown: a quotient may have no value although
        # all its attributes are present.
        fails = Side((within,), Predicate(atom, truth=False))
    else:
        fails = Side((within,), holds, negated=True)
    return Leaf(name, Side((within,), holds), fails)


# --- leaves that differ in integers --------------------------------------------------------------


_INT: Final = {int}


class LeafShape(NamedTuple):
    """Leaves that differ in integers only; or a single leaf, without integers."""

    atom: Filter
    """One of the atoms, with the integers 2, 4, 6 and so on."""
    rule: AbsenceRule
    leaf: Leaf
    """The leaf of this atom. Others have other breakpoints below and above their integers."""
    integers: int = 0
    gap: int = 0
    """By how much integers must differ, ascending, for leaves to be alike; 0 if they are ascending
    as they are given."""


class LeafSet(NamedTuple):
    """Leaves in columns: for each the number of its shape, and its integers."""

    shapes: Sequence[LeafShape]
    shape: NDArray[np.int32]
    starts: NDArray[np.int64]
    integers: NDArray[np.int64]


def integers_of(atom: Filter) -> tuple[int, ...]:
    """Return the integers in an atom that has nothing else; none if it is of no such shape."""
    found: tuple[Any, ...] = ()
    # Asked about every atom of every filter: `match` would take several times as long.
    if isinstance(atom, Compare):
        value = atom.value
        return (value,) if type(value) is int else ()
    if isinstance(atom, Between):
        found = atom.low, atom.high
    elif isinstance(atom, In) and len(atom.values) <= MAX_INTEGERS:
        found = atom.values
    # Not 2.0, which is equal to 2 but is written differently.
    return found if set(map(type, found)) == _INT else ()


def with_integers(atom: Filter, integers: Sequence[int]) -> Filter:
    """Return an atom of the same shape with other integers."""
    match atom:
        case Compare(attribute, kind, op):
            return Compare(attribute, kind, op, integers[0])
        case Between(attribute, kind):
            return Between(attribute, kind, *integers)
        case In(attribute, kind):
            return In(attribute, kind, tuple(integers))
    raise AssertionError(f"{atom} has no integers")


def sample_integers(count: int) -> range:
    """Return the integers of the atom that stands for its shape: no two are neighbours."""
    return range(2, 2 * count + 2, 2)


def shape_of(atom: Atom, rule: AbsenceRule, value_order: ValueOrder) -> LeafShape | None:
    """Return the shape of an atom with sample integers; None if each such leaf is different."""
    if rule is AbsenceRule.DEFAULT and value_order.default is not None:
        # Whether the default passes depends on the integers.
        return None
    gap = 0
    if isinstance(atom, In):
        gap = 2 if value_order.number_type is Type.INT else 1
    leaf = make_leaf(atom, rule, value_order)
    return LeafShape(atom, rule, leaf, len(integers_of(atom)), gap)
