"""Arrivals: events of neighbouring brokers, checked and stored under their origin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple
from zlib import crc32

from tamis.access import Rights
from tamis.broker.deliver.routes import LinkSubscription
from tamis.broker.deliver.subscriptions import SubscriptionIndex
from tamis.broker.links.outlet import LinkEvent
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.committer import ForwardedRecord
from tamis.broker.publish.payloads import NUMBER_OF, XML, Payload
from tamis.broker.sessions import SessionServices
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.storage import EventOrigin

LOG: Final = get_logger("tamis.broker")

MAX_ORIGINS: Final = 10_000
"""Brokers of which events are stored."""
MAX_PUBLISHER_CHARACTERS: Final = 1_000
# Decoding more than this would keep connections waiting, so a thread does it.
MAX_BYTES_DECODED_ON_LOOP: Final = 16 * 1024


class PeerReceipt(NamedTuple):
    """What became of events that a peer has sent."""

    stored: int
    duplicates: int
    """Events that had been stored before."""
    refused: int
    """Events that the link's roles may not publish, or that are not valid here."""


class _AcceptableEvents(NamedTuple):
    records: list[ForwardedRecord]
    payloads: list[Payload]
    reasons: list[str]
    """Why others are refused."""


class _PeerAuthor:
    """A link as one who publishes."""

    def __init__(self, link: LinkSubscription, subscription_index: SubscriptionIndex) -> None:
        self.owner: Final = f"/{link.peer}"
        """No principal has it: theirs have no slash."""
        self.closed: Final[asyncio.Future[str]] = asyncio.get_running_loop().create_future()
        self._link = link
        self._index = subscription_index

    @property
    def rights(self) -> Rights:
        return self._link.rights

    @property
    def has_ended(self) -> bool:
        return self._index.links.get(self._link.peer) is not self._link

    def require_right(self, rights: Rights, payloads: Sequence[Payload]) -> None:  # noqa: ARG002
        """Refuse them all, so that they are sent again, and checked by the rights as they are."""
        raise RefusedError(
            Code.UNAVAILABLE, "nothing was stored: the rights of the link have just changed"
        )


class Arrivals:
    """Stores what neighbours send."""

    def __init__(self, services: SessionServices) -> None:
        self._broker_id = services.store.state.broker_id
        self._index = services.subscription_index
        self._committer = services.committer
        self._numbering = services.numbering
        self._decoder = services.decoder
        self._executor = services.executors.decode
        self._fan_out = services.fan_out
        self._health = services.health
        self._metrics = services.metrics
        self._turns: dict[str, asyncio.Lock] = {}

    async def store(self, link: LinkSubscription, events: Sequence[LinkEvent]) -> PeerReceipt:
        """Store events in order, and return when they are on disk."""
        for event in events:
            self._check(event)
        connection = link.connections
        # Nothing may overtake what comes before it, or what comes before would be a duplicate.
        async with self._turns.setdefault(link.peer, asyncio.Lock()):
            if connection <= link.failed_connection:
                raise RefusedError(
                    Code.CONFLICT,
                    "events before these could not be stored; connect again, and send all that is "
                    "not acknowledged",
                )
            try:
                return await self._store(link, events)
            except BaseException:
                # Nobody knows what is stored of them.
                link.failed_connection = connection
                raise

    async def _store(self, link: LinkSubscription, events: Sequence[LinkEvent]) -> PeerReceipt:
        rights, size = link.rights, sum(len(event.data) for event in events)
        if size > MAX_BYTES_DECODED_ON_LOOP or any(event.format == XML for event in events):
            found = await self._executor.run(self._read, link.peer, events, rights)
        else:
            found = self._read(link.peer, events, rights)
        duplicates = 0
        if found.records:
            author = _PeerAuthor(link, self._index)
            await self._wait_for_room(author.owner)
            storing = await self._committer.forward(author, rights, found.records, found.payloads)
            duplicates = (await storing).duplicates
        if found.reasons:
            self._note_refused(link, found.reasons)
        return PeerReceipt(len(found.records) - duplicates, duplicates, len(found.reasons))

    def _check(self, event: LinkEvent) -> None:
        """Refuse what no honest broker sends."""
        origin = event.origin
        if origin.broker == self._broker_id:
            raise RefusedError(
                Code.BAD_REQUEST,
                f"event {origin.sequence} claims to come from here: is there a cycle of links?",
            )
        if not 0 < origin.sequence < 2**63 or not 0 <= event.publisher_sequence < 2**63:
            raise RefusedError(Code.BAD_REQUEST, f"{origin.sequence} is not a sequence")
        if len(event.publisher) > MAX_PUBLISHER_CHARACTERS or not event.publisher.isprintable():
            raise RefusedError(
                Code.BAD_REQUEST,
                f"a publisher's name has up to {MAX_PUBLISHER_CHARACTERS:,} printable characters",
            )
        if event.format not in NUMBER_OF:
            raise RefusedError(Code.BAD_REQUEST, f"{event.format!r:.40} is not a format of events")
        is_new = origin.publisher not in self._numbering.tails
        if is_new and self._numbering.origins >= MAX_ORIGINS:
            raise RefusedError(
                Code.TOO_MANY, f"events of {MAX_ORIGINS:,} brokers are stored here, the limit"
            )

    def _read(self, peer: str, events: Sequence[LinkEvent], rights: Rights) -> _AcceptableEvents:
        """Return what may be stored of events; for any thread."""
        found = _AcceptableEvents([], [], [])
        for event in events:
            try:
                payload = self._decoder.decode(event.data, event.format)
                if not rights.publishes_everything:
                    rights.check_publish(payload.source)
                self._require_same(event)
            except RefusedError as error:
                found.reasons.append(str(error))
                continue
            origin = EventOrigin(*event.origin[:3], hop=peer)
            record = ForwardedRecord(event.publisher, event.publisher_sequence, origin)
            found.records.append(record)
            found.payloads.append(payload)
        return found

    def _require_same(self, event: LinkEvent) -> None:
        """Refuse an event that is no repetition, although later ones of its origin are stored."""
        _, number, *_ = origin = event.origin
        tail = self._numbering.tails.get(origin.publisher)
        if tail is None or number > tail.last:
            return
        if tail.is_other(number, crc32(event.data, NUMBER_OF[event.format])):
            raise RefusedError(
                Code.CONFLICT,
                f"event {number} of broker {origin.broker} comes too late: {tail.last} is stored, "
                f"and {number} is not, or with other content; was that broker's folder restored "
                "from a backup?",
            )

    async def _wait_for_room(self, owner: str) -> None:
        """Return when more events of a peer may wait to be matched, or refuse them."""
        most = len(self._index.by_number)
        while self._health.accepts and not self._fan_out.has_room(owner, most):
            await self._fan_out.relief(owner)
        if not self._health.accepts:
            raise self._health.refusal()

    def _note_refused(self, link: LinkSubscription, reasons: Sequence[str]) -> None:
        link.refused += len(reasons)
        self._metrics.refused_arrivals.inc(len(reasons))
        LOG.warning(
            "events of a peer refused", peer=link.peer, count=len(reasons), reason=reasons[0]
        )
