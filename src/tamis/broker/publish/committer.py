"""Group commit: all publications that wait are written together, with one sync."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from tamis.broker.operations.health import Health, refusal
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.fan_out import FanOut
from tamis.broker.publish.numbering import Numbering, count_duplicates, owner_of
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.errors import RefusedError, StorageError
from tamis.ports import Executor
from tamis.protocol import Code
from tamis.protocol.views import Receipt
from tamis.storage import EventLog, NewRecord, PublisherTail

PROBLEM: Final = "publications cannot be stored"
# A broker that nobody publishes to, because it is not ready, would never learn that it is.
HOPE_SECONDS: Final = 5.0
MAX_EVENTS_PER_COMMIT: Final = 4_096


class Publication(NamedTuple):
    """Events of one publisher, to be stored all or none."""

    publisher: str
    sequence: int
    """The publisher's own number of the first event; 0 if it does not count."""
    skip: bool
    """Whether numbers before it may be left out."""
    payloads: Sequence[Payload]
    require_right: Callable[[], None]
    """Refuses it if it may no longer be stored."""
    stored: asyncio.Future[Receipt]


AcceptedPublication = tuple[Publication, list[tuple[int, Payload]]]
"""A publication, and its events that are not stored yet, with their numbers."""


class Committer:
    """Writes publications to the log, acknowledges them, and passes them on to the matcher."""

    def __init__(
        self,
        log: EventLog,
        numbering: Numbering,
        pass_on: Callable[[list[StoredEvent]], Awaitable[None]],
        metrics: Metrics,
        executor: Executor,
        *,
        max_waiting: int,
        fan_out: FanOut,
        health: Health,
    ) -> None:
        self._health = health
        self._log = log
        self._fan_out = fan_out
        self._executor = executor
        self._numbering = numbering
        self._pass_on = pass_on
        self._metrics = metrics
        self._waiting: asyncio.Queue[Publication] = asyncio.Queue(max_waiting)
        self._turn = asyncio.Lock()
        self._has_ended = False
        self._hope: asyncio.TimerHandle | None = None
        metrics.watch_queue("commit", self._waiting)

    async def enqueue(
        self,
        publisher: str,
        sequence: int,
        payloads: Sequence[Payload],
        require_right: Callable[[], None],
        *,
        skip: bool = False,
    ) -> asyncio.Future[Receipt]:
        """Queue events in order; return the future of their receipt.

        They may wait for long, so their right to be stored is required once more at the end.
        """
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        if sequence:
            self._numbering.enter(publisher, sequence, len(payloads))
        self._fan_out.enter(publisher, len(payloads))
        publication = Publication(publisher, sequence, skip, payloads, require_right, stored)
        try:
            # A full queue lets newcomers overtake; publications of one publisher must not.
            async with self._turn:
                await self._waiting.put(publication)
        except asyncio.CancelledError:
            self._drop(publication)
            raise
        if self._has_ended:
            self._abandon(publication)
        return stored

    async def run(self) -> None:
        """Write publications until cancelled or failed; then refuse what is left."""
        batch: list[Publication] = []
        try:
            while True:
                batch = [await self._waiting.get()]
                size = len(batch[0].payloads)
                while size < MAX_EVENTS_PER_COMMIT and not self._waiting.empty():
                    batch.append(self._waiting.get_nowait())
                    size += len(batch[-1].payloads)
                await self._commit(batch)
                for _ in batch:
                    self._waiting.task_done()
        finally:
            self._has_ended = True
            while not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            for publication in batch:
                self._abandon(publication)

    async def drained(self) -> None:
        """Return when every publication is stored or refused."""
        await self._waiting.join()

    async def _commit(self, batch: Sequence[Publication]) -> None:
        accepted, tails = self._accept(batch)
        records = [
            NewRecord(publication.publisher, number, NUMBER_OF[payload.format], payload.text)
            for publication, new in accepted
            for number, payload in new
        ]
        try:
            sequences = range(0)
            if records:
                with self._metrics.commit_seconds.time():
                    sequences = await self._executor.run(self._log.append, records)
        except StorageError as error:
            self._note_failure(error)
            for publication, _ in accepted:
                self._refuse(publication, refusal(error))
            return
        if self._hope is not None and records:
            self._note_success()
        # Nobody else appends, so this is still the time of these records.
        time, place = self._log.last_time, 0
        stored = {name: PublisherTail(*tail[:2], time, *tail[3:]) for name, tail in tails.items()}
        self._numbering.note_stored(stored)
        events: list[StoredEvent] = []
        for publication, new in accepted:
            events += [
                StoredEvent(sequence, time, publication.publisher, number, payload)
                for sequence, (number, payload) in zip(sequences[place:], new, strict=False)
            ]
            first_sequence = sequences[place] if new else None
            place += len(new)
            count = len(publication.payloads)
            if publication.sequence:
                self._numbering.leave(publication.publisher)
            if len(new) < count:
                self._metrics.duplicates.inc(count - len(new))
                self._fan_out.leave(owner_of(publication.publisher), count - len(new))
            if not publication.stored.done():
                receipt = Receipt(count, count - len(new), first_sequence)
                publication.stored.set_result(receipt)
        if events:
            self._metrics.published.inc(len(events))
            await self._pass_on(events)

    def _note_failure(self, error: StorageError) -> None:
        """Report that nothing is stored, until something is, or nobody has tried for a while."""
        self._health.fail(PROBLEM, str(error))
        if self._hope is not None:
            self._hope.cancel()
        self._hope = asyncio.get_running_loop().call_later(HOPE_SECONDS, self._note_success)

    def _note_success(self) -> None:
        if self._hope is not None:
            self._hope.cancel()
        self._hope = None
        self._health.clear(PROBLEM)

    def _abandon(self, publication: Publication) -> None:
        if not publication.stored.done():
            publication.stored.set_exception(
                RefusedError(
                    Code.UNAVAILABLE,
                    "the broker stops, and whether these events were stored is not known; send "
                    "them again when it is back",
                )
            )

    def _accept(
        self, batch: Sequence[Publication]
    ) -> tuple[list[AcceptedPublication], dict[str, PublisherTail]]:
        """Return the publications that may be stored, and the tails of their publishers."""
        accepted: list[AcceptedPublication] = []
        tails: dict[str, PublisherTail] = {}
        new_names: Counter[str] = Counter()
        for publication in batch:
            name, first, skip, payloads, require_right, _ = publication
            tail = tails.get(name) or self._numbering.tails.get(name)
            checksums = array("I", [crc32(one.text, NUMBER_OF[one.format]) for one in payloads])
            duplicates = 0
            try:
                require_right()
                if not first:
                    accepted.append((publication, [(0, payload) for payload in payloads]))
                    continue
                if tail is None:
                    owner = owner_of(name)
                    self._numbering.check(name, first, skip=skip, new_names=new_names[owner])
                    new_names[owner] += 1
                tail = tail or PublisherTail()
                if first != tail.last + 1:
                    duplicates = count_duplicates(tail, first, checksums, skip=skip)
            except RefusedError as error:
                self._refuse(publication, error)
                continue
            new = [*enumerate(payloads[duplicates:], start=first + duplicates)]
            if new:
                tails[name] = tail.append(first + duplicates, checksums[duplicates:], 0.0)
            accepted.append((publication, new))
        return accepted, tails

    def _refuse(self, publication: Publication, error: RefusedError) -> None:
        self._drop(publication)
        if not publication.stored.done():
            publication.stored.set_exception(error)

    def _drop(self, publication: Publication) -> None:
        """Note that a publication is not stored."""
        name, first, count = publication.publisher, publication.sequence, len(publication.payloads)
        self._fan_out.leave(owner_of(name), count)
        self._numbering.note_refusal(name, first, count)
        if first:
            self._numbering.leave(name)
