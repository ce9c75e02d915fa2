"""Publishers: the numbers that they use, and how many of their events wait to be matched.

A publisher numbers its events to be able to send them again. If the broker took any lower number
for a repetition, a publication that it had refused would be lost when a later one was stored first:
sent again, it would be acknowledged as a duplicate. So, as for Kafka's idempotent producers, the
next number is the last one stored plus 1. A lower one is a duplicate if it is stored, with the same
content as far as that is known; everything else is refused.

Events are matched in the order of the log, so everybody waits for those before. An event that
reaches thousands of queues takes long. Its principal therefore waits before it publishes the next,
and so its events fill no queue that others have to pass.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections import Counter
from typing import ClassVar, Final
from urllib.parse import unquote

from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.storage import PublisherTail

MAX_ACTIVE_NAMES: Final = 5_000
"""Publishers whose latest events are compared with what they send again."""
MAX_REFUSED_NAMES: Final = 1_000
"""Publishers of one principal of which nothing is stored, because it was refused."""
# How fast a high number of subscriptions reached is forgotten, per step of the matcher.
DECAY: Final = 0.99
MAX_PRINCIPALS: Final = 10_000


def publisher_owner(name: str) -> str:
    """Return the principal, in quotes, whose publisher it is.

    >>> publisher_owner("ann"), publisher_owner("ann%2Fa/b/c")
    ('ann', 'ann%2Fa')
    """
    return name.partition("/")[0]


# --- numbers -------------------------------------------------------------------------------------


class Numbering:
    """The last numbers of all publishers, and the next ones of those that publish now."""

    def __init__(self, tails: dict[str, PublisherTail], *, max_names: int = sys.maxsize) -> None:
        """Keep the numbers of at most this many names for each principal."""
        self.tails: Final = tails
        """What is stored of each publisher."""
        self._max_names: Final = max_names
        self._names: Final = Counter(map(publisher_owner, tails))
        self._active: Final = dict.fromkeys(name for name, tail in tails.items() if tail.recent)
        """Names whose latest events are known; the one that was idle longest is the first."""
        self.next: Final[dict[str, int]] = {}
        """The next numbers of those who have published, if all that is in flight is stored.

        A name of which nothing is stored may begin with any number. But if its first publication
        was refused, that number is the next one: a later one must not become the first.
        """
        self.waiting: Final[dict[str, int]] = {}
        """How many publications of each name wait to be stored."""
        self._refused: Final[dict[str, dict[str, None]]] = {}
        """Names of which only refusals are known, by principal; the oldest ones first."""

    @property
    def origins(self) -> int:
        """Return from how many other brokers events are stored."""
        return self._names[""]

    def check(self, name: str, number: int, *, skip: bool, new_names: int = 0) -> None:
        """Refuse a number that is too high, or a name too many beside this many new ones.

        `next` is the one that needs no check.
        """
        tail = self.tails.get(name)
        if tail is None:
            self._check_new_name(name, new_names)
        expected = self.next.get(name, number if tail is None else tail.last + 1)
        if number > expected and not skip:
            raise out_of_order(number, expected)

    def _check_new_name(self, name: str, new_names: int) -> None:
        owner = publisher_owner(name)
        if self._names[owner] + new_names >= self._max_names:
            raise RefusedError(
                Code.TOO_MANY,
                f"{unquote(owner)} has {self._max_names:,} publisher names, which is the limit; "
                "publish under one of them, or wait until one has been idle for `publisher_age`",
            )

    def enter(self, name: str, first: int, count: int, *, skip: bool) -> None:
        """Expect what follows a publication that is now in flight."""
        tail = self.tails.get(name)
        expected = self.next.get(name, first if tail is None else tail.last + 1)
        # One before it may have been refused since its number was checked.
        if first <= expected or skip:
            self.next[name] = max(first + count, expected)

    def leave(self, name: str, first: int) -> None:
        """Note that a publication waits no longer; one without a number does not count."""
        left = self.waiting.pop(name, 0) - (first > 0)
        if left > 0:
            self.waiting[name] = left

    def note_stored(self, tails: dict[str, PublisherTail], time: float) -> None:
        """Note what was stored of some publishers, and when; some of them may be new."""
        for name, (last, gaps, _, recent, checksums) in tails.items():
            if name not in self.tails:
                self._note_new(name)
            self.tails[name] = PublisherTail(last, gaps, time, recent, checksums)
            self.next[name] = max(last + 1, self.next.get(name, 0))
            self._active.pop(name, None)
            self._active[name] = None
        while len(self._active) > MAX_ACTIVE_NAMES:
            name = next(iter(self._active))
            del self._active[name]
            self.tails[name] = PublisherTail(*self.tails[name][:3])

    def _note_new(self, name: str) -> None:
        owner = publisher_owner(name)
        self._names[owner] += 1
        refused = self._refused.get(owner, {})
        refused.pop(name, None)
        if not refused:
            self._refused.pop(owner, None)

    def note_refusal(self, name: str, first: int, count: int) -> None:
        """Expect a publication that was not stored: those that follow it must wait for it."""
        last = self.tails.get(name, PublisherTail()).last
        following = max(first, last + 1)
        if first and following < first + count and (not last or name in self.next):
            self.next[name] = min(following, self.next.get(name, following))
            if not last:
                self._remember_refused(name)

    def forget(self, before: float) -> dict[str, float]:
        """Forget the names that have been idle since a time; return the time of each.

        What is being stored is decided already, and the name is known again afterwards.
        """
        idle = {
            name: tail.time
            for name, tail in self.tails.items()
            # Those of other brokers stay: they may send again what they have kept for longer.
            if tail.time < before and name not in self.waiting and publisher_owner(name)
        }
        for name in idle:
            del self.tails[name]
            self.next.pop(name, None)
            self._active.pop(name, None)
            self._names[publisher_owner(name)] -= 1
            if not self._names[publisher_owner(name)]:
                del self._names[publisher_owner(name)]
        return idle

    def _remember_refused(self, name: str) -> None:
        """Keep what is expected of a name of which nothing is stored, among few others.

        Only names of the same principal are forgotten for it, so nobody can do that to others.
        """
        refused = self._refused.setdefault(publisher_owner(name), {})
        refused.pop(name, None)
        refused[name] = None
        if len(refused) > MAX_REFUSED_NAMES:
            oldest = next(iter(refused))
            del refused[oldest], self.next[oldest]


def count_duplicates(tail: PublisherTail, first: int, checksums: array[int], *, skip: bool) -> int:
    """Return how many events of a publication are stored already, or refuse it."""
    following = tail.last + 1
    if first > following and tail.last and not skip:
        raise out_of_order(first, following)
    duplicates = max(0, min(len(checksums), following - first))
    missing = tail.missing(range(first, first + duplicates))
    if missing is not None:
        raise RefusedError(
            Code.OUT_OF_ORDER,
            f"number {missing} of this publisher comes too late: it is not known to be stored, and "
            f"number {tail.last} is; the next one is {following}",
            expected=following,
        )
    differing = tail.differing(first, checksums[:duplicates])
    if differing is not None:
        raise RefusedError(
            Code.CONFLICT,
            f"number {differing} of this publisher is stored with another event; the next number "
            f"is {following}",
        )
    return duplicates


def out_of_order(number: int, expected: int) -> RefusedError:
    """Return the refusal of a number that is too high."""
    return RefusedError(
        Code.OUT_OF_ORDER,
        f"number {number} of this publisher is out of order: the next one is {expected}; send what "
        "is missing first, or say that it is left out on purpose",
        expected=expected,
    )


# --- fan-out -------------------------------------------------------------------------------------


class FanOut:
    """What waits of each principal to be stored or matched; keys are `publisher_owner`s."""

    # Some 10 to 20 ms of work for the matcher.
    max_matches: ClassVar[int] = 5_000

    def __init__(self) -> None:
        self.waiting: Final[dict[str, int]] = {}
        """How many events wait."""
        self.reach: Final[dict[str, float]] = {}
        """How many subscriptions an event reaches; at first perhaps all."""
        self._reliefs: Final[dict[str, asyncio.Future[None]]] = {}

    def leave(self, owner: str, events: int, matches: int | None = None) -> None:
        """Count events that wait no longer, and wake whom they held up.

        If they were matched, `matches` is the number of subscriptions that they reached.
        """
        if matches is not None:
            before = self.reach.pop(owner, 0.0)
            self.reach[owner] = max(1.0, matches / events, DECAY * before)
            while len(self.reach) > MAX_PRINCIPALS:
                del self.reach[next(iter(self.reach))]
        left = self.waiting.get(owner, 0) - events
        if left > 0:
            self.waiting[owner] = left
        else:
            self.waiting.pop(owner, None)
        if self._reliefs:
            self._relieve(owner)

    def has_room(self, owner: str, most: int) -> bool:
        """Return whether more events may wait, with this many subscriptions."""
        return self.waiting.get(owner, 0) * self.reach.get(owner, most) <= self.max_matches

    def relief(self, owner: str) -> asyncio.Future[None]:
        """Return the moment to look for room again; ask for it as soon as there is none."""
        if owner not in self._reliefs:
            self._reliefs[owner] = asyncio.get_running_loop().create_future()
        return self._reliefs[owner]

    def wake_all(self) -> None:
        """Wake everybody who waits for room."""
        for owner in [*self._reliefs]:
            self._relieve(owner)

    def _relieve(self, owner: str) -> None:
        relief = self._reliefs.pop(owner, None)
        if relief is not None:
            relief.set_result(None)
