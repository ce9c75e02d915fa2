"""Attributes with several values: all combinations of an event, without computing one by one.

A comparison of two attributes needs only their least and greatest values. For arithmetic, each
combination becomes an event of its own, with single values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events import Kind, Value
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.events.columns import Column, Entries
from tamis.events.kinds import kind_of
from tamis.filters.atoms import can_compare

Places = NDArray[np.int64]

# --- comparisons of two attributes ----------------------------------------------------------------


class ComparableValues:
    """Values of one kind, of one attribute in one event."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    @cached_property
    def least(self) -> Any:
        """Return the least of them."""
        return min(self._values)

    @cached_property
    def greatest(self) -> Any:
        """Return the greatest of them."""
        return max(self._values)

    @cached_property
    def distinct(self) -> frozenset[Any]:
        """Return them without those that are equal to another."""
        return frozenset(self._values)


ValuesByKind = dict[Kind, ComparableValues]


def by_kind(values: Sequence[Value]) -> ValuesByKind:
    """Return values by their kind, without NaN, which compares with nothing."""
    found: dict[Kind, list[Value]] = {}
    for value in values:
        kind = kind_of(value)
        if kind is not None:
            found.setdefault(kind, []).append(value)
    return {kind: ComparableValues(own) for kind, own in found.items()}


def compare_any(op: str, left: ValuesByKind, right: ValuesByKind) -> bool | None:
    """Return whether `op` holds for some pair of values; None if no two can be compared."""
    is_known = False
    for kind, ours in left.items():
        theirs = right.get(kind)
        if theirs is not None and can_compare(op, kind):
            if _HOLDS_FOR_SOME[op](ours, theirs):
                return True
            is_known = True
    return False if is_known else None


_HOLDS_FOR_SOME: Final[dict[str, Callable[[ComparableValues, ComparableValues], bool]]] = {
    "=": lambda ours, theirs: not ours.distinct.isdisjoint(theirs.distinct),
    "!=": lambda ours, theirs: len(ours.distinct | theirs.distinct) > 1,
    "<": lambda ours, theirs: ours.least < theirs.greatest,
    "<=": lambda ours, theirs: ours.least <= theirs.greatest,
    ">": lambda ours, theirs: ours.greatest > theirs.least,
    ">=": lambda ours, theirs: ours.greatest >= theirs.least,
}

# --- arithmetic -----------------------------------------------------------------------------------


class Combinations(NamedTuple):
    """The combinations of some attributes' values, as events with single values."""

    batch: EventBatch
    owner: Places
    """The event that each is a combination of."""


def combinations_of(batch: EventBatch, names: Sequence[str], events: Places) -> Combinations:
    """Return all combinations that some events have; an absent value stays absent."""
    columns = [_FlatColumn(batch.columns.get(name, NO_COLUMN), events) for name in names]
    sizes = np.ones(len(events), np.int64)
    for column in columns:
        sizes *= np.maximum(column.counts, 1)
    place = np.repeat(np.arange(len(events)), sizes)
    # The number of each combination among those of its event, as digits of varying bases.
    left = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    found = {}
    for name, column in zip(names, columns, strict=True):
        bases = np.maximum(column.counts, 1)[place]
        left, digit = np.divmod(left, bases)
        found[name] = column.taken(place, digit)
    return Combinations(EventBatch(len(place), found), events[place])


def pieces(events: Places, sizes: Places, most: int) -> Iterator[Places]:
    """Yield events in order, some at a time: one, or those that have this many combinations."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(events):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield events[first:last]
        first = last


class _FlatColumn:
    """The values of an attribute in some events, of all kinds, event by event."""

    def __init__(self, column: Column, events: Places) -> None:
        self._entries = [*column.entries.items()]
        kinds, places, owners = [_NO_PLACES], [_NO_PLACES], [_NO_PLACES]
        for number, (_, entries) in enumerate(self._entries):
            begins = np.searchsorted(entries.events, events)
            counts = np.searchsorted(entries.events, events, side="right") - begins
            owner = np.repeat(np.arange(len(events)), counts)
            offsets = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
            places.append(begins[owner] + offsets)
            kinds.append(np.full(len(owner), number))
            owners.append(owner)
        order = np.argsort(np.concatenate(owners), kind="stable")
        self._kinds = np.concatenate(kinds)[order]
        self._places = np.concatenate(places)[order]
        self.counts: Final = np.bincount(np.concatenate(owners), minlength=len(events))
        """How many values each of the events has."""
        self._starts = np.cumsum(self.counts) - self.counts

    def taken(self, events: Places, digits: Places) -> Column:
        """Return a column with one of the values of an event for each combination."""
        present = np.flatnonzero(self.counts[events])
        flat = self._starts[events[present]] + digits[present]
        kinds, places = self._kinds[flat], self._places[flat]
        taken = {
            kind: _taken(entries, places[kinds == number], present[kinds == number])
            for number, (kind, entries) in enumerate(self._entries)
        }
        return Column({kind: own for kind, own in taken.items() if len(own.events)}, is_single=True)


_NO_PLACES: Final = np.empty(0, np.int64)


def _taken(entries: Entries, places: Places, events: Places) -> Entries:
    return Entries(
        events.astype(np.int32),
        entries.values[places],
        None if entries.residues is None else entries.residues[places],
        None if entries.whole is None else entries.whole[places],
        entries.texts,
    )
