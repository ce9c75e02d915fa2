"""A real `tamis serve` process on a free port, with a data folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

import httpx

from broker.fork_server import ForkedProcess, fork_server
from tamis.broker import Broker, BrokerSettings

START_TIMEOUT_SECONDS = 60.0
"""Long, because the machine may be busy with other tests."""
STOP_TIMEOUT_SECONDS = 30.0
PATIENT = {"hello_timeout": 30}
"""On a busy machine a client may need longer to begin than the five seconds that users give it."""
LISTENING = re.compile(r"tamis broker listening on (https?)://(\S+)\n")


class ServerProcess:
    """A broker in a process of its own."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object] | None = None,
        command: Sequence[str] = ("serve",),
    ) -> None:
        """Prepare a server; `settings` go to its command line."""
        self.command = command
        self.folder = folder
        self.data = folder / "data"
        self.settings = dict(settings or {})
        self.url = ""
        self.process: ForkedProcess | None = None
        self._log = folder / "server.log"

    def start(self) -> Self:
        """Start the process, also after it ended, and return when it listens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sets = {"port": 0, "data": self.data, "log_format": "json", **PATIENT, **self.settings}
        options = [f"--set={name}={value}" for name, value in sets.items()]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TAMIS_")}
        with self._log.open("a") as log:
            self.process = fork_server().start(
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
            return lines.get(timeout=START_TIMEOUT_SECONDS)
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
        """Return the log of the server."""
        return self._log.read_text()

    @property
    def errors(self) -> str:
        """Return the errors in the log of the server."""
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
        """Stop the server cleanly, and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def kill(self) -> None:
        """Kill the server, whatever it is doing."""
        assert self.process is not None
        self.process.kill()
        self._wait()

    def _wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(STOP_TIMEOUT_SECONDS)
        self.process.stdout.close()
        return code


@contextmanager
def running(folder: Path, **settings: object) -> Iterator[ServerProcess]:
    """Run a server; if it still runs at the end, it must stop cleanly."""
    server = ServerProcess(folder, settings).start()
    try:
        yield server
        if server.is_running:
            assert server.stop() == 0, server.log
    finally:
        with contextlib.suppress(AssertionError):
            server.kill()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate for this machine that signs itself, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subprocess.run(  # noqa: S603
        [
            *command.split(),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def make_token(folder: Path, policy: Path, principal: str, *roles: str) -> str:
    """Return a token for the server of a folder, which must not be running."""

    async def make() -> str:
        settings = BrokerSettings(data=folder / "data", policy=policy)
        async with await Broker.open(settings) as broker:
            text, _ = await broker.access_control.issue(principal, roles, None, "")
            return text

    return asyncio.run(make())
