"""What events are made of: attributes, and forms that say which of them come together."""

from __future__ import annotations

from typing import NamedTuple

from tamis.workloads.distributions import Distribution


class AttributeSource(NamedTuple):
    """Where the values of an attribute come from."""

    distribution: Distribution
    present: float = 1.0
    """The probability that an event has it, given that its form does."""
    least: int = 1
    most: int = 1

    @property
    def is_many(self) -> bool:
        """Tell whether an event may have several values of it."""
        return self.most > 1


class Group(NamedTuple):
    """Attributes of which an event has so many, all equally likely."""

    chosen: int
    names: tuple[str, ...]


class Form(NamedTuple):
    """Attributes and groups that events have together."""

    chance: float
    names: tuple[str, ...]
    groups: tuple[Group, ...]

    def all_names(self) -> list[str]:
        """Return every attribute that an event of this form may have."""
        return [*self.names, *(name for group in self.groups for name in group.names)]
