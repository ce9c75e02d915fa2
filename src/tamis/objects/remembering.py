"""Reading each accessor of an object once for all that is asked about it during one match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tamis.events import Event
from tamis.objects.accessors import (
    FAILURES,
    Accessor,
    AccessorFailures,
    ByName,
    FieldStep,
    Step,
    class_names,
    goes_into_elements,
    name_of,
)


class _Extracted(NamedTuple):
    """What generated code has found in an object, and in others beside it."""

    columns: Mapping[str, Sequence[object]]
    place: int


class ReadOnce(ByName):
    """Reads objects for exact checks: what was read before, also by generated code, is known.

    What it was read from is kept as well, so that no other object gets its identity meanwhile.
    """

    def __init__(self, failures: AccessorFailures = FAILURES) -> None:
        super().__init__(failures)
        self._extracted: Final[dict[int, _Extracted]] = {}
        self._objects: Final[list[Sequence[object]]] = []
        self._taken: Final[dict[tuple[int, str | Step], tuple[object, object]]] = {}
        self._events: Final[dict[int, tuple[object, Event]]] = {}

    def forget(self) -> None:
        """Forget what was read: other objects come."""
        for known in (self._extracted, self._objects, self._taken, self._events):
            known.clear()

    def note(self, objects: Sequence[object], columns: Mapping[str, Sequence[object]]) -> None:
        """Take note of what was found in some objects, by the names of accessors."""
        self._objects.append(objects)
        for place, each in enumerate(objects):
            self._extracted[id(each)] = _Extracted(columns, place)

    def event(self, given: Mapping[str, object]) -> Event:
        """Return a plain event, checked once."""
        known = self._events.get(id(given))
        if known is None:
            known = self._events[id(given)] = given, Event.of(given)
        return known[1]

    def __call__(self, message: object, accessor: Accessor) -> object:
        """Return what the accessor finds."""
        if accessor.root and accessor.root not in class_names(type(message)):
            return None
        extracted = self._extracted.get(id(message))
        if extracted is None:
            return self.read(message, accessor.steps, message, accessor.name)
        found = extracted.columns.get(accessor.name)
        if found is not None and accessor.steps:
            return found[extracted.place]
        return self._read_on(message, accessor, extracted)

    def _read_on(self, message: object, accessor: Accessor, extracted: _Extracted) -> object:
        """Return what an accessor finds that begins as one of those that were extracted."""
        steps, value, known = accessor.steps, message, 0
        for number, step in enumerate(steps, start=1):
            column = extracted.columns.get(name_of(steps[:number]))
            if value is None or column is None or goes_into_elements(value, step):
                break
            value, known = column[extracted.place], number
        return self.read(value, steps[known:], message, accessor.name)

    def taken(self, value: object, step: Step, message: object, name: str) -> object:
        """Take one step, unless it was taken before."""
        key = id(value), step.name if isinstance(step, FieldStep) else step
        known = self._taken.get(key)
        if known is None:
            known = self._taken[key] = value, super().taken(value, step, message, name)
        return known[1]
