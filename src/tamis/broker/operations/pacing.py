"""Pacing: whoever makes the broker late or busy leaves time to the others who are active.

Python runs one thread at a time, so whatever a principal makes the broker do, others wait for it:
requests on the event loop, also refused ones, questions that threads answer, and the matching of
its events. A client that asks as fast as it can over many connections would fill every turn of the
loop. So the loop measures how late its own work makes it, and how busy the process. If it is late
or busy and others are active, the one that most of the work was for is paced: after a piece of work
it pauses for a multiple of what the piece took. All kinds of work are paid for from one budget. It
may do as much as others do, and gets a small share at the least. That ends after a while; whoever
then makes the broker late or busy again is paced for longer.

Nobody waits who stays within its share: one may do some work at once and pay for it in time that
passes anyway.

Strangers, who have not shown who they are, always get a small share, and hold up nobody: as many of
them as like can come.

An event of another principal waits for the piece of work that it meets on the event loop, or in the
matcher. The longer a piece is, the more events meet it, and the longer each of them waits. So the
price of such a piece grows with the square of its length: one of 3 ms costs as much as 100 of 0.3
ms. Other threads let the event loop go on, and what they do costs what it takes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from functools import partial
from math import inf
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tamis.broker.operations.activity import PrincipalActivity
from tamis.errors import RefusedError
from tamis.protocol import Code

T = TypeVar("T")

LOOK_SECONDS: Final = 0.01
LATE_SECONDS: Final = 0.002
LONG_SECONDS: Final = 0.001
"""A piece of work of this length makes others late by itself."""
LATE_LOOKS: Final = 20
"""Within how many looks the loop has to be late twice."""
BUSY_SHARE: Final = 0.6
"""The part of one processor that the broker uses when it is busy.

An event passes through many turns of the event loop, and waits a little in each while others fill
them, although the loop is never late.
"""
BUSY_LOOKS: Final = 5
"""Over how many looks that part is averaged."""
BLAMED_PART: Final = 0.25
"""The part of the work of a moment that was for somebody who is to blame for it."""
PACED_SHARE: Final = 0.04
"""The part of the event loop's time that a principal gets at the least while it is paced.

It is so small that events of others rarely meet a piece of its work.
"""
PACED_SECONDS: Final = 20.0
"""How long a principal is paced after it was to blame.

So long that the time until a flood is noticed is below one hundredth of it.
"""
MAX_PACED_SECONDS: Final = 160.0
"""Twice as long each time that it is to blame again soon after that has ended."""
AGAIN_SECONDS: Final = 10.0
"""Up to so long after the end it is again: one may rest between two floods."""
FAIR_FACTOR: Final = 1.5
"""How much more than others a principal may use while it is paced: clients alike must not wait."""
SHORT_SECONDS: Final = 0.0003
"""Up to this length, a piece of work costs what it takes; a longer one costs more."""
BURST_SECONDS: Final = 0.03
"""How much work may be done at once by a principal that has done nothing for a while.

It is a batch of a thousand events. Others take turns with it.
"""
REQUEST_SECONDS: Final = 0.0004
"""What a request takes before and after it is handled: connecting, parsing, closing."""
FRAME_SECONDS: Final = 0.00004
"""What a frame of a WebSocket takes."""
CHANGE_SECONDS: Final = 0.001
"""What a change takes of threads and the disk, unless many are written together."""
EVENT_SECONDS: Final = 6e-6
"""What one of several events in a publication takes to be stored and matched."""
SECONDS_PER_BYTE: Final = 5e-9
"""The price of a byte: some twice what receiving it takes of the event loop.

Meanwhile the kernel copies it on another core, which others may wait for.
"""
STRANGER_SHARE: Final = 0.15
"""The part of the event loop's time for all whom the broker does not know, together.

They may come from any address, and ask for what everybody may see.
"""
STRANGER_SECONDS: Final = 0.001
"""What it takes to accept the connection of a stranger, and to answer or refuse it."""
STRANGER_BURST_SECONDS: Final = 0.1
MAX_WAIT_SECONDS: Final = 5.0
REFUSED_SECONDS: Final = 1.0
"""How long a principal that is not alone waits to be told that it asks too much."""
MAX_DEBT_SECONDS: Final = 6.0
MIN_NAP_SECONDS: Final = 0.005
"""A principal owes this much before it waits: to wait after each frame would cost more than it.

Whatever it does until then, others wait for.
"""
MAX_NAP_SECONDS: Final = 0.25
MIN_WORK_SECONDS: Final = 1e-5
MAX_KNOWN: Final = 1_000
IDLE_SECONDS: Final = 2.0
"""How long after the last question nobody looks how late the loop is any more."""


class _PacedTime(NamedTuple):
    """How long a principal is paced, and until when."""

    seconds: float
    until: float


class Strangers(Enum):
    """Those whom the broker does not know; each kind has its own share."""

    PROBES = "probes"
    """They ask how the broker is, as load balancers do."""
    OTHERS = "others"


class PrincipalPacing:
    """Knows who is active, how late the event loop is, and when each principal may go on."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        thread_time: Callable[[], float] = time.thread_time,
        process_time: Callable[[], float] = time.process_time,
    ) -> None:
        self.clock: Final = clock
        """Not that of the event loop: uvloop's counts milliseconds, and stands still in a turn."""
        self._thread_time: Final = thread_time
        self._process_time: Final = process_time
        self.latest = ""
        """The principal that was active last."""
        self.latest_at = -inf
        self.unnoted_seconds = 0.0
        """The price of its frames that were not noted one by one, which is cheaper."""
        self._activity = PrincipalActivity()
        self._strangers_free_at = dict.fromkeys(Strangers, -inf)
        """When strangers have paid for what they were answered."""
        self._free_at: dict[str, float] = {}
        """When each principal has paid for its work."""
        self.paced_until = -inf
        """Until when somebody may have to wait."""
        self._paced: dict[str, _PacedTime] = {}
        """The principals that have made the broker late or busy, the latest last."""
        self._latest_work: dict[str, float] = {}
        """The work that was lately done for each principal; that fades with every look."""
        self._latest_use = 0.0
        """The processor time of all, which fades likewise."""
        self._asked_at = -inf
        self._looked_at, self._used, self._used_here = clock(), process_time(), thread_time()
        """When the loop last looked, and the processor time until then."""
        self._lateness = 0.0
        """How often the loop was late, which fades: once is an accident."""
        self._busy_share = 0.0
        """The part of one processor that the process has used lately."""
        self._next_look: asyncio.TimerHandle | None = None

    def note(self, principal: str) -> float:
        """Note that a principal is active now; return the time."""
        now = self._now()
        if self.unnoted_seconds:
            self._charge_unnoted()
        self.latest, self.latest_at = principal, now
        self._activity.note(principal, now)
        return now

    def is_paced(self, principal: str) -> bool:
        """Return whether a principal must leave time to others now."""
        now, paced = self._now(), self._paced.get(principal)
        return paced is not None and now < paced.until and not self.is_alone(principal)

    def is_alone(self, principal: str) -> bool:
        """Return whether nobody else is active."""
        return not self._activity.has_others(principal, self._now())

    def is_shared(self) -> bool:
        """Return whether several principals are active."""
        return not self.is_alone(self.latest)

    def pause_after(self, principal: str, seconds: float) -> float:
        """Return how long a principal's thread pauses after a piece of work, which is charged."""
        if not self.is_paced(principal):
            return seconds
        return max(seconds, self._due(principal) - self._now())

    def pause_unless_alone(self, principal: str, seconds: float) -> float:
        """Return how long it pauses after work that others hardly notice: not at all if alone."""
        return 0.0 if self.is_alone(principal) else self.pause_after(principal, seconds)

    def pause_in_turn(self, principal: str, seconds: float) -> float:
        """Return how long it pauses within a request that has had its turn: not for its debts."""
        return 0.0 if self.is_alone(principal) else seconds

    async def wait_for_turn(
        self, principal: str, closed: asyncio.Future[str], *, size: int, changes: bool
    ) -> None:
        """Return when the next request of a principal may be handled, or its session has ended.

        It announces a body of `size` bytes; `changes` says whether it changes something.
        """
        wait = self._due(principal) - self.note(principal)
        if wait > MAX_WAIT_SECONDS and self.is_paced(principal):
            raise RefusedError(
                Code.TOO_MANY,
                f"{principal} asks for more than its share while others are served; try again in "
                f"{MAX_WAIT_SECONDS:.0f} s",
                retry_after=MAX_WAIT_SECONDS,
            )
        self.charge(principal, REQUEST_SECONDS + size * SECONDS_PER_BYTE + changes * CHANGE_SECONDS)
        await self._wait(principal, wait, closed)

    async def wait_as_stranger(self, who: Strangers = Strangers.OTHERS) -> None:
        """Return when somebody who has not shown who it is may be answered.

        They can come again at once, but on no more connections than strangers may have.
        """
        now = self._now()
        earliest = now - STRANGER_BURST_SECONDS / STRANGER_SHARE
        due = max(self._strangers_free_at[who], earliest)
        self._strangers_free_at[who] = min(
            due + STRANGER_SECONDS / STRANGER_SHARE, now + MAX_DEBT_SECONDS
        )
        if due - now >= MIN_NAP_SECONDS:
            await asyncio.sleep(min(due - now, MAX_WAIT_SECONDS))

    async def wait_to_refuse(self, principal: str, closed: asyncio.Future[str]) -> None:
        """Return when a principal that asks too much may be told so; most try again at once."""
        if not self.is_alone(principal):
            await asyncio.wait([closed], timeout=REFUSED_SECONDS)

    async def wait_for_frame(self, principal: str, closed: asyncio.Future[str], size: int) -> None:
        """Return when a frame of this many bytes may be handled."""
        wait = self._due(principal) - self.note(principal)
        self.charge(principal, FRAME_SECONDS + size * SECONDS_PER_BYTE)
        await self._wait(principal, wait, closed)

    async def _wait(self, principal: str, seconds: float, closed: asyncio.Future[str]) -> None:
        """Wait, but no longer than the principal is paced."""
        if seconds < MIN_NAP_SECONDS:
            return
        until = self._now() + seconds
        while (left := until - self._now()) > 0 and self.is_paced(principal) and not closed.done():
            await asyncio.wait([closed], timeout=min(left, MAX_NAP_SECONDS))

    async def metered(self, principal: str, work: Coroutine[Any, Any, T]) -> T:
        """Do work whose time on the event loop a principal pays for."""
        return await _MeteredWork(work, partial(self.charge_piece, principal), self._thread_time)

    def _due(self, principal: str) -> float:
        """Return when a principal has paid for its work, or could have for some time."""
        now = self._now()
        earliest = now - BURST_SECONDS / self._share(principal, now)
        return max(self._free_at.get(principal, -inf), earliest)

    def _share(self, principal: str, now: float) -> float:
        """Return the part of the event loop's time that a principal gets while it is paced."""
        return max(PACED_SHARE, FAIR_FACTOR * self._activity.use_of_others(principal, now))

    def charge_piece(self, principal: str, seconds: float) -> None:
        """Note a piece of work that nothing interrupted; one that is long makes others late."""
        if seconds > LONG_SECONDS and not self.is_alone(principal):
            self._pace(principal, self._now())
        self.charge(principal, seconds * max(1.0, seconds / SHORT_SECONDS), seconds)

    def charge(self, principal: str, seconds: float, took: float | None = None) -> None:
        """Note some work of a principal; only what is done while it is paced must be paid for.

        `seconds` is the price, which may be more than it `took`.
        """
        now = self._now()
        self._activity.note_use(principal, now, seconds)
        work = seconds if took is None else took
        self._latest_work[principal] = self._latest_work.get(principal, 0.0) + work
        if not self.is_paced(principal):
            self._free_at.pop(principal, None)
            return
        paid_at = self._due(principal) + seconds / self._share(principal, now)
        self._free_at[principal] = min(paid_at, now + MAX_DEBT_SECONDS)

    def _charge_unnoted(self) -> None:
        seconds, self.unnoted_seconds = self.unnoted_seconds, 0.0
        self.charge(self.latest, seconds)

    def _pace(self, principal: str, now: float) -> None:
        """Pace a principal from now on; it is to blame for what others wait for."""
        paced, seconds = self._paced.pop(principal, None), PACED_SECONDS
        if paced is not None and now < paced.until + AGAIN_SECONDS:
            # Before the end, it may be work that was on its way.
            seconds = min(paced.seconds * (1 + (now >= paced.until)), MAX_PACED_SECONDS)
        self._paced[principal] = _PacedTime(seconds, now + seconds)
        self.paced_until = max(self.paced_until, now + seconds)
        if len(self._paced) > MAX_KNOWN:
            forgotten = next(iter(self._paced))
            del self._paced[forgotten]
            self._free_at.pop(forgotten, None)

    def _blame(self, now: float) -> None:
        """Pace the one that most of the latest work was for, if it was much of it."""
        heaviest = max(self._latest_work, key=self._latest_work.__getitem__, default=None)
        if (
            heaviest is not None
            and self._latest_work[heaviest] >= BLAMED_PART * self._latest_use
            and self._activity.has_others(heaviest, now)
        ):
            self._pace(heaviest, now)

    def _now(self) -> float:
        now = self._asked_at = self.clock()
        if self._next_look is None:
            self._look_later(now)
        return now

    def _look_later(self, now: float) -> None:
        loop, due = asyncio.get_running_loop(), now + LOOK_SECONDS
        self._next_look = loop.call_later(LOOK_SECONDS, self._look, due)

    def _look(self, due: float) -> None:
        """Measure how late this call is, and how busy the process; stop once nobody asks."""
        if self.unnoted_seconds:
            self._charge_unnoted()
        now, used, used_here = self.clock(), self._process_time(), self._thread_time()
        # What other processes of the machine take, nobody here could leave to others.
        late = min(now - due, used_here - self._used_here)
        is_late = late > LATE_SECONDS
        self._lateness = max(0.0, self._lateness - 1 / LATE_LOOKS) + is_late
        share = (used - self._used) / max(now - self._looked_at, LOOK_SECONDS)
        self._busy_share += (share - self._busy_share) / BUSY_LOOKS
        self._latest_use += used - self._used
        self._looked_at, self._used, self._used_here = now, used, used_here
        if (is_late and self._lateness > 1) or self._busy_share > BUSY_SHARE:
            self._blame(now)
        fading = 1 - 1 / BUSY_LOOKS
        self._latest_use *= fading
        self._latest_work = {
            one: fading * work for one, work in self._latest_work.items() if work > MIN_WORK_SECONDS
        }
        if now - self._asked_at > IDLE_SECONDS:
            self._next_look = None
            return
        self._look_later(now)


class _MeteredWork(Generic[T]):
    """A coroutine; what each of its steps takes of the thread's processor time is charged."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        charge: Callable[[float], object],
        thread_time: Callable[[], float],
    ) -> None:
        self._work = work
        self._charge = charge
        self._thread_time = thread_time

    def __await__(self) -> Generator[Any, Any, T]:
        """Run the coroutine step by step."""
        steps = self._work.__await__()
        advance, given = steps.send, None
        while True:
            begun = self._thread_time()
            try:
                awaited = advance(given)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._charge(self._thread_time() - begun)
            try:
                advance, given = steps.send, (yield awaited)
            except BaseException as error:
                advance, given = steps.throw, error
