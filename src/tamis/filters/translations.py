"""Translations: a filter over attributes, and what is left to check where it holds.

Filters over objects, and languages that say more than tests of attributes can, are translated to a
filter that holds wherever they do. If it holds elsewhere as well, the rest is checked on the few
events that it lets through.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tamis.filters.boolean import Filter


class Residual(Protocol):
    """What is left to check of an event."""

    def holds(self, event: object) -> bool:
        """Return whether an event, as it was given, satisfies what was translated."""
        ...


@runtime_checkable
class ReadableResidual(Residual, Protocol):
    """A residual that knows which part of its filter people can read."""

    def readable(self, filter_: Filter) -> Filter:
        """Return the filter without what only tells it sooner that an event fails."""
        ...


@runtime_checkable
class SavableResidual(Residual, Protocol):
    """A residual that a snapshot of an engine may be able to hold."""

    def saved(self) -> list[Any] | None:
        """Return its kind and what it is made of, as JSON has it; None if a file cannot say it."""
        ...


@runtime_checkable
class SettledResidual(Residual, Protocol):
    """A residual that may know that its filter has said it all."""

    def is_settled(self, event: object) -> bool:
        """Return whether an event that the filter lets through certainly satisfies it."""
        ...


@runtime_checkable
class OnceResidual(Residual, Protocol):
    """A residual that reads objects, of which others may have read the same before."""

    def holds_once(self, event: object, once: Any) -> bool:
        """Return whether an event satisfies it, reading through what keeps all that is read."""
        ...


class Translation(NamedTuple):
    """A filter that holds wherever something else does, and what is left to check."""

    filter: Filter
    residual: Residual | None = None
    """None: the filter holds nowhere else."""
    ways: Mapping[str, Any] = MappingProxyType({})
    """How a source of events finds attributes that are no plain names, as the source has it."""


@runtime_checkable
class Translatable(Protocol):
    """Something that an engine takes as a filter; not a method, which would hide a member."""

    def __translation__(self) -> Translation:
        """Return the translation."""
        ...


Relatable = Filter | Translatable
"""What can be compared with filters."""


def translation_of(given: Relatable) -> Translation:
    """Return the translation of whatever has one; a filter is its own."""
    return Translation(given) if isinstance(given, Filter) else given.__translation__()
