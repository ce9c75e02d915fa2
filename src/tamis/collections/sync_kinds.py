"""The kinds of synchronous collections, from tools/generate_sync.py."""

from __future__ import annotations

from tamis.collections.kinds import (
    DABag,
    DACertifiedBag,
    DAList,
    DAQueue,
    DASet,
    DAStrongSet,
)
from tamis.collections.members import T
from tamis.collections.synchronous import SyncDACollection


class SyncDASet(SyncDACollection[T]):
    """A best-effort set: members come to those who watch and keep up; equal ones come once."""

    KIND = DASet


class SyncDAStrongSet(SyncDACollection[T]):
    """A reliable set: every member comes to all who watch while they live; equal ones once."""

    KIND = DAStrongSet


class SyncDABag(SyncDACollection[T]):
    """A reliable bag: every member comes to all who watch while they live, also equal ones."""

    KIND = DABag


class SyncDAList(SyncDACollection[T]):
    """A reliable list: members come to all who watch in the same order, one at a time."""

    KIND = DAList


class SyncDACertifiedBag(SyncDACollection[T]):
    """A certified bag: every member comes at least once to each who watches under a name.

    Also if the broker or the watcher restarts: it is kept until the function has returned.
    """

    KIND = DACertifiedBag


class SyncDAQueue(SyncDACollection[T]):
    """A queue: every member comes at least once, to one of those who watch.

    It waits until somebody watches. If a watcher goes before its function has returned, the member
    comes to another, also if the broker restarts.
    """

    KIND = DAQueue
