"""What a subscription must get, how often, and what becomes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING

from simulation.check_sight import SightChecker
from simulation.credentials import APPLIED_SECONDS, Credential
from simulation.model import MAYBE, NO, YES, LogEntry, SubscriptionModel
from tamis.protocol import Delivery
from tamis.protocol.views import DeadLetterView

if TYPE_CHECKING:
    from simulation.world import World

GRACE_SECONDS = 1.0
"""A delivery that was being prepared when its acknowledgement arrived may still be sent."""


class DeliveryChecker(SightChecker):
    """Knows the subscriptions, and the progress of each event with each of them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.subscriptions: dict[tuple[str, str], SubscriptionModel] = {}
        """The durable ones, by owner and name."""
        self.temporary: dict[tuple[str, str], SubscriptionModel] = {}
        self.perhaps_made: dict[tuple[str, str], tuple[int, float]] = {}
        self.unanswered: Counter[tuple[str, str]] = Counter()
        """Requests for many subscriptions at once that have no answer yet, by subscription."""
        """Subscriptions that were asked for and not answered: where the log was, and when."""
        self.perhaps_used: dict[tuple[str, str], set[tuple[str, ...]]] = {}
        """The roles of those who asked for them: each of them may have made it."""
        self.perhaps_settled: dict[tuple[str, str], set[int]] = {}
        """What was fetched from them before anybody was told that they are there."""
        self.deliveries = 0

    def deliver(
        self,
        subscription: SubscriptionModel,
        credential: Credential,
        events: Sequence[Delivery],
        holder: object = None,
    ) -> None:
        """Check events that are about to be handed to a consumer."""
        if not events:
            return
        now = self.now
        if now > subscription.ended_at:
            self.fail(f"{subscription} delivers after it was deleted")
        if now > subscription.expires_by + APPLIED_SECONDS:
            self.fail(f"{subscription} delivers after it has expired")
        self.check_credential(credential, f"{subscription} delivers")
        for event in events:
            if subscription.ordering_key is not None:
                self._deliver_to_member(subscription, event.sequence, holder)
            self._deliver(subscription, credential, event)

    def _deliver_to_member(self, group: SubscriptionModel, sequence: int, holder: object) -> None:
        """Check that an event of a group does not overtake another of its key."""
        progress, entry = group.of(sequence), self.log.entries.get(sequence)
        group.holders[sequence] = holder
        if progress.acknowledged == YES:
            # The acknowledgement came when somebody else was about to be sent it.
            progress.acknowledged, progress.acknowledged_at = MAYBE, self.now
        if entry is None or not group.ordering_key or self.world.is_disk_unreliable:
            return
        key = entry.event.document[group.ordering_key]
        overtaken = [
            other.sequence
            for other in self.log.entries.values()
            if max(group.start, self.log.first) <= other.sequence < sequence
            and other.event.document[group.ordering_key] == key
            and group.wants(other)
            and group.of(other.sequence).acknowledged == NO
            and not group.may_be_dead(other.sequence)
            and self.was_always_visible(group, other, self.now)
        ]
        if overtaken and not progress.deliveries:
            self.fail(f"{group} gets {sequence}, which overtakes {overtaken} of its key")

    def _deliver(
        self, subscription: SubscriptionModel, credential: Credential, delivery: Delivery
    ) -> None:
        self.deliveries += 1
        entry = self.check_sight(credential, subscription.filter, delivery, f"{subscription}")
        if entry is None:
            return
        sequence, now = delivery.sequence, self.now
        if not subscription.wants(entry):
            self.fail(
                f"{subscription}, {subscription.filter} from {subscription.start}, gets sequence "
                f"{sequence}, {entry.event.document}"
            )
        progress = subscription.of(sequence)
        is_the_same = subscription.perhaps_anew_since == inf
        is_over = progress.acknowledged == YES and now > progress.acknowledged_at + GRACE_SECONDS
        if is_over and is_the_same:
            self.fail(
                f"{subscription} gets {sequence} again, acknowledged at "
                f"{progress.acknowledged_at:.3f}"
            )
        if not progress.deliveries:
            is_late = sequence < subscription.last_first and not subscription.has_rivals
            if is_late and self.was_always_visible(subscription, entry, now):
                self.fail(f"{subscription} gets {sequence} after {subscription.last_first}")
            subscription.last_first = max(subscription.last_first, sequence)
        if delivery.attempt <= progress.attempt_floor and is_the_same:
            self.fail(
                f"{subscription} gets {sequence}, attempt {delivery.attempt} after "
                f"{progress.attempt_floor}"
            )
        progress.deliveries += 1
        progress.attempt = max(progress.attempt, delivery.attempt)

    def handed(self, subscription: SubscriptionModel, events: Sequence[Delivery]) -> None:
        """Note that a consumer's connection has taken events: that counts as an attempt."""
        for event in events:
            subscription.of(event.sequence).attempt_floor = event.attempt

    def fetched(
        self, credential: Credential, name: str, events: Sequence[Delivery], dropped: int
    ) -> None:
        """Check events that are about to be returned to somebody who fetches them."""
        got = [(one.sequence, one.attempt) for one in events]
        self.world.trace(str(credential), "fetched", name, got)
        key = credential.principal, name
        subscription = self.subscriptions.get(key)
        if subscription is None:
            if events and key not in self.perhaps_made:
                self.fail(f"{credential} fetches from {name}, which is not there")
            self.perhaps_settled.setdefault(key, set()).update(one.sequence for one in events)
            return
        subscription.roles.add(credential.roles)
        subscription.told_lost += dropped
        self.deliver(subscription, credential, events)
        self.handed(subscription, events)
        for event in events:
            # Unless they are acknowledged in time, they count as rejected.
            self.rejecting((credential.principal, name), event.sequence)

    def acknowledging(
        self,
        credential: Credential,
        name: str,
        sequences: Iterable[int],
        up_to: int,
        *,
        surely: bool = True,
        holder: object = None,
    ) -> None:
        """Note an acknowledgement that the broker has received."""
        how = "acknowledged" if surely else "acknowledges"
        self.world.trace("checker", how, credential, name, sequences, up_to)
        subscription = self.subscriptions.get((credential.principal, name))
        if subscription is None:
            return
        for sequence in {*sequences, *range(subscription.start, up_to + 1)}:
            entry = self.log.entries.get(sequence)
            if entry is not None:
                # Of a group, the one that was sent an event last has it.
                is_group = subscription.ordering_key is not None
                has_it = not is_group or subscription.holders.get(sequence) is holder
                self._acknowledge(subscription, credential, entry, surely=surely and has_it)

    def _acknowledge(
        self,
        subscription: SubscriptionModel,
        credential: Credential,
        entry: LogEntry,
        *,
        surely: bool,
    ) -> None:
        """Note an acknowledgement, which counts if its sender may see the event."""
        event, filter_ = entry.event, subscription.filter
        seen = [
            one.shown(event.document, event.event, filter_, credential.roles) is not None
            for one in self.recent
        ]
        if any(seen):
            is_sure = surely and all(seen) and subscription.of(entry.sequence).deliveries > 0
            subscription.settle(entry.sequence, self.now, YES if is_sure else MAYBE)

    def doubt(self, key: tuple[str, str], sequences: Iterable[int], up_to: int) -> None:
        """Note that an acknowledgement ended its connection: it may have failed."""
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        meant = {*sequences}
        for sequence, progress in subscription.progress.items():
            is_meant = sequence in meant or sequence <= up_to
            if is_meant and progress.acknowledged == YES and not progress.survives:
                progress.acknowledged, progress.acknowledged_at = MAYBE, inf

    def rejecting(self, key: tuple[str, str], sequence: int) -> None:
        """Note a rejection that the broker has received."""
        self.world.trace("checker", "rejected", key, sequence)
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        progress = subscription.of(sequence)
        progress.rejected = True
        if progress.attempt >= subscription.max_attempts:
            progress.is_last_chance_over = True

    def check_temporary(self, credential: Credential, name: str, before: float) -> None:
        """Check that a temporary subscription got what was stored before, or was told."""
        subscription = self.temporary[credential.principal, name]
        missing = [
            entry
            for entry in self.log.entries.values()
            # What is kept in memory is kept after retention, too.
            if (entry.sequence >= self.log.first or subscription.overflow != "wait")
            and subscription.wants(entry)
            and not subscription.of(entry.sequence).deliveries
            and self.was_always_visible(subscription, entry, self.now)
        ]
        told = 0 if subscription.overflow == "wait" else subscription.told_slow
        # What was stored since may be on its way, or may be what it was told of.
        due = [entry for entry in missing if entry.stored_at < before]
        if len(due) > told or (credential.principal == "carl" and len(missing) < told):
            lacks = [entry.sequence for entry in missing]
            self.fail(
                f"{subscription}, {subscription.overflow}, lacks {lacks}, and was told {told}"
            )

    # --- dead letters ----------------------------------------------------------------------------

    def read_dead_letters(
        self, credential: Credential, name: str, letters: Sequence[DeadLetterView]
    ) -> None:
        """Check dead letters that are about to be returned."""
        subscription = self.subscriptions.get((credential.principal, name))
        if subscription is None:
            return
        for letter in letters:
            delivery = Delivery(letter.sequence, letter.time, letter.publisher, letter.data)
            self.check_sight(credential, subscription.filter, delivery, f"a letter of {name}")
            self.check_dead_letter(subscription, letter)

    def check_dead_letter(self, subscription: SubscriptionModel, letter: DeadLetterView) -> None:
        """Check that an event may be a dead letter."""
        progress = subscription.of(letter.sequence)
        if not subscription.may_be_dead(letter.sequence):
            self.fail(
                f"{subscription}: {letter.sequence} is a dead letter after {progress.attempt} "
                f"attempts of {subscription.max_attempts}: {letter.reason}"
            )

    def requeueing(self, key: tuple[str, str], sequences: Sequence[int]) -> None:
        """Note that dead letters become pending again, as if they had never been sent."""
        self.world.trace("checker", "requeued", key, sequences)
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        for sequence in sequences:
            progress = subscription.of(sequence)
            progress.acknowledged, progress.acknowledged_at, progress.survives = NO, inf, ""
            progress.attempt = progress.attempt_floor = 0
            progress.attempt_written = progress.attempt_synced = 0

    def deleting_letters(self, key: tuple[str, str], sequences: Sequence[int]) -> None:
        """Note that somebody deletes dead letters."""
        subscription = self.subscriptions.get(key)
        if subscription is None:
            return
        for sequence in sequences:
            subscription.settle(sequence, self.now, MAYBE)
