"""One event: attribute names, each with the values it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from tamis.errors import EventError
from tamis.events.flatten import flatten
from tamis.events.limits import EventLimits
from tamis.events.values import Kind, Value, brief, kind_of


class Event(Mapping[str, tuple[Value, ...]]):
    """What a publisher says: attributes with one value or several each.

    Nested mappings become dotted names, sequences become several values, None and empty
    sequences are the same as no attribute at all.

    >>> event = Event({"order": {"price": 9.5, "items": [{"sku": "a"}, {"sku": "b"}], "by": None}})
    >>> event
    Event({'order.price': 9.5, 'order.items.sku': ['a', 'b']})
    >>> event["order.items.sku"]
    ('a', 'b')
    """

    __slots__ = ("_values",)

    _values: dict[str, tuple[Value, ...]]

    def __init__(
        self, attributes: Mapping[str, object], *, limits: EventLimits | None = None
    ) -> None:
        if not isinstance(attributes, Mapping):
            raise EventError(f"an event is a mapping of names to values, not {brief(attributes)}")
        self._values = flatten(attributes, limits or EventLimits())

    @classmethod
    def of(cls, event: Event | Mapping[str, object]) -> Event:
        """Return `event` itself, or the event that a mapping describes."""
        return event if isinstance(event, Event) else cls(event)

    @classmethod
    def of_checked(cls, values: dict[str, tuple[Value, ...]]) -> Self:
        """Return the event with exactly these values, which a decoder has already checked."""
        event = object.__new__(cls)
        event._values = values
        return event

    def with_values(self, values: Mapping[str, tuple[Value, ...]]) -> Self:
        """Return a copy in which the given, already checked values replace or join the others."""
        return self.of_checked({**self._values, **values})

    def of_kind(self, name: str, kind: Kind) -> tuple[Value, ...]:
        """Return the attribute's values of one kind: those a comparison of that kind can see."""
        return tuple(v for v in self._values.get(name, ()) if kind_of(v) is kind)

    def as_dict(self) -> dict[str, Value | list[Value]]:
        """Return plain Python values: one value as it is, several as a list."""
        return {
            name: values[0] if len(values) == 1 else list(values)
            for name, values in self._values.items()
        }

    def __getitem__(self, name: str) -> tuple[Value, ...]:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(frozenset(self._identity().items()))

    def _identity(self) -> dict[str, tuple[object, ...]]:
        return {name: tuple(map(_told_apart, values)) for name, values in self._values.items()}

    def __repr__(self) -> str:
        return f"Event({self.as_dict()!r})"


def _told_apart(value: Value) -> tuple[type, Value | None]:
    # In Python 1, 1.0 and True are equal, but they are different events to a schema and to JSON.
    # NaN differs even from itself; an event must not.
    return type(value), (value if value == value else None)  # noqa: PLR0124
