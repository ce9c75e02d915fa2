"""Checkpoints of the state: by the writer, or beside it, and then bounded by it."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

from storage.samples import subscription
from tamis.storage import StateStore, database

TRANSACTIONS = 10


@pytest.fixture(autouse=True)
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_TRANSACTIONS", TRANSACTIONS)


def write(state: StateStore, sequences: range) -> None:
    for sequence in sequences:
        state.commit_matches(sequence, [(1, sequence)], {})


def log_bytes(folder: Path) -> int:
    return (folder / "state.db-wal").stat().st_size


def opened(folder: Path) -> StateStore:
    state = StateStore(folder / "state.db")
    if not state.subscriptions():
        state.add_subscription(subscription("a"))
    return state


def test_who_asks_for_it_makes_the_checkpoints(tmp_path: Path) -> None:
    state, due = opened(tmp_path), list[None]()
    state.when_checkpoint_due(lambda: due.append(None))
    write(state, range(1, 1 + 3 * TRANSACTIONS))
    assert 2 <= len(due) <= 3
    state.checkpoint()
    before = log_bytes(tmp_path)
    # All of it is copied, so the log begins anew.
    write(state, range(100, 100 + TRANSACTIONS))
    assert log_bytes(tmp_path) == before
    state.close()


def test_a_writer_makes_them_if_nobody_else_does(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.when_checkpoint_due(lambda: None)
    write(state, range(1, 1 + 10 * TRANSACTIONS))
    most = log_bytes(tmp_path)
    write(state, range(1_000, 1_000 + 30 * TRANSACTIONS))
    assert log_bytes(tmp_path) <= 2 * most
    state.close()


def test_checkpoints_beside_a_writer_lose_nothing(tmp_path: Path) -> None:
    state, due, is_over = opened(tmp_path), Event(), False
    state.when_checkpoint_due(due.set)

    def make() -> None:
        while not is_over:
            due.wait(0.1)
            due.clear()
            state.checkpoint()

    maker = Thread(target=make)
    maker.start()
    write(state, range(1, 1_001))
    is_over = True
    maker.join()
    state.close()
    again = opened(tmp_path)
    assert again.pending_count(1) == 1_000
    assert not again.damaged
    again.close()
