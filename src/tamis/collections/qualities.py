"""Qualities of service: what the class of a collection promises about the delivery of members."""

from __future__ import annotations

from typing import NamedTuple

from tamis.protocol.frames import Overflow


class Quality(NamedTuple):
    """How members are delivered to those who watch a collection."""

    overflow: Overflow = "wait"
    """What happens to members while a watcher is slow."""
    is_distinct: bool = False
    """Whether a member that equals an earlier one is left out."""
    is_certified: bool = False
    """Whether members are kept for a watcher that is away, until it has handled them."""
    is_shared: bool = False
    """Whether each member comes to only one of those who watch, and to another if that one goes."""


BEST_EFFORT_SET = Quality(overflow="drop", is_distinct=True)
RELIABLE_SET = Quality(is_distinct=True)
RELIABLE = Quality()
CERTIFIED = Quality(is_certified=True)
SHARED = Quality(is_shared=True)
