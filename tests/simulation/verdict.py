"""The verdict: after the faults end, everything promised must be there, and nothing else."""

from __future__ import annotations

import asyncio
from operator import methodcaller
from typing import TYPE_CHECKING

from simulation.clients import fetch, request
from simulation.credentials import Credential
from simulation.model import NO, LogEntry, SubscriptionModel
from tamis.broker import Broker
from tamis.broker.broker import RETENTION_SECONDS
from tamis.broker.publish.committer import HOPE_SECONDS
from tamis.errors import RefusedError, StorageError
from tamis.protocol import Code

if TYPE_CHECKING:
    from simulation.subscribers import DurableSubscriber
    from simulation.world import World


LEAVING_SECONDS = 5.0
"""Within this time, the broker has noticed that a connection is gone."""


class Verdict:
    """Checks what is left of a world at its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._checker = world.checker

    # --- events that must arrive -----------------------------------------------------------------

    def is_due(self, subscription: SubscriptionModel, entry: LogEntry) -> bool:
        """Return whether an event must reach a subscription, whatever happened."""
        if entry.sequence < self._checker.log.first or not subscription.wants(entry):
            return False
        progress, until = subscription.progress.get(entry.sequence), self._world.loop.time()
        if progress is not None and progress.acknowledged != NO:
            until = min(until, progress.acknowledged_at)
        return self._checker.was_always_visible(subscription, entry, until)

    def missing(self, subscription: SubscriptionModel) -> list[int]:
        """Return the events that a subscriber must still get."""
        missing = [
            sequence
            for sequence, entry in self._checker.log.entries.items()
            if not self._is_settled(subscription, sequence) and self.is_due(subscription, entry)
        ]
        dead = self._dead(subscription) if missing else set()
        return [sequence for sequence in missing if sequence not in dead]

    def _is_settled(self, subscription: SubscriptionModel, sequence: int) -> bool:
        progress = subscription.progress.get(sequence)
        return progress is not None and progress.acknowledged != NO

    def _dead(self, subscription: SubscriptionModel) -> set[int]:
        broker = self._world.server.broker
        if broker is None:
            return set()
        found = broker.subscription_index.find(subscription.owner, subscription.name)
        if found is None:
            return set()
        try:
            letters = broker.store.state.dead_letters(found.number, 0, 1_000_000)
        except StorageError:
            # The broker has just ended, and the next one is asked.
            return set()
        return {letter.sequence for letter in letters}

    def is_drained(self, subscriber: DurableSubscriber) -> bool:
        """Return whether nothing is left for a subscriber."""
        subscription = self._checker.subscriptions.get((subscriber.principal, subscriber.name))
        return subscription is not None and not self.missing(subscription)

    def not_drained(self, broker: Broker) -> None:
        """Say what did not arrive."""
        for key, subscription in self._checker.subscriptions.items():
            missing = self.missing(subscription)
            if missing:
                self._checker.fail(f"{'/'.join(key)} did not get {missing}")
        if not self._checker.violations:
            self._checker.fail(f"draining does not end; problems: {broker.health.problems}")

    # --- the rest --------------------------------------------------------------------------------

    async def check(self, broker: Broker) -> None:
        """Check everything at the end."""
        self._check_publications()
        await self._check_dead_letters()
        await self._check_losses()
        await self._check_health(broker)

    def _is_surely_there(self, subscription: SubscriptionModel) -> bool:
        is_expired = self._world.loop.time() >= subscription.expires_from
        return subscription.is_ended == NO and not is_expired

    def _check_publications(self) -> None:
        log = self._checker.log
        for event, publication in self._checker.publications.items():
            if publication.is_acknowledged and event not in log.by_event:
                self._checker.fail(f"event {event} was acknowledged and is not in the log")

    async def _check_dead_letters(self) -> None:
        for (owner, name), subscription in [*self._checker.subscriptions.items()]:
            if not self._is_surely_there(subscription):
                continue
            credential = self._world.credential(owner, "broad")
            try:
                letters = await request(self._world, credential, methodcaller("dead_letters", name))
            except RefusedError as error:
                # It may have expired meanwhile.
                if self._is_surely_there(subscription):
                    self._checker.fail(f"the dead letters of {subscription}: {error}")
                continue
            for letter in letters:
                self._checker.check_dead_letter(subscription, letter)

    async def _check_health(self, broker: Broker) -> None:
        if not broker.health.ready or self._world.has_disk_faults:
            # Nobody has tried again to publish, or to write what waits for the disk.
            await asyncio.sleep(HOPE_SECONDS)  # virtual
        # It goes on with the time as it was, for a while.
        problems = [one for one in broker.health.problems if "clock" not in one]
        if not broker.health.ready or problems:
            self._checker.fail(f"not healthy at the end: {problems}")

    async def _check_losses(self) -> None:
        """Check that what retention removed was told, and that the broker counted it."""
        for subscription in [*self._checker.subscriptions.values()]:
            if self._is_surely_there(subscription):
                try:
                    await self._check_loss(subscription)
                except RefusedError as error:
                    if self._is_surely_there(subscription):
                        self._checker.fail(f"{subscription} cannot be looked at: {error}")

    async def _check_loss(self, subscription: SubscriptionModel) -> None:
        credential, name = self._world.credential(subscription.owner, "broad"), subscription.name
        # Whoever comes next is told; retention may remove more meanwhile.
        for _ in range(3):
            await self._fetch_when_free(credential, name)
            view = await request(self._world, credential, methodcaller("subscription", name))
            least = subscription.least_lost(self._dead(subscription))
            if least > view.dropped:
                # A power failure may have undone the counting; retention makes up for it.
                await asyncio.sleep(RETENTION_SECONDS * 1.5)  # virtual
            elif subscription.told_lost >= view.dropped:
                break
        most = subscription.most_lost
        if not least <= view.dropped <= most:
            self._checker.fail(
                f"{subscription} lost {least} to {most} events to retention; the broker counts "
                f"{view.dropped}"
            )
        if subscription.told_lost < view.dropped:
            self._checker.fail(
                f"{subscription} lost {view.dropped} events and was told of "
                f"{subscription.told_lost}"
            )

    async def _fetch_when_free(self, credential: Credential, name: str) -> None:
        """Fetch as soon as the broker has noticed that the consumer has gone."""
        until = self._world.loop.time() + LEAVING_SECONDS
        while True:
            try:
                await fetch(self._world, credential, name)
            except RefusedError as error:
                if error.code != Code.CONFLICT or self._world.loop.time() > until:
                    raise
                await asyncio.sleep(0.5)  # virtual
            else:
                return

    def check_rest(self, broker: Broker) -> None:
        """Check that nothing is left in memory of those who have gone."""
        left = {
            "sessions": len(broker._sessions),
            "connections of principals": sum(broker._connected.values()),
            "subscriptions": sum(not one.stored.durable for one in broker.subscription_index),
            "consumers": sum(len(one.attachments) for one in broker.subscription_index),
            "listeners": sum(len(one.queue.listeners) for one in broker.subscription_index),
            "publications": broker.committer._waiting.qsize(),
            "batches": broker.matcher._unmatched.qsize(),
            "changes": broker.matcher.updater.waiting.qsize(),
            "replays": len(broker.replayer._tasks),
        }
        for what, count in left.items():
            if count:
                self._checker.fail(f"{count} {what} are left when everybody has gone")
        for process in self._world.server.lives:
            for task in process.life.tasks:
                if task.done() and getattr(task, "_log_traceback", False):
                    self._checker.fail(f"nobody noticed that {task.get_name()} failed: {task!r}")
