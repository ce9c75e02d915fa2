"""Processes that publish and subscribe, so that they share no interpreter with the measurement."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

# Not forked: the parent has threads.
_processes: Final = multiprocessing.get_context("spawn")
RESULT_SECONDS: Final = 600.0

Calls = Callable[..., Any]


class Worker:
    """A process with an object in it, whose methods can be called."""

    def __init__(self, pipe: Connection, pid: int) -> None:
        self._pipe = pipe
        self.pid: Final = pid

    def begin(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for its result."""
        self._pipe.send((method, arguments))

    def result(self, patience: float = RESULT_SECONDS) -> Any:
        """Return the result of the last call."""
        if not self._pipe.poll(patience):
            raise TimeoutError(f"nothing came of it in {patience:g} s")
        fine, value = self._pipe.recv()
        if not fine:
            raise RuntimeError(f"in another process: {value}")
        return value

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and return its result."""
        self.begin(method, *arguments)
        return self.result()


@contextmanager
def worker(make: Calls, *arguments: Any, checkout: Path | None = None) -> Iterator[Worker]:
    """Create an object in a new process, with Tamis of a checkout; both end together."""
    here, there = _processes.Pipe()
    process = _processes.Process(target=_serve, args=(there, make, arguments), daemon=True)
    with _importing_from(checkout):
        process.start()
    there.close()
    try:
        if process.pid is None:
            raise RuntimeError("the process has not started")
        made = Worker(here, process.pid)
        made.result()
        yield made
    finally:
        here.close()
        process.join(5)
        if process.is_alive():
            process.terminate()
            process.join()


@contextmanager
def _importing_from(checkout: Path | None) -> Iterator[None]:
    """Let processes that start now find Tamis in another checkout: they search where this does."""
    before = [*sys.path]
    if checkout is not None:
        sys.path.insert(0, str(checkout / "src"))
    try:
        yield
    finally:
        sys.path[:] = before


def _serve(pipe: Connection, make: Calls, arguments: tuple[Any, ...]) -> None:
    """Create the object, then serve calls until the caller has gone."""
    with contextlib.suppress(EOFError, OSError):
        made = _tell(pipe, make, arguments, tells_value=False)
        while made is not None:
            method, given = pipe.recv()
            _tell(pipe, getattr(made, method), given)


def _tell(
    pipe: Connection, call: Calls, arguments: tuple[Any, ...], *, tells_value: bool = True
) -> Any:
    try:
        value = call(*arguments)
    except Exception:
        pipe.send((False, traceback.format_exc()))
        return None
    pipe.send((True, value if tells_value else None))
    return value
