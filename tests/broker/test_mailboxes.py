"""What waits on disk: in order, within the window, and not before earlier events were sought."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest

from tamis.broker.deliver.queues import DiskMailbox, Mailbox, MemoryMailbox
from tamis.storage import State, Store, StoredSubscription

WINDOW = 4


@pytest.fixture(params=[True, False], ids=["attended", "alone"], autouse=True)
def _somebody_there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every mailbox have somebody who is connected, or nobody: the difference is memory."""
    made = Mailbox.__init__

    def make(mailbox: Mailbox, window: int) -> None:
        made(mailbox, window)
        mailbox.is_attended = request.param

    monkeypatch.setattr(Mailbox, "__init__", make)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as opened:
        yield opened


def subscription(state: State) -> int:
    return state.add_subscription(
        StoredSubscription(
            owner="ann",
            name="laptop",
            filter="true",
            language="tamis",
            mode="sql",
            created_at=0.0,
            start=1,
            policy="wait",
            durable=True,
            max_attempts=0,
        )
    )


def taken(mailbox: DiskMailbox | MemoryMailbox, limit: int = 100, now: float = 0.0) -> list[int]:
    return [one.sequence for one in asyncio.run(mailbox.take(limit, now, lease=inf))]


def test_what_lies_behind_a_replay_waits_for_it(store: Store) -> None:
    number = subscription(store.state)
    mailbox = DiskMailbox(number, store.state, WINDOW, nothing_yet=False)
    mailbox.below = 3
    store.state.commit_matches(9, [(number, 8), (number, 9)], {})
    mailbox.offer([8, 9])
    assert taken(mailbox) == []
    store.state.commit_replay(number, [1, 2], "{}")
    assert taken(mailbox) == [1, 2]
    assert taken(mailbox) == []
    store.state.commit_replay(number, [5], "{}")
    mailbox.below = inf
    assert taken(mailbox) == [5, 8]
    mailbox.settle([1, 2, 5, 8], 0)
    assert taken(mailbox) == [9]


def test_for_those_who_are_away_nothing_is_kept_in_memory(store: Store) -> None:
    number = subscription(store.state)
    mailbox = DiskMailbox(number, store.state, 100, nothing_yet=True)
    store.state.commit_matches(10, [(number, row) for row in range(1, 11)], {})
    mailbox.offer(range(1, 11))
    assert len(mailbox._ready) == (10 if mailbox.is_attended else 0)
    assert taken(mailbox) == [*range(1, 11)]


def test_more_than_the_window_waits_on_disk(store: Store) -> None:
    number = subscription(store.state)
    mailbox = DiskMailbox(number, store.state, WINDOW, nothing_yet=True)
    rows = list(range(1, 11))
    store.state.commit_matches(10, [(number, row) for row in rows], {})
    mailbox.offer(rows)
    seen = []
    while got := taken(mailbox, limit=3):
        seen += got
        mailbox.settle(got, 0)
    assert seen == rows


def test_no_more_than_the_window_is_unsettled(store: Store) -> None:
    number = subscription(store.state)
    mailbox = DiskMailbox(number, store.state, WINDOW, nothing_yet=True)
    store.state.commit_matches(10, [(number, row) for row in range(1, 11)], {})
    mailbox.offer(list(range(1, 11)))
    assert taken(mailbox) == [1, 2, 3, 4]
    assert taken(mailbox) == []
    mailbox.put_back(2, 1, due=50.0)
    assert taken(mailbox, now=10.0) == []
    assert mailbox.next_due() == 50.0
    assert taken(mailbox, now=60.0) == [2]


def test_what_was_sent_comes_again_after_the_connection_has_gone(store: Store) -> None:
    number = subscription(store.state)
    mailbox = DiskMailbox(number, store.state, WINDOW, nothing_yet=True)
    store.state.commit_matches(3, [(number, 1), (number, 2), (number, 3)], {})
    mailbox.offer([1, 2, 3])
    assert taken(mailbox, limit=2) == [1, 2]
    mailbox.forget_sent()
    # An acknowledgement that comes late still counts.
    assert mailbox.settle([1], 0) == [1]
    assert taken(mailbox) == [2, 3]
    assert mailbox.in_flight[2].attempts == 2


def test_a_buffer_in_memory_drops_the_oldest_and_counts_it() -> None:
    mailbox = MemoryMailbox(WINDOW)
    mailbox.offer([1, 2, 3, 4, 5, 6])
    assert mailbox.dropped == 2
    assert taken(mailbox) == [3, 4, 5, 6]
