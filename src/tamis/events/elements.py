"""Elements: the objects in a list of an event, each an event of its own.

Flattening keeps all values of `items.sku`, and loses which of them belong to the same item. Tests
of elements look at the data that an event was made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tamis.errors import EventError
from tamis.events.event import SINGLE, Event, EventLimits
from tamis.events.schema import Schema

# An element is part of an event that was within its limits.
_UNBOUNDED: Final = EventLimits(2**62, 2**62, 2**62, 2**62, 2**62)


def elements(event: Event, name: str, schema: Schema | None = None) -> Sequence[Event]:
    """Return the objects that an event holds under a name, in a list, alone, or in lists of lists.

    >>> event = Event({"items": [{"sku": "a"}, {"sku": "b", "size": {"width": 5}}, 7]})
    >>> elements(event, "items")
    [Event({'sku': 'a'}), Event({'sku': 'b', 'size.width': 5})]
    """
    if event.nested is None:
        return _none_of_flat(event, name)
    known, found = event.elements.get(name, (None, None))
    if found is None or known is not schema:
        found = [_element(item, name, schema) for item in _items(event.nested, name)]
        event.elements[name] = schema, found
    return found


def _none_of_flat(event: Event, name: str) -> Sequence[Event]:
    if any(attribute.startswith(f"{name}.") for attribute in event):
        raise EventError(
            "only its values are known, not which of them belong together; test elements of events "
            "as they were given, as mappings or JSON",
            place=name,
        )
    return ()


def _element(item: Mapping[str, object], name: str, schema: Schema | None) -> Event:
    if schema is None:
        return Event.of_data(item, _UNBOUNDED)
    below = schema.below(name)
    return below.conform(Event.of_data(item, _UNBOUNDED, masks=below.masks))


def _items(nested: Mapping[str, object], name: str) -> Iterator[Mapping[str, object]]:
    """Yield the objects that have a name after flattening, in order."""
    left: list[tuple[object, str]] = [(nested, name)]
    while left:
        item, rest = left.pop()
        if isinstance(item, Mapping):
            if rest:
                left += reversed(_members(item, rest))
            else:
                yield item
        elif isinstance(item, Sequence) and not isinstance(item, SINGLE):
            left += ((each, rest) for each in reversed(item))


def _members(item: Mapping[str, object], name: str) -> list[tuple[object, str]]:
    """Return the members on the way to a name, each with the rest of it; keys may have dots."""
    ends = [place for place, character in enumerate(name) if character == "."]
    return [(item[name[:end]], name[end + 1 :]) for end in (*ends, len(name)) if name[:end] in item]
