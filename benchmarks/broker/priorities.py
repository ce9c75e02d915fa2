"""Processes on one machine, scheduled as if some of them had machines of their own.

A client that abuses a broker uses a processor itself, and so does whatever else runs here. Neither
is the broker's fault.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_STEP: Final = 10


def run_first(*pids: int, steps: int = 1) -> bool:
    """Let processes go before this one and all others; return whether that is allowed here.

    Those with more steps go before those with fewer. Started by `chrt -r 30`, this one goes before
    whatever else runs on the machine.
    """
    priority = os.sched_getparam(0).sched_priority + steps * _STEP
    try:
        _schedule(pids, os.SCHED_RR, priority)
    except PermissionError:
        return False
    return True


def _schedule(pids: tuple[int, ...], policy: int, priority: int) -> None:
    for pid in pids:
        # Threads that start later have the policy of the thread that starts them.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))
