"""`tamis token create --data`: a token goes where a broker will find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis
from tamis.storage import Storage, is_store


def create(folder: Path, *more: str) -> tuple[int, str]:
    done = tamis("token", "create", "root", "--data", folder, *more)
    return done.code, done.err


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_without_data_is_refused_unless_it_is_new(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "tamis-dta"
    if exists:
        folder.mkdir()
    code, said = create(folder)
    assert (code, is_store(folder), folder.exists()) == (2, False, exists)
    assert f"there is no data of a broker in {folder}" in said
    assert "--new" in said
    assert create(folder, "--new") == (0, "")
    assert create(folder) == (0, "")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    for more in ((), ("--new",)):
        code, said = create(tmp_path, *more)
        assert (code, "is not the data folder of a broker" in said) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_folder_of_a_broker_needs_no_word(tmp_path: Path) -> None:
    Storage.open(tmp_path / "data").close()
    assert create(tmp_path / "data") == (0, "")


def test_new_needs_a_folder() -> None:
    done = tamis("token", "create", "root", "--new")
    assert (done.code, "name it with --data" in done.err) == (2, True)
