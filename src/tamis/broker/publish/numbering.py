"""The numbers of publishers: each follows the last one stored, so that no retry is misjudged.

A publisher numbers its events to be able to send them again. If the broker took any lower number
for a repetition, a publication that it had refused would be lost when a later one was stored first:
sent again, it would be acknowledged as a duplicate. So, as for Kafka's idempotent producers, the
next number is the last one stored plus 1. A lower one is a duplicate if it is stored, with the same
content as far as that is known; everything else is refused.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from typing import Final
from urllib.parse import unquote

from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.storage import PublisherTail

MAX_ACTIVE_NAMES: Final = 5_000
"""Publishers whose latest events are compared with what they send again."""
MAX_REFUSED_NAMES: Final = 1_000
"""Publishers of one principal of which nothing is stored, because it was refused."""


class Numbering:
    """The last numbers of all publishers, and the next ones of those that publish now."""

    def __init__(self, tails: dict[str, PublisherTail], *, max_names: int = sys.maxsize) -> None:
        """Keep the numbers of at most so many names for each principal."""
        self.tails: Final = tails
        """What is stored of each publisher."""
        self._max_names: Final = max_names
        self._names: Final = Counter(map(owner_of, tails))
        self._active: Final = dict.fromkeys(name for name, tail in tails.items() if tail.recent)
        """Names whose latest events are known; the one that was idle longest is the first."""
        self.expected: Final[dict[str, int]] = {}
        """The next numbers, as far as they do not follow from what is stored.

        That is, of publishers with events in flight, and of new ones that were refused some: a name
        of which nothing is stored may begin with any number. But if its first publication was
        refused, that number is expected: a later one must not become the first.
        """
        self._in_flight: Final[Counter[str]] = Counter()
        """How many publications of each name wait to be stored."""
        self._refused: Final[dict[str, dict[str, None]]] = {}
        """Names in `expected` with nothing in flight, by principal; the oldest ones first."""

    def check(self, name: str, number: int, *, skip: bool, new_names: int = 0) -> None:
        """Refuse a number that is too high, or a name too many beside so many new ones."""
        tail = self.tails.get(name)
        expected = self.expected.get(name, number)
        if tail is None:
            self._check_new_name(name, new_names)
        else:
            expected = max(tail.last + 1, self.expected.get(name, 0))
        if number > expected and not skip:
            raise out_of_order(number, expected)

    def _check_new_name(self, name: str, new_names: int) -> None:
        owner = owner_of(name)
        if self._names[owner] + new_names >= self._max_names:
            raise RefusedError(
                Code.TOO_MANY,
                f"{unquote(owner)} has {self._max_names:,} publisher names, which is the limit; "
                "publish under one of them, or wait until one has been idle for `publisher_age`",
            )

    def enter(self, name: str, first: int, count: int) -> None:
        """Expect what follows a publication that is now in flight."""
        self.expected[name] = max(first + count, self.expected.get(name, 0))
        self._in_flight[name] += 1
        self._refused.get(owner_of(name), {}).pop(name, None)

    def leave(self, name: str) -> None:
        """Note that a publication is stored or refused."""
        self._in_flight[name] -= 1
        if not self._in_flight[name]:
            del self._in_flight[name]
            if name in self.tails:
                del self.expected[name]
            else:
                self._remember_refused(name)

    def note_stored(self, tails: dict[str, PublisherTail]) -> None:
        """Note what is on disk of some publishers, among them new ones."""
        self._names.update(map(owner_of, tails.keys() - self.tails.keys()))
        self.tails.update(tails)
        for name in tails:
            self._active.pop(name, None)
            self._active[name] = None
        while len(self._active) > MAX_ACTIVE_NAMES:
            name = next(iter(self._active))
            del self._active[name]
            self.tails[name] = PublisherTail(*self.tails[name][:3])

    def note_refusal(self, name: str, first: int, count: int) -> None:
        """Expect a publication that was not stored: those that follow it must wait for it."""
        last = self.tails.get(name, PublisherTail()).last
        following = max(first, last + 1)
        if first and following < first + count:
            if name in self._in_flight:
                self.expected[name] = min(following, self.expected[name])
            elif not last:
                self.expected[name] = min(following, self.expected.get(name, following))
                self._remember_refused(name)

    def forget(self, before: float) -> dict[str, float]:
        """Forget the names that have been idle since a time; return the time of each."""
        idle = {
            name: tail.time
            for name, tail in self.tails.items()
            if tail.time < before and name not in self._in_flight
        }
        for name in idle:
            del self.tails[name]
            self._active.pop(name, None)
        self._names.subtract(map(owner_of, idle))
        return idle

    def _remember_refused(self, name: str) -> None:
        """Keep what is expected of a name with nothing in flight or stored, among few others.

        Only names of the same principal are forgotten for it, so nobody can do that to others.
        """
        refused = self._refused.setdefault(owner_of(name), {})
        refused.pop(name, None)
        refused[name] = None
        if len(refused) > MAX_REFUSED_NAMES:
            oldest = next(iter(refused))
            del refused[oldest], self.expected[oldest]


def owner_of(name: str) -> str:
    """Return the principal, in quotes, whose publisher it is.

    >>> owner_of("ann"), owner_of("ann%2Fa/b/c")
    ('ann', 'ann%2Fa')
    """
    return name.partition("/")[0]


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
