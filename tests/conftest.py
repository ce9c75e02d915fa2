"""What holds for all tests: settings of Hypothesis, folders in memory, time, the order."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer

from hangs import HangGuard
from seeds import SlowSeeds, in_volume
from sharing import SparkInTwoProcesses, turn_of

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from looking through what stays to the end, time after time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first, and give those that measure time another chance."""
    items.sort(key=lambda item: turn_of(item.path.relative_to(ROOT).as_posix()))
    for item in items:
        if item.get_closest_marker("timing"):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SparkInTwoProcesses:
    """Share the tests in our own way, whatever `--dist` says."""
    return SparkInTwoProcesses(config, log)
