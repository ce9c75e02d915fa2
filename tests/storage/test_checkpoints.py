"""Checkpoints of the state: by the writer, or beside it, and then bounded by it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from threading import Event, Thread
from unittest.mock import patch

import pytest

from storage.samples import subscription
from tamis.storage import StateStore, database
from tamis.storage.database import Database

TRANSACTIONS = 10


@pytest.fixture(autouse=True)
def small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CHECKPOINT_TRANSACTIONS", TRANSACTIONS)


def write(state: StateStore, sequences: Iterable[int]) -> None:
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


@contextmanager
def checkpoints_beside(state: StateStore) -> Iterator[None]:
    due, is_over = Event(), False
    state.when_checkpoint_due(due.set)

    def make() -> None:
        while not is_over:
            due.wait(0.1)
            due.clear()
            state.checkpoint()

    maker = Thread(target=make)
    maker.start()
    yield
    is_over = True
    maker.join()


def test_a_writer_makes_them_if_others_do_not_keep_up(tmp_path: Path) -> None:
    state, by_writer, sequences = opened(tmp_path), list[bool](), count(1)
    copy_log = Database._copy_log

    def copy_while_writing(self: Database, connection: sqlite3.Connection) -> bool:
        is_done = copy_log(self, connection)
        by_writer.append(connection is self.writer)
        if not by_writer[-1]:
            write(state, islice(sequences, 1))
        return is_done

    state.when_checkpoint_due(lambda: None)
    with patch.object(Database, "_copy_log", copy_while_writing):
        for _ in range(30):
            write(state, islice(sequences, TRANSACTIONS))
            state.checkpoint()
    # Otherwise the log would never begin anew.
    assert 3 <= sum(by_writer) <= 6
    state.close()


def test_a_change_is_made_even_if_nobody_can_be_told_of_a_checkpoint(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("the event loop is closed")

    state = opened(tmp_path)
    state.when_checkpoint_due(fail)
    write(state, range(1, 1 + 10 * TRANSACTIONS))
    state.close()
    again = opened(tmp_path)
    assert again.pending_count(1) == 10 * TRANSACTIONS
    assert not again.damaged
    again.close()


def test_a_log_that_may_have_holes_is_not_copied(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.when_checkpoint_due(lambda: None)
    write(state, range(1, 5))
    before = (tmp_path / "state.db").read_bytes()
    with patch.object(state._database, "has_failed", True):
        state.checkpoint()
        assert (tmp_path / "state.db").read_bytes() == before
    state.checkpoint()
    assert (tmp_path / "state.db").read_bytes() != before
    state.close()


def test_checkpoints_beside_a_writer_lose_nothing(tmp_path: Path) -> None:
    state = opened(tmp_path)
    with checkpoints_beside(state):
        write(state, range(1, 1_001))
    state.close()
    again = opened(tmp_path)
    assert again.pending_count(1) == 1_000
    assert not again.damaged
    again.close()
