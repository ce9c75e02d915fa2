"""`tamis repair`: what is damaged is listed, and a loss is accepted by an operator only."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis
from tamis.storage import NewRecord, Storage, StoredToken


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a broker that was killed: a token was revoked, and state.db-wal has that."""
    store = Storage.open(tmp_path / "data", segment_bytes=500)
    store.state.add_token(StoredToken(b"1" * 32, "bob", 1.0))
    for _ in range(12):
        store.log.append([NewRecord("p", 0, 0, b"x" * 100)])
    store.close()
    store = Storage.open(tmp_path / "data", segment_bytes=500)
    store.state.revoke_token(b"1" * 32, 2.0)
    left = tmp_path / "left"
    left.mkdir()
    for path in (tmp_path / "data").rglob("*"):
        copy = left / path.relative_to(tmp_path / "data")
        if path.is_dir():
            copy.mkdir()
        else:
            copy.write_bytes(path.read_bytes())
    store.close()
    return left


def test_a_folder_that_is_no_brokers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    done = tamis("repair", "--data", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "is not the data folder of a broker" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_whole_folder_is_clean(folder: Path) -> None:
    done = tamis("repair", "--data", folder)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("Nothing is damaged or lost.\n")


def test_damaged_events_are_listed(folder: Path) -> None:
    path = min((folder / "log").iterdir())
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    done = tamis("repair", "--data", folder)
    assert done.code == 1
    assert f"Damaged: log, {path.name}, offset 188: 148 bytes are damaged; lost: 2." in done.out


def test_a_revoked_token_that_would_be_valid_again_is_refused_until_somebody_accepts_it(
    folder: Path,
) -> None:
    (folder / "state.db-wal").unlink()
    for _ in range(2):
        done = tamis("repair", "--data", folder)
        assert done.code == 2
        assert "the last 1 changes of subscriptions, tokens and audit are missing" in done.err
        assert "--accept-lost-changes" in done.err
    done = tamis("repair", "--data", folder, "--accept-lost-changes")
    assert done.code == 1
    assert "Lost: the last 1 changes" in done.out
    assert tamis("repair", "--data", folder).code == 0
    with Storage.open(folder) as store:
        assert [(act.act, act.detail) for act in store.state.audit(0, 9)] == [
            ("accept lost changes", "1 changes")
        ]


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    done = tamis("repair", "--data", tmp_path / "none")
    assert (done.code, done.err) == (2, f"error: {tmp_path / 'none'} is not a folder\n")
