"""Damaged states: refused in a sentence, or the damaged row is named, and never used."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest

from seeds import in_volume
from storage.damage import Left, filled, flipped, state_outcome, write
from storage.samples import UNSYNCED
from tamis.errors import StorageError
from tamis.storage import PublisherTail, StateStore, Storage
from tamis.storage.database import APPLICATION
from tamis.storage.migrations import MIGRATIONS, CountersOfVersion1, PublisherOfVersion1
from tamis.storage.tables import ChecksummedTable


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return filled(tmp_path_factory.mktemp("state") / "state")


def test_what_a_process_leaves_behind_is_whole(left: Left, quick_path: Path) -> None:
    write(quick_path / "s", left.files)
    assert state_outcome(quick_path / "s", left) == "same"
    state = StateStore(quick_path / "s" / "state.db")
    assert (state.damaged, state.lost_changes) == ((), 0)
    state.close()


@pytest.mark.parametrize(("name", "header"), [("state.db", 100), ("state.db-wal", 32)])
def test_a_bit_that_falls_over_in_the_state_is_never_silent(
    name: str, header: int, left: Left, quick_path: Path
) -> None:
    rng = Random(name)
    data = left.files[name]
    outcomes: Counter[str] = Counter()
    header_bits = range(0, 8 * header, max(1, 3 // in_volume(1)))
    others = (rng.randrange(8 * len(data)) for _ in range(in_volume(100)))
    for bit in [*header_bits, *others]:
        write(quick_path / "s", left.files | {name: flipped(data, bit)})
        result = state_outcome(quick_path / "s", left)
        assert result in {"same", "refused", "reported"}, bit
        outcomes[result] += 1
    assert outcomes["refused"] + outcomes["reported"] > 50


def test_a_count_that_is_damaged_is_reported(left: Left, quick_path: Path) -> None:
    data = left.files["state.count"]
    for bit in range(8 * len(data)):
        write(quick_path / "s", left.files | {"state.count": flipped(data, bit)})
        with pytest.raises(StorageError, match=r"state.count is damaged, so nobody can tell"):
            StateStore(quick_path / "s" / "state.db")
        state = StateStore(quick_path / "s" / "state.db", accept_lost_changes=True)
        assert [str(row) for row in state.damaged] == [
            "state.count: the file is damaged, and was written anew"
        ]
        state.close()
        state = StateStore(quick_path / "s" / "state.db")
        assert state.damaged == ()
        state.close()


def test_changes_that_were_promised_to_last_and_are_gone_are_counted(
    left: Left, quick_path: Path
) -> None:
    """Somebody has taken the write-ahead log for a temporary file."""
    write(quick_path / "s", {**left.files, "state.db-wal": b""})
    # A second attempt does not help: nobody has said that it may be so.
    for _ in range(2):
        with pytest.raises(StorageError, match=r"the last 4 changes of .* missing") as refused:
            Storage.open(quick_path / "s")
        assert "a revoked token may be valid again" in str(refused.value)
        assert "tamis repair --accept-lost-changes" in str(refused.value)
    with Storage.open(quick_path / "s", accept_lost_changes=True) as store:
        assert store.recovery.lost_changes == 4
        assert not store.recovery.is_clean
        assert "Lost: the last 4 changes of subscriptions, tokens and audit." in str(store.recovery)
    with Storage.open(quick_path / "s") as store:
        assert store.recovery.is_clean


def closed(left: Left, folder: Path) -> Path:
    write(folder, left.files)
    StateStore(folder / "state.db").close()
    return folder / "state.db"


def test_a_damaged_row_is_named_and_left_out(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    path.write_bytes(path.read_bytes().replace(b"price < 7", b"price < 6"))
    state = StateStore(path)
    assert [str(row) for row in state.damaged] == [
        "subscriptions, number 8: the checksum of the row is wrong"
    ]
    assert 8 not in [one.number for one in state.subscriptions()]
    assert len(state.subscriptions()) == 10
    assert not state.renew_subscription(8, 5.0)
    state.close()


def change(path: Path, statement: str) -> None:
    """Change a row behind the back of its checksum."""
    connection = sqlite3.connect(path)
    assert connection.execute(statement).rowcount
    connection.commit()
    connection.close()


def test_text_that_is_none_is_a_damaged_row_too(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    path.write_bytes(path.read_bytes().replace(b"price < 7", b"price \xff 7"))
    state = StateStore(path)
    assert [row.key for row in state.damaged] == ["number 8"]
    state.close()


@pytest.mark.parametrize(
    ("statement", "reported"),
    [
        ("DELETE FROM audit WHERE number = 9", "audit: 8 rows are there, and 9 should be"),
        ("UPDATE pending SET number = 77 WHERE sequence = 44", "pending: 1 rows are for nobody"),
        ("UPDATE pending SET sequence = 0 WHERE sequence = 44", "pending: 1 rows are for nobody"),
        ("UPDATE pending SET due = NULL WHERE sequence = 44", "number 1, sequence 44: the check"),
        ("UPDATE dead_letters SET number = 77 WHERE number = 1", "dead_letters: 1 rows are for no"),
        ("DELETE FROM counters WHERE copy = 1", "counters: one of two rows is missing"),
    ],
)
def test_rows_that_are_gone_or_out_of_reach_are_reported(
    statement: str, reported: str, left: Left, quick_path: Path
) -> None:
    path = closed(left, quick_path / "s")
    change(path, statement)
    state = StateStore(path)
    assert reported in "; ".join(str(row) for row in state.damaged)
    state.close()


def test_rows_for_events_that_never_were_are_reported(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    change(path, "UPDATE pending SET sequence = 99 WHERE sequence = 44")
    with Storage.open(quick_path / "s", files=UNSYNCED) as store:
        assert [str(row) for row in store.recovery.damaged_rows] == [
            "pending, ahead: 1 rows are for events to come"
        ]


def test_a_list_of_tables_that_is_damaged_is_refused(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    path.write_bytes(path.read_bytes().replace(b"due REAL", b"due REAM"))
    with pytest.raises(StorageError, match="the list of tables is damaged; restore"):
        StateStore(path)


@pytest.mark.parametrize("left_over", [None, b""])
def test_a_write_ahead_log_without_its_file_is_kept(
    left_over: bytes | None, left: Left, quick_path: Path
) -> None:
    write(quick_path / "s", left.files | {"state.db": b""})
    path = quick_path / "s" / "state.db"
    if left_over is None:
        path.unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match="the file is missing, although state"):
            StateStore(path)
    path.write_bytes(left.files["state.db"])
    assert state_outcome(quick_path / "s", left) == "same"


@pytest.mark.parametrize("place", [18, 19])
def test_a_write_ahead_log_is_not_dropped_for_a_damaged_byte(
    place: int, left: Left, quick_path: Path
) -> None:
    data = bytearray(left.files["state.db"])
    data[place] = 1
    write(quick_path / "s", left.files | {"state.db": bytes(data)})
    with pytest.raises(StorageError, match="the header of the file is damaged"):
        StateStore(quick_path / "s" / "state.db")
    assert (quick_path / "s" / "state.db-wal").read_bytes() == left.files["state.db-wal"]


def test_the_event_of_one_subscriber_never_goes_to_another(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    change(path, "UPDATE pending SET number = 5, sequence = 43 WHERE number = 4 AND sequence = 39")
    change(path, "UPDATE pending SET sequence = 43 WHERE number = 6 AND sequence = 39")
    state = StateStore(path)
    for number in (4, 5, 6):
        assert 43 not in [row.sequence for row in state.pending(number, 0, 1.0, 100)]
    assert [row.key for row in state.damaged] == ["number 5, sequence 43", "number 6, sequence 43"]
    state.close()


def test_a_damaged_dead_letter_is_not_sent_again(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    change(path, "UPDATE dead_letters SET sequence = 33 WHERE number = 4")
    state = StateStore(path)
    assert state.requeue(4, range(1, 46), oldest=1) == []
    assert state.requeue(5, range(1, 46), oldest=1) == [5]
    assert [row.key for row in state.damaged] == ["number 4, sequence 33"]
    state.close()


def test_one_of_the_two_rows_of_counters_is_enough(left: Left, quick_path: Path) -> None:
    path = closed(left, quick_path / "s")
    change(path, "UPDATE counters SET matched_up_to = 7 WHERE copy = 1")
    state = StateStore(path)
    assert state.matched_up_to == 45
    assert [row.key for row in state.damaged] == ["copy 1"]
    state.close()
    change(path, "UPDATE counters SET matched_up_to = 7")
    with pytest.raises(StorageError, match="both rows of the counters are damaged"):
        StateStore(path)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x" * 5000, "the file is damaged .file is not a database.; restore state.db"),
        (b"SQLite format 3\0" + bytes(5000), "the file is damaged"),
    ],
)
def test_what_is_no_database_is_refused_with_what_to_do(
    data: bytes, reason: str, quick_path: Path
) -> None:
    (quick_path / "state.db").write_bytes(data)
    with pytest.raises(StorageError, match=reason):
        StateStore(quick_path / "state.db")


def test_a_state_of_the_version_before_is_upgraded_and_its_damage_stays_damage(
    quick_path: Path,
) -> None:
    connection = sqlite3.connect(quick_path / "state.db", isolation_level=None)
    for statement in MIGRATIONS[1].schema:
        connection.execute(statement)
    counters = ChecksummedTable("counters", CountersOfVersion1, ["copy"], by_key=True)
    for copy in (0, 1):
        values = msgspec.structs.astuple(CountersOfVersion1(copy=copy, matched_up_to=9))
        connection.execute(counters.insert, counters.row(values))
    publishers = ChecksummedTable("publishers", PublisherOfVersion1, ["name"], by_key=True)
    connection.execute(publishers.insert, publishers.row(("a", 7)))
    connection.execute(publishers.insert, ("b", 7, 99))
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    for _ in range(2):
        state = StateStore(quick_path / "state.db")
        assert (state.matched_up_to, state.publishers()) == (9, {"a": PublisherTail(7)})
        assert [(row.table, row.key) for row in state.damaged] == [("publishers", "name 'b'")]
        state.close()


def test_a_database_of_somebody_else_is_refused(quick_path: Path) -> None:
    connection = sqlite3.connect(quick_path / "state.db")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    with pytest.raises(StorageError, match="not written by this version of Tamis"):
        StateStore(quick_path / "state.db")
