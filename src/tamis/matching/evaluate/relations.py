"""Comparisons between attributes, for all events of a batch at once where that is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event, Kind, Schema, Value
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.events.columns import Entries, split_integers
from tamis.events.kinds import KIND_OF_TYPE, KINDS, kind_of
from tamis.events.values import INT64_MIN
from tamis.filters.arithmetic import (
    MAX_COMBINATIONS,
    Arithmetic,
    Expression,
    Literal,
    Reference,
    Relation,
)
from tamis.filters.atoms import COMPARISONS, can_compare
from tamis.filters.modes import View
from tamis.matching.evaluate.metering import Meter

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
T = TypeVar("T")


class Numbers(NamedTuple):
    """A number per event, or one for all of them."""

    known: Flags
    """Where there is a number; elsewhere the other fields mean nothing."""
    whole: Flags
    """Where it is an integer."""
    integers: Integers
    """Its value, if it is an integer; otherwise 0."""
    floats: Floats
    """Its value, or the nearest float."""
    unsure: Flags
    """Where the reference semantics must decide."""

    @classmethod
    def of(cls, known: Flags, whole: Flags, integers: Integers, floats: Floats) -> Numbers:
        """Return integers, and elsewhere floats."""
        integers = np.where(whole, integers, 0)
        floats = np.where(whole, integers.astype(np.float64), floats)
        return cls(known, whole, integers, floats, np.zeros(1, np.bool_))

    @classmethod
    def constant(cls, number: float) -> Numbers:
        """Return one number for all events."""
        whole = isinstance(number, int)
        return cls.of(
            known=np.array([not math.isnan(number)]),
            whole=np.array([whole]),
            integers=np.array([number if whole else 0], np.int64),
            floats=np.array([number], np.float64),
        )


def compute(op: str, left: Numbers, right: Numbers) -> Numbers:
    """Return the results of one operation."""
    known = left.known & right.known
    whole = left.whole & right.whole & (op != "/")
    if op in ("/", "div"):
        known &= right.floats != 0
    integers, fits, sure = ON_INTEGERS[op](left, right)
    with np.errstate(all="ignore"):
        floats = ON_FLOATS[op](left.floats, right.floats)
    result = Numbers.of(known & np.where(whole, fits, ~np.isnan(floats)), whole, integers, floats)
    return result._replace(unsure=left.unsure | right.unsure | (known & whole & ~sure))


def compare(op: str, left: Numbers, right: Numbers) -> Flags:
    """Return where `left op right` holds; meaningless where one of them is unknown.

    An integer and a float compare by their floats, and if those are equal, by the difference of the
    integer from its float.
    """
    left_residues, right_residues = _residues(left), _residues(right)
    same = left.floats == right.floats
    equal = same & (left_residues == right_residues)
    less = (left.floats < right.floats) | (same & (left_residues < right_residues))
    return FROM_ORDER[op](less, equal)


FROM_ORDER: Final[dict[str, Callable[[Flags, Flags], Flags]]] = {
    "=": lambda less, equal: equal,  # noqa: ARG005
    "!=": lambda less, equal: ~equal,  # noqa: ARG005
    "<": lambda less, equal: less,  # noqa: ARG005
    "<=": lambda less, equal: less | equal,
    ">": lambda less, equal: ~(less | equal),
    ">=": lambda less, equal: ~less,  # noqa: ARG005
}


def _residues(numbers: Numbers) -> Any:
    residues = split_integers(numbers.integers)[1]
    return np.int16(0) if residues is None else residues


# --- integers --------------------------------------------------------------------------------

# The results where they fit 64 bits, and where both facts are certain.
OnIntegers = tuple[Integers, Flags, Flags]

_CERTAIN: Final = np.ones(1, np.bool_)


def _add(left: Numbers, right: Numbers) -> OnIntegers:
    total = left.integers + right.integers
    # It overflowed if both terms have the same sign and the result has the other.
    fits = ((left.integers ^ total) & (right.integers ^ total)) >= 0
    return total, fits, _CERTAIN


def _subtract(left: Numbers, right: Numbers) -> OnIntegers:
    difference = left.integers - right.integers
    fits = ((left.integers ^ right.integers) & (left.integers ^ difference)) >= 0
    return difference, fits, _CERTAIN


def _multiply(left: Numbers, right: Numbers) -> OnIntegers:
    # Three roundings change a product of floats by far less than a factor of two.
    with np.errstate(all="ignore"):
        sure = np.abs(left.floats * right.floats) < 2.0**62
    return left.integers * right.integers, _CERTAIN, sure


def _quotient(left: Numbers, right: Numbers) -> OnIntegers:
    # The least integer has no absolute value.
    sure = (left.integers != INT64_MIN) & (right.integers != INT64_MIN)
    divisors = np.where(right.integers == 0, 1, right.integers)
    sizes = np.abs(left.integers) // np.where(sure, np.abs(divisors), 1)
    return np.where((left.integers < 0) == (divisors < 0), sizes, -sizes), _CERTAIN, sure


def _no_integers(left: Numbers, right: Numbers) -> OnIntegers:
    return np.zeros(np.broadcast(left.whole, right.whole).shape, np.int64), _CERTAIN, _CERTAIN


ON_INTEGERS: Final[dict[str, Callable[[Numbers, Numbers], OnIntegers]]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _no_integers,
    "div": _quotient,
}

ON_FLOATS: Final[dict[str, Callable[[Floats, Floats], Floats]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "div": np.divide,
}


# More combinations of values than this, and the comparison is unknown.
TOO_MANY: Final = MAX_COMBINATIONS + 1
# What the reference semantics takes at most for an attribute or a constant; what takes longer is
# something else, such as collecting garbage.
SECONDS_PER_OPERAND: Final = 10e-6
CALL_SECONDS: Final = 0.001
# For fewer events than this, the reference semantics is faster than building columns.
MIN_COLUMN_EVENTS: Final = 4


class Plain(NamedTuple):
    """A value of one kind per event, where it is known."""

    known: Flags
    values: NDArray[Any]


class Decision(NamedTuple):
    """What is known about a relation without the reference semantics."""

    known: Flags
    holds: Flags
    unsure: Flags


class Operands:
    """The attributes of a batch for relations, each expanded to a full column once."""

    def __init__(self, batch: EventBatch, schema: Schema | None) -> None:
        """Take a batch; with a schema, its defaults replace absent values."""
        self.batch: Final = batch
        self._schema = schema
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._plain: dict[tuple[str, Kind], Plain] = {}
        self._numbers: dict[str, Numbers] = {}

    def counts(self, name: str) -> NDArray[np.int64]:
        """Return how many values an attribute holds in each event."""
        if name not in self._counts:
            counts = self.batch.columns.get(name, NO_COLUMN).counts(len(self.batch))
            self._counts[name] = counts if self._default(name) is None else np.maximum(counts, 1)
        return self._counts[name]

    def plain(self, name: str, kind: Kind) -> Plain:
        """Return an attribute's values of one kind other than numbers."""
        if (name, kind) not in self._plain:
            self._plain[name, kind] = self._find_plain(name, kind)
        return self._plain[name, kind]

    def numbers(self, name: str) -> Numbers:
        """Return an attribute's numbers."""
        if name not in self._numbers:
            self._numbers[name] = self._find_numbers(name)
        return self._numbers[name]

    def event(self, number: int, relation: Relation) -> Event:
        """Return the part of an event that a relation needs."""
        event = self.batch.event(number, relation.attributes())
        return event if self._schema is None else self._schema.with_defaults(event)

    def _find_plain(self, name: str, kind: Kind) -> Plain:
        known = self._blank()
        values: NDArray[Any] = np.zeros(
            len(self.batch), np.object_ if kind is Kind.TEXT else KINDS[kind].dtype
        )
        entries = self._entries(name, kind)
        if entries is not None:
            known[entries.events] = True
            values[entries.events] = _values_of(kind, entries)
        default = self._default(name)
        if default is not None and kind_of(default) is kind:
            absent = self._absent(name)
            known |= absent
            store = KINDS[kind].store
            values[absent] = default if store is None else store(default)
        return Plain(known, values)

    def _find_numbers(self, name: str) -> Numbers:
        known, whole = self._blank(), self._blank()
        integers, floats = np.zeros(len(self.batch), np.int64), np.zeros(len(self.batch))
        entries = self._entries(name, Kind.NUMBER)
        if entries is not None:
            known[entries.events] = True
            floats[entries.events] = entries.values
            if entries.whole is not None:
                whole[entries.events] = entries.whole
                integers[entries.events] = _integers_of(entries, entries.whole)
        default = self._default(name)
        if isinstance(default, int | float) and kind_of(default) is Kind.NUMBER:
            absent = self._absent(name)
            known |= absent
            floats[absent] = default
            if isinstance(default, int):
                whole |= absent
                integers[absent] = default
        return Numbers.of(known, whole, integers, floats)

    def _entries(self, name: str, kind: Kind) -> Entries | None:
        return self.batch.columns.get(name, NO_COLUMN).entries.get(kind)

    def _default(self, name: str) -> Value | None:
        declared = None if self._schema is None else self._schema.get(name)
        return None if declared is None else declared.default

    def _absent(self, name: str) -> Flags:
        absent: Flags = self.batch.columns.get(name, NO_COLUMN).counts(len(self.batch)) == 0
        return absent

    def _blank(self) -> Flags:
        return np.zeros(len(self.batch), np.bool_)


class MeteredRelation:
    """Evaluates one relation as long as somebody pays for it."""

    def __init__(self, meter: Meter, row: int, relation: Relation) -> None:
        """Charge what the relation takes to those who use the predicate of a row."""
        self._meter = meter
        self._row = row
        self._seconds = SECONDS_PER_OPERAND * sum(1 for _ in relation.operands())

    def run(self, work: Callable[[], T], first: int, combinations: int) -> T | None:
        """Return what a test of events from a first one on finds; None if nobody can pay."""
        worst = CALL_SECONDS + self._seconds * combinations
        found = self._meter.compute(self._row, work, combinations, worst)
        if found is None:
            self._meter.note([first])
        return found


def find_related(
    relation: Relation, operands: Operands, metered: MeteredRelation | None = None
) -> Decision:
    """Return for every event whether a relation is true or false, as far as somebody pays."""
    length = len(operands.batch)
    found = Decision(*(np.zeros(length, np.bool_) for _ in Decision._fields))
    asked, combinations = np.ones(length, np.bool_), np.ones(length, np.int64)
    for name in relation.attributes():
        counts = operands.counts(name)
        asked &= counts > 0
        # More than the limit make the comparison unknown; their product could overflow.
        combinations = np.minimum(combinations * np.minimum(counts, TOO_MANY), TOO_MANY)
    asked &= combinations <= MAX_COMBINATIONS
    if length >= MIN_COLUMN_EVENTS and asked.any():
        decide = partial(_decide, relation, operands)
        first = int(asked.argmax())
        decision = decide() if metered is None else metered.run(decide, first, length)
        if decision is None:
            return found
        found.known[:] = asked & decision.known & (combinations == 1)
        found.holds[:] = decision.holds
        asked &= (combinations > 1) | decision.unsure
    for number in np.flatnonzero(asked).tolist():
        decide_one = partial(_decide_one, relation, operands, number)
        size = int(combinations[number])
        truth = decide_one() if metered is None else metered.run(decide_one, number, size)
        if truth is None:
            return found
        found.known[number], found.holds[number] = truth
    return found


def _decide_one(relation: Relation, operands: Operands, number: int) -> tuple[bool, bool]:
    """Return whether the truth of a relation is known for one event, and whether it holds."""
    truth = relation.truth_in(View(operands.event(number, relation), None))
    return truth is not None, truth is True


def _decide(relation: Relation, operands: Operands) -> Decision:
    """Return what is certain for events with single values."""
    left, right = relation.left, relation.right
    if isinstance(left, Reference) and isinstance(right, Reference):
        return _decide_plain(relation.op, left.name, right.name, operands)
    if _compares_numbers(relation):
        return _decide_numbers(relation.op, _evaluate(left, operands), _evaluate(right, operands))
    everywhere = np.ones(len(operands.batch), np.bool_)
    return Decision(~everywhere, ~everywhere, everywhere)


def _decide_plain(op: str, left: str, right: str, operands: Operands) -> Decision:
    known, holds, unsure = _decide_numbers(op, operands.numbers(left), operands.numbers(right))
    for kind in KINDS:
        if kind is not Kind.NUMBER and can_compare(op, kind):
            ours, theirs = operands.plain(left, kind), operands.plain(right, kind)
            both = ours.known & theirs.known
            holds[both] = COMPARISONS[op](ours.values[both], theirs.values[both])
            known |= both
    return Decision(known, holds, unsure)


def _decide_numbers(op: str, left: Numbers, right: Numbers) -> Decision:
    return Decision(left.known & right.known, compare(op, left, right), left.unsure | right.unsure)


def _compares_numbers(relation: Relation) -> bool:
    """Return whether a side is arithmetic, so that both sides must be numbers."""
    constants = [operand for operand in relation.operands() if isinstance(operand, Literal)]
    return (isinstance(relation.left, Arithmetic) or isinstance(relation.right, Arithmetic)) and (
        all(KIND_OF_TYPE[constant.type] is Kind.NUMBER for constant in constants)
    )


def _evaluate(expression: Expression, operands: Operands) -> Numbers:
    match expression:
        case Reference(name=name):
            return operands.numbers(name)
        case Arithmetic(op=op, left=left, right=right):
            return compute(op, _evaluate(left, operands), _evaluate(right, operands))
        case Literal(constant=int() | float() as number):
            return Numbers.constant(number)
        case _:
            raise AssertionError(f"{expression} is not a number")


def _values_of(kind: Kind, entries: Entries) -> NDArray[Any]:
    values = entries.values
    return np.array(entries.texts, np.object_)[values] if kind is Kind.TEXT else values


def _integers_of(entries: Entries, whole: Flags) -> NDArray[np.int64]:
    # As `split_integers` has it: the largest have 2**63 as their float, in int64 its opposite.
    floats = np.where(whole, entries.values, 0.0)
    nearest = np.where(floats < 2.0**63, floats, -(2.0**63)).astype(np.int64)
    return nearest if entries.residues is None else nearest + entries.residues
