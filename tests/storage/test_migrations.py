"""States of earlier versions: opened, changed to the present format, and whole."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from storage.damage import all_of, filled
from storage.samples import subscription
from tamis.errors import StorageError
from tamis.ports import SYSTEM_FILES
from tamis.storage import DroppedEvents, StateStore
from tamis.storage.counts import CountFile
from tamis.storage.database import VERSION

# What `filled` made with earlier versions of the state.
STATES = {
    version: Path(__file__).with_name(f"state_version_{version}.sql")
    for version in range(1, VERSION)
}


def restored(folder: Path, version: int = 1) -> Path:
    path = folder / "state.db"
    connection = sqlite3.connect(path)
    connection.executescript(STATES[version].read_text(encoding="utf-8"))
    connection.execute("PRAGMA journal_mode = WAL")
    (changes,) = connection.execute("SELECT changes FROM counters").fetchone()
    connection.close()
    count = CountFile(folder / "state.count", SYSTEM_FILES)
    count.begin(changes)
    count.close()
    return path


@pytest.mark.parametrize("before", STATES)
def test_an_earlier_state_is_changed_to_the_present_format(quick_path: Path, before: int) -> None:
    path = restored(quick_path, before)
    present = quick_path / "present"
    deferred = () if before == 1 else ("ann", "bob", "carl")
    wanted = filled(present, deferred=deferred, routes=0).after
    for version in (before, VERSION):
        state = StateStore(path)
        assert state.version_found == version
        assert all_of(state) == wanted
        assert (state.damaged, state.dropped()) == ((), [])
        state.close()
    state = StateStore(path)
    state.add_dropped("retention", {1: 3})
    assert state.dropped() == [DroppedEvents(1, "retention", 3, 0)]
    assert (state.routes(), state.broker_id) == ([], "")
    state.close()


def test_damage_in_a_state_of_version_1_is_noticed(quick_path: Path) -> None:
    path = restored(quick_path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE counters SET matched_up_to = 7 WHERE copy = 1")
    connection.commit()
    connection.close()
    state = StateStore(path)
    assert [str(row) for row in state.damaged] == ["counters: one of two rows is missing"]
    assert state.matched_up_to == 45
    state.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE counters SET matched_up_to = 7")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="both rows of the counters are damaged"):
        StateStore(path)


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_version_that_is_not_known_is_refused(version: int, quick_path: Path) -> None:
    path = restored(quick_path)
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(StorageError, match="not written by this version of Tamis"):
        StateStore(path)


def test_dropped_events_are_counted_by_reason_and_told_once(quick_path: Path) -> None:
    state = StateStore(quick_path / "state.db")
    state.add_subscriptions([subscription("a"), subscription("b")])
    state.commit_matches(9, [(1, 3), (1, 4), (1, 8), (2, 4), (2, 5)], {})
    assert state.drop_pending_below(5) == {1: 2, 2: 1}
    assert state.drop_pending(range(8, 9), "damage") == {1: 1}
    state.add_dropped("retention", {1: 4, 77: 5})
    state.note_reported(
        [DroppedEvents(1, "retention", 0, told=5), DroppedEvents(9, "x", 0, told=1)]
    )
    state.close()
    state = StateStore(quick_path / "state.db")
    assert state.damaged == ()
    assert state._counters.pending == 1
    assert state.dropped() == [
        DroppedEvents(1, "damage", 1, 0),
        DroppedEvents(1, "retention", 6, 5),
        DroppedEvents(2, "retention", 1, 0),
    ]
    state.remove_subscription(1)
    assert state.dropped() == [DroppedEvents(2, "retention", 1, 0)]
    state.close()
    state = StateStore(quick_path / "state.db")
    assert state.damaged == ()
    state.close()
