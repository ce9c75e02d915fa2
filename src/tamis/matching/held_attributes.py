"""Objects that are no mappings as events: found by their classes, or as they say themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.errors import EventError
from tamis.events import Event
from tamis.events.batch import Column, EventObjects
from tamis.events.columns import joined_columns
from tamis.events.gathering import HoldsAttributes, gather_checked, hold_attributes
from tamis.events.kinds import Value

if TYPE_CHECKING:
    from tamis.objects.remembering import ReadOnce
    from tamis.objects.source import ObjectReader


class ObjectsAsEvents:
    """What an engine needs once it meets an object that is no mapping; most never do."""

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        """Returns the attributes that filters ask for."""

    @cached_property
    def reader(self) -> ObjectReader:
        """Return what finds attributes in objects."""
        from tamis.objects.source import ObjectReader  # noqa: PLC0415 - only for objects

        return ObjectReader()

    def once(self) -> ReadOnce:
        """Return what keeps what is read of objects during one match, for exact checks."""
        from tamis.objects.remembering import ReadOnce  # noqa: PLC0415 - only for objects

        return ReadOnce()

    def event(
        self, given: object, wanted: Collection[str] | None, once: ReadOnce | None = None
    ) -> Event:
        """Return an object as an event that has the wanted attributes."""
        if hold_attributes(type(given)):
            own: Any = given
            return Event.of_checked(self._held(own, wanted))
        return self.reader.event(given, wanted, once)

    def _held(
        self, given: HoldsAttributes, wanted: Collection[str] | None
    ) -> dict[str, tuple[Value, ...]]:
        found = given.__attributes__(wanted)
        # All attributes are those under plain names; filters may ask for others.
        return found if wanted is not None else {**found, **given.__attributes__(self._names())}

    def columns(
        self,
        objects: Sequence[object],
        numbers: NDArray[np.int32],
        wanted: Collection[str] | None,
        once: ReadOnce | None = None,
    ) -> dict[str, Column]:
        """Return the wanted attributes of objects, given the number of each."""
        own = [place for place, each in enumerate(objects) if hold_attributes(type(each))]
        if not own:
            return self.reader.columns(objects, numbers, wanted, once)
        events = [self.event(objects[place], wanted) for place in own]
        found = gather_checked(events, numbers[own].tolist(), wanted)
        if len(own) == len(objects):
            return found
        is_own = set(own)
        others = [place for place in range(len(objects)) if place not in is_own]
        strangers = [objects[place] for place in others]
        left = self.reader.columns(strangers, numbers[others], wanted, once)
        names = dict.fromkeys((*found, *left))
        return {name: joined_columns(found.get(name), left.get(name)) for name in names}

    def source(self, events: Any, once: ReadOnce | None = None) -> EventObjects:
        """Return events and objects one by one as a source."""
        return EventObjects(_events(events), _ObjectsOfBatches(self, once))


class _ObjectsOfBatches:
    """Reads the objects of one batch after the other."""

    def __init__(self, objects: ObjectsAsEvents, once: ReadOnce | None) -> None:
        self._objects = objects
        self._once = once

    def begin_batch(self) -> None:
        if self._once is not None:
            self._once.forget()

    def event(self, given: object, wanted: Collection[str] | None) -> Event:
        return self._objects.event(given, wanted, self._once)

    def columns(
        self, objects: Sequence[object], numbers: NDArray[np.int32], wanted: Collection[str] | None
    ) -> dict[str, Column]:
        return self._objects.columns(objects, numbers, wanted, self._once)


def _events(given: Any) -> Iterable[Event | Mapping[str, object]]:
    if isinstance(given, Mapping):
        raise EventError("this is one event: call match, or put it in a list")
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        raise EventError(f"events are an iterable of events or an Arrow table, not {given!r:.60}")
    return given
