"""Faults of the broker that are known and not mended yet: until then, worlds avoid them."""

from __future__ import annotations

PENDING: frozenset[str] = frozenset()
