"""How the processes of `pytest -n` share the tests."""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
STREAMS = ("spark/streaming", "spark/connectors", "stream")


class SparkInTwoProcesses(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process a file at a time, and two of them all that needs Spark.

    Each process with a test on Spark starts a JVM, which takes half a minute of processor time
    until it is warm. One JVM for all tests would be the last to end.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if SPARK in path:
            return "streams on Spark" if any(one in path for one in STREAMS) else SPARK
        # Seconds each: one process would be the last to end with them.
        return nodeid if is_simulation(path) else path


def turn_of(path: str) -> int:
    """Return a key that puts long tests first: no process is left with one at the end."""
    if SPARK in path:
        return 0
    if is_simulation(path):
        return 1
    return 2 if PurePosixPath(path).parent.name == "tests" else 3


def is_simulation(path: str) -> bool:
    """Return whether tests of a file run brokers, or overlays, by seed."""
    return path.endswith("test_simulation.py")
