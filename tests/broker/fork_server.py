"""A fork server: starts broker processes without the second that their imports take.

It is a process that has loaded everything `tamis serve` needs, and forks for each broker: a process
like any other, with its own folder, environment and output, that can be killed.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

MAX_MESSAGE_BYTES: Final = 1 << 16
POLL_SECONDS: Final = 0.005


class ForkedProcess:
    """A forked process, with the interface of `subprocess.Popen`."""

    def __init__(self, fork_server: ForkServer, pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._server = fork_server

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the end of the process, and return the exit code."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} has not ended within {timeout} seconds")
            time.sleep(POLL_SECONDS)  # a script cannot import `waiting`
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Starts processes by forking a process that has its imports done."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = Lock()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this file
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )
        atexit.register(self._close)

    def start(
        self, command: Sequence[str], *, stderr: IO[str], folder: Path, env: Mapping[str, str]
    ) -> ForkedProcess:
        """Start a command of `tamis`, or a Python script, with its arguments."""
        reading, writing = os.pipe()
        try:
            request = {"command": [*command], "folder": str(folder), "env": {**env}}
            pid = self.ask(request, [writing, stderr.fileno()])
        finally:
            os.close(writing)
        return ForkedProcess(self, pid, os.fdopen(reading))

    def run(
        self, command: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        with tempfile.TemporaryFile("w+") as stderr:
            process = self.start(command, stderr=stderr, folder=folder, env=env)
            with process.stdout as stdout:
                code, out = process.wait(timeout), stdout.read()
            stderr.seek(0)
            return subprocess.CompletedProcess(command, code, out, stderr.read())

    def ask(self, request: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        """Send a request to the fork server, and return the reply."""
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*files])
            return json.loads(self._socket.recv(MAX_MESSAGE_BYTES))

    def _close(self) -> None:
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()


@cache
def fork_server() -> ForkServer:
    """Return the fork server of this process, started at first use."""
    return ForkServer()


def _serve(ours: socket.socket) -> None:
    while True:
        request, files, _, _ = socket.recv_fds(ours, MAX_MESSAGE_BYTES, 2)
        if not request:
            return
        answer = _answer(ours, json.loads(request), files)
        for file in files:
            os.close(file)
        ours.send(json.dumps(answer).encode())


def _answer(ours: socket.socket, request: dict[str, Any], files: list[int]) -> int | None:
    if "ended" in request:
        pid, status = os.waitpid(request["ended"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None
    pid = os.fork()
    if not pid:
        ours.close()
        _become(files, **request)
    return pid


def _become(files: list[int], command: list[str], folder: str, env: dict[str, str]) -> None:
    for target, file in enumerate(files, start=1):
        os.dup2(file, target)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    code: Any = 1
    try:
        _run(command)
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def _run(command: list[str]) -> None:
    if command[0].endswith(".py"):
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")
    else:
        sys.argv = ["tamis", *command]
        runpy.run_module("tamis.cli", run_name="__main__")
    sys.exit(0)


if __name__ == "__main__":
    import tamis.broker.frontend.server
    import tamis.cli.broker.serve  # noqa: F401 - so that forked servers need not
    from tamis.matching import load_kernels

    load_kernels()
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        _serve(ours)
