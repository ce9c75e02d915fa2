"""Group commit: all publications that wait are written together, with one sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tamis.broker.operations.health import refusal
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.errors import RefusedError, StorageError
from tamis.ports import Executor
from tamis.protocol import Code
from tamis.protocol.views import Receipt
from tamis.storage import EventLog, NewRecord

MAX_EVENTS_PER_COMMIT: Final = 4_096


class Publication(NamedTuple):
    """Events of one publisher, to be stored all or none."""

    publisher: str
    sequence: int
    """The publisher's own number of the first event; 0 if it does not count."""
    payloads: Sequence[Payload]
    stored: asyncio.Future[Receipt]


class Committer:
    """Writes publications to the log, acknowledges them, and passes them on to the matcher."""

    def __init__(
        self,
        log: EventLog,
        publishers: dict[str, int],
        pass_on: Callable[[list[StoredEvent]], Awaitable[None]],
        metrics: Metrics,
        executor: Executor,
        *,
        max_waiting: int,
    ) -> None:
        self._log = log
        self._executor = executor
        self._publishers = publishers
        self._pass_on = pass_on
        self._metrics = metrics
        self._waiting: asyncio.Queue[Publication] = asyncio.Queue(max_waiting)
        self._turn = asyncio.Lock()
        self._has_ended = False
        self._refused: dict[str, int] = {}
        """For each publisher, the first number that could not be stored and was not sent again."""
        metrics.watch_queue("commit", self._waiting)

    async def enqueue(
        self, publisher: str, sequence: int, payloads: Sequence[Payload]
    ) -> asyncio.Future[Receipt]:
        """Queue events in order; return the future of their receipt."""
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        async with self._turn:
            # A full queue lets newcomers overtake; publications of one publisher must not.
            publication = Publication(publisher, sequence, payloads, stored)
            await self._waiting.put(publication)
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
        latest: dict[str, int] = {}
        accepted: list[tuple[Publication, list[tuple[int, Payload]]]] = []
        for publication in batch:
            name, first, payloads, _ = publication
            if first > self._refused.get(name, first):
                self._hold_back(publication)
                continue
            last = latest.get(name, self._publishers.get(name, 0)) if first else -1
            numbers = range(first, first + len(payloads)) if first else [0] * len(payloads)
            new = [(n, one) for n, one in zip(numbers, payloads, strict=True) if n > last]
            if first:
                latest[name] = max(last, first + len(payloads) - 1)
            accepted.append((publication, new))
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
            for publication, _ in accepted:
                self._refuse(publication, refusal(error))
            return
        # Nobody else appends, so this is still the time of these records.
        time, place = self._log.last_time, 0
        self._publishers.update(latest)
        for name in self._refused.keys() & latest.keys():
            del self._refused[name]
        events: list[StoredEvent] = []
        for publication, new in accepted:
            events += [
                StoredEvent(sequence, time, publication.publisher, number, payload)
                for sequence, (number, payload) in zip(sequences[place:], new, strict=False)
            ]
            first_sequence = sequences[place] if new else None
            place += len(new)
            count = len(publication.payloads)
            self._metrics.duplicates.inc(count - len(new))
            if not publication.stored.done():
                receipt = Receipt(count, count - len(new), first_sequence)
                publication.stored.set_result(receipt)
        if events:
            self._metrics.published.inc(len(events))
            await self._pass_on(events)

    def _abandon(self, publication: Publication) -> None:
        if not publication.stored.done():
            publication.stored.set_exception(
                RefusedError(
                    Code.UNAVAILABLE,
                    "the broker stops, and whether these events were stored is not known; send "
                    "them again when it is back",
                )
            )

    def _hold_back(self, publication: Publication) -> None:
        """Refuse what follows a refused publication until that one is sent again.

        Stored now, it would make the refused one look like a duplicate.
        """
        refused = self._refused[publication.publisher]
        reason = f"number {refused} of this publisher could not be stored; send it again first"
        self._refuse(publication, RefusedError(Code.UNAVAILABLE, reason))

    def _refuse(self, publication: Publication, error: RefusedError) -> None:
        name, first = publication.publisher, publication.sequence
        if first:
            self._refused[name] = min(first, self._refused.get(name, first))
        if not publication.stored.done():
            publication.stored.set_exception(error)
