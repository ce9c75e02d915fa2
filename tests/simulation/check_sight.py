"""What each credential may see, and when."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

import msgspec

from simulation.check_log import PASSING, LogChecker
from simulation.clock import BEGINNING
from simulation.credentials import APPLIED_SECONDS, Credential, Policies, PolicyModel
from simulation.model import LogEntry, SimulatedEvent, SubscriptionModel
from tamis.protocol import Delivery, Refused, Subscribe

if TYPE_CHECKING:
    from simulation.world import World


TOLD_SECONDS = 6.0
"""How long the reason may take to reach a connection that is ended."""


class SightChecker(LogChecker):
    """Knows who may see what of which event."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.policies = Policies()

    @property
    def recent(self) -> list[PolicyModel]:
        """Return the versions of the policy that may be in force now."""
        return self.policies.between(self.now, self.now)

    def check_credential(self, credential: Credential, what: str) -> None:
        """Check that a credential may still be used."""
        if self._has_expired(credential):
            self.fail(f"{what} to {credential}, which has expired at {credential.expires_at:.3f}")
        if self.now > credential.revoked_at + APPLIED_SECONDS:
            self.fail(f"{what} to {credential}, which was revoked at {credential.revoked_at:.3f}")
        if all(credential.principal in one.blocked for one in self.recent):
            self.fail(f"{what} to {credential}, which is blocked")

    def _has_expired(self, credential: Credential) -> bool:
        """Return whether a credential must have been refused for a second.

        After a restart the broker goes by the clock, as it is and as it was at the start; but no
        token lasts longer from then on than it was issued for.
        """
        process, clock = self.world.server.process, self.world.clock
        if process is None or process.life is credential.issued_in:
            return self.now > credential.expires_at + APPLIED_SECONDS
        if self.now > process.started_at + credential.lifetime + APPLIED_SECONDS:
            return True
        offsets = [process.clock_offset]
        if self.now > clock.set_at + APPLIED_SECONDS:
            offsets.append(clock.offset)
        latest = BEGINNING + max(offsets) + self.now
        return latest > credential.written_expiry + APPLIED_SECONDS

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
        versions = self.recent
        shown = [one.shown(document, event, filter_, credential.roles) for one in versions]
        if got not in shown:
            self.fail(
                f"{what}: {credential} gets {got} of {document}; it may see "
                f"{' or '.join(map(str, shown))}"
            )
        return entry

    def was_always_visible(
        self, subscription: SubscriptionModel, entry: LogEntry, until: float
    ) -> bool:
        """Return whether all who used a subscription could see an event since it was stored."""
        event, filter_ = entry.event, subscription.filter
        return subscription.was_in_force(entry.stored_at, until) and all(
            subscription.owner not in version.blocked
            and version.allows(filter_, roles)
            and version.shown(event.document, event.event, filter_, roles) is not None
            for version in self.policies.matching_between(entry.stored_at, until)
            for roles in subscription.roles
        )

    def read_history(
        self,
        credential: Credential,
        filter_: str,
        events: Sequence[Delivery],
        asked_at: float,
        end: int,
    ) -> None:
        """Check a page of the past that is about to be returned."""
        self.world.trace(str(credential), "reads", len(events), "of the past up to", end)
        if events:
            self.check_credential(credential, "the history is shown")
        for event in events:
            entry = self.check_sight(credential, filter_, event, "the history")
            if entry is not None and not entry.event.matches(filter_):
                self.fail(f"the history of {filter_} has {entry.event.document}")
        found = [event.sequence for event in events]
        if found != sorted(found):
            self.fail(f"the history of {filter_} is not in order: {found}")
        versions = self.policies.between(asked_at, self.now)
        for sequence in range(self.log.first, end):
            stored = self.log.entries.get(sequence)
            if stored is None or sequence in found or not stored.event.matches(filter_):
                continue
            if self.is_visible(stored.event, filter_, credential.roles, versions):
                self.fail(f"the history of {filter_} for {credential} lacks {sequence}")

    def is_visible(
        self,
        event: SimulatedEvent,
        filter_: str,
        roles: tuple[str, ...],
        versions: Sequence[PolicyModel],
    ) -> bool:
        """Return whether the holder of some roles may see an event, by every version."""
        shown = (one.shown(event.document, event.event, filter_, roles) for one in versions)
        return all(one is not None for one in shown)

    def subscription_refused(
        self, credential: Credential, wanted: Subscribe, refusal: Refused
    ) -> None:
        """Check that the broker may refuse a subscription."""
        versions = self.recent
        is_allowed = all(
            one.allows(wanted.filter, credential.roles) and credential.principal not in one.blocked
            for one in versions
        )
        if refusal.code == "forbidden" and not is_allowed:
            return
        if refusal.code not in PASSING:
            self.fail(f"{credential} is refused {wanted}: {refusal.code}, {refusal.message}")

    def disconnected(self, credential: Credential, refusal: Refused) -> None:
        """Check that the broker may end a connection."""
        if refusal.code == "unauthenticated":
            # One that reads slowly is told late.
            self.refused_credential(credential, late=TOLD_SECONDS)

    def refused_credential(self, credential: Credential, *, late: float = 0.0) -> None:
        """Check that the broker may refuse a credential, now or as much earlier."""
        versions = self.policies.between(self.now - late, self.now)
        blocked = any(credential.principal in one.blocked for one in versions)
        is_valid = self.now < credential.expires_from and credential.revoking_at == inf
        if is_valid and not blocked and not self.world.jumps:
            self.fail(f"{credential} is refused, and nobody revoked or blocked it")
