"""The checker: a plain model of what the broker promises, told of everything that happens.

It sits at the edge of the broker: it sees frames and answers as they are handed to the network, and
the log as it is on the disk. It knows nothing of how the broker works.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from simulation.credentials import APPLIED_SECONDS, Credential, Policies
from simulation.model import (
    MAYBE,
    NO,
    YES,
    LogEntry,
    LogModel,
    PublicationModel,
    SimulatedEvent,
    SubscriptionModel,
)
from storage.disk import DiskFile
from tamis.broker import Broker
from tamis.broker.sessions import publisher_name
from tamis.errors import RefusedError, TamisError
from tamis.protocol import Delivery, Refused, Subscribe
from tamis.storage import Record

if TYPE_CHECKING:
    from simulation.server import BrokerProcess
    from simulation.world import World

GRACE_SECONDS = 1.0
"""A delivery that was being prepared when its acknowledgement arrived may still be sent."""
KILL, POWER_CUT = "kill", "power cut"
PASSING = frozenset(
    {"out_of_order", "too_many", "storage_full", "unavailable", "conflict", "unauthenticated"}
)
"""Refusals that a well-behaved client may meet at any time."""


class Checker:
    """Knows what must be, and says what is not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[str] = []
        self.log = LogModel()
        self.policies = Policies()
        self.events: dict[int, SimulatedEvent] = {}
        self.publications: dict[int, PublicationModel] = {}
        """The publication of each event, by its id."""
        self.subscriptions: dict[tuple[str, str], SubscriptionModel] = {}
        self.ended: list[SubscriptionModel] = []
        self.perhaps_made: dict[tuple[str, str], tuple[int, float]] = {}
        """Subscriptions that were asked for and not answered: where the log was, and when."""
        self.deliveries = 0

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def fail(self, message: str) -> None:
        """Note a broken promise."""
        self.world.trace("checker", "VIOLATION", message)
        self.violations.append(f"{self.now:.3f} s: {message}")

    # --- the log ---------------------------------------------------------------------------------

    def publishing(self, publication: PublicationModel) -> None:
        """Note a publication that is sent for the first time."""
        for event in publication.events:
            self.events[event.id] = event
            self.publications[event.id] = publication

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
            self.log.first = max(self.log.first, broker.store.log.first_sequence)

    def _read_new(self, broker: Broker) -> None:
        log = broker.store.log
        while self.log.next < log.next_sequence:
            for record in log.read(self.log.next, 1000):
                self._append(record)

    def _append(self, record: Record) -> None:
        event = self._event_of(record)
        if event is None:
            return
        if event.id in self.log.by_event:
            self.fail(
                f"event {event.id} is stored twice: {self.log.by_event[event.id]} and "
                f"{record.sequence}"
            )
        publication = self.publications[event.id]
        if publication.is_refused:
            self.fail(f"event {event.id} was refused and is stored as {record.sequence}")
        if publication.sequence:
            last = self.log.numbers.get(record.publisher, 0)
            if record.publisher_sequence != last + 1:
                self.fail(
                    f"number {record.publisher_sequence} of {record.publisher} follows {last} in "
                    "the log"
                )
            self.log.numbers[record.publisher] = record.publisher_sequence
        if record.sequence != self.log.next:
            self.fail(f"{record.sequence} follows {self.log.next - 1} in the log")
        self.log.add(LogEntry(record.sequence, event, self.now))

    def _event_of(self, record: Record) -> SimulatedEvent | None:
        document = msgspec.json.decode(record.payload)
        event = self.events.get(document.get("id"))
        if event is None or event.document != document:
            self.fail(f"nobody published {document} of sequence {record.sequence}")
            return None
        return event

    def published(self, publication: PublicationModel, duplicates: int, first: int | None) -> None:
        """Check a receipt that is about to be sent."""
        publication.is_acknowledged = True
        missing = [one.id for one in publication.events if one.id not in self.log.by_event]
        if missing:
            self.fail(f"events {missing} are acknowledged and not in the log")
        elif first is not None:
            place = publication.events[duplicates].id
            if self.log.by_event[place] != first:
                self.fail(f"event {place} is told to be {first}: {self.log.by_event[place]}")

    # --- lives of the broker ---------------------------------------------------------------------

    def opened(self, broker: Broker) -> None:
        """Compare the log of a broker that has just started with what it was."""
        log = broker.store.log
        self.log.first = max(self.log.first, log.first_sequence)
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

    def _check_whole(self) -> None:
        """Check that what was being stored at the end is there as a whole or not at all."""
        seen = {id(one): one for one in self.publications.values()}
        for publication in seen.values():
            stored = [one.id in self.log.by_event for one in publication.events]
            if any(stored) and not all(stored):
                self.fail(f"a part of the publication of {publication.events[0].id} is stored")

    def cannot_open(self, error: TamisError) -> None:
        """Note that the broker refuses to start."""
        if not self.world.has_disk_faults:
            self.fail(f"the broker does not start: {error}")

    def stopping_took_too_long(self, seconds: float) -> None:
        if not self.world.has_disk_faults:
            self.fail(f"the broker did not stop within {seconds} seconds")

    def closed(self) -> None:
        """Note an orderly end: everything is written."""

    def crashed(self, how: str) -> None:
        """Note a sudden end: what was acknowledged and is not on disk may come again."""
        for subscription in self.subscriptions.values():
            for progress in subscription.progress.values():
                is_lost = progress.survives != POWER_CUT and (
                    how == POWER_CUT or not progress.survives
                )
                if progress.acknowledged == YES and is_lost:
                    progress.acknowledged, progress.acknowledged_at = MAYBE, inf
                    progress.survives = ""

    def _look_at_settled(self, process: BrokerProcess, broker: Broker) -> None:
        """Note which acknowledgements are in the state, and which of them are synced."""
        wal = process.disk.entry(process.folder / "data" / "state.db-wal")
        is_synced = isinstance(wal, DiskFile) and not wal.changes
        with broker.store.state._database.reading() as connection:
            pending = set(connection.execute("SELECT number, sequence FROM pending").fetchall())
        for key, subscription in self.subscriptions.items():
            found = broker.subscription_index.find(*key)
            for sequence, progress in subscription.progress.items():
                if progress.acknowledged != YES or progress.survives == POWER_CUT:
                    continue
                if found is None or (found.number, sequence) not in pending:
                    progress.survives = POWER_CUT if is_synced else KILL

    # --- subscriptions ---------------------------------------------------------------------------

    def asking(self, credential: Credential, wanted: Subscribe) -> None:
        """Note a request that may make a durable subscription."""
        if wanted.durable is not None:
            key = credential.principal, wanted.durable
            self.perhaps_made.setdefault(key, (self.log.next, self.now))
            known = self.subscriptions.get(key)
            if known is not None and wanted.lifetime is not None:
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
        # Of two who ask at the same time, the one who did not make it may be answered first.
        if not resumed and known is not None and asked_at > known.known_since:
            self._check_may_be_gone(known)
            self._forget(key)
            known = None
        if known is None:
            known = SubscriptionModel(
                owner=credential.principal,
                name=name,
                filter=wanted.filter,
                start=start,
                known_since=self.now,
                has_rivals=key in self.world.contested,
                durable=wanted.durable is not None,
                policy=wanted.policy,
                max_attempts=wanted.max_attempts or self.world.settings.max_attempts,
            )
            self._check_start(known, wanted, key)
            if known.durable:
                self.subscriptions[key] = known
        self.perhaps_made.pop(key, None)
        if wanted.lifetime is not None:
            known.expires_from = asked_at + wanted.lifetime
            # With two who renew it, the answer to one does not tell what the other did.
            known.expires_by = inf if known.has_rivals else self.now + wanted.lifetime
        known.roles.add(credential.roles)
        return known

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

    def is_gone(self, key: tuple[str, str]) -> None:
        """Note that a subscription was deleted, as the broker says."""
        known = self.subscriptions.get(key)
        if known is not None:
            known.is_ended, known.ended_at = YES, self.now
        self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        self.perhaps_made.pop(key, None)
        known = self.subscriptions.pop(key, None)
        if known is not None:
            self.ended.append(known)

    def not_found(self, key: tuple[str, str]) -> None:
        """Note that the broker says there is no such subscription."""
        known = self.subscriptions.get(key)
        if known is not None:
            self._check_may_be_gone(known)
            self._forget(key)

    # --- deliveries ------------------------------------------------------------------------------

    def deliver(
        self, subscription: SubscriptionModel, credential: Credential, events: Sequence[Delivery]
    ) -> None:
        """Check events that are about to be handed to a consumer."""
        now = self.now
        if now > subscription.ended_at:
            self.fail(f"{subscription} delivers after it was deleted")
        if now > subscription.expires_by + APPLIED_SECONDS:
            self.fail(f"{subscription} delivers after it has expired")
        self.check_credential(credential, f"{subscription} delivers")
        for event in events:
            self._deliver(subscription, credential, event)

    def check_credential(self, credential: Credential, what: str) -> None:
        """Check that a credential may still be used."""
        if self.now > credential.revoked_at + APPLIED_SECONDS:
            self.fail(f"{what} to {credential}, which was revoked at {credential.revoked_at:.3f}")
        versions = self.policies.between(self.now - APPLIED_SECONDS, self.now)
        if all(credential.principal in one.blocked for one in self._recent(versions)):
            self.fail(f"{what} to {credential}, which is blocked")

    def _recent(self, versions: Iterable[Any]) -> list[Any]:
        """Return the versions that may be in force now."""
        return [
            one
            for one in versions
            if one.written_at <= self.now <= one.replaced_at + APPLIED_SECONDS
        ]

    def check_sight(
        self, credential: Credential, filter_: str, delivery: Delivery, what: str
    ) -> LogEntry | None:
        """Check that somebody sees of an event what its credential shows, and no more."""
        entry = self.log.entries.get(delivery.sequence)
        if entry is None:
            self.fail(f"{what}: there is no sequence {delivery.sequence}")
            return None
        document, event = entry.event.document, entry.event.event
        got = msgspec.json.decode(delivery.data)
        versions = self._recent(self.policies.versions)
        shown = [one.shown(document, event, filter_, credential.roles) for one in versions]
        if got not in shown:
            self.fail(
                f"{what}: {credential} gets {got} of {document}; it may see "
                f"{' or '.join(map(str, shown))}"
            )
        return entry

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
        if progress.acknowledged == YES and now > progress.acknowledged_at + GRACE_SECONDS:
            self.fail(
                f"{subscription} gets {sequence} again, acknowledged at "
                f"{progress.acknowledged_at:.3f}"
            )
        if not progress.deliveries:
            is_late = sequence < subscription.last_first and not subscription.has_rivals
            if is_late and self.was_always_visible(subscription, entry, now):
                self.fail(f"{subscription} gets {sequence} after {subscription.last_first}")
            subscription.last_first = max(subscription.last_first, sequence)
        progress.deliveries += 1
        progress.attempt = max(progress.attempt, delivery.attempt)

    def was_always_visible(
        self, subscription: SubscriptionModel, entry: LogEntry, until: float
    ) -> bool:
        """Return whether all who used a subscription could see an event since it was stored."""
        event, filter_ = entry.event, subscription.filter
        return all(
            subscription.owner not in version.blocked
            and version.allows(filter_, roles)
            and version.shown(event.document, event.event, filter_, roles) is not None
            for version in self.policies.between(entry.stored_at, until)
            for roles in subscription.roles
        )

    def acknowledging(
        self, credential: Credential, name: str, sequences: Iterable[int], up_to: int
    ) -> None:
        """Note an acknowledgement that the broker has received."""
        self.world.trace("checker", "acknowledged", credential, name, sequences, up_to)
        subscription = self.subscriptions.get((credential.principal, name))
        if subscription is None:
            return
        for sequence in {*sequences, *range(subscription.start, up_to + 1)}:
            entry = self.log.entries.get(sequence)
            if entry is not None:
                self._acknowledge(subscription, credential, entry)

    def _acknowledge(
        self, subscription: SubscriptionModel, credential: Credential, entry: LogEntry
    ) -> None:
        """Note an acknowledgement, which counts if its sender may see the event."""
        event, filter_ = entry.event, subscription.filter
        seen = [
            one.shown(event.document, event.event, filter_, credential.roles) is not None
            for one in self._recent(self.policies.versions)
        ]
        if any(seen):
            is_sure = all(seen) and subscription.of(entry.sequence).deliveries > 0
            subscription.settle(entry.sequence, self.now, YES if is_sure else MAYBE)

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

    def publisher_name(self, credential: Credential, publisher: str) -> str:
        return publisher_name(credential.principal, publisher)

    # --- refusals and ends -----------------------------------------------------------------------

    def event_in(self, text: msgspec.Raw) -> int:
        """Return the id of an event that was published."""
        return int(msgspec.json.decode(bytes(text))["id"])

    def publication_refused(self, publication: PublicationModel, refusal: Refused) -> None:
        """Note that the broker did not store a publication."""
        if refusal.code not in PASSING:
            self.fail(f"a publication is refused: {refusal.code}, {refusal.message}")
        if not publication.sequence:
            publication.is_refused = True
            stored = [one.id for one in publication.events if one.id in self.log.by_event]
            if stored:
                self.fail(f"events {stored} are refused, and stored: {refusal.message}")

    def subscription_refused(
        self, credential: Credential, wanted: Subscribe, refusal: Refused
    ) -> None:
        """Check that the broker may refuse a subscription."""
        versions = self._recent(self.policies.versions)
        is_allowed = all(one.allows(wanted.filter, credential.roles) for one in versions)
        if refusal.code == "forbidden" and not is_allowed:
            return
        if refusal.code not in PASSING:
            self.fail(f"{credential} is refused {wanted}: {refusal.code}, {refusal.message}")

    def disconnected(self, credential: Credential, refusal: Refused) -> None:
        """Check that the broker may end a connection."""
        if refusal.code == "unauthenticated":
            self.refused_credential(credential)

    def refused_credential(self, credential: Credential) -> None:
        """Check that the broker may refuse a credential."""
        blocked = any(
            credential.principal in one.blocked for one in self._recent(self.policies.versions)
        )
        if credential.revoking_at == inf and not blocked:
            self.fail(f"{credential} is refused, and nobody revoked or blocked it")

    def told_end(self, subscription: SubscriptionModel, reason: str) -> None:
        """Note that a consumer was told of the end of its subscription."""
        if reason in ("deleted", "expired"):
            if reason == "expired" and self.now < subscription.expires_from:
                self.fail(f"{subscription} expires too early")
            if reason == "deleted" and subscription.is_ended == NO:
                self.fail(f"{subscription} is deleted, and nobody asked for it")

    def request_refused(self, publication: PublicationModel, error: RefusedError) -> None:
        """Note that a publication by request was refused."""
        refusal = Refused(code=error.code, message=str(error))
        self.publication_refused(publication, refusal)

    def fetched(self, credential: Credential, name: str, events: Sequence[Delivery]) -> None:
        """Check events that are about to be returned to somebody who fetches them."""
        got = [(one.sequence, one.attempt) for one in events]
        self.world.trace(str(credential), "fetched", name, got)
        subscription = self.subscriptions.get((credential.principal, name))
        if subscription is None:
            if events:
                self.fail(f"{credential} fetches from {name}, which is not there")
            return
        subscription.roles.add(credential.roles)
        self.deliver(subscription, credential, events)
        for event in events:
            # Unless they are acknowledged in time, they count as rejected.
            self.rejecting((credential.principal, name), event.sequence)

    def waited_too_long(self, what: str) -> None:
        """Note that somebody gave up waiting."""
        if not self.world.has_disk_faults:
            self.fail(f"{what} was not answered")
