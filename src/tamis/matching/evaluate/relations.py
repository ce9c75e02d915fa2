"""Comparisons between attributes, for all events of a batch at once where that is exact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event, Kind, Schema, Value
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.events.columns import Entries
from tamis.events.kinds import KIND_OF_TYPE, KINDS, kind_of
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
from tamis.matching.evaluate.combinations import (
    Places,
    ValuesByKind,
    by_kind,
    combinations_of,
    compare_any,
    pieces,
)
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.number_columns import Flags, Numbers, compare_columns, compute_columns

T = TypeVar("T")

# So many combinations of values, or more, and the comparison is unknown.
TOO_MANY: Final = MAX_COMBINATIONS + 1
# What the reference semantics takes at most for an attribute or a constant; what takes longer is
# something else, such as collecting garbage.
SECONDS_PER_OPERATION: Final = 10e-6
COMPARISON_CALL_SECONDS: Final = 0.001
# Of fewer combinations, each is computed by itself.
MIN_COMBINED: Final = 24
# So many are computed at a time, for the memory, and so that somebody who cannot pay for them
# is soon found out.
MAX_COMBINED: Final = 16_384
MAX_COMBINED_OPERATIONS: Final = 1 << 18
# Values of single events are kept for other relations, up to this many.
MAX_KEPT_VALUES: Final = 100_000
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
        self._sizes: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self._combined: tuple[object, Operands, Places] | None = None
        self._values: dict[tuple[int, str], tuple[Value, ...]] = {}
        self._by_kind: dict[tuple[int, str], ValuesByKind] = {}
        self._kept = 0

    def combinations(self, names: tuple[str, ...]) -> NDArray[np.int64]:
        """Return how many combinations of values each event has; 0 if too many to compute."""
        sizes = self._sizes.get(names)
        if sizes is None:
            counts = [self.counts(name) for name in names]
            if names and len(self.batch) < MIN_COLUMN_EVENTS:
                products = [
                    math.prod(own) for own in zip(*(c.tolist() for c in counts), strict=True)
                ]
                sizes = np.array([0 if size > MAX_COMBINATIONS else size for size in products])
            else:
                sizes = np.ones(len(self.batch), np.int64)
                for own in counts:
                    # Their product could overflow.
                    sizes = np.minimum(sizes * np.minimum(own, TOO_MANY), TOO_MANY)
                sizes[sizes == TOO_MANY] = 0
            self._sizes[names] = sizes
        return sizes

    def lacks(self, names: Iterable[str]) -> bool:
        """Return whether no event has all of these attributes."""
        columns = self.batch.columns
        return any(name not in columns and self._default(name) is None for name in names)

    def combined(self, names: tuple[str, ...], events: Places) -> tuple[Operands, Places]:
        """Return the combinations of values that some events have, and the event of each."""
        asked = names, int(events[0]), len(events), int(events[-1])
        # Relations on the same attributes come one after the other.
        if self._combined is None or self._combined[0] != asked:
            batch, owner = combinations_of(self.batch, names, events)
            self._combined = asked, Operands(batch, self._schema), owner
        return self._combined[1:]

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

    def event(self, number: int, names: Iterable[str]) -> Event:
        """Return an event with some of its attributes."""
        values = ((name, self._values_in(number, name)) for name in names)
        return Event.of_checked({name: held for name, held in values if held})

    def by_kind(self, number: int, name: str) -> ValuesByKind:
        """Return the values of an attribute in one event by their kind."""
        found = self._by_kind.get((number, name))
        if found is None:
            found = by_kind(self._values_in(number, name))
            self._by_kind[number, name] = found
        return found

    def _values_in(self, number: int, name: str) -> tuple[Value, ...]:
        values = self._values.get((number, name))
        if values is None:
            values = self.batch.event(number, (name,)).get(name, ())
            default = self._default(name)
            if not values and default is not None:
                values = (default,)
            if self._kept > MAX_KEPT_VALUES:
                self._kept = 0
                self._values.clear()
                self._by_kind.clear()
            self._kept += 1 + len(values)
            self._values[number, name] = values
        return values

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


class PlannedRelation(NamedTuple):
    """A relation, and what is asked of it for every batch."""

    relation: Relation
    names: tuple[str, ...]
    """Its attributes."""
    operands: int
    """How many attributes and constants it has."""
    plain: tuple[str, str] | None
    """The two attributes, if it compares these."""

    @classmethod
    def of(cls, relation: Relation) -> PlannedRelation:
        """Look at a relation."""
        left, right = relation.left, relation.right
        # An attribute compared with itself has the same value on both sides.
        is_plain = isinstance(left, Reference) and isinstance(right, Reference) and left != right
        return cls(
            relation,
            tuple(sorted(relation.attributes())),
            sum(1 for _ in relation.operands()),
            (left.name, right.name) if is_plain else None,  # type: ignore[attr-defined]
        )


class MeteredRelation(NamedTuple):
    """Charges what a relation takes to those who use the predicate of a row."""

    meter: Meter
    row: int

    def run(self, work: Callable[[], T], operations: int, size: int) -> T | None:
        """Return what a test of this many combinations finds; None if nobody can pay for it."""
        worst = COMPARISON_CALL_SECONDS + SECONDS_PER_OPERATION * operations
        return self.meter.compute(self.row, work, size, worst)


def find_related(
    planned: PlannedRelation, operands: Operands, metered: MeteredRelation | None = None
) -> Decision | None:
    """Return for every event whether a relation is true or false, as far as somebody pays.

    None if it is neither for any of them.
    """
    if operands.lacks(planned.names):
        return None
    search = _RelationSearch(planned, operands, metered)
    is_complete = search.by_columns() and search.by_combinations() and search.one_by_one()
    if not is_complete and metered is not None:
        metered.meter.note([int(search.undone.argmax())])
    return search.found


class _RelationSearch:
    """Finds the events of a batch for which a relation is true or false."""

    def __init__(
        self, planned: PlannedRelation, operands: Operands, metered: MeteredRelation | None
    ) -> None:
        self._planned = planned
        self._operands = operands
        self._metered = metered
        self._sizes = operands.combinations(planned.names)
        self.undone = self._sizes > 0
        """The events that it is not yet decided for."""
        self.found = Decision(*np.zeros((3, len(operands.batch)), np.bool_))

    def by_columns(self) -> bool:
        """Decide for the events with single values; return False if nobody pays for that."""
        if len(self.undone) < MIN_COLUMN_EVENTS:
            return True
        single = self.undone & (self._sizes == 1)
        if single.any():
            decide = partial(_decide, self._planned.relation, self._operands)
            decision = self._paid(decide, len(single))
            if decision is None:
                return False
            single &= ~decision.unsure
            self.found.known[:] = single & decision.known
            self.found.holds[:] = decision.holds
            self.undone &= ~single
        return True

    def by_combinations(self) -> bool:
        """Decide about arithmetic on several values; return False if nobody pays for that."""
        if self._planned.plain is not None:
            return True
        several = np.flatnonzero(self.undone & (self._sizes > 1))
        sizes = self._sizes[several]
        if sizes.sum() < MIN_COMBINED:
            return True
        most = min(MAX_COMBINED, MAX_COMBINED_OPERATIONS // self._planned.operands)
        for events in pieces(several, sizes, most):
            decide = partial(self._combine, events)
            if self._paid(decide, int(self._sizes[events].sum())) is None:
                return False
        return True

    def _combine(self, events: Places) -> bool:
        combined, owner = self._operands.combined(self._planned.names, events)
        known, holds, unsure = _decide(self._planned.relation, combined)
        self.undone[events] = False
        self.undone[owner[np.broadcast_to(unsure, owner.shape)]] = True
        self.found.known[owner[known]] = True
        self.found.holds[events] = False
        self.found.holds[owner[known & holds]] = True
        return True

    def one_by_one(self) -> bool:
        """Decide for all other events; return False if nobody pays for that."""
        for number in np.flatnonzero(self.undone).tolist():
            truth = self._paid(partial(self._decide_one, number), int(self._sizes[number]))
            if truth is None:
                return False
            self.found.known[number], self.found.holds[number] = truth
            self.undone[number] = False
        return True

    def _decide_one(self, number: int) -> tuple[bool, bool]:
        """Return whether the truth of the relation is known for one event, and whether it holds."""
        relation, names, _, plain = self._planned
        if plain is None:
            truth = relation.truth_in(View(self._operands.event(number, names), None))
        else:
            ours, theirs = (self._operands.by_kind(number, name) for name in plain)
            truth = compare_any(relation.op, ours, theirs)
        return truth is not None, truth is True

    def _paid(self, work: Callable[[], T], size: int) -> T | None:
        if self._metered is None:
            return work()
        return self._metered.run(work, self._planned.operands * size, size)


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
    return Decision(
        left.known & right.known, compare_columns(op, left, right), left.unsure | right.unsure
    )


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
            return compute_columns(op, _evaluate(left, operands), _evaluate(right, operands))
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
