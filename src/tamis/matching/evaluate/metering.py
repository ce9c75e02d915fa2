"""Budgets for slow tests: who pays for them, and what stays undecided when nobody can.

Patterns and other tests of texts may take long, and so may comparisons between attributes that have
many values; both the filter and the event come from outside. A budget has an account for everybody
who pays. A meter runs the tests of one segment, charges what each took, and leaves out those that
nobody can pay for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from tamis.filters import Id

# A test that could take longer than this runs in a thread of its own, which can be left behind.
MAX_INLINE_SECONDS: Final = 0.01
# So does a set of tests; one that takes longer than that is not used again.
MAX_SET_SECONDS: Final = 0.1
SLOW_SET_SECONDS: Final = 0.02
# A test that has been as fast as this until now may use the reserve of an account.
CHEAP_SECONDS: Final = 0.001
MIN_KNOWN_SIZE: Final = 4_096
# What a call itself may take, beside the text.
TEXT_CALL_SECONDS: Final = 20e-6
# How often the time of a test in another thread is looked at.
LOOK_SECONDS: Final = 0.005
# Automata take a few nanoseconds for a character; a test this slow goes without one.
SLOW_SECONDS_PER_CHARACTER: Final = 20e-9
MIN_SLOW_SECONDS: Final = 0.001
MAX_SLOW_PATTERNS: Final = 10_000

T = TypeVar("T")

SLOW_PATTERNS: Final[set[str]] = set()
"""Patterns that have been slow; together with others in a set, they would slow down these."""


class BudgetAccount:
    """The seconds that somebody may still use."""

    __slots__ = ("__weakref__", "balance", "filled_at")

    def __init__(self, balance: float) -> None:
        self.balance = balance
        self.filled_at = 0.0
        """When it was first used, or last filled."""


class MeteredTest(NamedTuple):
    """A test of texts whose time is measured."""

    row: int
    accepts: Callable[[str], bool]
    per_character: float
    """The seconds that it takes at most for a character."""
    pattern: str = ""
    """The regular expression, if it is one: RE2 runs beside all other threads."""


class _TimeTaken(NamedTuple):
    """What is known of a test: how long it took, for how many characters or combinations."""

    seconds: float
    size: int

    def expected(self, size: int) -> float:
        """Return the time that a text of a length, or this many combinations, probably take."""
        if self.size < MIN_KNOWN_SIZE:
            return float("inf")
        return self.seconds / self.size * size


_UNKNOWN: Final = _TimeTaken(0.0, 0)


class _BudgetRecords:
    """What a budget keeps of one compiled set."""

    def __init__(self) -> None:
        self.payers: dict[int, tuple[BudgetAccount, ...]] = {}
        self.removed = 0
        self.history: dict[int, _TimeTaken] = {}


class MatchingBudget:
    """How long slow tests may take: for each payer, a bucket of seconds that fills again.

    A full bucket has `burst` seconds, and gains `share` seconds each second. What several payers'
    subscriptions ask is asked once, and they share its cost. When no payer of a test has anything
    left, its subscriptions are undecided for the event: what they seem to match from it on is not
    reliable. Tests that were always cheap may use a reserve of half a bucket beyond.

    One thread at a time may match with a budget.
    """

    def __init__(
        self,
        payer_of: Callable[[Id], Hashable],
        *,
        burst: float,
        share: float,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Make full buckets; `clock` measures the processor time of this thread, in seconds."""
        self._now = now
        self.burst: Final = burst
        self.reserve: Final = burst / 2
        self.clock: Final = clock
        self.undecided: dict[Id, int] = {}
        """For each subscription the first event, by its number, for which it is undecided."""
        self.event = 0
        """The number of the event, if events are matched one by one."""
        self._payer_of = payer_of
        self._share = share
        self._accounts: WeakValueDictionary[Hashable, BudgetAccount] = WeakValueDictionary()
        self.used: set[BudgetAccount] = set()
        """Accounts whose buckets are not full."""
        self._records: WeakKeyDictionary[object, _BudgetRecords] = WeakKeyDictionary()
        self.thread: Final = AbandonableThread()

    def account(self, id_: Id) -> BudgetAccount:
        """Return the account that pays for a subscription."""
        payer = self._payer_of(id_)
        account = self._accounts.get(payer)
        if account is None:
            account = self._accounts[payer] = BudgetAccount(self.burst)
        return account

    def fill(self) -> None:
        """Fill the buckets for the time that has passed, and forget what was undecided."""
        now = self._now()
        for account in self.used:
            gained = self._share * (now - account.filled_at)
            account.balance = min(self.burst, account.balance + gained)
            account.filled_at = now
        self.used = {account for account in self.used if account.balance < self.burst}
        self.undecided = {}

    def wait(self, id_: Id) -> float:
        """Return in how many seconds a subscription's payer has something left."""
        return max(0.0, -self.account(id_).balance / self._share)

    def charge(self, accounts: Sequence[BudgetAccount], seconds: float) -> None:
        """Take seconds from some accounts, from each its share."""
        for account in accounts:
            account.balance -= seconds / len(accounts)
            if account not in self.used:
                self.used.add(account)
                account.filled_at = self._now()

    def leave_undecided(self, id_: Id, event: int) -> None:
        """Note that a subscription is undecided for an event."""
        self.undecided[id_] = min(event, self.undecided.get(id_, event))

    def records(self, compiled: object, removed: int) -> _BudgetRecords:
        """Return what is kept of a compiled set, of which some subscriptions were removed."""
        records = self._records.get(compiled)
        if records is None:
            records = self._records[compiled] = _BudgetRecords()
        if records.removed != removed:
            records.removed = removed
            records.payers.clear()
        return records


class Meter:
    """Runs tests of one compiled set on some events, as long as somebody pays for them."""

    def __init__(
        self,
        budget: MatchingBudget,
        records: _BudgetRecords,
        ids_testing: Callable[[int], Sequence[Id]],
        first_event: int = 0,
    ) -> None:
        """Make a meter; `ids_testing` returns the subscriptions that use a predicate."""
        self._budget = budget
        self._records = records
        self._ids_testing = ids_testing
        self._clock = budget.clock
        self._first_event = first_event
        self.part = 0
        """The first event of the part that is matched now."""
        self.left_out: list[int] = []
        """The predicates that the present text was not tested for."""

    def passes(self, test: MeteredTest, text: str) -> bool:
        """Return whether a text passes a test; False, and note it, if nobody can pay for that."""
        row, accepts, per_character, pattern = test
        payers = self._payers(row)
        limit = self._limit(row, payers, len(text))
        if limit <= 0.0:
            self.left_out.append(row)
            return False
        worst = TEXT_CALL_SECONDS + per_character * len(text)
        passed: bool | None
        if worst > MAX_INLINE_SECONDS and pattern:
            passed, seconds = self._budget.thread.run(accepts, text, limit)
        else:
            started = self._clock()
            passed, seconds = accepts(text), self._clock() - started
        # Beyond the worst case, something else took the time, such as collecting garbage.
        seconds = worst if passed is None else min(seconds, worst)
        self._charge(row, payers, seconds, len(text))
        if pattern and is_slow(seconds, text):
            note_slow(pattern)
        if passed is None:
            self.left_out.append(row)
            return False
        return passed

    def compute(self, row: int, work: Callable[[], T], size: int, worst: float) -> T | None:
        """Return what a test of this many combinations of values finds; None if nobody can pay."""
        payers = self._payers(row)
        if self._limit(row, payers, size) <= 0.0:
            self.left_out.append(row)
            return None
        started = self._clock()
        found, seconds = work(), self._clock() - started
        self._charge(row, payers, min(seconds, worst), size)
        return found

    def run_set(self, find: Callable[[str], T], text: str, worst: float) -> T | None:
        """Return what a set of tests finds; None if that takes too long, and nobody pays for it."""
        if worst <= MAX_SET_SECONDS:
            started = self._clock()
            found = find(text)
            return found if self._clock() - started <= SLOW_SET_SECONDS else None
        return self._budget.thread.run(find, text, SLOW_SET_SECONDS)[0]

    def _limit(self, row: int, payers: Sequence[BudgetAccount], size: int) -> float:
        """Return how many seconds a test may take."""
        balance = max([payer.balance for payer in payers], default=0.0)
        if balance > 0.0 or not payers:
            return balance
        reserve = balance + self._budget.reserve
        if reserve <= 0.0:
            return 0.0
        known = self._records.history.get(row, _UNKNOWN)
        return reserve if known.expected(size) < CHEAP_SECONDS else 0.0

    def _payers(self, row: int) -> tuple[BudgetAccount, ...]:
        payers = self._records.payers.get(row)
        if payers is None:
            found = {self._budget.account(id_) for id_ in self._ids_testing(row)}
            payers = self._records.payers[row] = tuple(found)
        return payers

    def _charge(self, row: int, payers: Sequence[BudgetAccount], seconds: float, size: int) -> None:
        self._budget.charge(payers, seconds)
        known = self._records.history.get(row, _UNKNOWN)
        self._records.history[row] = _TimeTaken(known.seconds + seconds, known.size + size)

    def note(self, events: Sequence[int]) -> None:
        """Note that the predicates left out are undecided for these events of the part."""
        # A part may have none of the events that hold a text of the batch.
        if events:
            first = self._first_event + self.part + min(events)
            for row in self.left_out:
                for id_ in self._ids_testing(row):
                    self._budget.leave_undecided(id_, first)
        self.left_out = []


def is_slow(seconds: float, text: str) -> bool:
    """Return whether a test of a text has taken longer than with an automaton."""
    return seconds > max(MIN_SLOW_SECONDS, SLOW_SECONDS_PER_CHARACTER * len(text))


def note_slow(pattern: str) -> None:
    """Keep a pattern out of the sets of patterns that are made from now on."""
    if len(SLOW_PATTERNS) >= MAX_SLOW_PATTERNS:
        SLOW_PATTERNS.clear()
    SLOW_PATTERNS.add(pattern)


# --- tests that can be left behind ----------------------------------------------------------------


class _RunningCall(Generic[T]):
    """A call in another thread, and the clock of that thread's processor time."""

    def __init__(self) -> None:
        self._clock: int | None = None
        self._started = 0.0

    def run(self, call: Callable[[str], T], text: str) -> tuple[T, float]:
        """Return the result and the processor time."""
        self._started = time.thread_time()
        self._clock = time.pthread_getcpuclockid(get_ident())
        return call(text), time.thread_time() - self._started

    def seconds(self) -> float:
        """Return the processor time so far."""
        return 0.0 if self._clock is None else time.clock_gettime(self._clock) - self._started


class AbandonableThread:
    """A thread for calls of RE2 that may take too long; they run beside all other threads."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    def run(self, call: Callable[[str], T], text: str, limit: float) -> tuple[T | None, float]:
        """Return the result of a call, and its processor time; None if that exceeds the limit.

        Then the thread is left behind: the call ends some time, and nobody waits for it.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "slow patterns")
        running = _RunningCall[T]()
        future = self._pool.submit(running.run, call, text)
        while True:
            try:
                return future.result(min(limit, LOOK_SECONDS))
            except TimeoutError:
                used = running.seconds()
            if used > limit and not future.done():
                self._pool.shutdown(wait=False)
                self._pool = None
                return None, used
