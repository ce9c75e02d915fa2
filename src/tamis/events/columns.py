"""Columns: the values of one attribute in many events, in long form.

There is one entry per value with the number of its event, so that absent attributes, several
values and mixed kinds need no special case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.kinds import KINDS, Kind, Value


class Entries(NamedTuple):
    """The values of one kind: the event of each, ascending, and the value."""

    events: NDArray[np.int32]
    values: NDArray[Any]
    """Of the dtype of the kind; for texts, codes into `texts`."""
    residues: NDArray[np.int16] | None = None
    """For numbers: an integer minus its nearest float; None where all are 0."""
    whole: NDArray[np.bool_] | None = None
    """For numbers: which are integers, because arithmetic distinguishes 2 and 2.0."""
    texts: Sequence[str] = ()

    def only(self, kept: NDArray[np.bool_]) -> Entries:
        """Return some of the entries; `texts` stays the same."""
        return self._replace(
            events=self.events[kept],
            values=self.values[kept],
            residues=None if self.residues is None else self.residues[kept],
            whole=None if self.whole is None else self.whole[kept],
        )

    def part(self, first: int, last: int) -> Entries:
        """Return the entries of the events from `first` to before `last`, numbered from 0."""
        begin, end = np.searchsorted(self.events, (first, last))
        values, texts = self.values[begin:end], self.texts
        if texts:
            # Only the texts that occur there: all others would be tested for nothing.
            used, values = np.unique(values, return_inverse=True)
            values, texts = values.astype(np.int32), [texts[code] for code in used.tolist()]
        return Entries(
            events=self.events[begin:end] - np.int32(first),
            values=values,
            residues=None if self.residues is None else self.residues[begin:end],
            whole=None if self.whole is None else self.whole[begin:end],
            texts=texts,
        )


class Column(NamedTuple):
    """The values of one attribute in all events of a batch."""

    entries: Mapping[Kind | None, Entries]
    """By kind; NaN, which compares with nothing, under None."""
    is_single: bool = False
    """Whether it is known that no event holds more than one value."""

    def counts(self, length: int) -> NDArray[np.int64]:
        """Return for each event how many values it holds."""
        counts = np.zeros(length, np.int64)
        for entries in self.entries.values():
            counts += np.bincount(entries.events, minlength=length)
        return counts

    def multivalued(self, length: int) -> NDArray[np.bool_]:
        """Return for each event whether it holds more than one value."""
        if self.is_single or (
            len(self.entries) <= 1 and all(_rising(e.events) for e in self.entries.values())
        ):
            return np.zeros(length, np.bool_)
        return self.counts(length) > 1

    def part(self, first: int, last: int) -> Column:
        """Return the values of the events from `first` to before `last`, numbered from 0."""
        parts = ((kind, entries.part(first, last)) for kind, entries in self.entries.items())
        filled = {kind: entries for kind, entries in parts if len(entries.events)}
        return Column(filled, self.is_single)

    def without(self, refused: NDArray[np.bool_]) -> Column:
        """Return the column without the values of some events."""
        kept = ((kind, e.only(~refused[e.events])) for kind, e in self.entries.items())
        filled = {kind: entries for kind, entries in kept if len(entries.events)}
        return Column(filled, self.is_single)


def _rising(events: NDArray[np.int32]) -> bool:
    return bool((events[1:] > events[:-1]).all())


NO_COLUMN: Final = Column({})


def entries_of(kind: Kind | None, events: NDArray[np.int32], values: Sequence[Any]) -> Entries:
    """Return values of one kind as entries."""
    match kind:
        case Kind.NUMBER:
            whole = np.fromiter((type(value) is int for value in values), np.bool_, len(values))
            return Entries(events, *split_numbers(values), whole)
        case Kind.TEXT:
            texts = list(dict.fromkeys(values))
            codes = dict(zip(texts, range(len(texts)), strict=True))
            coded = np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
            return Entries(events, coded, texts=texts)
        case None:
            return Entries(events, np.zeros(len(values), np.bool_))
        case _:
            traits = KINDS[kind]
            assert traits.store is not None  # noqa: S101 - numbers and texts are above
            return Entries(events, np.array(list(map(traits.store, values)), traits.dtype))


def integer_entries(events: NDArray[np.int32], values: NDArray[np.int64]) -> Entries:
    """Return integers as numbers."""
    return Entries(events, *split_integers(values), np.ones(len(values), np.bool_))


def float_entries(
    events: NDArray[np.int32], values: NDArray[np.float64]
) -> dict[Kind | None, Entries]:
    """Return floats as numbers, with NaN in a separate entry."""
    nan = np.isnan(values)
    if not nan.any():
        return {Kind.NUMBER: Entries(events, values)}
    numbers = Entries(events[~nan], values[~nan])
    others = Entries(events[nan], np.zeros(int(nan.sum()), np.bool_))
    return {Kind.NUMBER: numbers, None: others} if len(numbers.events) else {None: others}


def split_numbers(
    values: Sequence[int | float],
) -> tuple[NDArray[np.float64], NDArray[np.int16] | None]:
    """Return each number as a float and, for large integers, a residue.

    The pairs compare exactly as the numbers do: rounding to the nearest float never swaps two
    numbers, and where it makes them equal the residues decide.
    """
    if set(map(type, values)) == {int}:
        return split_integers(np.array(values, np.int64))
    floats = np.array(values, np.float64)
    residues = [
        int(value) - int(nearest) if type(value) is int else 0
        for value, nearest in zip(values, floats, strict=True)
    ]
    return floats, np.array(residues, np.int16) if any(residues) else None


def split_integers(
    values: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int16] | None]:
    """Split an array of integers like `split_numbers`."""
    floats = values.astype(np.float64)
    if not len(values) or (values.min() >= -(2**53) and values.max() <= 2**53):
        return floats, None
    # The largest integers have 2**63 as their nearest float, which is not an int64. In
    # arithmetic modulo 2**64 it is -2**63, and the difference comes out right.
    nearest = np.where(floats < 2.0**63, floats, -(2.0**63)).astype(np.int64)
    residues = (values - nearest).astype(np.int16)
    return floats, residues if residues.any() else None


def joined_columns(one: Column | None, other: Column | None) -> Column:
    """Return the values of two columns, which have no event in common."""
    if one is None or other is None:
        return one or other or Column({})
    kinds = dict.fromkeys((*one.entries, *other.entries))
    entries = {
        kind: _joined_entries(one.entries.get(kind), other.entries.get(kind)) for kind in kinds
    }
    return Column(entries)


def _joined_entries(one: Entries | None, other: Entries | None) -> Entries:
    if one is None or other is None:
        found = one or other
        assert found is not None  # noqa: S101 - the kind comes from one of them
        return found
    events = np.concatenate((one.events, other.events))
    order = np.argsort(events, kind="stable")
    texts: list[str] = [*one.texts, *other.texts]
    values: NDArray[Any] = np.concatenate((one.values, other.values))
    if texts:
        known = {each: code for code, each in enumerate(dict.fromkeys(texts))}
        moved = np.array([known[each] for each in texts], np.int32)
        values = moved[np.concatenate((one.values, other.values + len(one.texts)))]
        texts = list(known)
    sizes = len(one.events), len(other.events)
    return Entries(
        events[order],
        values[order],
        _concatenated((one.residues, other.residues), sizes, np.int16, order),
        _concatenated((one.whole, other.whole), sizes, np.bool_, order),
        texts,
    )


def _concatenated(
    parts: tuple[NDArray[Any] | None, NDArray[Any] | None],
    sizes: tuple[int, int],
    dtype: type,
    order: NDArray[np.int64],
) -> NDArray[Any] | None:
    """Return two arrays as one in a new order; None is all zeros."""
    if parts[0] is None and parts[1] is None:
        return None
    filled = [np.zeros(n, dtype) if p is None else p for p, n in zip(parts, sizes, strict=True)]
    joined: NDArray[Any] = np.concatenate(filled)[order]
    return joined


def value_at(kind: Kind | None, entries: Entries, at: int) -> Value:
    """Return one of the values."""
    value = entries.values[at]
    match kind:
        case Kind.TEXT:
            return entries.texts[int(value)]
        case Kind.NUMBER:
            return _number(entries, at)
        case None:
            return float("nan")
        case _:
            restore = KINDS[kind].restore
            assert restore is not None  # noqa: S101 - numbers and texts are above
            # A column of objects has no scalars of NumPy.
            restored: Value = restore(value.item() if isinstance(value, np.generic) else value)
            return restored


def _number(entries: Entries, at: int) -> int | float:
    value = float(entries.values[at])
    if entries.whole is None or not entries.whole[at]:
        return value
    return int(value) + (0 if entries.residues is None else int(entries.residues[at]))
