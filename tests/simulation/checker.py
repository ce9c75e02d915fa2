"""The checker: a plain model of what the broker promises, told of everything that happens.

It sits at the edge of the broker: it sees frames and answers as they are handed to the network, and
the log as it is on the disk. It knows nothing of how the broker works.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from simulation.check_deliveries import DeliveryChecker
from simulation.credentials import APPLIED_SECONDS, Credential
from simulation.model import MAYBE, NO, YES, LogEntry, SubscriptionModel
from storage.disk import DiskFile
from tamis.broker import Broker
from tamis.errors import TamisError
from tamis.protocol import Subscribe

if TYPE_CHECKING:
    from simulation.server import BrokerProcess

KILL, POWER_CUT = "kill", "power cut"


class Checker(DeliveryChecker):
    """Knows what must be, and says what is not."""

    # --- lives of the broker ---------------------------------------------------------------------

    def after_work(self, process: BrokerProcess, name: str) -> None:
        """Look at the log after some work was done, before anybody is told."""
        broker = process.broker
        if broker is None or process.life.is_over:
            return
        if name == "commit":
            self._read_new(broker)
        elif name == "settle":
            self._look_at_settled(process, broker)
        elif name == "background":
            self._note_removed(broker)

    def opened(self, broker: Broker) -> None:
        """Compare the log of a broker that has just started with what it was."""
        log = broker.store.log
        self._note_removed(broker)
        records = {one.sequence: one for one in log.read(1, 1_000_000)}
        for sequence, entry in self.log.entries.items():
            if sequence < self.log.first:
                continue
            record = records.get(sequence)
            if record is None or record.payload != entry.event.text:
                self.fail(f"sequence {sequence}, event {entry.event.id}, is lost after a restart")
        self.log.next = max(self.log.next, log.first_sequence)
        self._read_new(broker)
        self._check_whole()

    def cannot_open(self, error: TamisError) -> None:
        """Note that the broker refuses to start."""
        if not self.world.has_disk_faults:
            self.fail(f"the broker does not start: {error}")

    def stopping_took_too_long(self, seconds: float) -> None:
        if not self.world.has_disk_faults:
            self.fail(f"the broker did not stop within {seconds} seconds")

    def closed(self) -> None:
        """Note an orderly end: everything is written."""

    def waited_too_long(self, what: str) -> None:
        """Note that somebody gave up waiting."""
        if not self.world.has_disk_faults:
            self.fail(f"{what} was not answered")

    # --- crashes and losses ----------------------------------------------------------------------

    def crashed(self, how: str) -> None:
        """Note a sudden end: what was acknowledged and is not on disk may come again."""
        self.policies.end_stalls(self.now)
        for subscription in self.subscriptions.values():
            for progress in subscription.progress.values():
                is_power_cut = how == POWER_CUT
                if is_power_cut:
                    progress.attempt_written = progress.attempt_synced
                progress.attempt_floor = progress.attempt_written
                is_lost = progress.survives != POWER_CUT and (
                    how == POWER_CUT or not progress.survives
                )
                if progress.acknowledged == YES and is_lost:
                    progress.acknowledged, progress.acknowledged_at = MAYBE, inf
                    progress.survives = ""

    def _look_at_settled(self, process: BrokerProcess, broker: Broker) -> None:
        """Note which acknowledgements are in the state, and which of them are synced."""
        wal = process.disk.entry(process.folder / "data" / "state.db-wal")
        # A sync that failed leaves no changes either, and perhaps not what was changed.
        is_synced = isinstance(wal, DiskFile) and not wal.changes and not process.has_bad_syncs
        with broker.store.state._database.reading() as connection:
            rows = connection.execute("SELECT number, sequence, attempts FROM pending").fetchall()
        pending = {(number, sequence): attempts for number, sequence, attempts in rows}
        for key, subscription in self.subscriptions.items():
            found = broker.subscription_index.find(*key)
            for sequence, progress in subscription.progress.items():
                if found is not None and (found.number, sequence) in pending:
                    progress.attempt_written = pending[found.number, sequence]
                    if is_synced:
                        progress.attempt_synced = progress.attempt_written
                if progress.acknowledged != YES or progress.survives == POWER_CUT:
                    continue
                is_written = sequence <= broker.store.state.matched_up_to
                if found is None or (is_written and (found.number, sequence) not in pending):
                    progress.survives = POWER_CUT if is_synced else KILL

    def _note_removed(self, broker: Broker) -> None:
        """Note which events retention has removed, and who loses them."""
        before, self.log.first = (
            self.log.first,
            max(self.log.first, broker.store.log.first_sequence),
        )
        for sequence in range(before, self.log.first):
            entry = self.log.entries.get(sequence)
            for subscription in self.subscriptions.values() if entry else ():
                if entry is not None and subscription.wants(entry):
                    self._lose(subscription, entry)
                elif entry is not None:
                    # It was removed before anybody found out that it does not match.
                    subscription.most_lost += subscription.may_find(entry)

    def _lose(self, subscription: SubscriptionModel, entry: LogEntry) -> None:
        progress = subscription.of(entry.sequence)
        subscription.most_lost += progress.acknowledged != YES or progress.survives != POWER_CUT
        if (
            progress.acknowledged == NO
            and not progress.is_last_chance_over
            and entry.sequence >= subscription.is_replay_over_at
            and self.was_always_visible(subscription, entry, self.now)
        ):
            subscription.removed.append(entry.sequence)

    # --- subscriptions ---------------------------------------------------------------------------

    def asking(self, credential: Credential, wanted: Subscribe) -> None:
        """Note a request that may make a durable subscription."""
        if wanted.durable is not None:
            key = credential.principal, wanted.durable
            self.perhaps_made.setdefault(key, (self.log.next, self.now))
            self.perhaps_used.setdefault(key, set()).add(credential.roles)
            known = self.subscriptions.get(key)
            if known is None:
                return
            if known.is_ended != NO or self.now >= known.expires_from:
                # It may be gone, and made anew even if the answer does not come.
                known.perhaps_anew_since = min(known.perhaps_anew_since, self.now)
            if wanted.lifetime is not None:
                # It may be renewed, even if the answer does not come.
                known.expires_by = inf

    def subscribed(
        self,
        credential: Credential,
        wanted: Subscribe,
        asked_at: float,
        name: str,
        start: int,
        *,
        resumed: bool,
    ) -> SubscriptionModel:
        """Check the answer to a subscription that is about to be sent."""
        key = credential.principal, name
        known = self.subscriptions.get(key)
        if resumed and known is None and key not in self.perhaps_made:
            self.fail(f"{key} was resumed, and nobody made it, or it had ended")
        if resumed and known is not None and asked_at > known.expires_by + APPLIED_SECONDS:
            self.fail(f"{known} was resumed after it had expired")
        # Of two who ask at the same time, the one who did not make it may be answered first.
        if not resumed and known is not None and asked_at > known.known_since:
            self._check_may_be_gone(known)
            self._forget(key)
            known = None
        if known is not None and resumed and known.perhaps_anew_since == asked_at:
            # This request has found it, and there was no other that may have made it anew.
            known.perhaps_anew_since = inf
        if known is None:
            known = SubscriptionModel(
                owner=credential.principal,
                name=name,
                filter=wanted.filter,
                start=start,
                known_since=self.now,
                has_rivals=key in self.world.contested,
                is_replay_over_at=self.log.next,
                durable=wanted.durable is not None,
                ordering_key=wanted.ordering_key if wanted.group else None,
                overflow=wanted.overflow,
                max_attempts=wanted.max_attempts or self.world.settings.max_attempts,
                roles=self.perhaps_used.get(key, set()),
            )
            self._check_start(known, wanted, key)
            if resumed:
                # Retention may have removed some before anybody was told that it is there.
                gone = (one for one in self.log.entries.values() if one.sequence < self.log.first)
                known.most_lost = sum(map(known.may_find, gone))
            for sequence in self.perhaps_settled.get(key, ()):
                progress = known.of(sequence)
                progress.deliveries, progress.is_last_chance_over = 1, True
                known.settle(sequence, self.now, MAYBE)
            (self.subscriptions if known.durable else self.temporary)[key] = known
        self.perhaps_made.pop(key, None)
        self.perhaps_used.pop(key, None)
        self.perhaps_settled.pop(key, None)
        if wanted.lifetime is not None:
            self._renew(known, asked_at, wanted.lifetime)
        known.roles.add(credential.roles)
        return known

    def renewing(self, key: tuple[str, str]) -> None:
        """Note a request to renew a subscription: it may succeed, even without an answer."""
        known = self.subscriptions.get(key)
        if known is not None:
            known.expires_by = inf

    def renewed(self, key: tuple[str, str], asked_at: float, lifetime: float) -> None:
        """Check that a subscription may be renewed, as the broker says."""
        known = self.subscriptions.get(key)
        if known is None:
            self.fail(f"{'/'.join(key)} was renewed, and is not there")
            return
        self._renew(known, asked_at, lifetime)

    def _renew(self, known: SubscriptionModel, asked_at: float, lifetime: float) -> None:
        if self.now >= known.expires_from:
            known.doubts.append((known.expires_from, self.now))
        known.expires_from = asked_at + lifetime
        # With two who renew it, the answer to one does not tell what the other did.
        known.expires_by = inf if known.has_rivals else self.now + lifetime

    def _check_start(
        self, made: SubscriptionModel, wanted: Subscribe, key: tuple[str, str]
    ) -> None:
        if wanted.start != "latest":
            return
        earliest, _ = self.perhaps_made.get(key, (made.start, 0.0))
        if wanted.durable is not None and not earliest <= made.start <= self.log.next:
            self.fail(
                f"{made} starts at {made.start}; the log was at {earliest} when it was asked for "
                f"and is at {self.log.next}"
            )

    def _check_may_be_gone(self, known: SubscriptionModel) -> None:
        if known.is_ended == NO and self.now < known.expires_from:
            self.fail(f"{known} was made anew; it had neither ended nor expired")

    def ending(self, key: tuple[str, str]) -> None:
        """Note a request to delete a subscription."""
        known = self.subscriptions.get(key)
        if known is not None and known.is_ended == NO:
            known.is_ended = MAYBE
            if self.unanswered[key]:
                # Who asked for it earlier may make it anew.
                known.perhaps_anew_since = min(known.perhaps_anew_since, self.now)

    def is_gone(self, key: tuple[str, str], asked: SubscriptionModel | None) -> None:
        """Note that the subscription asked for was deleted, as the broker says."""
        known = self.subscriptions.get(key)
        if known is not None and asked is not None and known is not asked:
            # The answer was slow: another one has been made meanwhile.
            return
        if known is not None:
            known.is_ended, known.ended_at = YES, self.now
        # Who asked for it earlier and has no answer yet may make it anew.
        self.perhaps_settled.pop(key, None)
        self.subscriptions.pop(key, None)

    def _forget(self, key: tuple[str, str]) -> None:
        self.perhaps_made.pop(key, None)
        self.perhaps_used.pop(key, None)
        self.perhaps_settled.pop(key, None)
        self.subscriptions.pop(key, None)

    def not_found(self, key: tuple[str, str], asked: SubscriptionModel | None) -> None:
        """Note that the broker says there is no such subscription as the one asked for."""
        known = self.subscriptions.get(key)
        # Otherwise another one was made meanwhile.
        if known is not None and known is asked:
            self._check_may_be_gone(known)
            # Who asked for it earlier and has no answer yet may make it anew.
            self.perhaps_settled.pop(key, None)
            self.subscriptions.pop(key, None)

    def told_end(self, subscription: SubscriptionModel, reason: str) -> None:
        """Note that a consumer was told of the end of its subscription."""
        if reason in ("deleted", "expired"):
            if reason == "expired" and self.now < subscription.expires_from:
                self.fail(f"{subscription} expires too early")
            if reason == "deleted" and subscription.is_ended == NO:
                self.fail(f"{subscription} is deleted, and nobody asked for it")
