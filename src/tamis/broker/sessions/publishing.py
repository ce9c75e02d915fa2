"""Sessions: how a principal publishes events, within its rights and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import isinf
from typing import Any, Final

import msgspec

from tamis.access import Principal, Rights
from tamis.broker.operations.pacing import EVENT_SECONDS
from tamis.broker.operations.turns import Turns
from tamis.broker.publish.payloads import XML, InvalidEventError, Payload, refuse_larger
from tamis.broker.sessions.base import SessionBase, SessionServices
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.frames import MAX_NAME_CHARACTERS
from tamis.protocol.views import Receipt

# Decoding more than this would keep other connections waiting, so a thread does it.
MAX_BYTES_DECODED_ON_LOOP: Final = 16 * 1024
# A check that they are valid takes far less time; for a few events, decoding does.
MAX_BYTES_CHECKED_ON_LOOP: Final = 128 * 1024
MIN_CHECKED_TOGETHER: Final = 8
MAX_PUBLISHER_NAMES: Final = 1_000


class Publishing(SessionBase):
    """What a session publishes."""

    def __init__(self, services: SessionServices, principal: Principal, rights: Rights) -> None:
        super().__init__(services, principal, rights)
        self.owner: Final = publisher_name(principal.name, "")
        """The principal as names of its publishers have it."""
        self.has_ended = False
        """Whether it has ended, and no longer hears of revocations and changed rights."""
        self._turns = Turns()
        """Of publications, which are stored in the order of their frames."""
        self._publisher_names: dict[str, str] = {}

    async def publish(  # noqa: PLR0912, PLR0915 - in one piece, as the way of every publication
        self,
        events: Sequence[bytes | msgspec.Raw],
        *,
        format: str = "json",  # noqa: A002 - as it is called in frames and headers
        publisher: str = "",
        sequence: int = 0,
        skip: bool = False,
    ) -> Receipt:
        """Store events, all or none, and return once they are on disk.

        `sequence` is the publisher's number of the first one; `skip` allows it to leave out some.
        """
        services, limits = self._services, self.rights.limits
        if self.closed.done():
            self._require_open()
        if (
            not 0 < len(events) <= services.settings.largest_batch
            or len(publisher) > MAX_NAME_CHARACTERS
            or not publisher.isprintable()
            or not 0 <= sequence < 2**63 - len(events)
        ):
            raise self._bad_publication(events, publisher, sequence)
        if len(events) > 1:
            # At once, although they may be refused: they may wait below, and the next frame has to
            # wait for them. One alone takes little beside its frame.
            services.charge(self.principal.name, len(events) * EVENT_SECONDS)
        name = self._publisher_names.get(publisher) or self._publisher_name(publisher)
        texts = [*map(bytes, events)]
        size = sum(map(len, texts))
        if self._turns.is_taken:
            await self._turns.take()
        else:
            self._turns.is_taken = True
        try:
            try:
                if sequence and services.numbering.next.get(name) != sequence:
                    services.numbering.check(name, sequence, skip=skip)
                most = min(limits.event_size, services.settings.largest_event)
                if max(map(len, texts)) > most:
                    refuse_larger(texts, format, most, services.settings.largest_frame)
                # Before decoding: whoever has no quota left costs nobody time.
                if not (isinf(limits.publications) and isinf(limits.bytes)):
                    services.quota.take(self.principal.name, self.rights, len(texts), size)
                decoder, payloads = services.decoder, None
                # Whoever may not publish everything must have all decoded.
                may_stay_undecoded = self.rights.publishes_everything
                is_small = size <= MAX_BYTES_CHECKED_ON_LOOP
                if may_stay_undecoded and is_small and len(texts) >= MIN_CHECKED_TOGETHER:
                    payloads = decoder.check_all(texts, format)
                    may_stay_undecoded = False
                if payloads is None and (format == XML or size > MAX_BYTES_DECODED_ON_LOOP):
                    payloads = await services.decode_executor.run_slices(
                        self.principal.name,
                        decoder.decode_slices(texts, format, may_stay_undecoded=may_stay_undecoded),
                    )
                elif payloads is None and len(texts) == 1:
                    payloads = [decoder.decode(texts[0], format)]
                elif payloads is None:
                    payloads = decoder.decode_all(texts, format)
                rights = self.rights
                if not rights.publishes_everything:
                    _check_rights(rights, payloads)
                is_crowded = self.owner in services.fan_out.waiting
                if is_crowded or not services.health.accepts or self.closed.done():
                    await self._wait_for_room()
            except RefusedError as error:
                services.numbering.note_refusal(name, sequence, len(texts))
                raise self._hide_reason(error) from None
            stored = await services.committer.enqueue(
                self, rights, name, sequence, payloads, skip=skip
            )
        finally:
            if self._turns.waiting:
                self._turns.end()
            else:
                self._turns.is_taken = False
        return await stored

    def require_right(self, rights: Rights, payloads: Sequence[Payload]) -> None:
        """Refuse events that were allowed by earlier rights, if they no longer are."""
        access, current = self._services.access_control, self.rights
        if self.closed.done() or self.has_ended:
            if not access.is_welcome(self.principal):
                message = "nothing was stored: the credential is no longer valid"
                raise RefusedError(Code.UNAUTHENTICATED, message)
            current = access.rights(self.principal)
        if current is not rights:
            _check_rights(current, payloads)

    async def _wait_for_room(self) -> None:
        """Return when more events of the principal may wait, or refuse them."""
        services = self._services
        while services.health.accepts and not self.closed.done():
            if services.fan_out.has_room(self.owner, len(services.subscription_index.by_number)):
                return
            relief = services.fan_out.relief(self.owner)
            either: list[asyncio.Future[Any]] = [relief, self.closed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._require_open()
        raise services.health.refusal()

    def note_refusal(self, publisher: str, sequence: int) -> None:
        """Note that a publication was refused unread: those that follow it are refused, too."""
        if len(publisher) <= MAX_NAME_CHARACTERS and publisher.isprintable():
            name = publisher_name(self.principal.name, publisher)
            self._services.numbering.note_refusal(name, sequence, 1)

    def expect_publication(self, size: int) -> None:
        """Refuse a body of this many bytes before it is read, if it cannot be stored anyway."""
        self._require_open()
        if not self.rights.may_publish:
            raise self.rights.unpublishable("none of them allows publishing")
        self._services.quota.check(self.principal.name, self.rights, size)

    def _publisher_name(self, publisher: str) -> str:
        name = publisher_name(self.principal.name, publisher)
        if len(self._publisher_names) < MAX_PUBLISHER_NAMES:
            self._publisher_names[publisher] = name
        return name

    def _bad_publication(
        self, events: Sequence[bytes | msgspec.Raw], publisher: str, sequence: int
    ) -> RefusedError:
        most = self._services.settings.largest_batch
        if not events:
            return RefusedError(Code.BAD_REQUEST, "a publication has at least one event")
        if len(events) > most:
            return RefusedError(
                Code.TOO_LARGE,
                f"{len(events):,} events in one publication exceed the limit of {most:,}",
            )
        if len(publisher) > MAX_NAME_CHARACTERS or not publisher.isprintable():
            return RefusedError(
                Code.BAD_REQUEST,
                f"a publisher's name has up to {MAX_NAME_CHARACTERS} printable characters",
            )
        return RefusedError(Code.BAD_REQUEST, f"{sequence} is not a sequence; sequences start at 1")

    def _hide_reason(self, error: RefusedError) -> RefusedError:
        """Return a refusal, without what the schema says about hidden attributes.

        That is as secret as their values.
        """
        names = error.attributes if isinstance(error, InvalidEventError) else None
        if names is None or self.rights.may_publish_with(names):
            return error
        hidden = self.rights.unpublishable("attributes that the schema knows")
        hidden.index = error.index
        return hidden


def publisher_name(principal: str, publisher: str) -> str:
    """Return a name that no other principal's publisher can have.

    >>> publisher_name("ann", ""), publisher_name("ann", "a/b"), publisher_name("ann/a", "b")
    ('ann', 'ann/a/b', 'ann%2Fa/b')
    """
    owner = principal.replace("%", "%25").replace("/", "%2F")
    return f"{owner}/{publisher}" if publisher else owner


def _check_rights(rights: Rights, payloads: Sequence[Payload]) -> None:
    for index, payload in enumerate(payloads):
        try:
            rights.check_publish(payload.source)
        except RefusedError as error:
            error.index = index
            raise
