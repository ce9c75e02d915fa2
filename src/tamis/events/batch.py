"""Many events as typed columns: for each attribute, which event holds which values of which kind.

A column keeps its values in long form, one entry per value with the number of its event, so that
absent attributes, several values and mixed kinds need no special case. This is the only module
that touches Arrow's layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.event import Event
from tamis.events.schema import Schema
from tamis.events.values import Bits, Kind, Value, kind_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Entries(NamedTuple):
    """The values of one kind: the event of each, ascending, and the value."""

    events: NDArray[np.int32]
    values: NDArray[Any]
    """float64, int64 microseconds, bool, uint64 masks, or codes of `texts`."""
    residues: NDArray[np.int16] | None = None
    """Of numbers: what an integer is more than the float nearest to it; None where all are 0."""
    whole: NDArray[np.bool_] | None = None
    """Of numbers: which are integers, for arithmetic tells 2 and 2.0 apart."""
    texts: Sequence[str] = ()


class Column:
    """The values of one attribute in all events of a batch."""

    def __init__(self, entries: Mapping[Kind | None, Entries]) -> None:
        self.entries: Final = entries
        """By kind; values that compare with nothing (NaN) under None."""

    def several(self, length: int) -> NDArray[np.bool_]:
        """Tell of each event whether it holds more than one value."""
        counts = np.zeros(length, np.int32)
        for entries in self.entries.values():
            np.add.at(counts, entries.events, 1)
        return counts > 1


NO_COLUMN: Final = Column({})


class EventBatch:
    """Some events as columns; events that had to be refused are empty here and told apart."""

    def __init__(
        self,
        length: int,
        columns: Mapping[str, Column],
        errors: Mapping[int, TamisError] | None = None,
    ) -> None:
        self.length: Final = length
        self.columns: Final = columns
        self.errors: Final = dict(errors or {})

    def __len__(self) -> int:
        return self.length

    @classmethod
    def of_events(
        cls,
        events: Iterable[Event | Mapping[str, object]],
        schema: Schema | None = None,
        *,
        total: bool = False,
    ) -> EventBatch:
        """Make columns of events; one that is wrong is an error for itself alone.

        With `total`, an event that lacks an attribute of the schema is wrong.
        """
        gathered = _Gathering()
        errors: dict[int, TamisError] = {}
        length = 0
        for number, event in enumerate(events):
            length += 1
            try:
                gathered.add(number, _checked(event, schema, total=total))
            except TamisError as error:
                errors[number] = error
        return cls(length, gathered.columns(), errors)

    def event(self, number: int, names: Iterable[str] | None = None) -> Event:
        """Return one event of the batch, whole or with some of its attributes."""
        held: dict[str, list[Value]] = {}
        for name in self.columns if names is None else names:
            column = self.columns.get(name, NO_COLUMN)
            for kind, entries in column.entries.items():
                first, last = np.searchsorted(entries.events, [number, number + 1])
                for at in range(first, last):
                    held.setdefault(name, []).append(_value(kind, entries, at))
        return Event.of_checked({name: tuple(values) for name, values in held.items()})


def _checked(event: Event | Mapping[str, object], schema: Schema | None, *, total: bool) -> Event:
    checked = Event.of(event)
    if schema is not None:
        checked = schema.conform(checked)
        if total:
            schema.require_all(checked)
    return checked


class _Gathering:
    """Columns under construction, as plain lists."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[Kind | None, tuple[list[int], list[Value]]]] = {}

    def add(self, number: int, event: Event) -> None:
        for name, values in event.items():
            column = self._lists.setdefault(name, {})
            for value in values:
                events, held = column.setdefault(kind_of(value), ([], []))
                events.append(number)
                held.append(value)

    def columns(self) -> dict[str, Column]:
        return {
            name: Column(
                {
                    kind: _entries(kind, np.array(events, np.int32), values)
                    for kind, (events, values) in column.items()
                }
            )
            for name, column in self._lists.items()
        }


def _entries(kind: Kind | None, events: NDArray[np.int32], values: Sequence[Any]) -> Entries:
    match kind:
        case Kind.NUMBER:
            whole = np.array([type(value) is int for value in values], np.bool_)
            return Entries(events, *split_numbers(values), whole)
        case Kind.TEXT:
            codes = {text: code for code, text in enumerate(dict.fromkeys(values))}
            return Entries(events, np.array([codes[v] for v in values], np.int32), texts=[*codes])
        case Kind.TIMESTAMP:
            return Entries(events, np.array([microseconds(v) for v in values], np.int64))
        case Kind.BITS:
            return Entries(events, np.array([v.mask for v in values], np.uint64))
        case Kind.BOOLEAN:
            return Entries(events, np.array(values, np.bool_))
        case _:
            return Entries(events, np.zeros(len(values), np.bool_))


def split_numbers(
    values: Sequence[int | float],
) -> tuple[NDArray[np.float64], NDArray[np.int16] | None]:
    """Return each number as a float and, for large integers, what is missing from it.

    The pairs order and equal each other exactly as the numbers do: rounding to the nearest float
    never swaps two numbers, and where it makes them one the residues decide.
    """
    floats = np.array(values, np.float64)
    residues = [
        int(value) - int(nearest) if type(value) is int else 0
        for value, nearest in zip(values, floats, strict=True)
    ]
    return floats, np.array(residues, np.int16) if any(residues) else None


def microseconds(moment: datetime) -> int:
    """Return a timestamp as whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def _value(kind: Kind | None, entries: Entries, at: int) -> Value:
    value = entries.values[at]
    match kind:
        case Kind.TEXT:
            return entries.texts[int(value)]
        case Kind.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=int(value))
        case Kind.BITS:
            return Bits.from_mask(int(value))
        case Kind.BOOLEAN:
            return bool(value)
        case Kind.NUMBER:
            return _number(entries, at)
        case _:
            return float("nan")


def _number(entries: Entries, at: int) -> int | float:
    value = float(entries.values[at])
    if entries.whole is None or not entries.whole[at]:
        return value
    return int(value) + (0 if entries.residues is None else int(entries.residues[at]))
