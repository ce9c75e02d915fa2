"""The page about linking brokers works as it is written."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from waiting import eventually

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "link-brokers.md"
STEP = re.compile(
    r"^```(shell|text)\n(.*?)^```$|^<!-- kill the (\w+) -->$", re.MULTILINE | re.DOTALL
)
TAMIS = [sys.executable, "-m", "tamis.cli"]


class Terminal:
    """A command that runs on, and the lines that it has printed."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.arguments = arguments
        self.lines: list[str] = []
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            [*TAMIS, *arguments],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.lines.append(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def expected(text: str) -> re.Pattern[str]:
    """Return a pattern for an output in which `...` stands for anything."""
    return re.compile(re.escape(text.strip()).replace(r"\.\.\.", ".*"))


def has_printed(terminal: Terminal, text: str) -> bool:
    return as_json_lines(text) in map(as_json_lines, terminal.lines)


def as_json_lines(text: str) -> str:
    return text.replace('": ', '":').replace(", ", ",")


@contextmanager
def terminals() -> Iterator[dict[str, Terminal]]:
    opened: dict[str, Terminal] = {}
    try:
        yield opened
    finally:
        for terminal in opened.values():
            terminal.kill()


@pytest.mark.slow
def test_the_page_about_linking_brokers_works_as_written(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Between machines")[0]
    for written, port in zip((8801, 8802, 8803), free_ports(3), strict=True):
        text = text.replace(str(written), str(port))
    steps = [*STEP.finditer(text)]
    assert len(steps) > 10
    with terminals() as opened:
        for kind, block, killed in (step.groups() for step in steps):
            if killed:
                opened[killed].kill()
            elif kind == "text":
                eventually(partial(has_printed, opened["sub"], block))
            else:
                follow(block, opened, tmp_path)


def follow(block: str, opened: dict[str, Terminal], folder: Path) -> None:
    """Give the command of a block, and check what it prints."""
    line, _, output = block.removeprefix("$ ").partition("\n")
    arguments = shlex.split(line)[1:]
    if arguments[0] == "serve":
        name = arguments[arguments.index("--name") + 1]
        terminal = opened[name] = Terminal(arguments, folder)
        eventually(lambda: output in terminal.lines, timeout=120)
    elif arguments[0] == "sub":
        opened["sub"] = Terminal(arguments, folder)
    else:
        pattern = expected(output)

        def runs() -> bool:
            run = [*TAMIS, *arguments]
            done = subprocess.run(run, cwd=folder, capture_output=True, text=True)  # noqa: S603, PLW1510
            return bool(pattern.fullmatch((done.stdout + done.stderr).strip()))

        # What others have to hear first is shown a little later.
        eventually(runs) if arguments[0] == "topology" else check(runs(), line)


def check(is_right: bool, line: str) -> None:
    assert is_right, line
