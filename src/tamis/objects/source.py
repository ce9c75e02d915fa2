"""Objects as a source of columns: one pass of generated code over the objects of each class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import EventError
from tamis.events import Event
from tamis.events.columns import Column, joined_columns
from tamis.events.event import EventLimits, flatten
from tamis.events.gathering import mixed_column, plain_column
from tamis.events.kinds import Value, is_value
from tamis.events.values import brief
from tamis.objects.accessors import (
    AccessorSteps,
    ByName,
    is_private,
    is_several,
    name_of,
    steps_of,
)
from tamis.objects.comparing import Failed, elements_of, value_of
from tamis.objects.generation import Extraction, generate_extractor
from tamis.objects.remembering import ReadOnce

MAX_EXTRACTIONS: Final = 1_024
"""Generated functions that are kept; a program with more classes generates some again."""
FIRST_STEPS_IN_GROUP: Final = 32
"""Of the chains that one generated function takes, if there are few: all are generated again when
one more comes that begins like them."""
MAX_GROUPS: Final = 256
"""Generated functions for one class; with more, groups are larger."""
MIN_FORGOTTEN_ACCESSORS: Final = 1_024
"""Accessors that are kept, needed or not."""
MAX_PUBLIC_DEPTH: Final = 8
"""Objects inside each other, where every attribute is wanted."""


class _GeneratedPart(NamedTuple):
    """A function that extracts some attributes, all of those that begin with the same steps."""

    steps: Mapping[str, AccessorSteps]
    """By the names of the attributes."""
    extract: Extraction


class _KnownAccessors(NamedTuple):
    ways: dict[str, AccessorSteps]
    """Others are only ever added, by one thread at a time."""
    extractions: dict[tuple[type, frozenset[str], bool], list[_GeneratedPart]]
    """By class and attributes, and whether what comes on the way to them is wanted as well."""


class ObjectReader:
    """Finds attributes in objects; an engine tells its reader the accessors of its filters."""

    def __init__(self) -> None:
        self._known = _KnownAccessors({}, {})
        self._most_known = MIN_FORGOTTEN_ACCESSORS
        self._by_name: Final = ByName()
        self._parts: Final[dict[tuple[type, bool, int, int], _GeneratedPart]] = {}
        """The latest ones, so that another accessor does not make all others be generated again."""

    def learn(
        self, ways: Mapping[str, AccessorSteps], names_in_use: Callable[[], Collection[str]]
    ) -> None:
        """Take note of accessors: only these may call methods, names in texts never do.

        Once there are many, those that are not in use any more are forgotten.
        """
        known = self._known.ways
        if ways.keys() <= known.keys():
            return
        if len(known) >= self._most_known:
            names = names_in_use()
            known = {name: steps for name, steps in known.items() if name in names}
            self._most_known = max(MIN_FORGOTTEN_ACCESSORS, 2 * len(known))
        known.update(ways)
        # Afterwards: functions that were generated without them must not be kept.
        self._known = _KnownAccessors(known, {})

    def event(
        self, given: object, wanted: Collection[str] | None, once: ReadOnce | None = None
    ) -> Event:
        """Return an object as an event that has the wanted attributes."""
        columns = self._raw([given], type(given), wanted, once)
        found = {
            name: tuple(values_in(column[0], self._failed(given, name)))
            for name, column in columns.items()
        }
        held = {name: values for name, values in found.items() if values}
        if wanted is None:
            held = {**_public_values(given), **held}
        return Event.of_checked(held)

    def columns(
        self,
        objects: Sequence[object],
        numbers: NDArray[np.int32],
        wanted: Collection[str] | None,
        once: ReadOnce | None = None,
    ) -> dict[str, Column]:
        """Return the wanted attributes of objects, given the number of each."""
        found: dict[str, Column] = {}
        for cls in dict.fromkeys(map(type, objects)):
            own = [place for place, each in enumerate(objects) if type(each) is cls]
            chosen = objects if len(own) == len(objects) else [objects[place] for place in own]
            for name, raw in self._raw(chosen, cls, wanted, once).items():
                column = self._column(numbers[own], name, raw, chosen)
                if column is not None:
                    found[name] = joined_columns(found[name], column) if name in found else column
        return found

    def _failed(self, message: object, name: str) -> Failed:
        return partial(self._by_name.failures.note, message, name)

    def _column(
        self,
        events: NDArray[np.int32],
        name: str,
        raw: list[Any],
        objects: Sequence[object],
    ) -> Column | None:
        """Return the values of one attribute; None if there are none."""
        if set(map(type, raw)) == {type(None)}:
            return None
        plain = plain_column(events, raw, None)
        if plain is not None:
            return plain._replace(is_single=True)
        several = [
            values_in(each, self._failed(message, name))
            for each, message in zip(raw, objects, strict=True)
        ]
        values = [value for each in several for value in each]
        if not values:
            return None
        repeated = np.repeat(events, [len(each) for each in several])
        return plain_column(repeated, values, None) or mixed_column(repeated, values)

    def _raw(
        self,
        objects: Sequence[object],
        cls: type,
        wanted: Collection[str] | None,
        once: ReadOnce | None,
    ) -> dict[str, list[object]]:
        known = self._known
        key = cls, frozenset(known.ways if wanted is None else wanted), once is not None
        parts = known.extractions.get(key)
        if parts is None:
            parts = self._generated(known, *key)
        read = self._by_name.read if once is None else once.read
        found: dict[str, list[object]] = {}
        for part in parts:
            columns: dict[str, list[object]] = {name: [] for name in part.steps}
            part.extract(objects, read, *(column.append for column in columns.values()))
            found |= columns
        if once is None:
            return found
        once.note(objects, found)
        return {name: column for name, column in found.items() if name in key[1]}

    def _generated(
        self, known: _KnownAccessors, cls: type, wanted: frozenset[str], is_kept: bool
    ) -> list[_GeneratedPart]:
        ways = {name: known.ways.get(name) or steps_of(name) for name in wanted}
        steps = {name: found for name, found in sorted(ways.items()) if found}
        if is_kept:
            # What comes on the way to them, so that exact checks go on from there.
            prefixes = [s[:end] for s in steps.values() for end in range(1, len(s))]
            steps = {**{name_of(prefix): prefix for prefix in prefixes}, **steps}
        if len(known.extractions) >= MAX_EXTRACTIONS:
            known.extractions.clear()
            self._parts.clear()
        groups = _grouped(steps)
        made = [
            self._part((cls, is_kept, len(groups), place), group)
            for place, group in enumerate(groups)
            if group
        ]
        known.extractions[cls, wanted, is_kept] = made
        return made

    def _part(
        self, key: tuple[type, bool, int, int], steps: Mapping[str, AccessorSteps]
    ) -> _GeneratedPart:
        part = self._parts.get(key)
        if part is None or part.steps != steps:
            extract = generate_extractor(key[0], [*steps.values()], [*steps], self._by_name)
            part = self._parts[key] = _GeneratedPart(steps, extract)
        return part


def _grouped(steps: Mapping[str, AccessorSteps]) -> list[dict[str, AccessorSteps]]:
    """Return chains in groups, of which another chain changes one; no prefix is in two of them.

    Their number changes only when that of the first steps doubles.
    """
    first_steps = {chain[0] for chain in steps.values()}
    count = min(MAX_GROUPS, 1 << max(0, (len(first_steps) // FIRST_STEPS_IN_GROUP).bit_length()))
    groups: list[dict[str, AccessorSteps]] = [{} for _ in range(count)]
    for name, chain in steps.items():
        groups[hash(chain[0]) % count][name] = chain
    return groups


# --- values ----------------------------------------------------------------------------------


def values_in(raw: object, failed: Failed) -> list[Value]:
    """Return what an accessor found as values of an event; decimals are the nearest numbers."""
    return [_value(each, failed) for each in elements_of(raw, failed)]


def _value(raw: object, failed: Failed) -> Value:
    value = value_of(raw, exact=False, failed=failed)
    assert not isinstance(value, Decimal)  # noqa: S101 - they become numbers
    return value


# --- all attributes --------------------------------------------------------------------------


def _public_values(given: object) -> Mapping[str, tuple[Value, ...]]:
    """Return all values of an object's public fields, by their dotted names."""
    try:
        return flatten(_public(given, 0), EventLimits())
    except EventError as error:
        raise EventError(f"{brief(given)}: {error.reason}", place=error.place) from None


def _public(given: object, depth: int) -> dict[str, object]:
    return {
        name: _nested(value, depth)
        for name, value in _fields(given).items()
        if not is_private(name)
    }


def _nested(value: object, depth: int) -> object:
    if value is None or is_value(value):
        return value_of(value, exact=False) if value is not None else None
    if depth >= MAX_PUBLIC_DEPTH:
        return None
    if isinstance(value, Mapping):
        return {str(k): _nested(v, depth + 1) for k, v in value.items() if isinstance(k, str) and k}
    if is_several(value):
        return [_nested(each, depth + 1) for each in value]  # type: ignore[attr-defined]
    return _public(value, depth + 1)


def _fields(given: Any) -> Mapping[str, object]:
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        return {one.name: getattr(given, one.name, None) for one in dataclasses.fields(given)}
    for listed in ("_fields", "__struct_fields__"):
        names = getattr(type(given), listed, None)
        if isinstance(names, tuple):
            return {name: getattr(given, name, None) for name in names}
    if hasattr(given, "__dict__"):
        return dict(vars(given))
    slots = [name for cls in type(given).__mro__ for name in getattr(cls, "__slots__", ())]
    return {name: getattr(given, name) for name in slots if hasattr(given, name)}
