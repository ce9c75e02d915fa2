"""Many events as typed columns: for each attribute, which event holds which values of which kind.

`gathering` makes them from single events, `arrow` from Arrow's columns, `json_columns` from text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tamis.errors import TamisError
from tamis.events.columns import (
    NO_COLUMN,
    Column,
    Entries,
    split_numbers,
    value_at,
)
from tamis.events.event import Event
from tamis.events.gathering import LIMITS, Admission, gather
from tamis.events.kinds import Value
from tamis.events.schema import Schema
from tamis.events.values import microseconds

__all__ = [
    "LIMITS",
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
        wanted: Collection[str] | None = None,
    ) -> EventBatch:
        """Make columns from events; an invalid event is an error of its own.

        With `total`, an event that lacks an attribute of the schema is invalid. With `wanted`, only
        those attributes become columns; all are checked.
        """
        held = events if isinstance(events, list) else list(events)
        columns, errors = gather(held, Admission(schema, total=total), wanted)
        return cls(len(held), columns, errors)

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
