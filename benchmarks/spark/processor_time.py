"""The processor time of a job on Spark: of this process, of Java, and of all Python workers."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def processor_time() -> float:
    """Return the seconds that this process and all below it have taken, with those that ended."""
    ticks: dict[int, int] = {}
    below: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name of the program stands in parentheses, and may hold anything.
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            below[int(fields[1])].append(pid)
            ticks[pid] = sum(map(int, fields[11:15]))
    waiting, total = [os.getpid()], 0
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += below[pid]
    return total / _TICKS
