"""Group commit: all publications that wait are written together, with one sync."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from operator import itemgetter
from typing import Final, NamedTuple, Protocol
from zlib import crc32

import msgspec

from tamis.access import Rights
from tamis.broker.operations.health import Health, storage_refusal
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.turns import TurnQueue
from tamis.broker.publish import handed_events
from tamis.broker.publish.event_cache import EventCache, StoredEvent, stored_handed
from tamis.broker.publish.handed_events import HandedEvent
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.broker.publish.publishers import FanOut, Numbering, count_duplicates
from tamis.errors import RefusedError, StorageError
from tamis.ports import PromptExecutor
from tamis.protocol import Code
from tamis.protocol.views import Receipt
from tamis.storage import EventLog, EventOrigin, NewRecord, PublisherTail
from tamis.storage.tables import MAX_CHECKSUMS

PROBLEM: Final = "publications cannot be stored"
# A broker that nobody publishes to, because it is not ready, would never learn that it is.
HOPE_SECONDS: Final = 5.0
MAX_EVENTS_PER_COMMIT: Final = 4_096
# So few events are matched while the disk is busy with them, and more in a thread.
MAX_EVENTS_AHEAD: Final = 4
# A disk that was this quick is waited for on the event loop if there is little to do: the last
# commit was so many times as long ago as it took. So the loop waits a fifth of its time at most.
MAX_SECONDS_AWAITED: Final = 0.0005
PAUSES_PER_WAIT: Final = 4


class Author(Protocol):
    """Who publishes: a session, whose rights may change while its events wait."""

    @property
    def owner(self) -> str:
        """Return the principal as names of its publishers have it."""

    @property
    def rights(self) -> Rights:
        """Return its rights, which are replaced when they change."""

    @property
    def closed(self) -> asyncio.Future[str]:
        """Return a future that is done once the principal is no longer admitted."""

    @property
    def has_ended(self) -> bool:
        """Return whether it has ended, and no longer hears of revocations and changed rights."""

    def require_right(self, rights: Rights, payloads: Sequence[Payload]) -> None:
        """Refuse events that were allowed by earlier rights, if they no longer are."""


class ForwardedRecord(NamedTuple):
    """What is stored of an event that was published at another broker, beside its payload."""

    publisher: str
    publisher_sequence: int
    origin: EventOrigin


class Publication(msgspec.Struct, frozen=True):
    """Events of one publisher, to be stored all or none."""

    author: Author
    rights: Rights
    """The rights by which they were allowed."""
    publisher: str
    sequence: int
    """The publisher's own number of the first event; 0 if it does not count."""
    skip: bool
    """Whether numbers before it may be left out."""
    payloads: Sequence[Payload]
    stored: asyncio.Future[Receipt]
    forwarded: Sequence[ForwardedRecord] = ()
    """For events of other brokers, in place of a name and a number: what is stored of each."""


class ExclusiveWork(NamedTuple):
    """Something to be done while nothing else is stored."""

    work: Callable[[], Awaitable[None]]
    done: asyncio.Future[None]


class AcceptedPublication(msgspec.Struct, frozen=True):
    """A publication that may be stored, and what is stored of it already."""

    publication: Publication
    duplicates: int
    place: int
    """The place of its first new event among those of the batch."""


AcceptedEvent = tuple[NewRecord, Payload, str]
"""An event to be stored, and its principal."""
_RECORD: Final[Callable[[AcceptedEvent], NewRecord]] = itemgetter(0)


class AcceptedBatch(msgspec.Struct, frozen=True):
    """What may be stored of a batch of publications."""

    publications: list[AcceptedPublication]
    events: list[AcceptedEvent]
    """Their new events."""
    tails: dict[str, PublisherTail]
    """The tails that their publishers then have."""


class Committer:
    """Writes publications to the log, acknowledges them, and passes them on to the matcher."""

    def __init__(
        self,
        log: EventLog,
        numbering: Numbering,
        event_cache: EventCache,
        metrics: Metrics,
        executor: PromptExecutor,
        *,
        max_waiting: int,
        fan_out: FanOut,
        health: Health,
        clock: Callable[[], float],
    ) -> None:
        self._health = health
        self._clock = clock
        self._quiet_from = -inf
        """When there is little to do again: what comes then is stored at once, and waited for."""
        self._took_seconds = 0.0
        """How long the last commit took, or how long the event loop waited for it, if longer."""
        self._log = log
        self._fan_out = fan_out
        self._executor = executor
        self._numbering = numbering
        self._event_cache = event_cache
        self._metrics = metrics
        self._waiting = TurnQueue[Publication | ExclusiveWork](max_waiting)
        self._next: ExclusiveWork | None = None
        """What was taken from the queue, and is to be done before the rest of it."""
        self._has_ended = False
        self._hope: asyncio.TimerHandle | None = None
        metrics.watch_queue("commit", self._waiting)

    async def enqueue(
        self,
        author: Author,
        rights: Rights,
        publisher: str,
        sequence: int,
        payloads: Sequence[Payload],
        *,
        skip: bool = False,
    ) -> asyncio.Future[Receipt]:
        """Queue events in order; return the future of their receipt.

        They may wait for long, so their right to be stored is required once more at the end.
        """
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        publication = Publication(author, rights, publisher, sequence, skip, payloads, stored)
        numbering, waiting = self._numbering, self._fan_out.waiting
        if sequence and numbering.next.get(publisher) == sequence:
            numbering.next[publisher] = sequence + len(payloads)
        elif sequence:
            numbering.enter(publisher, sequence, len(payloads), skip=skip)
        if sequence:
            numbering.waiting[publisher] = numbering.waiting.get(publisher, 0) + 1
        waiting[author.owner] = waiting.get(author.owner, 0) + len(payloads)
        try:
            is_quiet = len(payloads) <= MAX_EVENTS_AHEAD and self._clock() >= self._quiet_from
            if not self._waiting.put_now(publication, is_urgent=is_quiet):
                await self._waiting.put(publication)
        except asyncio.CancelledError:
            self._drop(publication)
            numbering.leave(publisher, sequence)
            raise
        if self._has_ended:
            self._abandon(publication)
        return stored

    async def forward(
        self,
        author: Author,
        rights: Rights,
        events: Sequence[ForwardedRecord],
        payloads: Sequence[Payload],
    ) -> asyncio.Future[Receipt]:
        """Queue events of other brokers, in order; return the future of their receipt.

        One whose sequence at its origin is not above the last one stored of it is a duplicate.
        """
        stored: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        publication = Publication(author, rights, "", 0, True, payloads, stored, events)
        waiting = self._fan_out.waiting
        waiting[author.owner] = waiting.get(author.owner, 0) + len(payloads)
        try:
            await self._waiting.put(publication)
        except asyncio.CancelledError:
            self._drop(publication)
            raise
        if self._has_ended:
            self._abandon(publication)
        return stored

    async def exclusively(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something while nothing else is stored, in its turn; return when it is done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._waiting.put(ExclusiveWork(work, done))
        if self._has_ended and not done.done():
            raise RefusedError(Code.UNAVAILABLE, "the broker stops")
        await done

    async def hand_over(self, events: Sequence[tuple[HandedEvent, Payload]]) -> None:
        """Store events that came with a subscription; only as part of exclusive work."""
        records = [handed.record() for handed, _ in events]
        owner = handed_events.OWNER
        waiting = self._fan_out.waiting
        waiting[owner] = waiting.get(owner, 0) + len(records)
        try:
            sequences = await self._executor.run(self._log.append, records)
        except StorageError as error:
            self._fan_out.leave(owner, len(records))
            self._note_failure(error, ())
            raise
        await self._event_cache.put(
            [
                stored_handed(sequence, handed, payload)
                for sequence, (handed, payload) in zip(sequences, events, strict=True)
            ]
        )

    async def _must_wait(self, given: ExclusiveWork, batch: Sequence[Publication]) -> bool:
        """Do what comes before all publications; return whether some have to be stored first."""
        if batch:
            self._next = given
            return True
        await self._do(given)
        self._waiting.finish(1)
        return False

    async def _do(self, given: ExclusiveWork) -> None:
        try:
            await given.work()
        except Exception as error:
            if not given.done.done():
                given.done.set_exception(error)
        else:
            if not given.done.done():
                given.done.set_result(None)

    async def run(  # noqa: PLR0912, PLR0915 - in one piece, as the way of every publication
        self,
    ) -> None:
        """Write publications until cancelled or failed; then refuse what is left."""
        batch: list[Publication] = []
        log, cache, seconds = self._log, self._event_cache, self._metrics.commit_seconds
        matcher, clock = cache.matcher, self._clock
        try:
            while True:
                batch, size = [], 0
                while not batch or (size < MAX_EVENTS_PER_COMMIT and self._waiting.waiting):
                    given = self._next or await self._waiting.get()
                    self._next = None
                    if isinstance(given, Publication):
                        batch.append(given)
                        size += len(given.payloads)
                    elif await self._must_wait(given, batch):
                        break
                accepted = self._accept(batch)
                events, found, appending, awaited = list[StoredEvent](), None, None, 0.0
                try:
                    if accepted.events:
                        records = [*map(_RECORD, accepted.events)]
                        is_small = len(records) <= MAX_EVENTS_AHEAD
                        is_quiet = is_small and clock() >= self._quiet_from
                        if is_quiet and self._took_seconds <= MAX_SECONDS_AWAITED:
                            appending = log.begin(records)
                        # Nobody else appends, so these are their sequences and their time.
                        if appending is None:
                            next_, time = log.next_append()
                            store = self._executor.begin if is_small else self._executor.submit
                            stored = store(log.append, records, time)
                        else:
                            next_, time = appending.first, log.last_time
                        try:
                            # The rest while the disk is busy.
                            events = [
                                StoredEvent(
                                    sequence, time, *record[:2], payload, owner, record.origin
                                )
                                for sequence, (record, payload, owner) in enumerate(
                                    accepted.events, next_
                                )
                            ]
                            if is_small:
                                matcher.match_ahead(events)
                            if appending is not None:
                                # To hear of it in another turn would take half as long again.
                                begun = clock()
                                is_stored = appending.writer.is_stored(MAX_SECONDS_AWAITED)
                                awaited, ended, appending = clock() - begun, appending, None
                                if not is_stored or log.end(ended, waits=False) is None:
                                    await self._executor.run(log.end, ended)
                            elif (await stored).start != next_:
                                raise RuntimeError("somebody else has appended to the log")
                        finally:
                            found, matcher.ahead = matcher.ahead, None
                            if appending is not None:
                                # The program ends. Nothing else can be appended before.
                                self._executor.submit(log.end, appending)
                except StorageError as error:
                    self._note_failure(error, accepted.publications)
                else:
                    if found is not None:
                        # Who waits for them has them before the books are kept, and `put` counts
                        # them. Not a call: this is on the way of every publication.
                        for event in events:
                            cache.recent[event.sequence] = event
                        matcher.offer_ahead(found)
                    if self._hope is not None and events:
                        self._note_success()
                    # Nobody else appends, so this is still the time of these records.
                    self._numbering.note_stored(accepted.tails, log.last_time)
                    if events:
                        self._metrics.published.inc(len(events))
                        # Before the answers, which take a while to send.
                        await cache.put(events, found)
                    for one in accepted.publications:
                        if not one.publication.stored.done():
                            count, duplicates = len(one.publication.payloads), one.duplicates
                            first = events[one.place].sequence if duplicates < count else None
                            one.publication.stored.set_result(Receipt(count, duplicates, first))
                if accepted.events:
                    seconds.counts[bisect_left(seconds.bounds, log.last_seconds)] += 1
                    seconds.sum += log.last_seconds
                    # On a busy machine, the loop may hear of it much later than the disk is done.
                    self._took_seconds = max(awaited, log.last_seconds)
                    self._quiet_from = clock() + self._took_seconds * PAUSES_PER_WAIT
                self._waiting.finish(len(batch))
        finally:
            self._end(batch)

    def _end(self, batch: list[Publication]) -> None:
        """Refuse what is left."""
        self._has_ended = True
        left = [] if self._next is None else [self._next]
        for given in self._waiting.close():
            if isinstance(given, Publication):
                batch.append(given)
            else:
                left.append(given)
        for one in left:
            if not one.done.done():
                one.done.set_exception(RefusedError(Code.UNAVAILABLE, "the broker stops"))
        for publication in batch:
            self._abandon(publication)

    async def drained(self) -> None:
        """Return when every publication is stored or refused."""
        await self._waiting.join()

    def _note_failure(
        self, error: StorageError, publications: Sequence[AcceptedPublication]
    ) -> None:
        """Report that nothing is stored, until something is, or nobody has tried for a while."""
        self._health.fail(PROBLEM, str(error))
        if self._hope is not None:
            self._hope.cancel()
        self._hope = asyncio.get_running_loop().call_later(HOPE_SECONDS, self._note_success)
        for one in publications:
            self._refuse(one.publication, storage_refusal(error), one.duplicates)

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

    def _accept(  # noqa: PLR0912 - in one piece, as the way of every publication
        self, batch: Sequence[Publication]
    ) -> AcceptedBatch:
        """Return what may be stored, and refuse the rest."""
        accepted = AcceptedBatch([], [], {})
        new_names: dict[str, int] = {}
        waiting = self._numbering.waiting
        for publication in batch:
            author, rights = publication.author, publication.rights
            name, first, skip = publication.publisher, publication.sequence, publication.skip
            payloads = publication.payloads
            if publication.forwarded:
                self._accept_forwarded(publication, accepted)
                continue
            if first and waiting.get(name) == 1:
                del waiting[name]
            elif first:
                self._numbering.leave(name, first)
            tail = accepted.tails.get(name) or self._numbering.tails.get(name)
            duplicates = 0
            try:
                if author.rights is not rights or author.has_ended or author.closed.done():
                    author.require_right(rights, payloads)
                if first:
                    if tail is None:
                        new = new_names.get(author.owner, 0)
                        self._numbering.check(name, first, skip=skip, new_names=new)
                        new_names[author.owner] = new + 1
                        tail = PublisherTail()
                    sums = array("I", [crc32(one.text, NUMBER_OF[one.format]) for one in payloads])
                    if first != tail.last + 1:
                        duplicates = count_duplicates(tail, first, sums, skip=skip)
                    start, added = first + duplicates, sums[duplicates:]
                    if added and start > tail.last + 1:
                        accepted.tails[name] = tail.append(start, added, 0.0)
                    elif added:
                        # As `append` does, without a call: this is on the way of all events.
                        numbers = tail.recent + array("q", range(start, start + len(added)))
                        known = numbers[-MAX_CHECKSUMS:], (tail.checksums + added)[-MAX_CHECKSUMS:]
                        accepted.tails[name] = PublisherTail(numbers[-1], tail.gaps, 0.0, *known)
            except RefusedError as error:
                self._refuse(publication, error)
                continue
            if duplicates:
                self._metrics.duplicates.inc(duplicates)
                self._fan_out.leave(author.owner, duplicates)
            place = len(accepted.events)
            accepted.publications.append(AcceptedPublication(publication, duplicates, place))
            for number, payload in enumerate(payloads[duplicates:], start=first + duplicates):
                own, format_ = number if first else 0, NUMBER_OF[payload.format]
                record = NewRecord(name, own, format_, payload.text)
                accepted.events.append((record, payload, author.owner))
        return accepted

    def _accept_forwarded(self, publication: Publication, accepted: AcceptedBatch) -> None:
        """Accept events of other brokers, each origin's in order, without those that are stored."""
        author, rights, payloads = publication.author, publication.rights, publication.payloads
        try:
            if author.rights is not rights or author.has_ended or author.closed.done():
                author.require_right(rights, payloads)
        except RefusedError as error:
            self._refuse(publication, error)
            return
        place, duplicates = len(accepted.events), 0
        new: dict[str, tuple[array[int], array[int]]] = {}
        tails = {
            name: accepted.tails.get(name) or self._numbering.tails.get(name, PublisherTail())
            for name in {origin.publisher for _, _, origin in publication.forwarded}
        }
        for (publisher, number, origin), payload in zip(
            publication.forwarded, payloads, strict=True
        ):
            name, format_ = origin.publisher, NUMBER_OF[payload.format]
            numbers, checksums = new.setdefault(name, (array("q"), array("I")))
            if origin.sequence <= (numbers[-1] if numbers else tails[name].last):
                duplicates += 1
                continue
            numbers.append(origin.sequence)
            checksums.append(crc32(payload.text, format_))
            record = NewRecord(publisher, number, format_, payload.text, origin)
            accepted.events.append((record, payload, author.owner))
        for name, (numbers, checksums) in new.items():
            if numbers:
                accepted.tails[name] = tails[name].followed_by(numbers, checksums)
        if duplicates:
            self._metrics.duplicates.inc(duplicates)
            self._fan_out.leave(author.owner, duplicates)
        accepted.publications.append(AcceptedPublication(publication, duplicates, place))

    def _refuse(self, publication: Publication, error: RefusedError, duplicates: int = 0) -> None:
        self._drop(publication, duplicates)
        if not publication.stored.done():
            publication.stored.set_exception(error)

    def _drop(self, publication: Publication, duplicates: int = 0) -> None:
        """Note that a publication is not stored; its duplicates, if any, wait no longer."""
        count = len(publication.payloads)
        self._fan_out.leave(publication.author.owner, count - duplicates)
        self._numbering.note_refusal(publication.publisher, publication.sequence, count)
