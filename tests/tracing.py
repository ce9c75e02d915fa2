"""Follow work through the package: which functions of Tamis run, in which files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tamis

PACKAGE = Path(tamis.__file__).parent
# Ports stand for calls of the system: a port that runs a thread is no step of ours, nor is one that
# asks a thread to write. Turns, the queue with them and prompt waiters stand for asyncio's.
PRIMITIVES = {
    str(PACKAGE / name)
    for name in ("ports.py", "disk_writer.py", "prompt_waiter.py", "broker/operations/turns.py")
}


class Trace:
    """The functions that ran while it was recording, in the order of their first calls."""

    def __init__(self) -> None:
        self.recording = False
        self._codes: dict[CodeType, None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if self.recording and event == "call":
            self._codes.setdefault(frame.f_code)

    @property
    def functions(self) -> list[str]:
        """`room/file.py: Class.function`, without comprehensions and lambdas, which are parts."""
        return [
            f"{Path(code.co_filename).relative_to(PACKAGE)}: {code.co_qualname}"
            for code in self._codes
            if code.co_filename.startswith(str(PACKAGE))
            and code.co_filename not in PRIMITIVES
            and not code.co_name.startswith("<")
        ]

    @property
    def files(self) -> list[str]:
        return list(dict.fromkeys(name.partition(":")[0] for name in self.functions))


@contextmanager
def tracing() -> Iterator[Trace]:
    """Trace this thread and every thread started inside the block.

    Start the threads that do the work inside the block, warm them up, then set `recording`.
    """
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
