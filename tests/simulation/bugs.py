"""Bugs to plant: each is a small change of the broker that the simulation must find.

Some are what the broker once did, some are what it might do after a careless change.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from math import exp
from typing import Any
from unittest import mock

from simulation.clock import SimulatedClock
from storage.disk import Disk, DiskFile, _apply
from tamis.broker import Broker
from tamis.broker.deliver import exact_checks
from tamis.broker.deliver import notifier as notifying
from tamis.broker.deliver.attachments import may_read
from tamis.broker.deliver.group_queues import GroupQueue
from tamis.broker.deliver.notifier import Notifier
from tamis.broker.deliver.preparation import DeliveryPreparer
from tamis.broker.deliver.queues import DiskQueue, QueuedEvent, UnwrittenQueues
from tamis.broker.match.deferred import DeferredWriter
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations import activity
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish import committer
from tamis.broker.publish.publishers import Numbering
from tamis.broker.subscribe import replay
from tamis.broker.subscribe.manager import SubscriptionManager
from tamis.broker.subscribe.replay import ReplayRange
from tamis.storage import PublisherTail, Retry, StateStore

Planting = Callable[[], Iterator[None]]

BUGS: dict[str, Any] = {}
"""Context managers that plant a bug, by a phrase that says what it does."""


def bug(phrase: str) -> Callable[[Planting], Planting]:
    """Add a bug to the list."""

    def add(planting: Planting) -> Planting:
        BUGS[phrase] = contextmanager(planting)
        return planting

    return add


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Replace a function of the broker by one that `make` makes of it."""
    original = getattr(owner, name)
    return mock.patch.object(owner, name, wraps(original)(make(original)))


# --- matching exactly ----------------------------------------------------------------------------


@bug("what does not match exactly is sent")
def residue() -> Iterator[None]:
    with mock.patch.object(exact_checks, "has_passed", return_value=True):
        yield


# --- publishing ----------------------------------------------------------------------------------


@bug("numbers out of order are taken for duplicates")
def numbers() -> Iterator[None]:
    def count(tail: PublisherTail, first: int, checksums: array[int], *, skip: bool) -> int:
        del skip
        return max(0, min(len(checksums), tail.last + 1 - first))

    with (
        mock.patch.object(committer, "count_duplicates", count),
        mock.patch.object(Numbering, "check"),
        mock.patch.object(Numbering, "note_refusal"),
    ):
        yield


@bug("the log is not synced")
def forgotten_sync() -> Iterator[None]:
    def make(sync: Any) -> Any:
        def forget(self: Disk, file: int) -> None:
            if not self._open[file][0].endswith(".log"):
                sync(self, file)

        return forget

    with replaced(Disk, "sync", make):
        yield


@bug("publications are acknowledged before they are synced")
def early_acknowledgement() -> Iterator[None]:
    def make(sync: Any) -> Any:
        def sync_the_rest(self: Disk, file: int) -> None:
            name, entry = self._open[file]
            last = entry.changes[-1:] if isinstance(entry, DiskFile) else []
            if not name.endswith(".log") or not last or self.plan:
                sync(self, file)
                return
            assert isinstance(entry, DiskFile)
            for change in entry.changes[:-1]:
                _apply(entry.synced, change)
            entry.changes = last

        return sync_the_rest

    with replaced(Disk, "sync", make):
        yield


# --- matching ------------------------------------------------------------------------------------


@bug("the position of matching is written before the matches")
def early_position() -> Iterator[None]:
    def make(commit: Any) -> Any:
        def commit_twice(
            self: StateStore,
            matched_up_to: int,
            pending: Iterable[tuple[int, int]],
            publishers: Mapping[str, PublisherTail],
            *rest: Any,
            **dropped: Any,
        ) -> None:
            commit(self, matched_up_to, (), publishers)
            commit(self, matched_up_to, pending, {}, *rest, **dropped)

        return commit_twice

    with replaced(StateStore, "commit_matches", make):
        yield


@bug("a matcher that fails ends without a word")
def silent_matcher() -> Iterator[None]:
    steps = 0

    def make(step: Any) -> Any:
        def fail_once(self: Matcher, *args: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == 40:
                raise RuntimeError("a bug in the matcher")
            return step(self, *args)

        return fail_once

    with (
        replaced(Matcher, "_step", make),
        mock.patch.object(Supervisor, "fail"),
    ):
        yield


@bug("a replay leaves out the last event before the subscription")
def short_replay() -> Iterator[None]:
    def shorter(position: int, end: int, *rest: Any) -> ReplayRange:
        return ReplayRange(position, end - (not rest), *rest)

    with mock.patch.object(replay, "ReplayRange", shorter):
        yield


# --- rights --------------------------------------------------------------------------------------


class _Owner:
    """A reader with the rights of all who use a subscription."""

    def __init__(self, subscription: Any) -> None:
        self.rights = subscription.rights


@bug("a consumer sees what the subscription may see")
def sight_of_the_subscription() -> Iterator[None]:
    def make(prepare: Any) -> Any:
        def prepare_for_all(self: DeliveryPreparer, subscription: Any, _: Any, *rest: Any) -> Any:
            return prepare(self, subscription, _Owner(subscription), *rest)

        return prepare_for_all

    with replaced(DeliveryPreparer, "prepare", make):
        yield


@bug("a new policy waits for the matcher")
def late_policy() -> Iterator[None]:
    def make(apply: Any) -> Any:
        async def wait_first(self: Broker) -> None:
            await self.matcher.updater.do(lambda: None)
            await apply(self)

        return wait_first

    with replaced(Broker, "apply_policy", make):
        yield


@bug("a revocation is not written")
def forgotten_revocation() -> Iterator[None]:
    with mock.patch.object(StateStore, "revoke_token", return_value=True):
        yield


# --- delivering ----------------------------------------------------------------------------------


@bug("acknowledgements after a restart are ignored")
def ignored_acknowledgements() -> Iterator[None]:
    async def ignore(*_: Any) -> None:
        pass

    with mock.patch.object(Notifier, "acknowledge_stored", ignore):
        yield


@bug("a delivery that fails ends without a word")
def silent_delivery() -> Iterator[None]:
    def make(end: Any) -> Any:
        async def end_silently(self: Notifier, attachment: Any, reason: str) -> None:
            if reason == notifying.FAILED:
                await self.detach(attachment)
            else:
                await end(self, attachment, reason)

        return end_silently

    with replaced(Notifier, "end_one", make):
        yield


@bug("pauses and leases are measured by the wall clock")
def wall_clock() -> Iterator[None]:
    with (
        mock.patch.object(SimulatedClock, "monotonic", SimulatedClock.time),
        # Averages that fade grow beyond all bounds if time goes back, which would end everything.
        mock.patch.object(activity, "exp", lambda power: exp(min(power, 0.0))),
    ):
        yield


@bug("events to be sent again are deleted")
def lost_retries() -> Iterator[None]:
    def make(settle: Any) -> Any:
        def settle_all(
            self: StateStore,
            *,
            acknowledged: Iterable[Any] = (),
            retries: Iterable[Any] = (),
            **rest: Any,
        ) -> Any:
            gone = [*acknowledged, *(one[:2] for one in retries)]
            return settle(self, acknowledged=gone, **rest)

        return settle_all

    with replaced(StateStore, "settle", make):
        yield


@bug("attempts are not written")
def forgotten_attempts() -> Iterator[None]:
    def make(settle: Any) -> Any:
        def settle_others(self: StateStore, *, retries: Iterable[Retry] = (), **rest: Any) -> Any:
            # What is due at 0 was sent, and has no outcome yet.
            return settle(self, retries=[one for one in retries if one.due], **rest)

        return settle_others

    with replaced(StateStore, "settle", make):
        yield


@bug("dead letters are not written")
def lost_dead_letters() -> Iterator[None]:
    def make(settle: Any) -> Any:
        def settle_others(
            self: StateStore,
            *,
            acknowledged: Iterable[Any] = (),
            dead: Iterable[Any] = (),
            **rest: Any,
        ) -> Any:
            gone = [*acknowledged, *(one[:2] for one in dead)]
            return settle(self, acknowledged=gone, **rest)

        return settle_others

    with replaced(StateStore, "settle", make):
        yield


@bug("events are offered that were read from disk already")
def offered_twice() -> Iterator[None]:
    def make(_: Any) -> Any:
        def offer(self: DiskQueue, sequences: Sequence[int]) -> None:
            self._is_new = False
            for cursor in self._cursors.values():
                is_open = cursor.is_whole and self.is_attended
                room = self.window - len(cursor.ready) if is_open else 0
                taken = sequences[: max(0, room)]
                cursor.ready.extend(map(QueuedEvent, taken))
                if taken:
                    cursor.last = taken[-1]
                cursor.is_whole = cursor.is_whole and len(taken) == len(sequences)
            self.wake()

        return offer

    with replaced(DiskQueue, "offer", make):
        yield


@bug("events overtake those that are deferred")
def overtaking() -> Iterator[None]:
    def make(select: Any) -> Any:
        def select_large(self: DeferredWriter, found: Any) -> Any:
            with mock.patch.object(self, "latest", {}):
                return select(self, found)

        return select_large

    with replaced(DeferredWriter, "select", make):
        yield


@bug("two members handle events of a key at a time")
def free_keys() -> Iterator[None]:
    def make(choose: Any) -> Any:
        def choose_any(self: GroupQueue, *args: Any) -> Any:
            self.in_flight.busy.clear()
            return choose(self, *args)

        return choose_any

    with replaced(GroupQueue, "_choose", make):
        yield


@bug("what a member had is not sent again")
def lost_with_its_member() -> Iterator[None]:
    with mock.patch.object(GroupQueue, "forget_sent", GroupQueue._take_held):
        yield


@bug("a lease that begins slowly never ends")
def endless_lease() -> Iterator[None]:
    def make(_: Any) -> Any:
        async def lease(
            self: Notifier, subscription: Any, reader: Any, limit: int, now: float
        ) -> Any:
            if not may_read(subscription, reader):
                return []
            self.leased.add(subscription)
            digest = reader.rights.digest
            return await subscription.queue.take(limit, now, notifying.UNSENT, digest)

        return lease

    with replaced(Notifier, "_lease", make):
        yield


@bug("a subscription expires although it was just renewed")
def late_expiry() -> Iterator[None]:
    def make(delete: Any) -> Any:
        def delete_all(self: SubscriptionManager, subscriptions: Any, _: str) -> Any:
            return delete(self, subscriptions, "deleted")

        return delete_all

    with replaced(SubscriptionManager, "_delete", make):
        yield


@bug("losses are counted and not told")
def untold_losses() -> Iterator[None]:
    def make(_: Any) -> Any:
        async def say_nothing(self: Notifier, attachment: Any) -> None:
            writer, subscription = self._acknowledgement_writer, attachment.subscription
            writer.note_reported(subscription, {**subscription.untold})

        return say_nothing

    with replaced(Notifier, "_tell_losses", make):
        yield


@bug("slow consumers are not told what they lose")
def untold_overflow() -> Iterator[None]:
    def make(_: Any) -> Any:
        def forget(_: Notifier, subscription: Any) -> None:
            subscription.queue.dropped = 0

        return forget

    with replaced(Notifier, "_count_overflow", make):
        yield


class AlwaysEmpty(set[Any]):
    """Forgets at once what it is given."""

    def add(self, _: Any) -> None:
        pass


@bug("what is sent ahead is settled before it is written")
def settled_too_early() -> Iterator[None]:
    def make(begin: Any) -> Any:
        def begin_written(self: UnwrittenQueues) -> None:
            begin(self)
            self.ahead = AlwaysEmpty()

        return begin_written

    with replaced(UnwrittenQueues, "__init__", make):
        yield


class OutlivingChanges:
    """What was found ahead, which the matcher cannot forget."""

    def __get__(self, matcher: Any, _: type) -> Any:
        return matcher.__dict__.get("ahead")

    def __set__(self, matcher: Any, found: Any) -> None:
        if found is not None or sys._getframe(1).f_locals["self"] is not matcher:
            matcher.__dict__["ahead"] = found


@bug("what was found ahead is used although subscriptions have changed")
def stale_ahead() -> Iterator[None]:
    with mock.patch.object(Matcher, "ahead", OutlivingChanges(), create=True):
        yield


@bug("events are sent before they are stored")
def sent_too_early() -> Iterator[None]:
    def make(match: Any) -> Any:
        def match_and_send(self: Matcher, events: Any) -> None:
            match(self, events)
            if self.ahead is not None:
                self._event_cache.recent.update({event.sequence: event for event in events})
                self.offer_ahead(self.ahead)

        return match_and_send

    with replaced(Matcher, "match_ahead", make):
        yield
