"""Distributed asynchronous collections: publish by adding, subscribe by asking what is contained.

The class of a collection says how its members are delivered.
"""

from tamis.lazy import require_extra

require_extra("client")

from tamis.collections.kinds import (
    DABag,
    DACertifiedBag,
    DAList,
    DAQueue,
    DASet,
    DAStrongSet,
)
from tamis.collections.sync_kinds import (
    SyncDABag,
    SyncDACertifiedBag,
    SyncDAList,
    SyncDAQueue,
    SyncDASet,
    SyncDAStrongSet,
)
from tamis.collections.synchronous import SyncWatch
from tamis.collections.watching import Watch

__all__ = [
    "DABag",
    "DACertifiedBag",
    "DAList",
    "DAQueue",
    "DASet",
    "DAStrongSet",
    "SyncDABag",
    "SyncDACertifiedBag",
    "SyncDAList",
    "SyncDAQueue",
    "SyncDASet",
    "SyncDAStrongSet",
    "SyncWatch",
    "Watch",
]
