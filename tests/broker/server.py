"""A real `tamis serve` process on a free port, with a data folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

import httpx

from broker.nursery import Child, nursery
from tamis.broker import Broker, BrokerSettings

STARTING = 60.0
"""Seconds; the machine may be busy with other tests."""
STOPPING = 30.0
LISTENING = re.compile(r"tamis broker listening on (https?)://(\S+)\n")


class ServerProcess:
    """A broker in a process of its own; killed at the end if it is still there."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        command: Sequence[str] = ("serve",),
    ) -> None:
        """Name a server; `settings` go to its command line."""
        self.command = command
        self.folder = folder
        self.data = folder / "data"
        self.settings = dict(settings or {})
        self.url = ""
        self.process: Child | None = None
        self._log = folder / "server.log"

    def start(self) -> Self:
        """Start the process, and return when it listens. It can be started again after its end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sets = {"port": 0, "data": self.data, "log_format": "json", **self.settings}
        options = [f"--set={name}={value}" for name, value in sets.items()]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TAMIS_")}
        with self._log.open("a") as log:
            self.process = nursery().start(
                [*self.command, *options], stderr=log, folder=self.folder, env=environment
            )
        line = self._first_line()
        found = LISTENING.fullmatch(line)
        if found is None:
            self.kill()
            raise AssertionError(f"the server said {line!r}\n{self.log}")
        self.url = f"{found[1]}://{found[2]}"
        return self

    def _first_line(self) -> str:
        assert self.process is not None
        stdout = self.process.stdout
        lines: Queue[str] = Queue()
        Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            return lines.get(timeout=STARTING)
        except Empty:
            return ""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def websocket_url(self) -> str:
        return f"ws{self.url.removeprefix('http')}/v1/connect"

    @property
    def log(self) -> str:
        """Return all that the server has logged."""
        return self._log.read_text()

    @property
    def errors(self) -> str:
        """Return what went wrong in the server, as it logged it."""
        lines = self.log.splitlines()
        return "\n".join(line for line in lines if '"level": "error"' in line or line[:1] != "{")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, token: str | None = None, **options: Any) -> httpx.Client:
        """Return an HTTP client for this server."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)

    def stop(self) -> int:
        """Let the server finish its work; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """End the server at once, in the middle of whatever it does."""
        assert self.process is not None
        self.process.kill()
        self._wait()

    def _wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(STOPPING)
        self.process.stdout.close()
        return code


@contextmanager
def running(folder: Path, **settings: object) -> Iterator[ServerProcess]:
    """Run a server; one that is still there at the end must stop as it should."""
    server = ServerProcess(folder, settings).start()
    try:
        yield server
        if server.is_running:
            assert server.stop() == 0, server.log
    finally:
        with contextlib.suppress(AssertionError):
            server.kill()


def make_token(folder: Path, policy: Path, principal: str, *roles: str) -> str:
    """Return a token for the server of a folder, which must not run at the moment."""

    async def make() -> str:
        settings = BrokerSettings(data=folder / "data", policy=policy)
        async with await Broker.open(settings) as broker:
            text, _ = await broker.doorman.issue(principal, roles, None, "")
            return text

    return asyncio.run(make())
