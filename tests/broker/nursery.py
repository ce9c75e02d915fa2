"""Server processes without the second that their imports take.

A nursery is a process that has loaded all that `tamis serve` needs. It forks into servers, each a
process like any other, with its own folder, environment and output, that can be killed.
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
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import IO, Any, Final

MOST: Final = 1 << 16
OFTEN: Final = 0.005


class Child:
    """A process that a nursery has forked, with the interface of one that was started."""

    def __init__(self, nursery: Nursery, pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """Return the exit code, or None as long as it runs."""
        if self.returncode is None:
            self.returncode = self._nursery.ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code when there is one."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise TimeoutError(f"process {self.pid} has not ended within {timeout} seconds")
            time.sleep(OFTEN)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """Starts servers."""

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
    ) -> Child:
        """Start a command of `tamis`, or a script of Python, with its arguments."""
        reading, writing = os.pipe()
        try:
            asked = {"command": [*command], "folder": str(folder), "env": {**env}}
            pid = self.ask(asked, [writing, stderr.fileno()])
        finally:
            os.close(writing)
        return Child(self, pid, os.fdopen(reading))

    def ask(self, asked: Mapping[str, Any], files: Sequence[int] = ()) -> Any:
        """Return what the nursery answers."""
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], [*files])
            return json.loads(self._socket.recv(MOST))

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def nursery() -> Nursery:
    """Return the nursery of this process."""
    return Nursery()


def _serve(ours: socket.socket) -> None:
    while True:
        asked, files, _, _ = socket.recv_fds(ours, MOST, 2)
        if not asked:
            return
        answer = _answer(ours, json.loads(asked), files)
        for file in files:
            os.close(file)
        ours.send(json.dumps(answer).encode())


def _answer(ours: socket.socket, asked: dict[str, Any], files: list[int]) -> int | None:
    if "ended" in asked:
        pid, status = os.waitpid(asked["ended"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None
    pid = os.fork()
    if not pid:
        ours.close()
        _become(files, **asked)
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
    import tamis.cli  # noqa: F401 - so that servers need not
    from tamis.matching import load_kernels

    load_kernels()
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        _serve(ours)
