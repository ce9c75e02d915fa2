"""`tamis source` and `tamis query` with a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server import ServerProcess, running
from cli.commands import tamis
from waiting import eventually

BOOKS = "title,price\nEmma,9\nCannery Row,4\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("broker")) as server:
        yield server


def test_a_table_answers_queries_and_is_advertised_anew_when_it_changes(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAMIS_URL", server.url)
    table = tmp_path / "books.csv"
    table.write_text(BOOKS)
    log = tmp_path / "source.log"
    command = [sys.executable, "-m", "tamis.cli", "source", str(table), "--name", "books"]
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--refresh", "0.1s"], stderr=output)  # noqa: S603
    try:
        eventually(lambda: "serving books" in log.read_text())
        done = tamis("query", "price < 5")
        assert (done.code, done.json) == (0, [{"title": "Cannery Row", "price": 4}])
        none = tamis("query", "price > 100")
        assert (none.code, none.json) == (0, [])
        assert none.err == "no source advertises anything that this filter may match\n"
        table.write_text(f"{BOOKS}Ulysses,150\n")
        eventually(lambda: "the table has changed" in log.read_text())
        assert tamis("query", "price > 100").json == [{"title": "Ulysses", "price": 150}]
        assert tamis("query", "price > 0", "--aggregate", "count").json == [{"count": 3}]
        some = tamis("query", "price > 0", "--limit", 1)
        assert (len(some.json), some.err) == (1, "there may be more rows\n")
        wrong = tamis("query", "price > 0", "--aggregate", "average")
        assert wrong.code == 2
        assert "it must be union, count" in wrong.err
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
    eventually(lambda: tamis("query", "price > 0").json == [])
