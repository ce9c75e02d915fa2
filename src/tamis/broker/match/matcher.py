"""The matcher: finds the subscriptions of stored events, batch by batch, in order.

Changes of the subscriptions are made between two batches. So a change falls between two events, and
every event is matched either against the subscriptions before the change or after it.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from time import perf_counter
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

from tamis.broker.deliver.queues import DiskQueue, UnwrittenQueues
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.match.changes import ChangeResult, SubscriptionChange, Updater, make_change
from tamis.broker.match.deferred import DeferredWriter, HeldEvent
from tamis.broker.match.other_brokers import Found, OtherBrokers
from tamis.broker.match.steps import MatcherStep, MatchRows, NotAheadError
from tamis.broker.operations.health import Health, code_of
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.broker.publish.payloads import source_of
from tamis.broker.publish.publishers import FanOut
from tamis.errors import StorageError, TamisError
from tamis.events import Event
from tamis.matching import Engine, MatchingBudget
from tamis.ports import Executor
from tamis.storage import PublisherTail, Record, StateStore

LOG: Final = get_logger("tamis.broker")

# Each may take as long as a sync of the disk, and events wait for it. Whoever is alone waits only
# for changes of its own, which are done sooner together.
MAX_CHANGES_PER_STEP: Final = 1
MAX_CHANGES_ALONE: Final = 4
# Counts an event as many times as the subscriptions that it probably reaches.
MAX_MATCHES_PER_STEP: Final = 5_000
OFFERS_PER_TURN: Final = 500
# So many are sent their events at once; others wait until their tasks take turns.
MAX_OFFERS_AHEAD: Final = 8
# How many changes may wait, per batch of events that may.
CHANGES_PER_BATCH: Final = 16
# Fewer events than these are matched one by one, which is faster for them.
MIN_BATCH_EVENTS: Final = 8
# Most events are matched in much less; who makes the matcher work for longer pays for it.
COSTLY_SECONDS: Final = 0.0003
# What an event may take because of what it says, whoever has the subscriptions.
MATCH_SECONDS_PER_BYTE: Final = 5e-7
# Each further value of an attribute: such events are matched by the way of batches, each alone.
MATCH_SECONDS_PER_VALUE: Final = 5e-5
# After so many that did not take longer, events are matched on the event loop while they are being
# stored: nobody must wait long for that, so whoever makes matching slow must not do it often. Once
# it took long, so many have to be quick for each time that it was too long.
MIN_QUICK_STEPS: Final = 1_000
QUICK_STEPS_AFTER_COSTLY: Final = 100
MAX_BYTES_AHEAD: Final = 4 * 1024
RETRY_SECONDS: Final = 0.5
PROBLEM: Final = "matches cannot be stored"


class Matcher:
    """Finds the subscriptions that each event satisfies, and adds it to their queues."""

    def __init__(
        self,
        *,
        engine: Engine,
        state: StateStore,
        event_cache: EventCache,
        subscription_index: SubscriptionIndex,
        metrics: Metrics,
        health: Health,
        on_overflow: Callable[[ActiveSubscription], None],
        executor: Executor,
        supervisor: Supervisor,
        publishers: Mapping[str, PublisherTail],
        fan_out: FanOut,
        deferred_writer: DeferredWriter,
        budget: MatchingBudget,
        has_tokens: bool,
        on_suspended: Callable[[Sequence[ActiveSubscription]], None],
        charge: Callable[[str, float], None],
        thread_time: Callable[[], float],
        unwritten: UnwrittenQueues,
        send_at_once: Callable[[ActiveSubscription], bool],
    ) -> None:
        self._unwritten = unwritten
        self._send_at_once = send_at_once
        self._charge = charge
        self._thread_time = thread_time
        self._changed_by: Sequence[str] = ()
        """Who has changed subscriptions since the last event: the next one takes longer for it."""
        self._fan_out = fan_out
        self.deferred_writer = deferred_writer
        self._budget = budget
        self._alone = int(has_tokens)
        """Up to this many owners need no budget; without tokens nobody knows them."""
        self._on_suspended = on_suspended
        self._rest: deque[StoredEvent] = deque()
        """Events taken from the queue, for the next steps."""
        self._taken = 0
        """How many batches of the queue they are from."""
        self._executor = executor
        self._engine = engine
        self._state = state
        self._index = subscription_index
        self._other_brokers = OtherBrokers(subscription_index, state)
        self._metrics = metrics
        self._health = health
        self._on_overflow = on_overflow
        self._event_cache = event_cache
        event_cache.matcher = self
        self._has_changed = True
        """Whether subscriptions have changed since the last event: the next one may take long."""
        self.ahead: object = None
        """What was found for events that are being stored; None: they are to be matched later."""
        self._is_idle = False
        self._quick_steps = 0
        """How many events in succession were matched quickly, one by one."""
        self._work = event_cache.has_work
        self._unmatched = event_cache.unmatched
        max_changes = CHANGES_PER_BATCH * self._unmatched.maxsize
        self.updater = Updater(self._work.set, metrics, max_changes, supervisor)
        self.position = state.matched_up_to
        """The last event that was matched."""
        self.offered_up_to = self.position
        """The last event whose matches are in the queues, or at least deferred."""
        self._publishers = publishers
        self._unsaved: set[str] = set()
        """Publishers whose last numbers the state does not have yet."""
        self._unmatchable = event_cache.unmatchable
        self.on_changes: Callable[[], object] = lambda: None
        """Called on the event loop when changes of the subscriptions are in force."""
        self.stuck = asyncio.Event()
        """Set while matches cannot be stored."""
        metrics.watch_queue("match", self._unmatched)

    async def run(  # noqa: PLR0912, PLR0915 - in one piece, as the way of every publication
        self,
    ) -> None:
        """Match events and make changes until cancelled."""
        unmatched, rest, reach = self._unmatched, self._rest, self._fan_out.reach
        while True:
            self._is_idle = True
            try:
                await self._work.wait()
            finally:
                self._is_idle = False
            self._work.clear()
            # Events that are not here yet come after the changes that are.
            self.ahead = None
            while rest or not (unmatched.empty() and self.updater.waiting.empty()):
                step: MatcherStep | None = None
                events, size = list[StoredEvent](), 0.0
                while size < MAX_MATCHES_PER_STEP and (rest or not unmatched.empty()):
                    if not rest:
                        batch, found = unmatched.get_nowait()
                        self._taken += 1
                        if isinstance(found, MatcherStep):
                            # Nothing waited before it, or the matcher would not have been idle.
                            step = found
                            break
                        rest.extend(batch)
                    events.append(rest.popleft())
                    size += reach.get(events[-1].owner, len(self._index.by_number))
                if step is None:
                    changes = [] if self.updater.waiting.empty() else self._next_changes()
                    step = await self._executor.run(self._step, changes, events)
                if step.changes:
                    self._resolve(step.changes)
                for principal, seconds in step.costs.items():
                    self._charge(principal, seconds)
                if step.unwritten and not (step.deferred or step.suspended or step.attempts):
                    # Those who wait get their events before the disk has the rows.
                    self.offer_ahead(step)
                    for place, (subscription, sequences) in enumerate([*step.matches.items()]):
                        if subscription.queue.offer_ahead(sequences):
                            del step.matches[subscription]
                            subscription.queue.wake()
                        if place % OFFERS_PER_TURN == OFFERS_PER_TURN - 1:
                            await asyncio.sleep(0)
                    # Otherwise the thread that writes would take turns with those who send.
                    await asyncio.sleep(0)
                    with contextlib.suppress(StorageError):
                        tails = {
                            name: tail
                            for name in self._unsaved
                            # A name may have been forgotten meanwhile.
                            if (tail := self._publishers.get(name)) is not None
                        }
                        write, pending = self._state.commit_matches, step.unwritten[0].pending
                        await self._executor.run(write, self.position, pending, tails)
                        self._unsaved.clear()
                        step.unwritten.clear()
                        self._unwritten.ahead.clear()
                        self._unwritten.has_rows.set()
                        self._unwritten.work.set()
                if step.unmatched or step.unwritten or step.suspended or step.deferred:
                    await self._make_up_for(step)
                for place, (subscription, sequences) in enumerate(step.matches.items()):
                    subscription.queue.offer(sequences)
                    if subscription.queue.dropped and subscription.stored.overflow == "disconnect":
                        self._on_overflow(subscription)
                    if place % OFFERS_PER_TURN == OFFERS_PER_TURN - 1:
                        await asyncio.sleep(0)
                self.offered_up_to = self.position
                for owner, (count, matches) in step.reached.items():
                    self._fan_out.leave(owner, count, matches)
                    self._metrics.matched.inc(matches)
                if not rest:
                    for _ in range(self._taken):
                        unmatched.task_done()
                    self._taken = 0

    def match_ahead(self, events: Sequence[StoredEvent]) -> None:
        """Match events that are about to be stored, if that is quick and nothing comes before."""
        if (
            self._is_idle
            and not self._work.is_set()
            and not self._has_changed
            and self._quick_steps >= MIN_QUICK_STEPS
            and events[0].sequence == self.position + 1
            and sum([len(event.payload.text) for event in events]) <= MAX_BYTES_AHEAD
            # What others are to get is decided once it is stored.
            and not (self._index.moved or self._index.routes or self.deferred_writer.latest)
        ):
            # Whatever is wrong, the matcher meets it again once they are stored.
            with contextlib.suppress(Exception):
                self.ahead = self._step((), events, is_ahead=True)

    def offer_ahead(self, found: Any) -> None:
        """Offer what was found to a few who may wait for it, before anything else is done."""
        step: MatcherStep = found
        # What was found ahead is in force now.
        self.position = step.last
        if step.deferred or step.suspended or step.attempts:
            return
        for subscription, sequences in [*islice(step.matches.items(), MAX_OFFERS_AHEAD)]:
            if subscription.queue.offer_ahead(sequences):
                del step.matches[subscription]
                if not self._send_at_once(subscription) or len(sequences) > 1:
                    subscription.queue.wake()

    def _next_changes(self) -> list[SubscriptionChange]:
        is_alone = self._index.owners <= self._alone
        return self.updater.take(MAX_CHANGES_ALONE if is_alone else MAX_CHANGES_PER_STEP)

    def _resolve(self, changes: Iterable[ChangeResult]) -> None:
        """Answer those who asked for changes, and notify those who watch them."""
        for result in changes:
            result.resolve()
        self.on_changes()

    async def drained(self) -> None:
        """Return when every queued event is matched."""
        await self._unmatched.join()

    def _step(  # noqa: PLR0912, PLR0915 - in one piece, as the way of every publication
        self,
        changes: Sequence[SubscriptionChange],
        events: Sequence[StoredEvent],
        *,
        is_ahead: bool = False,
    ) -> MatcherStep:
        """Make changes, then match events, and write the rows of many; for a thread.

        Those of a few events are written after they are sent. If they are not stored yet, neither
        subscriptions nor the position change, since they may never be.
        """
        last = events[-1].sequence if events else self.position
        step = MatcherStep([], {}, [], {}, [], {}, {}, [], {}, {}, last)
        if changes:
            self._make_changes(step, changes)
        if not events:
            return step
        started, begun = perf_counter(), self._thread_time()
        if self._budget.used:
            self._budget.fill()
        numbers: list[Iterable[Any]] = []
        # Whoever is alone delays nobody else.
        budget = self._budget if self._index.owners > self._alone else None
        if len(events) >= MIN_BATCH_EVENTS:
            numbers = self._match_batch(events, step.unmatched, budget)
        for event in events[len(numbers) :]:
            try:
                self._budget.event = len(numbers)
                decoded = event.payload.decoded
                known = event.payload.event if decoded is None else decoded.event
                numbers.append(self._engine.match(known, budget=budget))
            except MemoryError:
                raise
            except Exception as error:
                # It must not keep all later events from being matched.
                step.unmatched[event.sequence] = _reason(error)
                numbers.append(())
            spent, begun = self._thread_time() - begun, self._thread_time()
            self._quick_steps += 1
            if spent > COSTLY_SECONDS:
                missing = min(
                    int(spent / COSTLY_SECONDS) * QUICK_STEPS_AFTER_COSTLY, MIN_QUICK_STEPS
                )
                self._quick_steps = min(self._quick_steps, MIN_QUICK_STEPS - missing)
                self._note_cost_of_event(step, event, spent)
            self._changed_by = ()
        self._has_changed = False
        found: list[tuple[int, list[ActiveSubscription]]] = []
        for event, matched in zip(events, numbers, strict=True):
            subscriptions = [
                one
                for one in map(self._index.by_number.get, matched)
                if one is not None
                and one.stored.start <= event.sequence
                and (not one.rights.hides_anything or one.admits(event))
            ]
            if event.recipient is not None or self._index.moved or self._index.routes:
                subscriptions = self._other_brokers.recipients(
                    event, subscriptions, matched, step.attempts
                )
            # Few are asked again what they say, and many are cached.
            event.payload.decoded = None
            found.append((event.sequence, subscriptions))
            count, matches = step.reached.get(event.owner, (0, 0))
            step.reached[event.owner] = count + 1, matches + len(subscriptions)
        spent, seconds = perf_counter() - started, self._metrics.match_seconds
        seconds.counts[bisect_left(seconds.bounds, spent)] += 1
        seconds.sum += spent
        writer = self.deferred_writer
        largest = max(len(subscriptions) for _, subscriptions in found)
        holds_back = bool(
            self._budget.undecided or writer.latest or largest > writer.max_rows_per_event
        )
        if holds_back:
            # Such events are not matched ahead, and those that follow may be like them.
            self._quick_steps = 0
        if is_ahead and holds_back:
            self._budget.undecided = {}
            raise NotAheadError
        self._unsaved.update(
            [
                event.publisher if event.origin is None else event.origin.publisher
                for event in events
                if (event.publisher_sequence or event.origin is not None)
                and event.recipient is None
            ]
        )
        if not is_ahead:
            self.position = last
        if holds_back:
            self._hold_back(step, events, found)
        for sequence, subscriptions in found:
            for subscription in subscriptions:
                step.matches.setdefault(subscription, []).append(sequence)
        pending = [
            (subscription.stored.number, sequence)
            for subscription, sequences in step.matches.items()
            if isinstance(subscription.queue, DiskQueue)
            for sequence in sequences
        ]
        extras = {one.number: one.stored.extra for one in step.suspended}
        rows = MatchRows(pending, step.deferred, extras, {})
        if step.attempts:
            rows = self._with_arrivals(rows, step.attempts)
        # Without rows the position can be written later.
        if any(rows):
            try:
                if len(events) < MIN_BATCH_EVENTS:
                    step.unwritten.append(rows)
                else:
                    self._write(rows)
            except StorageError:
                step.unwritten.append(rows)
        return step

    def _make_changes(self, step: MatcherStep, changes: Sequence[SubscriptionChange]) -> None:
        self._has_changed = True
        for change in changes:
            begun = self._thread_time()
            step.changes.append(make_change(change))
            if change.payers:
                self._note_cost(step, change.payers, self._thread_time() - begun)
                self._changed_by = change.payers

    def _note_cost_of_event(self, step: MatcherStep, event: StoredEvent, seconds: float) -> None:
        """Charge the publisher for its own subscriptions, and for how much its event says.

        Otherwise those of others made it cost so much, and the publisher cannot help it.
        """
        if self._changed_by:
            self._note_cost(step, self._changed_by, seconds)
            return
        publisher = unquote(event.owner)
        own = seconds * self._index.share_of(publisher)
        decoded = event.payload.decoded
        said = len(event.payload.text) * MATCH_SECONDS_PER_BYTE
        if decoded is not None and isinstance(decoded.event, Event):
            values = decoded.event.held.values()
            said += (sum(map(len, values)) - len(values)) * MATCH_SECONDS_PER_VALUE
        self._note_cost(step, [publisher], own + min(seconds - own, said))

    def _note_cost(self, step: MatcherStep, payers: Sequence[str], seconds: float) -> None:
        for payer in payers:
            step.costs[payer] = step.costs.get(payer, 0.0) + seconds / len(payers)

    def _with_arrivals(self, rows: MatchRows, attempts: dict[int, dict[int, int]]) -> MatchRows:
        """Return what the state has to store, with how far subscriptions that move here are."""
        for number in attempts:
            if (receiver := self._index.get(number)) is not None:
                receiver.change_extra(lambda _: None, arrival=receiver.arrival)
                rows.extras[number] = receiver.stored.extra
        return rows._replace(attempts={number: one for number, one in attempts.items() if one})

    async def _make_up_for(self, step: MatcherStep) -> None:
        """Report what could not be matched, and write what could not be written."""
        if step.unmatched:
            self._unmatchable.report(step.unmatched)
        for rows in step.unwritten:
            await self._write_until_stored(rows)
        self._unwritten.ahead.clear()
        self._unwritten.has_rows.set()
        self._unwritten.work.set()
        if step.deferred:
            self.deferred_writer.add(step.deferred, step.held)
        if self.deferred_writer.is_full:
            await self.deferred_writer.room()
        if step.suspended:
            self._on_suspended(step.suspended)

    def _match_batch(
        self,
        events: Sequence[StoredEvent],
        unmatched: dict[int, str],
        budget: MatchingBudget | None,
    ) -> list[Iterable[Any]]:
        """Return what each event matches; nothing if they must be matched one by one."""
        try:
            matches = self._engine.match_batch(
                source_of([event.payload for event in events]), budget=budget
            )
        except MemoryError:
            raise
        except Exception:
            LOG.exception("a batch cannot be matched, its events are matched one by one")
            return []
        for row, error in matches.errors.items():
            unmatched[events[row].sequence] = _reason(error)
        return [*matches]

    def _hold_back(
        self,
        step: MatcherStep,
        events: Sequence[StoredEvent],
        found: Found,
    ) -> None:
        """Suspend subscriptions over the budget, and defer the matches of absent ones."""
        if self._budget.undecided:
            if self._index.routes:
                self._other_brokers.add_undecided(self._budget, events, found)
            self._suspend(step, found)
        reached = [len(subscriptions) for _, subscriptions in found]
        step.deferred.extend(self.deferred_writer.select(found))
        owners = {(one.owner, one.sequence) for one in step.deferred}
        for event, matches in zip(events, reached, strict=True):
            key = unquote(event.owner), event.sequence
            if key in owners:
                step.held[key] = HeldEvent(event.owner, matches)
                count, total = step.reached.pop(event.owner)
                if count > 1:
                    step.reached[event.owner] = count - 1, total - matches

    def _suspend(self, step: MatcherStep, found: Found) -> None:
        """Match the undecided no more, and take back what they seem to match from there on."""
        undecided, self._budget.undecided = self._budget.undecided, {}
        for number, place in undecided.items():
            if number in self._engine:
                self._engine.remove(number)
            subscription = self._index.get(int(number))
            if subscription is None:
                continue
            # One that has just been added may start later.
            first = max(found[place][0], subscription.stored.start)
            subscription.suspend(first)
            step.suspended.append(subscription)
            for sequence, subscriptions in found:
                if sequence >= first and subscription in subscriptions:
                    subscriptions.remove(subscription)

    async def skip(self, records: Sequence[Record]) -> None:
        """Note the publishers' numbers of stored events that are not valid any longer."""

        def note() -> None:
            for record in records:
                name, number = record.publisher, record.publisher_sequence
                if record.origin is not None:
                    name, number = record.origin.publisher, record.origin.sequence
                if number:
                    self._unsaved.add(name)

        await self.updater.do(note)

    async def pass_over(self, position: int, dropped: Mapping[str, Mapping[int, int]]) -> None:
        """Write that what is not matched up to a position never will be, as often as it takes.

        `dropped` says for how many events that is so, by reason and number.
        """

        def write() -> bool:
            try:
                self._write(MatchRows([], [], {}, {}), position, dropped)
            except StorageError:
                return False
            self.position = max(self.position, position)
            return True

        while not await self.updater.do(write):
            # The broker may open, and must not write the position without what is dropped.
            self.stuck.set()
            await asyncio.sleep(RETRY_SECONDS)
        self.stuck.clear()

    async def forget_publishers(self, idle: Mapping[str, float]) -> None:
        """Write no numbers of these names that were used up to the times given."""

        def forget() -> None:
            for name, time in idle.items():
                tail = self._publishers.get(name)
                if tail is None or tail.time <= time:
                    self._unsaved.discard(name)

        await self.updater.do(forget)

    async def save_position(self) -> None:
        """Write how far matching has come, so that the log need not be kept for it."""
        await self.updater.do(self.write_position)

    def write_position(self) -> None:
        """Write how far matching has come, if everything before is written; between two batches."""
        # Before the matches themselves, the position must not be written.
        if self.position > self._state.matched_up_to and not self.stuck.is_set():
            self._write(MatchRows([], [], {}, {}))

    def _write(
        self,
        rows: MatchRows,
        position: int | None = None,
        dropped: Mapping[str, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        """Write rows, the position, or another one, and how many events were dropped."""
        known = [(name, self._publishers.get(name)) for name in self._unsaved]
        tails = {name: tail for name, tail in known if tail is not None}
        pending, deferred, extras, attempts = rows
        self._state.commit_matches(
            self.position if position is None else position,
            pending,
            tails,
            extras,
            deferred,
            dropped=dropped,
            attempts=attempts,
        )
        self._unsaved.clear()

    async def _write_until_stored(self, rows: MatchRows) -> None:
        """Write matches, as often as it takes: a full disk stops matching, and so publishing."""
        while True:
            try:
                await self._executor.run(self._write, rows)
            except StorageError as error:
                self._health.report(PROBLEM, str(error), code_of(error))
                self.stuck.set()
                await self._make_changes_meanwhile()
            else:
                self._health.clear(PROBLEM)
                self.stuck.clear()
                return

    async def _make_changes_meanwhile(self) -> None:
        """Make changes for a while; those that need the disk are refused, but do not wait."""
        loop = asyncio.get_running_loop()
        until = loop.time() + RETRY_SECONDS
        while loop.time() < until:
            try:
                async with asyncio.timeout_at(until):
                    await self._work.wait()
            except TimeoutError:
                return
            self._work.clear()
            if not self.updater.waiting.empty():
                step = await self._executor.run(self._step, self._next_changes(), ())
                self._resolve(step.changes)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, TamisError) else repr(error)
