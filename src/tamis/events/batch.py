"""Many events as typed columns: for each attribute, which event holds which values of which kind.

This module makes them from single events; `arrow` makes them from Arrow's columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.columns import (
    NO_COLUMN,
    Column,
    Entries,
    entries_of,
    float_entries,
    integer_entries,
    split_numbers,
    value_at,
)
from tamis.events.event import Event, EventLimits, flatten
from tamis.events.kinds import TRAITS_OF_CLASS, TYPE_OF_CLASS, Kind, Value, check_value, kind_of
from tamis.events.schema import Attribute, Schema, fit
from tamis.events.values import INT64_MAX, INT64_MIN, microseconds

LIMITS: Final = EventLimits()

# The classes of plain values; None is the same as no attribute.
_PLAIN: Final = frozenset({*TYPE_OF_CLASS, type(None)})
_SCALAR: Final = frozenset({int, float, str, bool})


class Admission:
    """The checks that an event passes on its way into a batch."""

    def __init__(self, schema: Schema | None, *, total: bool) -> None:
        self.schema: Final = schema
        self.total: Final = total
        self._masks = schema.masks if schema is not None else frozenset[str]()

    def admit(self, event: Event | Mapping[str, object]) -> Event:
        """Return an event with its values as declared, or raise an error."""
        if type(event) is dict and self._is_plain(event):
            checked = Event.of_checked({name: (value,) for name, value in event.items()})
            if self.total and self.schema is not None:
                self.schema.require_all(checked)
            return checked
        if isinstance(event, Mapping) and not isinstance(event, Event):
            checked = Event.of_checked(flatten(event, LIMITS, masks=self._masks))
        else:
            checked = Event.of(event)
        if self.schema is not None:
            checked = self.schema.ensure_conforming(checked)
            if self.total:
                self.schema.require_all(checked)
        return checked

    def _is_plain(self, event: dict[str, Any]) -> bool:
        """Return whether an event is flat and certainly valid, as most are."""
        if len(event) > LIMITS.attributes:
            return False
        schema: Mapping[str, Attribute] = self.schema or {}
        for name, value in event.items():
            type_ = type(value)
            if type_ not in _SCALAR or not _is_plain_name(name):
                return False
            declared = schema.get(name)
            if declared is not None and TYPE_OF_CLASS[type_] is not declared.type:
                return False
            if type_ is int and not INT64_MIN <= value <= INT64_MAX:
                return False
            if type_ is str and not _is_unicode(value):
                return False
        return True


class Gathering:
    """Columns under construction, as plain lists.

    Most events are flat and hold plain values. Checking them one by one costs ten times as much as
    checking each column, and the check of a column may be strict: an event that fails it is only
    suspect, and is then checked on its own.
    """

    def __init__(self, schema: Schema | None, *, total: bool) -> None:
        self.errors: Final[dict[int, TamisError]] = {}
        self._admission = Admission(schema, total=total)
        self._lists: dict[str, tuple[list[int], list[Any]]] = {}
        self._flat: dict[int, dict[str, Any]] = {}

    def add(self, number: int, event: Event | Mapping[str, object]) -> None:
        """Add an event; numbers must ascend."""
        if (
            type(event) is dict
            and _PLAIN.issuperset(map(type, event.values()))
            and len(event) <= LIMITS.attributes
        ):
            self._flat[number] = event
            lists = self._lists
            for name, value in event.items():
                held = lists.get(name)
                if held is None:
                    held = lists[name] = ([], [])
                held[0].append(number)
                held[1].append(value)
        else:
            self._add_slowly(number, event)

    def _add_slowly(self, number: int, event: Event | Mapping[str, object]) -> None:
        try:
            admitted = self._admission.admit(event)
        except TamisError as error:
            self.errors[number] = error
            return
        for name, values in admitted.items():
            events, held = self._lists.setdefault(name, ([], []))
            events += [number] * len(values)
            held += values

    def columns(self) -> dict[str, Column]:
        """Return the columns of all valid events; afterwards `errors` has the others."""
        suspects = self._suspects()
        if suspects:
            self._judge(sorted(suspects))
        return {name: _column(*held) for name, held in self._lists.items() if held[0]}

    def _suspects(self) -> set[int]:
        suspects: set[int] = set()
        schema: Mapping[str, Attribute] = self._admission.schema or {}
        for name, (events, values) in self._lists.items():
            if not _is_plain_name(name):
                suspects.update(events)
            elif not _are_plain(values, schema.get(name)):
                kept, suspected = _checked(name, events, values, schema.get(name))
                self._lists[name] = kept
                suspects.update(suspected)
        if self._admission.total:
            for name in schema:
                suspects.update(self._flat.keys() - self._lists.get(name, ((), ()))[0])
        return suspects & self._flat.keys()

    def _judge(self, suspects: list[int]) -> None:
        """Remove the suspect events, and put the valid ones back in their places."""
        out = set(suspects)
        for name, (events, values) in self._lists.items():
            kept = [(e, v) for e, v in zip(events, values, strict=True) if e not in out]
            self._lists[name] = ([e for e, _ in kept], [v for _, v in kept])
        for number in suspects:
            self._add_slowly(number, self._flat[number])
        for name, (events, values) in self._lists.items():
            order = sorted(range(len(events)), key=events.__getitem__)
            self._lists[name] = ([events[at] for at in order], [values[at] for at in order])


def _is_plain_name(name: object) -> bool:
    return type(name) is str and 0 < len(name) <= LIMITS.name and _is_unicode(name)


def _is_unicode(text: str) -> bool:
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _are_plain(values: list[Any], declared: Attribute | None) -> bool:
    """Return whether all values are certainly valid and of the declared type."""
    types = set(map(type, values))
    if len(types) > 1:
        return False
    (type_,) = types
    if type_ not in TYPE_OF_CLASS or (declared and TYPE_OF_CLASS[type_] is not declared.type):
        return False
    if type_ is int:
        return bool(min(values) >= INT64_MIN and max(values) <= INT64_MAX)
    if type_ is str:
        return all(map(_is_unicode, set(values)))
    return TRAITS_OF_CLASS[type_].trusted


def _checked(
    name: str, events: list[int], values: list[Any], declared: Attribute | None
) -> tuple[tuple[list[int], list[Any]], list[int]]:
    """Return the checked values, and the events of those that may be invalid."""
    kept: tuple[list[int], list[Any]] = ([], [])
    suspected: list[int] = []
    for event, value in zip(events, values, strict=True):
        if value is None:
            continue
        try:
            checked = check_value(value)
            fitted = checked if declared is None else fit(checked, declared.type, name)
        except TamisError:
            suspected.append(event)
        else:
            kept[0].append(event)
            kept[1].append(fitted)
    return kept, suspected


def _column(numbers: list[int], values: list[Any]) -> Column:
    events = np.array(numbers, np.int32)
    types = set(map(type, values))
    if types == {int}:
        return Column({Kind.NUMBER: integer_entries(events, np.array(values, np.int64))})
    if types == {float}:
        return Column(float_entries(events, np.array(values, np.float64)))
    if len(types) == 1:
        kind = kind_of(values[0])
        return Column({kind: entries_of(kind, events, values)})
    return _mixed_column(events, values)


def _mixed_column(events: NDArray[np.int32], values: list[Any]) -> Column:
    places: dict[Kind | None, list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(kind_of(value), []).append(place)
    return Column(
        {
            kind: entries_of(kind, events[held], [values[place] for place in held])
            for kind, held in places.items()
        }
    )


__all__ = [
    "NO_COLUMN",
    "Admission",
    "Column",
    "Entries",
    "EventBatch",
    "is_arrow",
    "microseconds",
    "split_numbers",
]


def is_arrow(data: object) -> bool:
    """Return whether an object offers Arrow's columns, without importing Arrow to find out."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


@dataclass(frozen=True, eq=False)
class EventBatch:
    """Events as columns; a rejected event is empty here, and `errors` says why."""

    length: int
    columns: Mapping[str, Column]
    errors: dict[int, TamisError] = field(default_factory=dict)

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
        """Make columns from events; an invalid event is an error of its own.

        With `total`, an event that lacks an attribute of the schema is invalid.
        """
        gathering = Gathering(schema, total=total)
        length = 0
        for number, event in enumerate(events):
            length += 1
            gathering.add(number, event)
        columns = gathering.columns()
        return cls(length, columns, dict(sorted(gathering.errors.items())))

    def part(self, first: int, last: int) -> EventBatch:
        """Return the events from `first` to before `last` as a batch of their own."""
        columns = {name: column.part(first, last) for name, column in self.columns.items()}
        errors = {n - first: error for n, error in self.errors.items() if first <= n < last}
        return EventBatch(last - first, columns, errors)

    def event(self, number: int, names: Iterable[str] | None = None) -> Event:
        """Return one event of the batch, with all or some of its attributes."""
        held: dict[str, list[Value]] = {}
        for name in self.columns if names is None else names:
            column = self.columns.get(name, NO_COLUMN)
            for kind, entries in column.entries.items():
                first, last = np.searchsorted(entries.events, [number, number + 1])
                for at in range(first, last):
                    held.setdefault(name, []).append(value_at(kind, entries, at))
        return Event.of_checked({name: tuple(values) for name, values in held.items()})
