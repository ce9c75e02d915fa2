"""The queue of a group: each event goes to one of the members, in order per key where asked.

A member has a window of its own, so that one that is slow takes no room from the others. What waits
is dealt out: whoever asks gets its share, and the others come before it the next time.

With an ordering key, an event is in flight only while no other of its key is, and no earlier one
waits to be sent again. So one member at a time handles a key, one event after the other. Readers
with other rights see other events, and what one may not see holds up none of its own.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from tamis.broker.deliver.queues import Cursor, DiskQueue, InFlightEvent, QueuedEvent
from tamis.broker.publish.event_cache import EventCache
from tamis.errors import TamisError
from tamis.events import Event
from tamis.languages.exactness import event_of

# Events that may be in memory because they are to be sent again, or others of their keys are in
# flight. Those behind them wait.
MAX_HELD_BACK: Final = 4_000
KEYS_PER_READ: Final = 1_000

KeysOf = Callable[[Sequence[int]], Awaitable[list[int | None]]]
"""Returns the keys of events; None: the event has none, and may be handled at any time."""


class OrderingKeys:
    """Reads the keys of events: what an attribute says, as a number.

    Two values with the same number are only handled one after the other, too.
    """

    def __init__(self, event_cache: EventCache, attribute: str) -> None:
        self._event_cache = event_cache
        self._attribute = attribute

    async def __call__(self, sequences: Sequence[int]) -> list[int | None]:
        """Return the keys of events; one that the log has lost has none."""
        found = await self._event_cache.find(sequences)
        return [None if isinstance(one, str) else self._key(one.payload) for one in found]

    def _key(self, payload: Any) -> int | None:
        had = payload.decoded
        try:
            event = payload.event
            if not isinstance(event, Event):
                event = event_of(event, {self._attribute})
            values = event.held.get(self._attribute)
        except TamisError:
            # Nobody will be sent it.
            return None
        finally:
            # Many are cached, and only for their text.
            payload.decoded = had
        return hash(values) if values else None


class InFlightEvents(dict[int, InFlightEvent]):
    """The events in flight of a group, with how many each member has, and their keys."""

    def __init__(self, keys: Mapping[int, int | None]) -> None:
        super().__init__()
        self._keys = keys
        self.held: Counter[object] = Counter()
        """How many events each member has; what was fetched is under None."""
        self.busy: dict[int, int] = {}
        """The keys in flight, each with its event."""

    def __setitem__(self, sequence: int, sent: InFlightEvent) -> None:
        self.pop(sequence, None)
        super().__setitem__(sequence, sent)
        self.held[sent.holder] += 1
        key = self._keys.get(sequence)
        if key is not None:
            self.busy[key] = sequence

    def __delitem__(self, sequence: int) -> None:
        sent = self[sequence]
        super().__delitem__(sequence)
        self.held[sent.holder] -= 1
        if not self.held[sent.holder]:
            del self.held[sent.holder]
        key = self._keys.get(sequence)
        if key is not None and self.busy.get(key) == sequence:
            del self.busy[key]

    def pop(self, sequence: int, default: Any = None) -> Any:
        """Remove an event and return it, or the default."""
        found = self.get(sequence, default)
        if sequence in self:
            del self[sequence]
        return found


class GroupQueue(DiskQueue):
    """A queue on disk whose events are shared by the members of a group."""

    __slots__ = ("_keys", "_keys_of")

    is_shared = True
    in_flight: InFlightEvents

    def __init__(self, *args: Any, keys_of: KeysOf | None, **options: Any) -> None:
        """Make a queue; without `keys_of`, events are handled in any order."""
        super().__init__(*args, **options)
        self._keys_of = keys_of
        self._keys: dict[int, int | None] = {}
        """By sequence, of the events that memory has; all None without an ordering key."""
        self.in_flight = InFlightEvents(self._keys)

    async def take(
        self, limit: int, now: float, lease: float, reader: str = "", holder: object = None
    ) -> list[QueuedEvent]:
        """Return the events to send to a member now; they are then in flight."""
        cursor = self._cursors.get(reader) or self._add_cursor(reader)
        last, taken = -1, list[QueuedEvent]()
        while True:
            await self._until_read()
            if self._keys_of is not None:
                await self._know_keys(self._keys_of, cursor)
            if self._cursors.get(reader) is not cursor:
                # The rights have changed meanwhile.
                self.wake()
                return []
            room = min(limit, self.window - self.in_flight.held[holder])
            # Whoever fetches gets what it asks for.
            sharers = max(1, len(self.listeners)) if holder is not None else 1
            taken = self._choose(cursor, room, sharers, now) if room > 0 else []
            if taken or room <= 0 or cursor.last <= last or not self._needs_more(cursor):
                break
            last = cursor.last
            await self._refill(cursor)
        for queued in taken:
            self.in_flight[queued.sequence] = InFlightEvent(
                queued.attempts + 1, lease, queued.due, holder
            )
        if taken:
            self._remove_from_others(cursor, taken)
            # Next time, somebody else comes first.
            self.listeners = (*self.listeners[1:], *self.listeners[:1])
            if len(self.listeners) > 1 and (cursor.ready or self.retries):
                self.wake()
        return taken

    def _choose(self, cursor: Cursor, room: int, sharers: int, now: float) -> list[QueuedEvent]:
        """Remove a member's share from the events that can be sent now, and return it in order."""
        again = sorted(QueuedEvent(s, attempts, due) for due, s, attempts in self.retries)
        earliest: dict[int, int] = {}
        for queued in again:
            key = self._keys.get(queued.sequence)
            if key is not None:
                earliest.setdefault(key, queued.sequence)
        again = [queued for queued in again if queued.due <= now]
        # Not too many may wait to be sent again.
        has_room = len(self.retries) - len(again) < MAX_HELD_BACK
        if self._keys_of is not None and not cursor.is_whole:
            # Before the others, there may be some of their keys that only this reader sees.
            again = [queued for queued in again if queued.sequence <= cursor.last]
        waiting = heapq.merge(again, cursor.ready if has_room else ())
        free, keys = list[QueuedEvent](), {*self.in_flight.busy}
        for queued in waiting:
            if len(free) >= room * sharers:
                break
            key = self._keys.get(queued.sequence)
            if key is not None:
                if key in keys or earliest.get(key, queued.sequence) < queued.sequence:
                    continue
                keys.add(key)
            free.append(queued)
        chosen = free[: min(room, -(-len(free) // sharers))]
        self._remove_chosen(cursor, {queued.sequence for queued in chosen})
        return chosen

    def _remove_chosen(self, cursor: Cursor, chosen: set[int]) -> None:
        if not chosen:
            return
        if any(sequence in chosen for _, sequence, _ in self.retries):
            self.retries = [retry for retry in self.retries if retry[1] not in chosen]
            heapq.heapify(self.retries)
        cursor.remove(chosen)

    # --- what waits ------------------------------------------------------------------------------

    def _needs_more(self, cursor: Cursor) -> bool:
        """Return whether nothing that memory has can be sent, and there may be more on disk."""
        if self._keys_of is None:
            return not (cursor.ready or cursor.is_whole or len(self.retries) >= MAX_HELD_BACK)
        if cursor.is_whole or len(cursor.ready) >= MAX_HELD_BACK:
            return False
        held_back = {self._keys.get(sequence) for _, sequence, _ in self.retries}
        held_back.update(self.in_flight.busy)
        return all(
            queued.sequence in self._keys
            and (key := self._keys[queued.sequence]) is not None
            and key in held_back
            for queued in cursor.ready
        )

    async def _know_keys(self, keys_of: KeysOf, cursor: Cursor) -> None:
        """Return when nobody reads the disk, and the keys of all events in memory are known."""
        while unknown := self._without_known_key(cursor):
            self._keys.update(zip(unknown, await keys_of(unknown), strict=True))
            await self._until_read()
        if len(self._keys) > 2 * (MAX_HELD_BACK + len(self.in_flight) + len(self.retries)):
            self._forget_keys()

    def _without_known_key(self, cursor: Cursor) -> list[int]:
        """Return some events that came into memory, and whose keys nobody has read."""
        ready = (queued.sequence for queued in cursor.ready)
        again = (sequence for _, sequence, _ in self.retries)
        unknown = (one for one in chain(ready, again) if one not in self._keys)
        return [*islice(unknown, KEYS_PER_READ)]

    def _forget_keys(self) -> None:
        """Forget the keys of events that memory no longer has."""
        known = {*self.in_flight, *(sequence for _, sequence, _ in self.retries)}
        for cursor in self._cursors.values():
            known.update(queued.sequence for queued in cursor.ready)
        for sequence in [one for one in self._keys if one not in known]:
            del self._keys[sequence]

    def settle_stored(self, sequences: Iterable[int]) -> list[int]:
        """Settle events on disk that no member has now."""
        return super().settle_stored([one for one in sequences if one not in self.in_flight])

    def drop_below(self, sequence: int) -> None:
        """Forget events that are no longer on disk; others of their keys may come."""
        in_flight = self.in_flight
        super().drop_below(sequence)
        self.in_flight = in_flight
        for one in [one for one in in_flight if one < sequence]:
            del in_flight[one]
        self.wake()

    def held_by(self, holder: object) -> int:
        """Return how many events a member has."""
        return self.in_flight.held[holder]
