"""A role: which events its holders may publish and which they may see, with which attributes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from tamis.access.attributes import Attributes
from tamis.access.joining import FilterInMode
from tamis.events import Event, Schema
from tamis.filters import TRUE, Mode


class Scope(NamedTuple):
    """Some events, and some of their attributes."""

    condition: FilterInMode = FilterInMode(TRUE, Mode.SQL)
    attributes: Attributes = Attributes()

    def has(self, event: Event, schema: Schema | None) -> bool:
        """Tell whether an event is one of them."""
        filter_, mode = self.condition
        return self.has_all_events or filter_.matches(event, mode, schema)

    @property
    def has_all_events(self) -> bool:
        """Tell whether no event is left out."""
        return self.condition.filter == TRUE


class Role(NamedTuple):
    """What whoever has the role may do; what is not said, nobody may."""

    name: str
    publish: Scope | None = None
    see: Scope | None = None
    admin: bool = False
    """Whether tokens, subscriptions of others and the audit log may be managed."""
    quotas: Mapping[str, float] = MappingProxyType({})
    """The bounds of `Quotas` that the role sets."""


EVERYTHING: Final = Role("everything", publish=Scope(), see=Scope(), admin=True)
