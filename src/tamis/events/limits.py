"""How much an outsider may send in one event."""

from __future__ import annotations

import sys
from typing import NamedTuple

from tamis.errors import LimitError


class EventLimits(NamedTuple):
    """Bounds on one event; each can be raised by the one who runs Tamis."""

    size: int = 1024 * 1024
    """Bytes of encoded text."""
    depth: int = 32
    """Objects and arrays inside each other."""
    attributes: int = 1024
    """Attributes after nested ones became dotted names."""
    values: int = 65_536
    """Values of all attributes together."""
    name: int = 1024
    """Characters of one dotted name."""


def too_deep(limits: EventLimits) -> LimitError:
    """Return the error for nesting that overflowed the interpreter's own stack.

    That happens long after the default limit, but before one that was raised too far.
    """
    limit = min(limits.depth, sys.getrecursionlimit())
    return LimitError("levels of nesting", actual=None, limit=limit)
