"""One event: nested data flattened to attributes, each with its values, checked, within limits."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from tamis.errors import EventError, LimitError
from tamis.events import places
from tamis.events.kinds import (
    KIND_OF_CLASS,
    TYPE_OF_CLASS,
    Kind,
    Value,
    check_value,
    identity_of,
)
from tamis.events.values import INT64_MAX, INT64_MIN, Bits, RejectedValue, brief, check_text


class EventLimits(NamedTuple):
    """Bounds on one event; the operator can raise each."""

    size: int = 1024 * 1024
    """Bytes of encoded text."""
    depth: int = 32
    """Objects and arrays inside each other."""
    attributes: int = 1024
    """Attributes, after flattening."""
    values: int = 65_536
    """Values of all attributes together."""
    name: int = 1024
    """Characters of one dotted name."""


def too_deep(limits: EventLimits) -> LimitError:
    """Return the error for nesting that overflowed the interpreter's own stack.

    The default limit is far below that; one raised too far may not be.
    """
    limit = min(limits.depth, sys.getrecursionlimit())
    return LimitError("levels of nesting", actual=None, limit=limit)


# Python's sequences that are single values in an event.
SINGLE: Final = (str, bytes, bytearray, memoryview)


def flatten(
    data: Mapping[str, object], limits: EventLimits, *, masks: Container[str] = ()
) -> dict[str, tuple[Value, ...]]:
    """Return the attributes of nested `data`, each with the tuple of its values.

    `masks` names attributes that hold bit sets: an integer there may use the 64th bit.
    """
    plain = _plain(data, limits)
    return _walked(data, limits, masks) if plain is None else plain


def _walked(
    data: Mapping[str, object], limits: EventLimits, masks: Container[str]
) -> dict[str, tuple[Value, ...]]:
    flattening = _Flattening(limits, masks)
    try:
        flattening.walk_mapping("", (), data)
    except EventError as error:
        raise EventError(error.reason, place=flattening.place) from None
    except RecursionError:
        raise too_deep(limits) from None
    return {name: tuple(values) for name, values in flattening.found.items()}


def _plain(data: Mapping[str, object], limits: EventLimits) -> dict[str, tuple[Value, ...]] | None:
    """Return the attributes of flat data with plain values, None if it needs the full walk.

    Most events are plain, and this takes a sixth of the time.
    """
    if type(data) is not dict or not len(data) <= min(limits.attributes, limits.values):
        return None
    found: dict[str, tuple[Value, ...]] = {}
    longest = limits.name if limits.depth else 0
    for name, item in data.items():
        kind = type(item)
        if kind is int:
            if not INT64_MIN <= item <= INT64_MAX:
                return None
        elif not (kind is float or kind is bool or (kind is str and item.isascii())):
            return None
        if type(name) is not str or not 0 < len(name) <= longest or not name.isascii():
            return None
        found[name] = (item,)
    return found


NOTHING_NESTED: Final[Mapping[str, object]] = {}
"""The nested data of a flat event."""


class _Flattening:
    """A walk over nested data: the attributes found so far, and the checks.

    The path is unwound only on success, so after an error it leads to the place. It is rendered
    only then: text for every value would take quadratic time with long names.
    """

    def __init__(self, limits: EventLimits, masks: Container[str]) -> None:
        self.found: dict[str, list[Value]] = {}
        self._limits = limits
        self._masks = masks
        self._path: list[str | int] = []
        self._keys: dict[str, tuple[str, ...]] = {}
        self._count = 0

    @property
    def place(self) -> str:
        return places.path(self._path)

    def walk_mapping(self, prefix: str, keys: tuple[str, ...], data: Mapping[str, object]) -> None:
        self._check_depth()
        for given, item in data.items():
            key = _check_key(given)
            self._path.append(key)
            name = f"{prefix}.{key}" if prefix else key
            if len(name) > self._limits.name:
                raise self._too_many("characters of the name", len(name), self._limits.name)
            self._walk(name, (*keys, key), item)
            self._path.pop()

    def _walk(self, name: str, keys: tuple[str, ...], item: object) -> None:
        # Most members are plain values, and checking for abstract classes first would cost more
        # than the rest of the walk.
        if type(item) in TYPE_OF_CLASS:
            self._keep(name, keys, item)
        elif item is None:
            return
        elif isinstance(item, RejectedValue):
            raise EventError(item.reason)
        elif isinstance(item, Mapping):
            self.walk_mapping(name, keys, item)
        elif isinstance(item, Sequence) and not isinstance(item, SINGLE):
            self._walk_sequence(name, keys, item)
        else:
            self._keep(name, keys, item)

    def _walk_sequence(self, name: str, keys: tuple[str, ...], items: Sequence[object]) -> None:
        self._check_depth()
        for index, item in enumerate(items):
            self._path.append(index)
            self._walk(name, keys, item)
            self._path.pop()

    def _keep(self, name: str, keys: tuple[str, ...], item: object) -> None:
        values = self.found.get(name)
        if values is None:
            values = self._new_attribute(name, keys)
        elif self._keys[name] != keys:
            raise EventError(
                f"the attribute {name[:60]!r} is given twice, as a nested object and as a dotted "
                "name"
            )
        values.append(self._checked(name, item))
        self._count += 1
        if self._count > self._limits.values:
            raise LimitError("values of the event", actual=None, limit=self._limits.values)

    def _new_attribute(self, name: str, keys: tuple[str, ...]) -> list[Value]:
        if len(self.found) >= self._limits.attributes:
            raise LimitError("attributes of the event", actual=None, limit=self._limits.attributes)
        self._keys[name] = keys
        values: list[Value] = []
        self.found[name] = values
        return values

    def _checked(self, name: str, item: object) -> Value:
        if type(item) is int and item > INT64_MAX and name in self._masks:
            return Bits.from_mask(item)
        return check_value(item)

    def _check_depth(self) -> None:
        # Each step of the path enters one mapping or sequence, and the outermost needs no step.
        if len(self._path) >= self._limits.depth:
            raise self._too_many("levels of nesting", len(self._path) + 1, self._limits.depth)

    def _too_many(self, what: str, actual: int, limit: int) -> LimitError:
        place = self.place
        return LimitError(f"{place}: {what}" if place else what, actual=actual, limit=limit)


def _check_key(key: object) -> str:
    if not isinstance(key, str) or not key:
        raise EventError(f"{brief(key)} is not an attribute name: a name is a text, and not empty")
    return check_text(key, what="the name")


class Event(Mapping[str, tuple[Value, ...]]):
    """A publisher's event: attributes with one or several values each.

    Nested mappings become dotted names, sequences become several values, None and empty
    sequences are the same as no attribute.

    >>> event = Event({"order": {"price": 9.5, "items": [{"sku": "a"}, {"sku": "b"}], "by": None}})
    >>> event
    Event({'order.price': 9.5, 'order.items.sku': ['a', 'b']})
    >>> event["order.items.sku"]
    ('a', 'b')
    """

    __slots__ = ("_elements", "conforms_to", "held", "nested")

    held: Mapping[str, tuple[Value, ...]]
    """The values by attribute, in a dict, which is faster to read than the event."""
    conforms_to: object
    """The schema that last checked the event, so that it need not do so again; None: none."""
    nested: Mapping[str, object] | None
    """The data that it was made of, for tests of elements; None: that is not known."""
    _elements: dict[str, tuple[object, Sequence[Event]]] | None

    def __init__(
        self, attributes: Mapping[str, object], *, limits: EventLimits | None = None
    ) -> None:
        if not isinstance(attributes, Mapping):
            raise EventError(f"an event is a mapping of names to values, not {brief(attributes)}")
        self._hold(attributes, limits or EventLimits(), ())

    @classmethod
    def of(cls, event: Event | Mapping[str, object]) -> Event:
        """Return `event` itself, or the event that a mapping describes."""
        return event if isinstance(event, Event) else cls(event)

    @classmethod
    def of_data(
        cls, data: Mapping[str, object], limits: EventLimits, *, masks: Container[str] = ()
    ) -> Self:
        """Return the event that nested data describes; `masks` is as for `flatten`."""
        event = object.__new__(cls)
        event._hold(data, limits, masks)
        return event

    def _hold(self, data: Mapping[str, object], limits: EventLimits, masks: Container[str]) -> None:
        plain = _plain(data, limits)
        if plain is None:
            self.held, self.nested = _walked(data, limits, masks), data
        else:
            self.held, self.nested = plain, NOTHING_NESTED
        self.conforms_to = self._elements = None

    @classmethod
    def of_checked(
        cls,
        values: Mapping[str, tuple[Value, ...]],
        *,
        nested: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the event with exactly these values, which a decoder has already checked."""
        event = object.__new__(cls)
        event.held = values
        event.nested = nested
        event.conforms_to = event._elements = None
        return event

    def with_values(self, values: Mapping[str, tuple[Value, ...]]) -> Self:
        """Return a copy with other values added or replaced, which are already checked."""
        return self.of_checked({**self.held, **values}, nested=self.nested)

    @property
    def elements(self) -> dict[str, tuple[object, Sequence[Event]]]:
        """Return the elements that were looked for, with their schema, so that they are kept."""
        if self._elements is None:
            self._elements = {}
        return self._elements

    def of_kind(self, name: str, kind: Kind) -> tuple[Value, ...]:
        """Return the attribute's values of one kind: those a comparison of that kind can see."""
        # As `kind_of` has it: NaN, which differs from itself, is of no kind.
        held = self.held.get(name, ())
        return tuple([v for v in held if KIND_OF_CLASS[type(v)] is kind and v == v])  # noqa: PLR0124

    def as_dict(self) -> dict[str, Value | list[Value]]:
        """Return plain Python values: a single value itself, several as a list."""
        return {
            name: values[0] if len(values) == 1 else list(values)
            for name, values in self.held.items()
        }

    def __getitem__(self, name: str) -> tuple[Value, ...]:
        return self.held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(frozenset(self._identity().items()))

    def _identity(self) -> dict[str, tuple[object, ...]]:
        return {name: tuple(map(identity_of, values)) for name, values in self.held.items()}

    def __reduce__(self) -> tuple[object, ...]:
        # Without the schema, which would be another object in a copy.
        return _copied, (type(self), self.held, self.nested)

    def __repr__(self) -> str:
        return f"Event({self.as_dict()!r})"


def _copied(
    cls: type[Event],
    held: Mapping[str, tuple[Value, ...]],
    nested: Mapping[str, object] | None,
) -> Event:
    return cls.of_checked(held, nested=nested)
