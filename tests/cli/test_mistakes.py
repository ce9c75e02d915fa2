"""Whatever a user does wrong: one sentence on standard error, exit code 2, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands import tamis

TAMIS = (sys.executable, "-m", "tamis.cli")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("match", "price <"), "(line 1, column 8)\n  price <\n         ^"),
        (("match", "price contians 'x'"), 'did you mean "contains"?'),
        (("match", "x = 1", "no-such-file"), "no-such-file cannot be read: No such file"),
        (("match", "x = 1", "."), ". cannot be read: Is a directory"),
        (("match", "x = 1", "-", "more"), "Got unexpected extra argument"),
        (("match", "--filters", "no-such-file"), "no-such-file cannot be read"),
        (("match", "--filters", "f", "x = 1", "events"), "a filter or --filters FILE, not both"),
        (("match", "--limit", "3"), "a filter is missing"),
        (("match", "x = 1", "--mode", "some"), "'some' is not one of 'total', 'strict'"),
        (("match", "x = 1", "--mode", "total"), "mode 'total' needs a schema"),
        (("match", "x = 1", "--limit", "-1"), "'--limit': it must be at least 0"),
        (("match", "x = 1", "--limit", "few"), "'--limit': it is not a whole number"),
        (("match", "x = 1", "--language", "sql"), "'sql' is not a language that Tamis reads"),
        (("match", "x = 1", "--schema", "no-such-file"), "no-such-file cannot be read"),
        (("match", "x = 1", "--nope"), "No such option: --nope"),
        (("check", "-x < 5"), "before a filter that begins with a hyphen, write --"),
        (("check", "x = 1", "--file", "f"), "give a filter or --filters FILE, not both"),
        (("check", "("), "column"),
        (("check", "x matches '('"), "has a ( that nothing closes"),
        (("check", "(" * 100 + "x = 1" + ")" * 100), "65 exceeds the limit of 64"),
        (("check", "x = 1 or " * 2000 + "x = 1"), "exceeds the limit of 16,384"),
        (("check", "x = '\ud800'"), "lone surrogate"),
        (("compare", "x = 1"), "Missing argument 'B'"),
        (("pub", "Order.XML"), "this looks like XML: give --xml"),
        (("pub", "--event", " <order/>"), "this looks like XML: give --xml"),
        (("macth",), "Did you mean 'match'?"),
        (("lint", "x = 1"), "No such command 'lint'. Did you mean 'check'?"),
        (("sub", "x = 1", "--policy", "drop"), "what happens to a slow subscriber is --overflow"),
        (("explain", "-e", "{}"), "-e, which pub has; here an event is an argument"),
        (("check", "no-such.txt"), "is not a filter, and there is no file of this name"),
        (("status", "--url", "http://127.0.0.1:1"), "Connection refused; is a broker running"),
        (("--nope",), "No such option"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = tamis(*arguments, stdin="")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert words in done.err
    assert "Value error" not in done.err
    assert "Input should" not in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no schema in an empty text"),
        (b"{", "line 1, column 2"),
        (b"[]", "a schema is a JSON object, not an array"),
        (b'{"a": "integer"}', "a: 'integer' is not a type"),
        (b'{"a": 5}', "a: expected a type, or an object with one, not a number"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_wrong_schema_is_named_with_its_file(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "schema.json"
    path.write_bytes(content)
    done = tamis("check", "a = 1", "--schema", path)
    assert done.code == 2
    assert done.err.startswith(f"error: {path}: ")
    assert words in done.err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "there is no filter in this file"),
        (b"# nothing\n\n", "there is no filter in this file"),
        (b"a = 1\n\xff", "byte 7 is not UTF-8 text"),
        (b"x: a = 1\nx: a = 2\n", ":2: the id 'x' is already used on line 1"),
        (b"a = 1\nb <\n", ":2:4: a condition or value is missing at the end\n  b <\n     ^"),
    ],
)
def test_a_wrong_file_of_filters_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "filters.txt"
    path.write_bytes(content)
    done = tamis("match", "--filters", path, stdin="")
    assert done.code == 2
    assert done.err.startswith(f"error: {path}")
    assert words in done.err


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8")), st.binary(max_size=200))
def test_no_filter_and_no_input_makes_a_traceback(text: str, stdin: bytes) -> None:
    assert tamis("check", "--", text).code in (0, 1, 2)
    assert tamis("match", "x = 1", stdin=stdin).code in (0, 1)


@pytest.mark.parametrize("command", ["match", "check", "compare"])
def test_every_command_has_help_with_examples_and_exit_codes(command: str) -> None:
    done = tamis(command, "--help")
    assert done.code == 0
    assert f"tamis {command} " in done.out.split("Examples")[1]
    assert "Exit code" in done.out


@pytest.mark.parametrize("arguments", [(), ("match",), ("check",), ("compare",)])
def test_without_arguments_the_help_is_shown(arguments: tuple[str, ...]) -> None:
    done = tamis(*arguments)
    assert done.code == 2
    assert "Usage: tamis" in done.out + done.err


@pytest.mark.parametrize("arguments", [(), ("match",), ("sub",), ("token", "create")])
def test_help_shows_flags_without_a_type(arguments: tuple[str, ...]) -> None:
    shown = tamis(*arguments, "--help").out
    assert "--help" in shown
    assert "<bool>" not in shown


@pytest.mark.parametrize("module", ["typer", "rich.console", "tamis.cli.filters.check", "numba"])
def test_an_interruption_while_loading_ends_the_program_quietly(module: str) -> None:
    """The program interrupts itself when it is about to import a module."""
    code = f"""
import os, signal, sys
class Interruption:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interruption())
from tamis.cli import main
sys.argv[1:] = ["check", "price < 5"]
main()
"""
    ran = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.returncode in (130, -signal.SIGINT)


def test_the_version_is_that_of_the_package() -> None:
    assert tamis("--version") == (0, f"tamis {version('tamis')}\n", "")


def test_the_real_program_says_the_same() -> None:
    done = subprocess.run(  # noqa: S603
        [*TAMIS, "match", "price <", "-"], capture_output=True, text=True, check=False, input=""
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: a condition or value is missing")


def test_a_reader_that_goes_away_ends_the_program_quietly() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(  # noqa: S603
        [*TAMIS, "match", "x = 1"], stdin=subprocess.PIPE, stdout=writer, stderr=subprocess.PIPE
    ) as program:
        os.close(writer)
        os.close(reader)
        _, err = program.communicate(b'{"x": 1}\n' * 10)
    assert program.returncode == 141
    assert err == b""
