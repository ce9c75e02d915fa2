"""How much a principal may have."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds for one principal, infinite where there is none."""

    publications: float = math.inf
    """Events published in a second, over any longer time."""
    bytes: float = math.inf
    """Bytes published in a second, over any longer time."""
    event_size: float = math.inf
    """Bytes of one event."""
    subscriptions: float = math.inf
    """Subscriptions at a time, also while their owner is not connected."""
    connections: float = math.inf
    """Connections at a time."""

    @classmethod
    def united(
        cls, given: Iterable[Mapping[str, float]], default: Mapping[str, float] | None = None
    ) -> Quotas:
        """Return, of each bound, the widest that some role gives, or else the default's.

        A role that says nothing about a bound does not lift what another one sets.

        >>> Quotas.united([{"publications": 10}, {"connections": 2}, {"publications": 5}])
        Quotas(publications=10, bytes=inf, event_size=inf, subscriptions=inf, connections=2)
        """
        widest: dict[str, float] = {}
        for bounds in given:
            for name, bound in bounds.items():
                widest[name] = max(bound, widest.get(name, bound))
        return cls(**{**(default or {}), **widest})
