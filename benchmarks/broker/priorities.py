"""Processes on one machine, scheduled as if some of them had machines of their own.

A client that abuses a broker uses a processor itself, and so does whatever else runs here. Neither
is the broker's fault.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_REAL_TIME_PRIORITY: Final = 10


def run_first(*pids: int) -> bool:
    """Let processes go before all others; return whether that is allowed here."""
    try:
        _schedule(pids, os.SCHED_RR, _REAL_TIME_PRIORITY)
    except PermissionError:
        return False
    return True


def _schedule(pids: tuple[int, ...], policy: int, priority: int) -> None:
    for pid in pids:
        # Threads that start later have the policy of the thread that starts them.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
