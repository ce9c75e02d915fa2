"""What holds for all tests: settings of Hypothesis, folders in memory, time, the order."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from hangs import HangGuard
from seeds import SlowSeeds, in_volume

# No deadline: the machine may be busy with other tests, and slow tests show in `--durations`.
# As many examples as find what is to be found over some runs; volume is in the slow suite.
settings.register_profile("tamis", deadline=None, max_examples=in_volume(20))
settings.load_profile("tamis")

ROOT: Final = Path(__file__).parent.parent
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - pytest makes folders of its own in it
MEMORY_BYTES: Final = 2 * 1024**3
"""More than the tests have at the same time."""


def has_room_in_memory() -> bool:
    """Return whether files, and programs among them, can be in memory."""
    if not (MEMORY.is_dir() and os.access(MEMORY, os.W_OK)):
        return False
    may_run = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    return may_run and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES


# A disk takes milliseconds for each of the tens of thousands of syncs of brokers and stores.
if "TMPDIR" not in os.environ and has_room_in_memory():
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# What a shell starts in the background ignores Ctrl-C, and so would the programs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Guard every test: also those in pages and modules, which hooks of this file do not see."""
    config.pluginmanager.register(HangGuard())
    SlowSeeds.are_collected = config.getoption("markexpr") != "not slow"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in order, and give those that measure time another chance."""
    put_spark_first(items)
    for item in items:
        if item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))


def put_spark_first(items: list[pytest.Item]) -> None:
    """Put the tests on Spark first, and then the pages about it, which use the same session.

    Each process that runs some of them starts a JVM, which is slow at first. Those who share the
    tests (`--dist worksteal`) begin with equal parts in order, and then take from the end of each
    other's.
    """
    items.sort(key=lambda item: "spark" not in str(item.path.relative_to(ROOT)))
