"""Probes: events that match a filter, from the corners of its cubes or from its diagram.

A filter covers another only if it matches each of the other's probes. Where no event is known to
match a filter, its probe has only the values that a path through its diagram leaves no choice
about; all other attributes are *open*, and nothing is concluded from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple

from tamis.covering.cubes import Cube, Geometry
from tamis.diagrams.value_order import (
    ABSENT,
    BRACKET_OF_KIND,
    NUMBERS,
    OTHER,
    Breakpoint,
    Interval,
    ValueOrder,
)
from tamis.diagrams.witness import Values, cell_values
from tamis.events import Bits, Event, Schema, Value
from tamis.events.kinds import kind_of
from tamis.filters import Filter, Mode
from tamis.filters.modes import UNKNOWN, View

NOWHERE: Final[tuple[Breakpoint, ...]] = ((ABSENT,),)
# Cubes of one filter whose corners are tried.
MAX_CORNERED_CUBES: Final = 4


def place_of(value: Value) -> Breakpoint:
    """Return the position of a value in any value order."""
    kind = kind_of(value)
    return (OTHER,) if kind is None else (BRACKET_OF_KIND[kind], value)


class Probe(NamedTuple):
    """An event that matches a filter, or what is known of every such event."""

    view: View
    places: dict[str, tuple[Breakpoint, ...]]
    """The positions of the values of attributes that are there."""
    open: frozenset[str] = frozenset()
    """Attributes of which nothing is known."""
    is_blank: bool = False
    """Whether nothing is known of any attribute."""

    @property
    def is_event(self) -> bool:
        """Return whether this is an event that matches."""
        return not self.open and not self.is_blank

    def may_be_in(self, cube: Cube) -> bool:
        """Return whether it lies at positions of a cube, as far as it is known."""
        if self.is_blank:
            return True
        for name, positions in cube.positions.items():
            at = self.places.get(name, NOWHERE)
            if name not in self.open and not any(
                low <= place < high for place in at for low, high in positions
            ):
                return False
        return True


class ProbeMaker:
    """Makes probes of events, as a mode and schema see them."""

    def __init__(self, mode: Mode, schema: Schema | None, template: Event) -> None:
        self._mode: Final = mode
        self._schema: Final = schema
        self._template: Final = template
        """What every event has at least; in mode `total`, a value of each attribute."""

    def probe(self, event: Event) -> Probe:
        """Return an event as a probe."""
        seen = event
        if self._mode is Mode.DEFAULT and self._schema is not None:
            seen = self._schema.with_defaults(event)
        places = {name: tuple(map(place_of, values)) for name, values in event.held.items()}
        return Probe(View(seen, UNKNOWN[self._mode], self._schema), places)

    def partial(self, values: dict[str, Values], open_: frozenset[str] | None) -> Probe:
        """Return a probe with some attributes open; None is all."""
        held = {name: contents for name, contents in values.items() if contents}
        known = self.probe(Event.of_checked(held))
        return known._replace(open=open_ or frozenset(), is_blank=open_ is None)

    def corners(self, cubes: Sequence[Cube], geometry: Geometry) -> Iterator[Probe]:
        """Yield events in the corners of some cubes: of the first, of the last, and between."""
        if len(cubes) == 1:
            yield self.corner(cubes[0], geometry, highest=False)
            yield self.corner(cubes[0], geometry, highest=True)
            return
        step = max(1, -(-len(cubes) // MAX_CORNERED_CUBES))
        for number, cube in enumerate(islice(cubes, 0, None, step)):
            yield self.corner(cube, geometry, highest=bool(number % 2))
        if (len(cubes) - 1) % step:
            yield self.corner(cubes[-1], geometry, highest=True)

    def corner(self, cube: Cube, geometry: Geometry, *, highest: bool = False) -> Probe:
        """Return the event with the lowest or highest values of a cube."""
        held: dict[str, Values] = dict(self._template.held)
        for name, positions in cube.positions.items():
            interval = positions[-1 if highest else 0]
            contents = corner_values(geometry.value_order(name), interval)[highest]
            if contents:
                held[name] = contents
            else:
                held.pop(name, None)
        return self.probe(Event.of_checked(held))

    def matches(self, filter_: Filter, probe: Probe) -> bool:
        """Return whether a filter that is bound to the schema matches an event."""
        if self._mode is Mode.STRICT and not filter_.is_adequate(probe.view):
            return False
        return filter_.truth_in(probe.view) is True


@lru_cache(maxsize=65_536)
def corner_values(order: ValueOrder, interval: Interval) -> tuple[Values, Values]:
    """Return the lowest and the highest contents that are easily found in an interval."""
    found = list(cell_values(order, interval, bits=Bits(), texts=()))
    last = order.last_number()
    if NUMBERS in order.brackets and interval[0] <= (NUMBERS, last) < interval[1]:
        found.append((last,))
    # NaN says little, and is taken only if there is nothing else.
    ranked = sorted(
        (_content_place(contents), number)
        for number, contents in enumerate(found)
        if contents == () or kind_of(contents[0]) is not None
    )
    if not ranked:
        only = found[0] if found else ()
        return only, only
    return found[ranked[0][1]], found[ranked[-1][1]]


def _content_place(contents: Values) -> Breakpoint:
    return place_of(contents[0]) if contents else NOWHERE[0]
