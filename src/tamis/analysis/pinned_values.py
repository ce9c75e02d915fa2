"""Which filters cannot cover which: by the values that they require of single attributes.

A filter that requires `company = "IBM"` covers none that requires `company = "Dell"`, and none that
does not mention the company. Such pairs are ruled out before anything is asked about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final, NamedTuple

from tamis.events import Schema
from tamis.events.kinds import Kind, Value
from tamis.filters import Filter, Id, Mode
from tamis.filters.atoms import Compare, In
from tamis.filters.boolean import And, Or
from tamis.filters.printing import ANY

PinnedValue = tuple[Kind, Value]
Pins = Mapping[str, frozenset[PinnedValue]]
"""For some attributes, values of which one is required; with their kinds, since True equals 1."""

# Larger sets are not worth their memory.
MAX_PINNED_VALUES: Final = 256


class Requirements(NamedTuple):
    """What a filter requires of an event, as far as single values show it."""

    pins: Pins
    attributes: frozenset[str]
    """All that it mentions."""

    @classmethod
    def of(cls, filter_: Filter) -> Requirements:
        """Return the requirements of a filter."""
        return cls(_pins(filter_), filter_.attributes())


def _pins(filter_: Filter) -> dict[str, frozenset[PinnedValue]]:
    match filter_:
        case Compare(op="=", kind=kind, value=value):
            return {filter_.attribute: frozenset(((kind, value),))}
        case In(kind=kind, values=values) if len(values) <= MAX_PINNED_VALUES:
            return {filter_.attribute: frozenset((kind, value) for value in values)}
        case And(terms=terms):
            return _narrowest([_pins(term) for term in terms])
        case Or(terms=terms):
            return _joined([_pins(term) for term in terms])
        case _:
            return {}


def _narrowest(
    parts: Iterable[dict[str, frozenset[PinnedValue]]],
) -> dict[str, frozenset[PinnedValue]]:
    found: dict[str, frozenset[PinnedValue]] = {}
    for part in parts:
        for name, values in part.items():
            if name not in found or len(values) < len(found[name]):
                found[name] = values
    return found


def _joined(
    parts: list[dict[str, frozenset[PinnedValue]]],
) -> dict[str, frozenset[PinnedValue]]:
    shared = set(parts[0]).intersection(*parts[1:])
    joined = {name: frozenset().union(*(part[name] for part in parts)) for name in shared}
    return {name: values for name, values in joined.items() if len(values) <= MAX_PINNED_VALUES}


class PinIndex:
    """Filters by the values that they require, to find those that may cover another one."""

    def __init__(
        self, requirements: Mapping[Id, Requirements], schema: Schema | None, *, many: bool
    ) -> None:
        self._requirements: Final = requirements
        self._schema: Final = schema
        self._many: Final = many
        self._unpinned: Final[list[Id]] = []
        self._by_value: Final[dict[tuple[str, PinnedValue], list[Id]]] = {}
        self._by_attribute: Final[dict[str, list[Id]]] = {}
        for id_, own in requirements.items():
            self._add(id_, own.pins)

    def _add(self, id_: Id, pins: Pins) -> None:
        if not pins:
            self._unpinned.append(id_)
            return
        # Under one attribute each, so that no filter is found twice for one of them.
        name = min(pins, key=lambda one: (len(pins[one]), one))
        self._by_attribute.setdefault(name, []).append(id_)
        for value in pins[name]:
            self._by_value.setdefault((name, value), []).append(id_)

    def may_cover(self, narrow: Id, mode: Mode, candidates: Iterable[Id] | None = None) -> list[Id]:
        """Return the filters that may cover one that some event matches; of all, or of some."""
        found = self._candidates(narrow, mode) if candidates is None else candidates
        return [
            one
            for one in dict.fromkeys(found)
            if one in self._requirements and not self.is_ruled_out(one, narrow, mode)
        ]

    def _candidates(self, narrow: Id, mode: Mode) -> Iterable[Id]:
        if not mode.is_three_valued:
            return self._requirements
        own = self._requirements[narrow]
        if ANY in own.attributes:
            return self._requirements
        return chain(self._unpinned, *(self._sharing(name, own) for name in own.attributes))

    def _sharing(self, name: str, own: Requirements) -> Iterable[Id]:
        if name not in own.pins or self._holds_many(name):
            return self._by_attribute.get(name, ())
        return chain.from_iterable(self._by_value.get((name, v), ()) for v in own.pins[name])

    def is_ruled_out(self, wide: Id, narrow: Id, mode: Mode) -> bool:
        """Return whether a filter cannot cover one that some event matches."""
        own = self._requirements[narrow]
        for name, values in self._requirements[wide].pins.items():
            if name not in own.attributes:
                # An event may lack it; with defaults or in total mode, it may always be there.
                if mode.is_three_valued and ANY not in own.attributes:
                    return True
                continue
            required = own.pins.get(name, values)
            if values.isdisjoint(required) and not self._holds_many(name):
                return True
        return False

    def _holds_many(self, name: str) -> bool:
        declared = self._schema.get(name) if self._schema else None
        return declared.many if declared else self._many
