"""Durable storage: a log of events, and all other state in SQLite, in one folder.

::

    folder/LOCK           held by the one process that uses the folder
           log/*.log      events, in segments; see `log`
           state.db       subscriptions, what is pending for them, dead letters, tokens; see `state`
           state.count    the number of durable changes made to state.db

It handles bytes, numbers, names and times, and knows nothing about filters. Its calls block on the
disk, so asyncio code makes them from a thread.
"""

from tamis.storage.damage import Damage
from tamis.storage.log import EventLog
from tamis.storage.records import EventOrigin, NewRecord, Record
from tamis.storage.state import StateStore
from tamis.storage.store import Recovery, Retention, Storage, is_store
from tamis.storage.tables import (
    NEVER,
    AuditEntry,
    DamagedRow,
    DeadLetter,
    DeadLetterUsage,
    DeferredMatches,
    DroppedEvents,
    Pending,
    PublisherTail,
    Retry,
    StoredRoute,
    StoredSubscription,
    StoredToken,
    WrittenMatches,
)

__all__ = [
    "NEVER",
    "AuditEntry",
    "Damage",
    "DamagedRow",
    "DeadLetter",
    "DeadLetterUsage",
    "DeferredMatches",
    "DroppedEvents",
    "EventLog",
    "EventOrigin",
    "NewRecord",
    "Pending",
    "PublisherTail",
    "Record",
    "Recovery",
    "Retention",
    "Retry",
    "StateStore",
    "Storage",
    "StoredRoute",
    "StoredSubscription",
    "StoredToken",
    "WrittenMatches",
    "is_store",
]
