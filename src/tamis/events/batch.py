"""Many events as typed columns: for each attribute, which event holds which values of which kind.

A source of events makes them, only for the attributes that are wanted: this module from single
events, `arrow` from Arrow's columns, `json_source` from JSON lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.columns import (
    NO_COLUMN,
    Column,
    Entries,
    split_numbers,
    value_at,
)
from tamis.events.event import Event
from tamis.events.gathering import LIMITS, Admission, ReadsObjects, gather
from tamis.events.kinds import Value
from tamis.events.schema import Schema
from tamis.events.values import microseconds

EVENTS_PER_BATCH: Final = 4_096
"""So many events are read at a time: enough for the kernels, few enough for the caches."""

__all__ = [
    "LIMITS",
    "NO_COLUMN",
    "Admission",
    "Column",
    "Entries",
    "EventBatch",
    "EventObjects",
    "EventSource",
    "Projection",
    "ReadsObjects",
    "is_arrow",
    "microseconds",
    "split_numbers",
]


def is_arrow(data: object) -> bool:
    """Return whether an object offers Arrow's columns, without importing Arrow to find out."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


@dataclass(frozen=True, eq=False)
class Projection:
    """What is read of events; the same object for many batches, so that readers can be kept."""

    wanted: frozenset[str] | None = None
    """The attributes to read, None for all; the others are only checked."""
    schema: Schema | None = None
    """What all attributes that it declares are checked against, wanted or not."""
    total: bool = False
    """Whether an event that lacks an attribute of the schema is invalid."""
    named: frozenset[str] | None = None
    """If all attributes are wanted: those of which other values than texts are wanted, too."""


@runtime_checkable
class EventSource(Protocol):
    """Holds events; `Engine.match_batch` takes any."""

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the events in order, in batches of any size; an invalid event is an error there."""
        ...


class EventObjects:
    """Events one by one, as mappings or `Event` objects."""

    def __init__(
        self,
        events: Iterable[Event | Mapping[str, object]],
        objects: ReadsObjects | None = None,
    ) -> None:
        self._events = events
        self._objects = objects

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the events, some thousands at a time."""
        remaining = iter(self._events)
        admission = Admission(projection.schema, total=projection.total, objects=self._objects)
        while taken := list(islice(remaining, EVENTS_PER_BATCH)):
            if self._objects is not None:
                self._objects.begin_batch()
            columns, errors = gather(taken, admission, projection.wanted)
            yield EventBatch(len(taken), columns, errors, taken.__getitem__)


@dataclass(frozen=True, eq=False)
class EventBatch:
    """Events as columns; a rejected event is empty here, and `errors` says why."""

    length: int
    columns: Mapping[str, Column]
    errors: dict[int, TamisError] = field(default_factory=dict)
    given: Callable[[int], object] | None = None
    """Returns an event as it was given, for what columns do not tell; None: that is not known."""

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
        return cls(len(held), columns, errors, held.__getitem__)

    def event_batches(self, _: Projection) -> Iterator[EventBatch]:
        """Yield this batch: it is a source of events itself."""
        yield self

    def part(self, first: int, last: int) -> EventBatch:
        """Return the events from `first` to before `last` as a batch of their own."""
        columns = {name: column.part(first, last) for name, column in self.columns.items()}
        errors = {n - first: error for n, error in self.errors.items() if first <= n < last}
        return EventBatch(last - first, columns, errors, self._given_from(first))

    def _given_from(self, first: int) -> Callable[[int], object] | None:
        given = self.given
        return None if given is None else lambda number: given(first + number)

    def lacking(self, name: str) -> NDArray[np.intp]:
        """Return the events that lack an attribute."""
        return np.flatnonzero(self.columns.get(name, NO_COLUMN).counts(self.length) == 0)

    def event(self, number: int, names: Iterable[str] | None = None) -> Event:
        """Return one event of the batch, with all or some of its attributes."""
        held: dict[str, list[Value]] = {}
        for name in self.columns if names is None else names:
            column = self.columns.get(name, NO_COLUMN)
            for kind, entries in column.entries.items():
                first, last = 0, len(entries.events)
                if self.length > 1:
                    first, last = np.searchsorted(entries.events, [number, number + 1])
                for at in range(first, last):
                    held.setdefault(name, []).append(value_at(kind, entries, at))
        return Event.of_checked({name: tuple(values) for name, values in held.items()})
