"""The shell sessions in the documentation, and the links between its pages.

In a `console` block, `$ tamis …` is run from the root of the repository. Below it stands what it
writes to standard output, then to standard error; `...` stands for anything. `$ echo $?` asks for
the exit code. The Python examples are run as doctests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from tamis.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*/README.md")])

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


class Command(NamedTuple):
    line: str
    output: str


def commands_in(block: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = f"{line[:-1].rstrip()} {more.strip()}"
        yield Command(line, output)


def sessions() -> list[object]:
    return [
        pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
        for page in PAGES
        for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), start=1)
        if block.startswith("$ tamis ")
    ]


@pytest.mark.parametrize("block", sessions())
def test_a_shell_session_goes_as_it_is_written(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code = 0
    for command in commands_in(block):
        if command.line == "echo $?":
            assert command.output == f"{code}\n"
            continue
        program, *arguments = shlex.split(command.line)
        assert program == "tamis"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False, prog_name="tamis")
        code, got = result.exit_code, result.stdout + result.stderr
        same = OutputChecker().check_output(command.output, got, ELLIPSIS | NORMALIZE_WHITESPACE)
        assert same, f"$ {command.line}\n{got}"


def test_there_are_sessions_to_test() -> None:
    assert len(sessions()) > 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target
