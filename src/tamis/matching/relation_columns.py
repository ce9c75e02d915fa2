"""Comparisons between attributes, for all events of a batch at once where that is certain."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event, Kind, Schema, Value
from tamis.events.batch import NO_COLUMN, EventBatch, microseconds
from tamis.events.columns import Entries
from tamis.events.values import KIND_OF_TYPE, kind_of
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference, Relation
from tamis.filters.atoms import COMPARISONS, can_compare
from tamis.filters.modes import View
from tamis.matching.relation_numbers import Flags, Numbers, compare, compute

# The oracle is done with so few events before columns are made of them.
FEW_EVENTS: Final = 4

DTYPES: Final[dict[Kind, type]] = {
    Kind.TEXT: np.object_,
    Kind.BOOLEAN: np.bool_,
    Kind.TIMESTAMP: np.int64,
}


class Plain(NamedTuple):
    """A value of one kind per event, where it is known."""

    known: Flags
    values: NDArray[Any]


class Decision(NamedTuple):
    """What is known about a relation without asking the oracle."""

    known: Flags
    holds: Flags
    unsure: Flags


class Operands:
    """The attributes of a batch as relations see them, each made into a full column once."""

    def __init__(self, batch: EventBatch, schema: Schema | None) -> None:
        """Take a batch; with a schema, its defaults stand in for what is absent."""
        self.batch: Final = batch
        self._schema = schema
        self._counts: dict[str, NDArray[np.int64]] = {}
        self._plain: dict[tuple[str, Kind], Plain] = {}
        self._numbers: dict[str, Numbers] = {}

    def counts(self, name: str) -> NDArray[np.int64]:
        """Return for each event how many values an attribute holds."""
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
        """Return as much of an event as a relation needs."""
        event = self.batch.event(number, relation.attributes())
        return event if self._schema is None else self._schema.with_defaults(event)

    def _find_plain(self, name: str, kind: Kind) -> Plain:
        known = self._blank()
        values: NDArray[Any] = np.zeros(len(self.batch), DTYPES[kind])
        entries = self._entries(name, kind)
        if entries is not None:
            known[entries.events] = True
            values[entries.events] = _values_of(kind, entries)
        default = self._default(name)
        if default is not None and kind_of(default) is kind:
            absent = self._absent(name)
            known |= absent
            values[absent] = microseconds(default) if isinstance(default, datetime) else default
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


def find_related(relation: Relation, operands: Operands, *, truth: bool) -> Flags:
    """Tell of every event whether a relation is true in it, or whether it is false."""
    length = len(operands.batch)
    passing, several, asked = (np.full(length, flag) for flag in (False, False, True))
    for name in relation.attributes():
        counts = operands.counts(name)
        asked &= counts > 0
        several |= counts > 1
    decision = None if length < FEW_EVENTS else _decide(relation, operands)
    if decision is not None:
        passing |= asked & decision.known & (decision.holds == truth)
        asked &= several | decision.unsure
    for number in np.flatnonzero(asked).tolist():
        found = relation.truth(View(operands.event(number, relation), None))
        passing[number] = found is truth
    return passing


def _decide(relation: Relation, operands: Operands) -> Decision | None:
    """Return what is certain of the events with single values, if there is a way to tell."""
    left, right = relation.left, relation.right
    if isinstance(left, Reference) and isinstance(right, Reference):
        return _decide_plain(relation.op, left.name, right.name, operands)
    if _compares_numbers(relation):
        return _decide_numbers(relation.op, _evaluate(left, operands), _evaluate(right, operands))
    return None


def _decide_plain(op: str, left: str, right: str, operands: Operands) -> Decision:
    known, holds, unsure = _decide_numbers(op, operands.numbers(left), operands.numbers(right))
    for kind in DTYPES:
        if can_compare(op, kind):
            ours, theirs = operands.plain(left, kind), operands.plain(right, kind)
            both = ours.known & theirs.known
            holds[both] = COMPARISONS[op](ours.values[both], theirs.values[both])
            known |= both
    return Decision(known, holds, unsure)


def _decide_numbers(op: str, left: Numbers, right: Numbers) -> Decision:
    return Decision(left.known & right.known, compare(op, left, right), left.unsure | right.unsure)


def _compares_numbers(relation: Relation) -> bool:
    """Tell whether a side is arithmetic, so that only numbers can be compared, on both sides."""
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
            raise AssertionError(f"{expression} is no number")


def _values_of(kind: Kind, entries: Entries) -> NDArray[Any]:
    values = entries.values
    return np.array(entries.texts, np.object_)[values] if kind is Kind.TEXT else values


def _integers_of(entries: Entries, whole: Flags) -> NDArray[np.int64]:
    # As `split_integers` has it: the largest have 2**63 as their float, in int64 its opposite.
    floats = np.where(whole, entries.values, 0.0)
    nearest = np.where(floats < 2.0**63, floats, -(2.0**63)).astype(np.int64)
    return nearest if entries.residues is None else nearest + entries.residues
