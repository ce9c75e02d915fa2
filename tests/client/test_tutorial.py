"""The tutorial goes as it is written, and the example does what it says.

Every command is run as it stands, in an empty folder: `$ tamis serve` and a `$ tamis sub` without
`--count` stay, in the first and the second terminal, all others end before the next. Only the port
is another, by the environment, since others may use the usual one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE, OutputChecker
from pathlib import Path
from queue import Queue
from textwrap import indent
from threading import Thread
from typing import Any

import pytest

import tamis
from broker.fork_server import fork_server
from broker.server import ServerProcess
from waiting import eventually, eventually_async

ROOT = Path(__file__).parent.parent.parent
TUTORIAL = ROOT / "docs" / "tutorials" / "durable-subscription.md"
HOW_TO = ROOT / "docs" / "how-to" / "use-the-client.md"
EXAMPLE = ROOT / "examples" / "durable"

PART = re.compile(r"^```(\w+)\n(.*?)^```$|^<!-- (.*?) -->$", re.MULTILINE | re.DOTALL)
PORT = "8765"


class Terminal:
    """A program that stays, and the lines that it writes."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self) -> str:
        return self._lines.get(timeout=60)

    def end(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


class Session:
    """Somebody who follows the tutorial."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = str(one.getsockname()[1])
        self.folder = folder
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TAMIS_")}
        url = f"http://127.0.0.1:{self.port}"
        self.environment = {**kept, "PATH": path, "TAMIS_PORT": self.port, "TAMIS_URL": url}
        self.terminals: dict[str, Terminal] = {}
        self.commands = 0

    def follow(self, page: str) -> None:
        for kind, text, cue in PART.findall(page):
            match kind, cue:
                case "shell", _:
                    self.type(text)
                case "python", _:
                    self.save(text)
                case "text", _:
                    assert self.terminals["sub"].line() == text
                case _, "Ctrl-C in the second terminal":
                    self.terminals["sub"].end(signal.SIGINT)
                case _, "kill -9 in the first terminal":
                    self.terminals["serve"].end(signal.SIGKILL)

    def type(self, block: str) -> None:
        for part in block.split("$ ")[1:]:
            line, _, expected = part.partition("\n")
            got = self.run(shlex.split(line))
            flags = ELLIPSIS | NORMALIZE_WHITESPACE
            assert OutputChecker().check_output(expected, got, flags), f"$ {line}\n{got}"
            self.commands += 1

    def run(self, command: list[str]) -> str:
        if command[:2] == ["tamis", "serve"]:
            return self.stay("serve", command).line().replace(self.port, PORT)
        if command[:2] == ["tamis", "sub"] and "--count" not in command:
            self.stay("sub", command)
            self.wait_for_subscription()
            return ""
        done = self.run_anyhow(command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stay(self, name: str, command: list[str]) -> Terminal:
        # Found as a person's shell would find it.
        self.terminals[name] = Terminal(["env", *command], self.folder, self.environment)
        return self.terminals[name]

    def wait_for_subscription(self) -> None:
        """A person is slower than a program, which must not publish before anybody listens."""
        show = ["tamis", "subscriptions", "show", "laptop-7"]
        eventually(lambda: re.search("connected +yes", self.run_anyhow(show).stdout))

    def run_anyhow(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, however it ends; those that stay begin as in a shell."""
        given: dict[str, Any] = {"env": self.environment, "timeout": 60}
        if command[0] == "tamis":
            return fork_server().run(command[1:], folder=self.folder, **given)
        return subprocess.run(  # noqa: S603
            command, cwd=self.folder, capture_output=True, text=True, check=False, **given
        )

    def save(self, text: str) -> None:
        name = text.partition("\n")[0].removeprefix("# ")
        (self.folder / name).write_text(text)

    def close(self) -> None:
        for terminal in self.terminals.values():
            terminal.end(signal.SIGKILL)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()


def test_the_tutorial_runs_as_written(session: Session) -> None:
    session.follow(TUTORIAL.read_text(encoding="utf-8"))
    assert session.commands == 10


def test_the_tutorial_uses_the_port_that_is_usual() -> None:
    assert f"http://127.0.0.1:{PORT}" in TUTORIAL.read_text(encoding="utf-8")


def test_the_example_goes_on_where_it_was(server: ServerProcess, tmp_path: Path) -> None:
    environment = {**os.environ, "TAMIS_URL": server.url}

    def publish() -> str:
        command = [sys.executable, "-W", "error", str(EXAMPLE / "sensors.py")]
        return subprocess.run(  # noqa: S603
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def watch() -> Terminal:
        command = [sys.executable, "-W", "error", "-X", "dev", str(EXAMPLE / "alarm.py")]
        return Terminal(command, tmp_path, environment)

    assert publish() == "5 readings stored, 0 duplicates\n"
    alarm = watch()
    try:
        lines = {alarm.line() for _ in range(3)}
        hot = {"boiler: 91.0 °C\n", "attic: 96.5 °C\n"}
        assert lines == hot | {"attic: a new battery, please\n"}
        alarm.end(signal.SIGINT)
        assert alarm.process.returncode == 0
        assert publish() == "0 readings stored, 5 duplicates\n"
        alarm = watch()
        assert alarm.line() == "attic: a new battery, please\n"
        alarm.end(signal.SIGINT)
    finally:
        alarm.end(signal.SIGKILL)


# --- the how-to ----------------------------------------------------------------------------------


class Feed:
    """What a snippet publishes from."""

    def read_from(self, position: int) -> list[dict[str, int]]:
        return [{"symbol": n, "price": n} for n in range(position, position + 3)]


def snippets() -> list[str]:
    return [text for kind, text, _ in PART.findall(HOW_TO.read_text()) if kind == "python"]


@pytest.mark.parametrize("number", range(len(snippets())))
def test_a_snippet_of_the_how_to_runs(
    server: ServerProcess, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that would go on for ever are stopped; an event that they wait for comes."""
    monkeypatch.chdir(tmp_path)
    text = snippets()[number].replace('        print(event["symbol"])', "        break")
    names: dict[str, object] = {
        "tamis": tamis,
        "timedelta": timedelta,
        "url": server.url,
        "token": None,
        "events": [{"symbol": "ACME", "price": 4}],
        "feed": Feed(),
        "position": 0,
    }
    exec(f"async def snippet(bus):\n{indent(text, '    ')}", names)  # noqa: S102
    snippet = names["snippet"]
    assert callable(snippet)

    async def main() -> None:
        async with tamis.connect(server.url) as bus:
            await prepare(bus)
            running = asyncio.create_task(snippet(bus))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await running

    asyncio.run(main(), debug=True)


async def prepare(bus: tamis.Bus) -> None:
    """Leave an event that waits and one that is dead, for the durable subscription."""
    options: Any = {"durable": "laptop-7", "max_attempts": 1, "acknowledge": "manual"}
    async with bus.subscribe("price < 5", **options) as subscription:
        await bus.publish_many([{"symbol": "ACME", "price": n} for n in (1, 2)])
        await (await subscription.next(20)).nack()
        await eventually_async(lambda: bus.dead_letters("laptop-7"))


def test_the_how_to_has_snippets() -> None:
    assert len(snippets()) == 11
