"""Very many subscribers in one process, some of which can stop reading, and their publisher.

Every subscriber has its own connection and a subscription to one of many rooms. In each room one
subscriber may stall; those also subscribe to the flood.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count
from select import select
from selectors import EVENT_READ, DefaultSelector
from typing import Final, NamedTuple

import msgspec

from benchmarks.broker.wire import Wire
from benchmarks.harness import DisagreementError
from tamis.protocol import (
    Credit,
    Deliver,
    Dropped,
    Ended,
    Publish,
    Published,
    Subscribe,
    Subscribed,
)
from tamis.protocol.frames import Overflow, Reply

WINDOW: Final = 256
ENDLESS: Final = 1_000_000_000
FLOOD: Final = 0
"""The room of the flood, to which all subscribers that may stall subscribe."""
NOBODY: Final = -1
QUIET_SECONDS: Final = 2.0
"""A subscriber that has received nothing for this long has received everything."""
READ_SECONDS: Final = 300.0
FLOODED: Final = 600
"""Characters in an event that floods."""
EVENTS_PER_PUBLICATION: Final = 100
IN_FLIGHT: Final = 4


class Kind(NamedTuple):
    """How a subscriber that stalls is subscribed."""

    overflow: Overflow
    credit: int


KINDS: Final = (
    Kind("wait", ENDLESS),
    Kind("wait", WINDOW),
    Kind("drop", ENDLESS),
    Kind("disconnect", ENDLESS),
)
STEADY: Final = Kind("wait", WINDOW)


class Account(NamedTuple):
    """The events of a subscriber that stalled: received, dropped or disconnected."""

    overflow: str
    received: int
    dropped: int
    """As the broker reported it."""
    was_ended: bool


class Event(msgspec.Struct):
    """What is published."""

    room: int
    sent: float
    text: str


_event: Final = msgspec.json.Decoder(Event)


class Subscriber:
    """One connection with one subscription."""

    def __init__(self, port: int, room: int, kind: Kind, *, stalls: bool) -> None:
        self.room = room
        self.kind = kind
        self.stalls = stalls
        self.wire = Wire(port, small=True)
        self._received = 0
        self._dropped = 0
        self._was_ended = False
        self._consumed = 0
        wanted = f"room = {room} or room = {FLOOD}" if stalls else f"room = {room}"
        self.wire.send(Subscribe(ref=1, filter=wanted, overflow=kind.overflow, credit=kind.credit))
        self.wire.expect(Subscribed)

    @property
    def account(self) -> Account:
        """Return which events arrived and which did not."""
        return Account(self.kind.overflow, self._received, self._dropped, self._was_ended)

    def read(self) -> Iterator[float]:
        """Read what has arrived; yield the send times of the events of rooms."""
        for reply in self.wire.replies():
            yield from self._take(reply)

    def _take(self, reply: Reply) -> Iterator[float]:
        match reply:
            case Deliver():
                self._received += len(reply.events)
                self._give_credit(reply)
                for delivery in reply.events:
                    event = _event.decode(delivery.data)
                    if event.room != FLOOD:
                        yield event.sent
            case Dropped():
                self._dropped += reply.count
            case Ended():
                self._was_ended = True

    def _give_credit(self, reply: Deliver) -> None:
        if self.kind.credit == ENDLESS:
            return
        self._consumed += len(reply.events)
        if self._consumed >= self.kind.credit // 2:
            self.wire.send(Credit(subscription=reply.subscription, events=self._consumed))
            self._consumed = 0


class Fleet:
    """All subscribers, reading in turns as events arrive."""

    def __init__(self, port: int, subscribers: int, rooms: int) -> None:
        """Connect: the first subscriber of each room is one that may stall."""
        self._port = port
        self._selector = DefaultSelector()
        self._stalling = [
            self._connected(1 + number, KINDS[number % len(KINDS)], stalls=True)
            for number in range(rooms)
        ]
        self._steady = [
            self._connected(1 + number % rooms, STEADY, stalls=False)
            for number in range(rooms, subscribers)
        ]

    def _connected(self, room: int, kind: Kind, *, stalls: bool) -> Subscriber:
        one = Subscriber(self._port, room, kind, stalls=stalls)
        self._selector.register(one.wire, EVENT_READ, one)
        return one

    def take(self, steady: int) -> list[float]:
        """Return the latencies of a number of events to subscribers that never stall."""
        times: list[float] = []
        until = time.monotonic() + READ_SECONDS
        while len(times) < steady:
            if time.monotonic() > until:
                raise DisagreementError(f"{len(times):,} events came, not {steady:,}")
            for one, sent in self._read(0.1):
                if not one.stalls:
                    times += [time.monotonic() - moment for moment in sent]
        return times

    def stall(self) -> None:
        """Make the subscribers that may stall stop reading.

        They reconnect first: the kernel buffers more for a connection that has read much.
        """
        for number, one in enumerate(self._stalling):
            self._selector.unregister(one.wire)
            one.wire.socket.close()
            self._stalling[number] = self._connected(one.room, one.kind, stalls=True)
            self._selector.unregister(self._stalling[number].wire)

    def resume(self) -> list[Account]:
        """Make them read everything that is left, and return an account of it."""
        for one in self._stalling:
            self._selector.register(one.wire, EVENT_READ, one)
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < QUIET_SECONDS:
            if list(self._read(0.1)):
                quiet_since = time.monotonic()
        return [one.account for one in self._stalling]

    def _read(self, patience: float) -> Iterator[tuple[Subscriber, list[float]]]:
        for key, _ in self._selector.select(patience):
            one: Subscriber = key.data
            yield one, list(one.read())


class Publisher:
    """Publishes to rooms at a steady rate, or floods."""

    def __init__(self, port: int, rooms: int) -> None:
        self._wire = Wire(port)
        self._rooms = rooms
        self._refs = count(1)
        self._next = 1
        self._waiting = 0

    def pace(self, rate: int, events: int) -> None:
        """Publish to the rooms in turn, each event at its time."""
        start = time.monotonic() + 0.1
        for number in range(events):
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            self._send([Event(1 + number % self._rooms, due, "x" * 100)])
            self._read_answers(0)
        while self._waiting:
            self._read_answers(1)

    def flood(self, room: int, events: int) -> None:
        """Publish large events as fast as the broker takes them."""
        event = Event(room, 0.0, "x" * FLOODED)
        for first in range(0, events, EVENTS_PER_PUBLICATION):
            self._send([event] * min(EVENTS_PER_PUBLICATION, events - first))
            while self._waiting >= IN_FLIGHT:
                self._read_answers(1)
        while self._waiting:
            self._read_answers(1)

    def _send(self, events: list[Event]) -> None:
        texts = [msgspec.Raw(msgspec.json.encode(event)) for event in events]
        ref = next(self._refs)
        self._wire.send(Publish(ref=ref, events=texts, publisher="p", sequence=self._next))
        self._next += len(events)
        self._waiting += 1

    def _read_answers(self, patience: float) -> None:
        if select([self._wire], [], [], patience)[0]:
            self._waiting -= sum(isinstance(reply, Published) for reply in self._wire.replies())
