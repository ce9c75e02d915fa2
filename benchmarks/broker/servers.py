"""Brokers to measure, each in its own process with a free port and its own folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tamis import SyncBus, connect_sync

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
KILOBYTE: Final = 1024

# Without files, and without a limit beyond which it would drop messages.
MOSQUITTO_LINES: Final = (
    "allow_anonymous true",
    "persistence false",
    "set_tcp_nodelay true",
    "max_queued_messages 0",
    "max_inflight_messages 1000",
    "log_dest none",
)


class Server(NamedTuple):
    """A process that listens."""

    port: int
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    @property
    def url(self) -> str:
        """Return the URL of a Tamis broker."""
        return f"http://127.0.0.1:{self.port}"

    def resident(self) -> int:
        """Return the resident memory of the process in bytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8").splitlines()
        (found,) = (line.split()[1] for line in lines if line.startswith("VmRSS:"))
        return int(found) * KILOBYTE

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process on all cores."""
        text = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        # The fields after the name, which may contain anything.
        words = text.rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def connected(self) -> SyncBus:
        """Return a client of a Tamis broker."""
        return connect_sync(self.url)

    def status(self) -> dict[str, Any]:
        """Return the status of a Tamis broker."""
        answer = httpx.get(f"{self.url}/v1/status", timeout=60)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def tamis(folder: Path, **settings: object) -> AbstractContextManager[Server]:
    """Run `tamis serve` with default settings except those given."""
    return tamis_of(None, folder, **settings)


@contextmanager
def tamis_of(checkout: Path | None, folder: Path, **settings: object) -> Iterator[Server]:
    """Run `tamis serve` of another checkout than this one, if any is given."""
    if checkout is not None and not (checkout / "src" / "tamis").is_dir():
        raise FileNotFoundError(f"{checkout} is no checkout of Tamis: it has no src/tamis")
    port = free_port()
    sets = {"port": port, "data": folder / "data", "log_level": "warning", **settings}
    options = [f"--set={name}={value}" for name, value in sets.items()]
    environment = None if checkout is None else {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", "tamis.cli", "serve", *options]
    with _running(command, folder, port, environment) as server:
        yield server


@contextmanager
def bare(folder: Path) -> Iterator[Server]:
    """Run what Tamis consists of without its broker."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.broker.bare", str(port), str(folder / "log")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with _running(command, folder, port, environment) as server:
        yield server


@contextmanager
def mosquitto(folder: Path) -> Iterator[Server]:
    """Run Mosquitto, in memory and without drops."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    lines = (f"listener {port} 127.0.0.1", *MOSQUITTO_LINES)
    (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with _running([program("mosquitto"), "-c", "mosquitto.conf"], folder, port) as server:
        yield server


@contextmanager
def nats(folder: Path) -> Iterator[Server]:
    """Run NATS, with JetStream in files."""
    port = free_port()
    options = ["-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "jetstream")]
    with _running([program("nats-server"), *options], folder, port) as server:
        yield server


def program(name: str) -> str:
    """Return the path of a server; Debian installs some in folders that only root searches."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    found = shutil.which(name, path=path)
    if found is None:
        raise MissingError(f"{name} is not installed here: apt-get install {name}")
    return found


def package(name: str, module: str) -> None:
    """Raise an error if the Python client is missing."""
    # Of a module in a package, the package has to be there to be asked.
    if find_spec(module.partition(".")[0]) is None:
        raise MissingError(f"{name} is not installed here: pip install {name}")


class MissingError(Exception):
    """A server or client to be measured is not installed."""


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def _running(
    command: Sequence[str], folder: Path, port: int, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, stdout=out, stderr=out, env=environment
        )
    try:
        _await_listening(process, port, log)
        yield Server(port, process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_listening(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server does not listen; it said: {log.read_text(errors='replace')}")
