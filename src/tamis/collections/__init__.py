"""Distributed asynchronous collections: publish by adding, subscribe by asking what is contained.

The class of a collection says how its members are delivered.
"""

from tamis.lazy import require_extra

require_extra("client")

from tamis.collections.asynchronous import (
    DABag,
    DACertifiedBag,
    DAList,
    DASet,
    DAStrongSet,
)
from tamis.collections.synchronous import (
    SyncDABag,
    SyncDACertifiedBag,
    SyncDAList,
    SyncDASet,
    SyncDAStrongSet,
    SyncWatch,
)
from tamis.collections.watching import Watch

__all__ = [
    "DABag",
    "DACertifiedBag",
    "DAList",
    "DASet",
    "DAStrongSet",
    "SyncDABag",
    "SyncDACertifiedBag",
    "SyncDAList",
    "SyncDASet",
    "SyncDAStrongSet",
    "SyncWatch",
    "Watch",
]
