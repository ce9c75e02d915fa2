"""Many events as typed columns: for each attribute, which event holds which values of which kind.

Here they are made of single events; `arrow` makes them of Arrow's columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from tamis.errors import TamisError
from tamis.events.columns import (
    NO_COLUMN,
    Column,
    Entries,
    microseconds,
    split_numbers,
    value_at,
)
from tamis.events.event import Event
from tamis.events.gathering import Admission, Gathering
from tamis.events.schema import Schema
from tamis.events.values import Value

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
    """Tell whether an object offers Arrow's columns, without importing Arrow to find out."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


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
        gathering = Gathering(schema, total=total)
        length = 0
        for number, event in enumerate(events):
            length += 1
            gathering.add(number, event)
        columns = gathering.columns()
        return cls(length, columns, dict(sorted(gathering.errors.items())))

    def event(self, number: int, names: Iterable[str] | None = None) -> Event:
        """Return one event of the batch, whole or with some of its attributes."""
        held: dict[str, list[Value]] = {}
        for name in self.columns if names is None else names:
            column = self.columns.get(name, NO_COLUMN)
            for kind, entries in column.entries.items():
                first, last = np.searchsorted(entries.events, [number, number + 1])
                for at in range(first, last):
                    held.setdefault(name, []).append(value_at(kind, entries, at))
        return Event.of_checked({name: tuple(values) for name, values in held.items()})
