"""The state against plain dictionaries, and in the hands of threads and full disks."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from storage.disk import files_no_longer_than
from storage.samples import quick_folder, subscription
from tamis.errors import StorageError, StorageFullError
from tamis.ports import SystemFiles
from tamis.storage import (
    NEVER,
    AuditEntry,
    DeadLetter,
    DeferredMatches,
    Pending,
    PublisherTail,
    Retry,
    StateStore,
    StoredSubscription,
    StoredToken,
)

NUMBERS = st.integers(1, 5)
SEQUENCES = st.integers(1, 40)
PAIRS = st.lists(st.tuples(NUMBERS, SEQUENCES), max_size=8)
# Whole numbers too: they are times like others, and their checksum is that of one.
TIMES = st.sampled_from([0, 1.0, 2.5, 100])


def letter(number: int, sequence: int) -> DeadLetter:
    return DeadLetter(number, sequence, 9.0, 3, "refused", 1.0, "p", sequence, 2, b"\0payload")


class StateMachine(RuleBasedStateMachine):
    """Whatever is done to it, the state says what plain dictionaries say, also when reopened."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tamis-state-", dir=quick_folder()))
        self.subscriptions: dict[int, StoredSubscription] = {}
        self.last_number = 0
        self.pending: dict[int, dict[int, tuple[int, float]]] = defaultdict(dict)
        self.dead: dict[int, dict[int, DeadLetter]] = defaultdict(dict)
        self.lost: Counter[int] = Counter()
        self.deferred: dict[tuple[str, int, int], int] = {}
        self.publishers: dict[str, PublisherTail] = {}
        self.matched = 0
        self.tokens: dict[bytes, StoredToken] = {}
        self.acts: list[AuditEntry] = []

    @initialize()
    def begin(self) -> None:
        self.open()
        for name in "abcd":
            self.add_subscription(name, durable=True, expires_at=100)
        self.match([(1, 30), (1, 31), (2, 31), (3, 40)], "p", 0)

    def open(self) -> None:
        self.state = StateStore(self.folder / "state.db")

    def teardown(self) -> None:
        self.state.close()
        shutil.rmtree(self.folder)

    @rule()
    def close_and_open(self) -> None:
        self.state.close()
        self.open()

    @rule()
    def kill_and_open(self) -> None:
        """What the process leaves behind when it ends without a word."""
        left = Path(tempfile.mkdtemp(prefix="tamis-state-", dir=quick_folder()))
        for path in self.folder.iterdir():
            if not path.name.endswith("-shm"):
                shutil.copy(path, left)
        self.state.close()
        shutil.rmtree(self.folder)
        self.folder = left
        self.open()

    # --- subscriptions -----------------------------------------------------------------------

    @rule(name=st.sampled_from("abcdefg"), durable=st.booleans(), expires_at=TIMES)
    def add_subscription(self, name: str, durable: bool, expires_at: float) -> None:
        new = subscription(name, durable=durable, expires_at=expires_at, start=self.matched + 1)
        if any(other.name == name for other in self.subscriptions.values()):
            with pytest.raises(StorageError, match=f"bob already has a subscription named {name}"):
                self.state.add_subscription(new)
            return
        self.last_number += 1
        assert self.state.add_subscription(new) == self.last_number
        fields = {field: getattr(new, field) for field in new.__struct_fields__}
        self.subscriptions[self.last_number] = StoredSubscription(
            **fields | {"number": self.last_number}
        )

    @rule(number=NUMBERS)
    def remove_subscription(self, number: int) -> None:
        there = self.subscriptions.pop(number, None) is not None
        assert self.state.remove_subscription(number) == there
        self.pending.pop(number, None)
        self.dead.pop(number, None)

    @rule(number=NUMBERS, expires_at=TIMES | st.just(NEVER))
    def renew(self, number: int, expires_at: float) -> None:
        there = number in self.subscriptions
        assert self.state.renew_subscription(number, expires_at) == there
        if there:
            old = self.subscriptions[number]
            fields = {field: getattr(old, field) for field in old.__struct_fields__}
            self.subscriptions[number] = StoredSubscription(**fields | {"expires_at": expires_at})

    # --- events ------------------------------------------------------------------------------

    @rule(pairs=PAIRS, name=st.sampled_from(["p", "Ü\0", ""]), more=st.integers(-2, 9))
    def match(self, pairs: list[tuple[int, int]], name: str, more: int) -> None:
        matched = max([self.matched + more, *(sequence for _, sequence in pairs)])
        # Once matched is matched: it does not go back.
        self.matched = max(self.matched, matched)
        self.publishers[name] = tail = PublisherTail(
            matched, ((1, 3),) if more else (), matched / 2
        )
        self.state.commit_matches(matched, pairs, {name: tail})
        for number, sequence in pairs:
            if number in self.subscriptions:
                self.pending[number].setdefault(sequence, (0, 0.0))

    @rule(owner=st.sampled_from("ab"), sequence=SEQUENCES, numbers=st.lists(NUMBERS, unique=True))
    def defer(self, owner: str, sequence: int, numbers: list[int]) -> None:
        self.matched = max(self.matched, sequence)
        rows = [DeferredMatches.parts(owner, sequence, [n])[0] for n in numbers]
        rows = [row._replace(part=part) for part, row in enumerate(rows)]
        self.state.commit_matches(self.matched, [], {}, deferred=rows)
        for part, number in enumerate(numbers):
            self.deferred[owner, sequence, part] = number

    @rule(owner=st.sampled_from("ab"), limit=st.integers(1, 4))
    def write_deferred(self, owner: str, limit: int) -> None:
        keys = sorted(key for key in self.deferred if key[0] == owner)[:limit]
        pairs = [(self.deferred.pop(key), key[1]) for key in keys]
        assert self.state.write_deferred(owner, 1 << 60, limit) == (pairs, {})
        for number, sequence in pairs:
            if number in self.subscriptions:
                self.pending[number].setdefault(sequence, (0, 0.0))

    @rule(
        acknowledged=PAIRS,
        again=st.dictionaries(st.tuples(NUMBERS, SEQUENCES), TIMES, max_size=3),
        dead=st.lists(st.tuples(NUMBERS, SEQUENCES), max_size=2),
    )
    def settle(
        self,
        acknowledged: list[tuple[int, int]],
        again: dict[tuple[int, int], float],
        dead: list[tuple[int, int]],
    ) -> None:
        known = {pair: due for pair, due in again.items() if pair[1] <= self.matched}
        given_up = [pair for pair in dead if pair[1] <= self.matched]
        self.state.settle(
            acknowledged=acknowledged,
            retries=[Retry(*pair, 3, due) for pair, due in known.items()],
            dead=[letter(*pair) for pair in given_up],
        )
        for number, sequence in [*acknowledged, *given_up]:
            self.pending[number].pop(sequence, None)
        for (number, sequence), due in known.items():
            # What was dropped or settled stays away.
            if number in self.subscriptions and sequence in self.pending[number]:
                self.pending[number][sequence] = (3, due)
        for number, sequence in given_up:
            if number in self.subscriptions:
                self.dead[number][sequence] = letter(number, sequence)

    @rule(below=SEQUENCES)
    def drop_pending_below(self, below: int) -> None:
        gone = {
            number: [sequence for sequence in rows if sequence < below]
            for number, rows in self.pending.items()
        }
        wanted = Counter(
            {number: len(sequences) for number, sequences in gone.items() if sequences}
        )
        for key in [key for key in self.deferred if key[1] < below]:
            wanted.update(self.subscriptions.keys() & {self.deferred.pop(key)})
        assert self.state.drop_pending_below(below) == wanted
        for number, sequences in gone.items():
            for sequence in sequences:
                del self.pending[number][sequence]

    @rule(pairs=PAIRS, attempts=st.integers(1, 3))
    def note_sent(self, pairs: list[tuple[int, int]], attempts: int) -> None:
        self.state.settle(retries=[Retry(*pair, attempts, 0.0) for pair in pairs])
        for number, sequence in pairs:
            if sequence in self.pending[number]:
                self.pending[number][sequence] = (attempts, 0.0)

    @rule(pairs=PAIRS)
    def lose(self, pairs: list[tuple[int, int]]) -> None:
        gone = [(n, s) for n, s in {*pairs} if self.pending[n].pop(s, None) is not None]
        lost = Counter(number for number, _ in gone)
        said = self.state.settle(lost=[(*pair, "lost") for pair in pairs])
        assert {row.number: row.events for row in said} == lost
        for number, count in lost.items():
            self.lost[number] += count
        known = {row.number: row.events for row in self.state.dropped() if row.reason == "lost"}
        assert known == {n: count for n, count in self.lost.items() if n in self.subscriptions}

    @rule(number=NUMBERS, listed=st.lists(SEQUENCES, max_size=4), up_to=SEQUENCES, after=SEQUENCES)
    def find_pending(self, number: int, listed: list[int], up_to: int, after: int) -> None:
        rows = sorted(self.pending[number])
        meant = [s for s in rows if s > after and (s <= up_to or s in listed)]
        found = self.state.pending_among(number, listed, up_to, after=after, limit=3)
        assert found == meant[:3]

    @rule(number=NUMBERS, sequences=st.lists(SEQUENCES, max_size=4, unique=True))
    def delete_dead_letters(self, number: int, sequences: list[int]) -> None:
        gone = [s for s in sequences if self.dead[number].pop(s, None) is not None]
        assert self.state.delete_dead_letters(number, sequences) == len(gone)

    @rule(number=NUMBERS, oldest=SEQUENCES)
    def requeue(self, number: int, oldest: int) -> None:
        again = [sequence for sequence in self.dead[number] if sequence >= oldest]
        everything = range(1, 50)
        assert self.state.requeue(number, everything, oldest=oldest) == sorted(again)
        for sequence in again:
            del self.dead[number][sequence]
            self.pending[number][sequence] = (0, 0.0)

    # --- tokens and audit --------------------------------------------------------------------

    @rule(name=st.binary(min_size=1, max_size=2), expires_at=TIMES | st.just(NEVER))
    def add_token(self, name: bytes, expires_at: float) -> None:
        token = StoredToken(name, "bob", float(len(self.tokens)), expires_at, NEVER, "my laptop")
        if name in self.tokens:
            with pytest.raises(StorageError, match="this token already exists"):
                self.state.add_token(token)
            return
        self.state.add_token(token)
        self.tokens[name] = token

    @rule(name=st.binary(min_size=1, max_size=1))
    def revoke_token(self, name: bytes) -> None:
        token = self.tokens.get(name)
        holds = token is not None and token.revoked_at == NEVER
        assert self.state.revoke_token(name, 50.0) == holds
        if token is not None and holds:
            self.tokens[name] = token._replace(revoked_at=50.0)

    @rule(detail=st.text(max_size=5).filter(lambda text: text.isprintable()))
    def act(self, detail: str) -> None:
        entry = AuditEntry(len(self.acts) + 1, 3.0, "admin", "revoke", detail)
        assert self.state.add_audit(*entry[1:]) == entry.number
        self.acts.append(entry)

    # --- all of it ---------------------------------------------------------------------------

    @invariant()
    def it_says_what_the_dictionaries_say(self) -> None:
        state = self.state
        assert state.subscriptions() == [self.subscriptions[n] for n in sorted(self.subscriptions)]
        assert state.matched_up_to == self.matched
        assert {one[:3]: one.subscriptions()[0] for one in state.deferred()} == self.deferred
        assert state.publishers() == self.publishers
        assert state.tokens() == list(self.tokens.values())
        assert state.audit(0, 1000) == self.acts
        assert state.audit(2, 1) == self.acts[2:3]
        assert state._counters.pending == sum(len(rows) for rows in self.pending.values())
        for number in self.subscriptions:
            self.check_events_of(number)
        assert state.damaged == ()
        assert state.lost_changes == 0

    def check_events_of(self, number: int) -> None:
        rows = [Pending(s, *self.pending[number][s]) for s in sorted(self.pending[number])]
        assert self.state.pending(number, 0, math.inf, 100) == rows
        assert self.state.pending_count(number) == len(rows)
        due = [row for row in rows if row.sequence > 5 and row.due <= 1.0]
        assert self.state.pending(number, 5, 1.0, 2) == due[:2]
        letters = [self.dead[number][sequence] for sequence in sorted(self.dead[number])]
        assert self.state.dead_letters(number, 0, 100) == letters
        assert self.state.dead_letter_count(number) == len(letters)
        assert self.state.dead_letters(number, 5, 1) == [x for x in letters if x.sequence > 5][:1]


def run(examples: int) -> None:
    run_state_machine_as_test(
        StateMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )


def test_a_state_says_what_was_done_to_it() -> None:
    run(25)


@pytest.mark.slow
def test_a_state_says_what_was_done_to_it_for_long() -> None:
    run(2_000)


# --- use -------------------------------------------------------------------------------------


def test_all_subscriptions_are_added_or_none(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    names = ["a", "b", "a"]
    with pytest.raises(StorageError, match="bob already has a subscription named a"):
        state.add_subscriptions([subscription(name) for name in names])
    assert state.subscriptions() == []
    # Whoever has the same name at another owner is no other.
    assert state.add_subscriptions([subscription("a"), subscription("a", "eve")]) == [1, 2]
    assert state.remove_subscriptions([1, 2, 3]) == 2
    assert state.add_subscription(subscription("a")) == 3
    state.close()
    with pytest.raises(StorageError, match="the state is closed"):
        state.add_subscription(subscription("b"))
    with pytest.raises(StorageError, match="the state is closed"):
        state.subscriptions()


def test_nobody_else_gets_a_reserved_number(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    assert state.reserve_numbers(3) == range(1, 4)
    assert state.add_subscription(subscription("a")) == 4
    assert state.reserve_numbers(2) == range(5, 7)
    mixed = [subscription("b", number=3), subscription("c"), subscription("d", number=2)]
    assert state.add_subscriptions(mixed) == [3, 8, 2]
    assert [one.number for one in state.subscriptions()] == [2, 3, 4, 8]
    with pytest.raises(StorageError, match="bob already has a subscription named c"):
        state.add_subscriptions([subscription("e", number=5), subscription("c", number=6)])
    assert [one.name for one in state.subscriptions()] == ["d", "b", "a", "c"]
    state.close()
    again = StateStore(quick_path / "state.db")
    assert again.add_subscription(subscription("f")) == 9
    again.close()


def test_readers_do_not_wait_for_the_writer_and_see_whole_changes(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    state.add_subscriptions([subscription("a"), subscription("b")])
    odd: list[int] = []
    done = False

    def read() -> None:
        while not done:
            found = state.pending(1, 0, 1.0, 10_000)
            if len(found) % 10:
                odd.append(len(found))

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for first in range(1, 2000, 10):
        pairs = [(number, first + place) for number in (1, 2) for place in range(10)]
        state.commit_matches(first + 9, pairs, {})
    done = True
    for reader in readers:
        reader.join(60)
    assert odd == []
    assert state.pending_count(1) == 2000
    state.close()


def test_a_full_disk_refuses_changes_and_goes_on_with_room(small_disk: Path) -> None:
    state = StateStore(small_disk / "state.db")
    state.add_subscription(subscription("a"))
    state.commit_matches(1, [(1, 1)], {"p": PublisherTail(1)})
    filler = small_disk / "filler"
    filler.write_bytes(bytes(800_000))
    pairs = [(1, sequence) for sequence in range(2, 10_000)]
    for _ in range(2):
        with pytest.raises(StorageFullError, match="the disk is full; free space on the disk"):
            state.commit_matches(9_999, pairs, {"p": PublisherTail(9_999)})
        assert (state.matched_up_to, state._counters.pending, state.publishers()) == (
            1,
            1,
            {"p": PublisherTail(1)},
        )
    filler.unlink()
    state.commit_matches(9_999, pairs, {"p": PublisherTail(9_999)})
    state.close()
    state = StateStore(small_disk / "state.db")
    assert (state.pending_count(1), state.damaged) == (9_999, ())
    state.close()


def test_a_failing_disk_is_reported_in_one_sentence(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    state.add_subscription(subscription("a"))
    pairs = [(1, sequence) for sequence in range(2, 10_000)]
    with files_no_longer_than(200_000), pytest.raises(StorageError, match="disk I/O error"):
        state.commit_matches(9_999, pairs, {"p": PublisherTail(9_999)})
    state.commit_matches(9_999, pairs, {"p": PublisherTail(9_999)})
    assert state.pending_count(1) == 9_998
    state.close()


LASTING: dict[str, tuple[bool, Callable[[StateStore], object]]] = {
    "add a subscription": (True, lambda state: state.add_subscription(subscription("new"))),
    "remove a subscription": (True, lambda state: state.remove_subscription(1)),
    "renew a subscription": (True, lambda state: state.renew_subscription(1, 5.0)),
    "add a token": (True, lambda state: state.add_token(StoredToken(b"h", "bob", 1.0))),
    "revoke a token": (True, lambda state: state.revoke_token(b"h", 1.0)),
    "note an act": (True, lambda state: state.add_audit(1.0, "admin", "look", "")),
    "delete dead letters": (True, lambda state: state.delete_dead_letters(1, [1])),
    "requeue dead letters": (True, lambda state: state.requeue(1, [1], oldest=1)),
    "matches": (False, lambda state: state.commit_matches(1, [(1, 1)], {})),
    "acknowledgements": (False, lambda state: state.settle(acknowledged=[(1, 1)])),
    "drops": (False, lambda state: state.drop_pending_below(1)),
}


@pytest.mark.parametrize("what", LASTING)
def test_what_is_promised_to_last_is_synced_before_it_is_said(what: str, quick_path: Path) -> None:
    is_lasting, act = LASTING[what]
    state = StateStore(quick_path / "state.db")
    state.add_subscription(subscription("old"))
    levels: list[int] = []
    # SQLite tells each statement; 2 is FULL, a sync of the log with each commit, and 1 is not.
    writer = state._database.writer

    def trace(statement: str) -> None:
        if statement == "COMMIT":
            writer.set_trace_callback(None)
            levels.append(writer.execute("PRAGMA synchronous").fetchone()[0])

    writer.set_trace_callback(trace)
    act(state)
    writer.set_trace_callback(None)
    assert levels == [2 if is_lasting else 1]
    state.close()


def test_what_was_committed_is_brought_to_the_disk_on_demand_without_room(small_disk: Path) -> None:
    synced: list[str] = []

    class Watched(SystemFiles):
        def sync(self, file: int) -> None:  # type: ignore[override]
            synced.append(os.readlink(f"/proc/self/fd/{file}"))

    state = StateStore(small_disk / "state.db", files=Watched())
    state.commit_matches(7, [], {"p": PublisherTail(7)})
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(1000))
    synced.clear()
    state.make_lasting()
    assert synced == [str(small_disk / "state.db-wal")]
    state.close()
    state.make_lasting()


def test_events_of_the_past_come_with_a_note_of_how_far_they_were_sought(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    state.add_subscription(subscription("a"))
    state.commit_matches(9, [(1, 8)], {})
    state.commit_replay(1, [5, 6, 8], {}, '{"replayed": 8}')
    state.commit_replay(2, [5], {}, "{}")
    state.commit_replay(1, [], {}, '{"replayed": 9}')
    assert [row.sequence for row in state.pending(1, 0, 1.0, 10)] == [5, 6, 8]
    assert state._counters.pending == 3
    assert [one.extra for one in state.subscriptions()] == ['{"replayed": 9}']
    state.close()
    state = StateStore(quick_path / "state.db")
    assert state.damaged == ()
    state.close()


def test_others_cannot_read_the_files(quick_path: Path) -> None:
    StateStore(quick_path / "state.db").close()
    assert {path.stat().st_mode & 0o077 for path in quick_path.iterdir()} == {0}
