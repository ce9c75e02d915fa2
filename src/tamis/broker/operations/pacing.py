"""Pacing: whoever makes the broker late or busy leaves time to the others who are active.

Python runs one thread at a time, so whatever a principal makes the broker do, others wait for it:
requests on the event loop, also refused ones, questions that threads answer, and the matching of
its events. A client that asks as fast as it can over many connections would fill every turn of the
loop. So the loop measures how late its own work makes it, and how busy the process. If it is late
or busy and others are active, the one that most of the work was for is paced: after a piece of work
it pauses for a multiple of what the piece took. All kinds of work are paid for from one budget. It
may do as much as others do; if that is little, it gets a small share, which grows again as long as
nothing is late or busy because of it, and more slowly each time that it was.

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
from math import exp2, inf, log2
from typing import Any, Final, Generic, NamedTuple, TypeVar

from tamis.broker.operations.activity import PrincipalActivity
from tamis.errors import RefusedError
from tamis.protocol import Code

T = TypeVar("T")

LOOK_SECONDS: Final = 0.01
LATE_SECONDS: Final = 0.002
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
PACED_SHARE: Final = 0.06
"""The part of the event loop's time that a principal gets at the least when it begins to be paced.

It is so small that events of others rarely meet a piece of its work.
"""
GROWTH_SECONDS: Final = 5.0
"""How long it takes until a principal gets twice as much again."""
MAX_GROWTH_SECONDS: Final = 160.0
"""Twice as long each time that it made the broker late or busy by what it got."""
DOUBLINGS: Final = -log2(PACED_SHARE)
"""After which it gets everything, and is not paced any more."""
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


class _GrowingShare(NamedTuple):
    """What a principal gets at the least: little at first, then more and more."""

    since: float
    growth: float
    """The time in which it doubles."""

    def share(self, now: float) -> float:
        """Return the part of the event loop's time that it gets."""
        return PACED_SHARE * exp2(min(DOUBLINGS, (now - self.since) / self.growth))

    @property
    def until(self) -> float:
        """Return when that is all of it."""
        return self.since + DOUBLINGS * self.growth

    @property
    def forgotten_at(self) -> float:
        """Return until when it matters that there was a limit."""
        return self.since + 2 * DOUBLINGS * self.growth


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
        self.frames_of_latest = 0
        """How many frames it has sent that were not noted, which is cheaper."""
        self._activity = PrincipalActivity()
        self._strangers_free_at = dict.fromkeys(Strangers, -inf)
        """When strangers have paid for what they were answered."""
        self._free_at: dict[str, float] = {}
        """When each principal has paid for its work."""
        self.paced_until = -inf
        """Until when somebody may have to wait."""
        self._limits: dict[str, _GrowingShare] = {}
        """What each principal gets at the least that has made the broker late or busy."""
        self._latest_work: dict[str, float] = {}
        """What was lately done for each principal; that fades with every look."""
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
        if self.frames_of_latest:
            self._charge_for_frames()
        self.latest, self.latest_at = principal, now
        self._activity.note(principal, now)
        return now

    def is_paced(self, principal: str) -> bool:
        """Return whether a principal must leave time to others now."""
        now = self._now()
        limit = self._limits.get(principal)
        return limit is not None and now < limit.until and not self.is_alone(principal)

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
        limit = self._limits.get(principal)
        least = PACED_SHARE if limit is None else limit.share(now)
        return max(least, FAIR_FACTOR * self._activity.use_of_others(principal, now))

    def charge_piece(self, principal: str, seconds: float) -> None:
        """Note a piece of work that nothing interrupted; one that is long makes others late."""
        if seconds > LATE_SECONDS and not self.is_alone(principal):
            self._pace(principal, self._now())
        self.charge(principal, seconds * max(1.0, seconds / SHORT_SECONDS))

    def charge(self, principal: str, seconds: float) -> None:
        """Note some work of a principal; only what is done while it is paced must be paid for."""
        now = self._now()
        self._activity.note_use(principal, now, seconds)
        self._latest_work[principal] = self._latest_work.get(principal, 0.0) + seconds
        if not self.is_paced(principal):
            self._free_at.pop(principal, None)
            return
        paid_at = self._due(principal) + seconds / self._share(principal, now)
        self._free_at[principal] = min(paid_at, now + MAX_DEBT_SECONDS)

    def _charge_for_frames(self) -> None:
        count, self.frames_of_latest = self.frames_of_latest, 0
        self.charge(self.latest, count * FRAME_SECONDS)

    def _pace(self, principal: str, now: float) -> None:
        """Pace a principal from now on; it is to blame for what others wait for."""
        limit = self._limits.pop(principal, None)
        growth = GROWTH_SECONDS
        if limit is not None and now < limit.forgotten_at:
            # What it gets when it begins is not too much, but it may still have work on its way.
            is_again = limit.share(now) >= 2 * PACED_SHARE
            growth = min(limit.growth * (1 + is_again), MAX_GROWTH_SECONDS)
        # The latest is the last, so the first is the one to forget.
        self._limits[principal] = limit = _GrowingShare(now, growth)
        if len(self._limits) > MAX_KNOWN:
            forgotten = next(iter(self._limits))
            del self._limits[forgotten]
            self._free_at.pop(forgotten, None)
        self.paced_until = max(self.paced_until, limit.until)

    def _blame(self, work: float, now: float) -> None:
        """Pace the one that most of the latest work was for, if it was much of it."""
        heaviest = max(self._latest_work, key=self._latest_work.__getitem__, default=None)
        if (
            heaviest is not None
            and self._latest_work[heaviest] >= BLAMED_PART * work
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
        if self.frames_of_latest:
            self._charge_for_frames()
        now, used, used_here = self.clock(), self._process_time(), self._thread_time()
        # What other processes of the machine take, nobody here could leave to others.
        late = min(now - due, used_here - self._used_here)
        is_late = late > LATE_SECONDS
        self._lateness = max(0.0, self._lateness - 1 / LATE_LOOKS) + is_late
        share = (used - self._used) / max(now - self._looked_at, LOOK_SECONDS)
        self._busy_share += (share - self._busy_share) / BUSY_LOOKS
        self._looked_at, self._used, self._used_here = now, used, used_here
        if (is_late and self._lateness > 1) or self._busy_share > BUSY_SHARE:
            self._blame(self._busy_share * BUSY_LOOKS * LOOK_SECONDS, now)
        fading = 1 - 1 / BUSY_LOOKS
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
