"""Departures: what the former home of a subscription does while it moves to another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf, isinf
from typing import Final

import msgspec

from tamis.broker.deliver.subscriptions import ActiveSubscription, Departure, Extra
from tamis.broker.match.matcher import Matcher
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.broker.roaming.move_messages import (
    MAX_EVENTS_PER_TRANSFER,
    FenceAnswer,
    FenceRequest,
    HomeAnswer,
    HomeQuestion,
    MoveAnswer,
    MoveQuestion,
    RemovalAnswer,
    RemovalRequest,
    TransferAnswer,
    TransferredEvent,
    TransferRequest,
)
from tamis.broker.sessions import SessionServices
from tamis.broker.subscribe.groups import group_stays
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.storage import NEVER, Pending

LOG: Final = get_logger("tamis.roaming")

TRANSFER_BYTES: Final = 256 * 1024
"""About as much is sent at once."""
RECORDS_PER_READ: Final = 200
MOVED: Final = "moved to another broker"


class Departures:
    """Answers the questions of brokers that subscriptions of this one move to.

    From the fence on nothing is matched or delivered here. What waits stays until the other broker
    says that it has arrived, and is handed over as often as it asks.
    """

    def __init__(
        self,
        services: SessionServices,
        matcher: Matcher,
        event_cache: EventCache,
        gone: Callable[[], None],
    ) -> None:
        """Make them; `gone` is called when a subscription has left."""
        self._gone = gone
        self._services = services
        self._store = services.store
        self._index = services.subscription_index
        self._matcher = matcher
        self._event_cache = event_cache

    async def answer(self, source: str, question: MoveQuestion) -> MoveAnswer:
        """Answer a question of another broker."""
        found = self._index.find(question.owner, question.name)
        is_here = found is not None and found.stored.durable and not found.is_arriving
        match question:
            case HomeQuestion():
                return self._describe(found)
            case RemovalRequest():
                if found is not None:
                    await self._forget(found, question.move)
                return RemovalAnswer()
        if found is None or not is_here:
            raise RefusedError(Code.NOT_FOUND, "the subscription is no longer there")
        match question:
            case FenceRequest():
                return await self._fence(found, question, source)
            case TransferRequest():
                return await self._transfer(found, question)

    def _describe(self, found: ActiveSubscription | None) -> HomeAnswer:
        if found is None or not found.stored.durable or found.is_moving:
            return HomeAnswer(
                found=False,
                peers=tuple(self._index.links),
                is_moving=found is not None and found.is_moving,
            )
        stored = found.stored
        return HomeAnswer(
            found=True,
            filter=stored.filter,
            language=stored.language,
            mode=stored.mode,
            max_attempts=stored.max_attempts,
            roles=found.owner.roles,
            expires_at=None if isinf(stored.expires_at) else stored.expires_at,
            moves=Extra.of(stored).moves,
            is_group=found.queue.is_shared,
        )

    # --- the fence -------------------------------------------------------------------------------

    async def _fence(
        self, found: ActiveSubscription, question: FenceRequest, target: str
    ) -> FenceAnswer:
        """Deliver nothing more, from one point of the log on, and say what that point is."""
        # A letter may come late, after the subscription has gone there and come back.
        if found.departure is None and Extra.of(found.stored).moves == question.moves:
            await self._depart(found, question.move, target)
        departure = found.departure
        if departure is None or departure.id != question.move:
            return FenceAnswer(cut={}, is_taken=True)
        await self._services.notifier.end(found, MOVED)
        flush = self._matcher.deferred_writer.flush
        await flush(found)
        # Attempts and acknowledgements up to now count.
        await self._services.acknowledgement_writer.flush()
        return FenceAnswer(cut=departure.cut, untold=found.untold)

    async def _depart(self, found: ActiveSubscription, move: str, target: str) -> None:
        self._require_movable(found)
        letters = await self._services.executors.client.run(
            self._store.state.dead_letter_count, found.number
        )
        if letters:
            raise RefusedError(
                Code.CONFLICT,
                f"the subscription {found.stored.name!r} has {letters:,} dead letters at its home: "
                "requeue or delete them there first",
            )
        # What is in the log now is handed over, or was delivered. What comes later is forwarded to
        # the new home, too: its filter has come all the way here.
        cut = {
            name.removeprefix("/"): tail.last
            for name, tail in self._services.numbering.tails.items()
            if name.startswith("/") and tail.last
        }
        last = self._store.log.next_sequence - 1
        cut[self._store.state.broker_id] = last
        # What came with it from an earlier home may not have come here by itself yet.
        cut = {one: max(cut.get(one, 0), found.cut.get(one, 0)) for one in {*cut, *found.cut}}
        departure = Departure(move, target, cut)
        do = self._matcher.updater.do
        while not await do(partial(self._leave, found, departure, last)):
            # The event loop passes on what was stored to the matcher.
            await asyncio.sleep(0)
        LOG.info("subscription leaves", subscription=found.stored.name, move=move, target=target)

    def _leave(self, found: ActiveSubscription, departure: Departure, last: int) -> bool:
        """Match a subscription no more, between two batches; False if earlier events wait."""
        if self._matcher.position < last:
            return False
        if found.departure is not None:
            return True
        self._require_movable(found)
        departure = msgspec.structs.replace(departure, cut=self._matched_since(last, departure.cut))
        # Otherwise a restart would not match what comes before this point.
        self._matcher.write_position()
        extra = msgspec.structs.replace(Extra.of(found.stored), departure=departure)
        columns = {"expires_at": NEVER, "extra": extra.text()}
        self._store.state.alter_subscription(found.number, **columns)
        found.change(**columns)
        found.departure = departure
        # Takes it out of the engine.
        self._services.subscription_manager.current_rights.put_in_engine(found)
        return True

    def _matched_since(self, last: int, cut: Mapping[str, int]) -> dict[str, int]:
        """Return the line behind what was matched, and perhaps delivered, since it was drawn."""
        moved, position, here = dict(cut), self._matcher.position, self._store.state.broker_id
        moved[here] = max(moved.get(here, 0), position)
        while last < position:
            most = min(position - last, RECORDS_PER_READ)
            records = self._store.log.read(last + 1, most)
            for one in records:
                if one.origin is not None and one.sequence <= position:
                    broker, sequence = one.origin.broker, one.origin.sequence
                    moved[broker] = max(moved.get(broker, 0), sequence)
            # Damaged records are left out.
            last = records[-1].sequence if records else position
        return moved

    def _require_movable(self, found: ActiveSubscription) -> None:
        name, extra = found.stored.name, Extra.of(found.stored)
        if self._index.get(found.number) is not found:
            raise RefusedError(Code.NOT_FOUND, f"the subscription {name!r} is no longer there")
        if extra.group:
            raise RefusedError(Code.CONFLICT, group_stays(name))
        if self._matcher.stuck.is_set():
            raise RefusedError(Code.UNAVAILABLE, "its home cannot store what it has matched")
        if found.suspended_from:
            raise RefusedError(Code.CONFLICT, f"the subscription {name!r} is {found.suspension}")
        if extra.replay_from:
            raise RefusedError(
                Code.UNAVAILABLE, f"past events for {name!r} are still looked for; try again"
            )
        if extra.arrival is not None:
            raise RefusedError(
                Code.UNAVAILABLE, f"the subscription {name!r} has just arrived; try again"
            )

    # --- what waits ------------------------------------------------------------------------------

    async def _transfer(
        self, found: ActiveSubscription, question: TransferRequest
    ) -> TransferAnswer:
        departure = found.departure
        if departure is None or departure.id != question.move:
            raise RefusedError(Code.CONFLICT, "the subscription does not move there")
        run, read = self._services.executors.deliver.run, self._store.state.pending
        rows = await run(read, found.number, question.after, inf, MAX_EVENTS_PER_TRANSFER)
        stored = await self._event_cache.find([row.sequence for row in rows])
        events: list[TransferredEvent] = []
        size, after = 0, question.after
        for row, one in zip(rows, stored, strict=True):
            # What the log has lost was counted when it was.
            if isinstance(one, StoredEvent) and self._is_handed(one, departure):
                size += len(one.payload.text)
                if events and size > TRANSFER_BYTES:
                    return TransferAnswer(events=events, after=after, is_last=False)
                events.append(self._event(row, one))
            after = row.sequence
        is_last = len(rows) < MAX_EVENTS_PER_TRANSFER
        return TransferAnswer(events=events, after=after, is_last=is_last)

    def _is_handed(self, stored: StoredEvent, departure: Departure) -> bool:
        if stored.recipient is not None:
            # It came with the subscription, when that moved here.
            return True
        if stored.origin is None:
            return stored.sequence <= departure.cut[self._store.state.broker_id]
        return stored.origin.sequence <= departure.cut.get(stored.origin.broker, 0)

    def _event(self, row: Pending, stored: StoredEvent) -> TransferredEvent:
        origin, here = stored.origin, self._store.state.broker_id
        return TransferredEvent(
            position=row.sequence,
            broker=here if origin is None else origin.broker,
            origin_sequence=stored.sequence if origin is None else origin.sequence,
            time=stored.time if origin is None else origin.time,
            publisher=stored.publisher,
            format=stored.payload.format,
            data=msgspec.Raw(stored.payload.text),
            attempts=row.attempts,
        )

    async def _forget(self, found: ActiveSubscription, move: str) -> None:
        if found.departure is not None and found.departure.id == move:
            # First, so that nobody who asks is told less.
            self._index.note_departed(found, found.departure.target)
            await self._services.subscription_manager.delete_all([found], MOVED)
            self._gone()
            LOG.info("subscription has left", subscription=found.stored.name, move=move)
