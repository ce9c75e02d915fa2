"""Group commit: all publications that wait are written together, with one sync for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tamis.broker.operations.health import refusal
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.event_cache import StoredEvent
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.errors import RefusedError, StorageError
from tamis.protocol import Code
from tamis.protocol.views import Receipt
from tamis.storage import EventLog, NewRecord

MOST_TOGETHER: Final = 4_096


class Publication(NamedTuple):
    """Events of one publisher, to be stored all or none."""

    publisher: str
    sequence: int
    """The publisher's own number of the first event; 0 if it does not count."""
    payloads: Sequence[Payload]
    done: asyncio.Future[Receipt]


class Committer:
    """Writes publications to the log; what was written goes on to the matcher."""

    def __init__(
        self,
        log: EventLog,
        publishers: dict[str, int],
        pass_on: Callable[[list[StoredEvent]], Awaitable[None]],
        metrics: Metrics,
        most_waiting: int,
    ) -> None:
        self._log = log
        self._publishers = publishers
        self._pass_on = pass_on
        self._metrics = metrics
        self._waiting: asyncio.Queue[Publication] = asyncio.Queue(most_waiting)
        self._turn = asyncio.Lock()
        self._refused: dict[str, int] = {}
        """The first number of each publisher that could not be stored and has not come again."""
        metrics.watch_queue("commit", self._waiting)

    async def publish(self, publisher: str, sequence: int, payloads: Sequence[Payload]) -> Receipt:
        """Return once the events are on disk."""
        done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        async with self._turn:
            # A full queue lets newcomers overtake; the order of a publisher must stay.
            await self._waiting.put(Publication(publisher, sequence, payloads, done))
        return await done

    async def run(self) -> None:
        """Write what comes, for ever."""
        while True:
            together = [await self._waiting.get()]
            size = len(together[0].payloads)
            while size < MOST_TOGETHER and not self._waiting.empty():
                together.append(self._waiting.get_nowait())
                size += len(together[-1].payloads)
            await self._commit(together)
            for _ in together:
                self._waiting.task_done()

    async def drained(self) -> None:
        """Return when all that came is stored."""
        await self._waiting.join()

    async def _commit(self, all_: Sequence[Publication]) -> None:
        together = [publication for publication in all_ if not self._is_held_back(publication)]
        latest, fresh = self._without_duplicates(together)
        payloads = [(p, n, one) for p, news in zip(together, fresh, strict=True) for n, one in news]
        records = [
            NewRecord(p.publisher, number, NUMBER_OF[payload.format], payload.text)
            for p, number, payload in payloads
        ]
        try:
            stored = await asyncio.to_thread(self._append, records)
        except StorageError as error:
            for publication in together:
                self._refuse(publication, refusal(error))
            return
        self._publishers.update(latest)
        for name in self._refused.keys() & latest.keys():
            del self._refused[name]
        events = [
            StoredEvent(sequence, moment, p.publisher, number, payload)
            for (sequence, moment), (p, number, payload) in zip(stored, payloads, strict=True)
        ]
        _acknowledge(together, fresh, events)
        if events:
            self._metrics.published.inc(len(events))
            await self._pass_on(events)

    def _is_held_back(self, publication: Publication) -> bool:
        """Refuse what comes after something that was refused, until that comes again.

        StoredEvent now, it would make the other look like a duplicate when it is sent again.
        """
        refused = self._refused.get(publication.publisher)
        if refused is None or not publication.sequence or publication.sequence <= refused:
            return False
        reason = f"number {refused} of this publisher could not be stored; send it again first"
        self._refuse(publication, RefusedError(Code.UNAVAILABLE, reason))
        return True

    def _refuse(self, publication: Publication, error: RefusedError) -> None:
        name, first = publication.publisher, publication.sequence
        if first:
            self._refused[name] = min(first, self._refused.get(name, first))
        if not publication.done.done():
            publication.done.set_exception(error)

    def _append(self, records: Sequence[NewRecord]) -> list[tuple[int, float]]:
        if not records:
            return []
        with self._metrics.commit_seconds.time():
            sequences = self._log.append(records)
        # Nobody else appends, so this is still the time of these.
        moment = self._log.last_time
        return [(sequence, moment) for sequence in sequences]

    def _without_duplicates(
        self, together: Sequence[Publication]
    ) -> tuple[dict[str, int], list[list[tuple[int, Payload]]]]:
        """Return the last number of each publisher, and of each publication what is new."""
        latest: dict[str, int] = {}
        fresh = []
        for publication in together:
            name, first = publication.publisher, publication.sequence
            if not first:
                fresh.append([(0, payload) for payload in publication.payloads])
                continue
            last = latest.get(name, self._publishers.get(name, 0))
            numbered = enumerate(publication.payloads, start=first)
            fresh.append([(number, payload) for number, payload in numbered if number > last])
            latest[name] = max(last, first + len(publication.payloads) - 1)
        return latest, fresh


def _acknowledge(
    together: Sequence[Publication],
    fresh: Sequence[Sequence[object]],
    events: Sequence[StoredEvent],
) -> None:
    place = 0
    for publication, news in zip(together, fresh, strict=True):
        first = events[place].sequence if news else None
        place += len(news)
        duplicates = len(publication.payloads) - len(news)
        if not publication.done.done():
            publication.done.set_result(Receipt(len(publication.payloads), duplicates, first))
