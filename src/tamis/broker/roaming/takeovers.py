"""Takeovers: what the new home of a subscription does while it moves here.

1. The subscription is stored, and its filter forwarded, but nothing is matched for it.
2. A letter follows the filter to the former home, and on its way waits at each broker for the
   events before it. When it arrives there, every later event comes here, too: the former home draws
   the line, by origin, and delivers nothing more.
3. What waited there comes in batches, and is stored in the log here, for this subscription alone.
4. While nothing else is stored, what came here meanwhile and lies behind the line is added after
   that, and the subscription is matched from the next event on.
5. The former home forgets it.

Each step can be repeated after any failure: how far it has come is stored with what was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from tamis.broker.deliver.subscriptions import ActiveSubscription, Extra
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.event_cache import INVALID, RETENTION, EventCache, StoredEvent
from tamis.broker.publish.handed_events import HandedEvent
from tamis.broker.publish.payloads import NUMBER_OF, Payload
from tamis.broker.roaming.correspondence import Correspondence
from tamis.broker.roaming.departures import MOVED
from tamis.broker.roaming.move_messages import (
    FenceAnswer,
    FenceRequest,
    RemovalRequest,
    TransferAnswer,
    TransferredEvent,
    TransferRequest,
)
from tamis.broker.sessions import SessionServices
from tamis.broker.subscribe.history import LoneFilter
from tamis.errors import BrokerFailedError, DisconnectedError, RefusedError, TamisError
from tamis.protocol import Code

LOG: Final = get_logger("tamis.roaming")

T = TypeVar("T")

FIRST_OWN: Final = 2**62
"""Positions from here on are of events that came here by themselves."""
ANSWER_SECONDS: Final = 10.0
FENCE_SECONDS: Final = 60.0
"""A letter that drains links may wait longer."""
PAUSE_SECONDS: Final = 0.5
EVENTS_PER_READ: Final = 200
MAX_READ_ALONE: Final = 500
"""Events that are searched while nothing else is stored."""


class _OwnEvents(NamedTuple):
    """What was found of the log since a subscription began to arrive."""

    found: list[StoredEvent]
    position: int
    """The next event to look at."""


class Takeovers:
    """Brings subscriptions here, each in a task of its own."""

    def __init__(
        self,
        services: SessionServices,
        matcher: Matcher,
        event_cache: EventCache,
        correspondence: Correspondence,
        told_local: Callable[[], Awaitable[None]],
    ) -> None:
        self._services = services
        self._store = services.store
        self._index = services.subscription_index
        self._manager = services.subscription_manager
        self._matcher = matcher
        self._event_cache = event_cache
        self._correspondence = correspondence
        self._told_local = told_local

    async def bring(self, arriving: ActiveSubscription, arrived: Callable[[], None]) -> None:
        """Bring a subscription here, as often as it takes; return when its home has forgotten it.

        `arrived` is called when it is here, and when it is over.
        """
        while self._index.get(arriving.number) is arriving and arriving.arrival is not None:
            try:
                if arriving.is_arriving:
                    await self._move(arriving)
                    arrived()
                if self._index.get(arriving.number) is arriving:
                    await self._take_leave(arriving)
            except BrokerFailedError:
                return
            except DisconnectedError as error:
                LOG.info("a move waits", subscription=arriving.stored.name, reason=str(error))
            except TamisError as error:
                LOG.warning("a move waits", subscription=arriving.stored.name, reason=str(error))
            else:
                return
            await asyncio.sleep(PAUSE_SECONDS)
        arrived()

    async def _move(self, arriving: ActiveSubscription) -> None:
        try:
            fence = await self._fence(arriving)
            if fence.is_taken:
                await self._manager.delete_all([arriving], MOVED)
                return
            await self._fetch_all(arriving)
        except RefusedError as error:
            if error.code != Code.NOT_FOUND:
                raise
            # It was deleted there meanwhile: what comes from now on is all there is.
            LOG.warning(
                "the former home has no such subscription", subscription=arriving.stored.name
            )
            fence = FenceAnswer(cut={})
        await self._settle_in(arriving, fence)

    async def _ask(self, arriving: ActiveSubscription, question: Any, **more: Any) -> Any:
        arrival = arriving.arrival
        assert arrival is not None  # noqa: S101 - it moves
        seconds = FENCE_SECONDS if more else ANSWER_SECONDS
        return await self._correspondence.ask(arrival.home, question, seconds, **more)

    async def _fence(self, arriving: ActiveSubscription) -> FenceAnswer:
        # The letter must not overtake the filter.
        await self._told_local()
        before = Extra.of(arriving.stored).moves - 1
        question = FenceRequest(**_named(arriving), moves=before)
        answer = await self._ask(arriving, question, drains=True)
        return _expect(answer, FenceAnswer)

    # --- what waited there -----------------------------------------------------------------------

    async def _fetch_all(self, arriving: ActiveSubscription) -> None:
        is_last = False
        # Batches before this one are in the log, and on their way through the matcher.
        after = self._received(arriving)
        while not is_last and after < FIRST_OWN:
            question = TransferRequest(**_named(arriving), after=after)
            transfer = _expect(await self._ask(arriving, question), TransferAnswer)
            new = [one for one in transfer.events if one.position > after]
            await self._services.committer.exclusively(
                partial(self._store_transferred, arriving, new)
            )
            after, is_last = max(after, transfer.after), transfer.is_last

    async def _store_transferred(
        self, arriving: ActiveSubscription, events: list[TransferredEvent]
    ) -> None:
        """Store events of the former home that are not stored yet."""
        known = self._received(arriving)
        pairs: list[tuple[HandedEvent, Payload]] = []
        invalid = 0
        for one in events:
            if one.position <= known:
                continue
            try:
                payload = self._services.decoder.decode_stored(bytes(one.data), one.format)
            except (TamisError, KeyError):
                invalid += 1
                continue
            pairs.append((_handed(arriving.number, one), payload))
        await self._hand_over(arriving, pairs)
        if invalid:
            self._services.acknowledgement_writer.count_lost(arriving, invalid, INVALID)

    async def _hand_over(
        self, arriving: ActiveSubscription, pairs: list[tuple[HandedEvent, Payload]]
    ) -> None:
        """Store events for a subscription, and return when the matcher has passed them on."""
        if pairs:
            await self._services.committer.hand_over(pairs)
            await self._matched_all()
        if self._index.get(arriving.number) is not arriving:
            raise RefusedError(Code.NOT_FOUND, "the subscription was deleted")

    async def _matched_all(self) -> None:
        """Return when the matcher has seen all that is stored."""
        last = self._store.log.next_sequence - 1
        while await self._matcher.updater.do(lambda: self._matcher.position) < last:
            await asyncio.sleep(0)

    def _received(self, arriving: ActiveSubscription) -> int:
        return 0 if arriving.arrival is None else arriving.arrival.received

    # --- what came here --------------------------------------------------------------------------

    async def _settle_in(self, arriving: ActiveSubscription, fence: FenceAnswer) -> None:
        """Add what came here by itself, and let the subscription be matched from then on."""
        arrival = arriving.arrival
        assert arrival is not None  # noqa: S101 - it moves
        cut = {**fence.cut}
        removed = self._store.log.first_sequence - arrival.since
        if removed > 0:
            # Any of them might have been its own.
            self._services.acknowledgement_writer.count_lost(arriving, removed, RETENTION)
        reading = arriving.rights.effective(arriving.filter, arriving.stored.mode)
        engine = self._services.engine
        alone = LoneFilter(reading, engine.schema, engine.mode)
        own = _OwnEvents([], arrival.since)
        while self._store.log.next_sequence - own.position > MAX_READ_ALONE:
            own = await self._search(arriving, alone, cut, own)
        finishing = partial(self._finish, arriving, alone, cut, own)
        await self._services.committer.exclusively(finishing)
        for reason, count in fence.untold.items():
            self._services.acknowledgement_writer.count_lost(arriving, count, reason)
        arriving.queue.wake()
        LOG.info("subscription has arrived", subscription=arriving.stored.name, home=arrival.home)

    async def _search(
        self,
        arriving: ActiveSubscription,
        alone: LoneFilter,
        cut: Mapping[str, int],
        own: _OwnEvents,
    ) -> _OwnEvents:
        run = self._services.executors.background.run
        return await run(self._search_some, arriving, alone, cut, own)

    def _search_some(
        self,
        arriving: ActiveSubscription,
        alone: LoneFilter,
        cut: Mapping[str, int],
        own: _OwnEvents,
    ) -> _OwnEvents:
        """Look at the next events of the log; for a thread."""
        records = self._store.log.read(own.position, EVENTS_PER_READ)
        if not records:
            return own._replace(position=self._store.log.next_sequence)
        here = self._store.state.broker_id
        for stored in self._event_cache.decode_records(records).events:
            if (
                stored.recipient is None
                and _is_behind(stored, cut, here)
                and alone.matches(stored)
                and (not arriving.rights.hides_anything or arriving.admits(stored))
            ):
                own.found.append(stored)
        return own._replace(position=records[-1].sequence + 1)

    async def _finish(
        self,
        arriving: ActiveSubscription,
        alone: LoneFilter,
        cut: Mapping[str, int],
        own: _OwnEvents,
    ) -> None:
        """Do the rest while nothing else is stored."""
        while own.position < self._store.log.next_sequence:
            own = await self._search(arriving, alone, cut, own)
        known, here = self._received(arriving), self._store.state.broker_id
        pairs = [
            (_own(arriving.number, one, here), one.payload)
            for one in own.found
            if FIRST_OWN + one.sequence > known
        ]
        await self._hand_over(arriving, pairs)
        await self._matched_all()
        await self._matcher.updater.do(partial(self._go_live, arriving, cut))

    def _go_live(self, arriving: ActiveSubscription, cut: Mapping[str, int]) -> None:
        """Match a subscription from the next event on; between two batches."""
        arrival = arriving.arrival
        if self._index.get(arriving.number) is not arriving or arrival is None:
            raise RefusedError(Code.NOT_FOUND, "the subscription was deleted")
        # Otherwise a restart would hand it the same events again.
        self._matcher.write_position()
        over = msgspec.structs.replace(arrival, is_over=True)
        extra = msgspec.structs.replace(Extra.of(arriving.stored), arrival=over, cut=dict(cut))
        columns = {"start": self._store.log.next_sequence, "extra": extra.text()}
        self._store.state.alter_subscription(arriving.number, **columns)
        arriving.change(**columns)
        arriving.arrival, arriving.cut = over, dict(cut)
        if cut:
            self._index.moved[arriving.number] = arriving
        self._manager.current_rights.put_in_engine(arriving)

    # --- the end ---------------------------------------------------------------------------------

    async def _take_leave(self, arriving: ActiveSubscription) -> None:
        """Ask the former home to remove the subscription, then forget that home."""
        await self._ask(arriving, RemovalRequest(**_named(arriving)))

        def forget() -> None:
            if self._index.get(arriving.number) is arriving:
                write = partial(self._store.state.change_extra, arriving.number)
                arriving.change_extra(write, arrival=None)
                arriving.arrival = None

        await self._matcher.updater.do(forget)


def _named(arriving: ActiveSubscription) -> dict[str, Any]:
    arrival, stored = arriving.arrival, arriving.stored
    assert arrival is not None  # noqa: S101 - it moves
    return {"move": arrival.id, "owner": stored.owner, "name": stored.name}


def _expect(answer: object, kind: type[T]) -> T:
    if not isinstance(answer, kind):
        raise DisconnectedError("the former home answers something else")
    return answer


def _handed(number: int, one: TransferredEvent) -> HandedEvent:
    return HandedEvent(
        number,
        one.position,
        one.attempts,
        one.broker,
        one.origin_sequence,
        one.time,
        one.publisher,
        NUMBER_OF[one.format],
        bytes(one.data),
    )


def _own(number: int, one: StoredEvent, here: str) -> HandedEvent:
    """Return an event that came here by itself, to be added after those that were handed over."""
    origin = one.origin
    return HandedEvent(
        number,
        FIRST_OWN + one.sequence,
        0,
        here if origin is None else origin.broker,
        one.sequence if origin is None else origin.sequence,
        one.time if origin is None else origin.time,
        one.publisher,
        NUMBER_OF[one.payload.format],
        one.payload.text,
    )


def _is_behind(stored: StoredEvent, cut: Mapping[str, int], here: str) -> bool:
    """Return whether an event lies behind the line: the former home has not got it."""
    origin = stored.origin
    if origin is None:
        return stored.sequence > cut.get(here, 0)
    return origin.sequence > cut.get(origin.broker, 0)
