"""Killing what runs a stream: the driver, a Python worker, an executor, each in mid-batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from spark.stream_driver import FAILED_TASKS
from spark.streams import Site, wait_until

TESTS = Path(__file__).parents[1]
TIMEOUT = 600


class Setting(NamedTuple):
    """How a driver is to run."""

    master: str
    format: str = "json"
    files_per_batch: int = 1
    plant: str = ""


class Driver:
    """A process that runs a stream, with all that it starts."""

    def __init__(self, path: Path, setting: Setting) -> None:
        self.site = Site(path)
        self._failed = path / FAILED_TASKS
        arguments = [str(path), setting.master, setting.format, str(setting.files_per_batch)]
        command = [sys.executable, "-m", "spark.stream_driver", *arguments, setting.plant]
        self._log = (path / "driver.log").open("ab")
        self.process = subprocess.Popen(  # noqa: S603
            command if setting.plant else command[:-1],
            cwd=TESTS,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def kill(self, *, with_its_jvm: bool) -> None:
        """End the driver at once; its JVM with it, or left to notice that nobody is there."""
        if with_its_jvm:
            os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()
        self.process.wait()
        self._log.close()

    def finish(self) -> int:
        """Wait for the end of the stream; return how many tasks failed."""
        code = self.process.wait(TIMEOUT)
        self._log.close()
        assert code == 0, Path(self._log.name).read_text(encoding="utf-8")[-3000:]
        return int(json.loads(self._failed.read_text(encoding="utf-8")))

    # --- moments -----------------------------------------------------------------------------

    def wait_for(self, moment: str, batch: int) -> bool:
        """Wait for a moment in a batch or a later one; False if the stream ended before."""
        check = {"pinned": self._is_pinned, "writing": self._writes, "committed": self._commits}
        wait_until(lambda: self.is_over() or check[moment](batch), TIMEOUT)
        return not self.is_over()

    def _is_pinned(self, batch: int) -> bool:
        return bool(self._under_way(batch))

    def _writes(self, batch: int) -> bool:
        attempts = self.site.results.glob("_writing-*/_temporary/*/_temporary/*/*")
        root = len(self.site.results.parts)
        return any(int(path.parts[root].split("-")[1]) >= batch for path in attempts)

    def _commits(self, batch: int) -> bool:
        committed = (path.parent.name for path in self.site.results.glob("batch=*/_batch.json"))
        numbers = {int(name.removeprefix("batch=")) for name in committed}
        return any(n >= batch and not is_noted_by_spark(self.site, n) for n in numbers)

    def _under_way(self, first: int = 0) -> list[int]:
        pinned = self.site.checkpoint / "tamis" / "batches"
        begun = [int(path.stem) for path in pinned.glob("[0-9]*.json")]
        return [
            number for number in begun if number >= first and not is_committed(self.site, number)
        ]

    # --- processes ---------------------------------------------------------------------------

    def busy_workers(self) -> list[int]:
        """Return the Python workers that compute: children of the process they are forked from."""
        return workers_of(self.process.pid, busy=True)

    def busy_executors(self) -> list[int]:
        """Return the executors one of whose workers computes."""
        busy = set(self.busy_workers())
        return [
            one.id
            for one in descendants(self.process.pid)
            if "CoarseGrainedExecutorBackend" in one.command
            and busy & {below.id for below in descendants(one.id)}
        ]

    def kill_one(self, what: str, batch: int) -> bool:
        """Kill a busy worker or an executor in mid-batch; False if the stream ended before."""
        find = {"worker": self.busy_workers, "executor": self.busy_executors}[what]
        victims: list[int] = []

        def is_found() -> bool:
            victims[:] = find() if self._under_way(batch) else []
            return bool(victims) or self.is_over()

        wait_until(is_found, TIMEOUT)
        if self.is_over():
            return False
        os.kill(victims[0], signal.SIGKILL)
        return True


def is_committed(site: Site, batch: int) -> bool:
    return any(site.results.glob(f"batch=*{batch:08}/_batch.json"))


def is_noted_by_spark(site: Site, batch: int) -> bool:
    return (site.checkpoint / "commits" / str(batch)).exists()


class Process(NamedTuple):
    id: int
    parent: int
    state: str
    command: str


def descendants(root: int) -> list[Process]:
    """Return all processes that a process started, or that these started."""
    everything = list(processes())
    known, found = {root}, []
    while more := [one for one in everything if one.parent in known and one.id not in known]:
        known |= {one.id for one in more}
        found += more
    return found


def workers_of(driver: int, *, busy: bool = False) -> list[int]:
    """Return the Python workers of a driver, all of them or those that compute."""
    # The commands of Spark itself mention the module in a setting.
    found = [one for one in descendants(driver) if "-m tamis.spark.daemon" in one.command]
    daemons = {one.id for one in found if one.parent not in {other.id for other in found}}
    return [one.id for one in found if one.id not in daemons and (one.state == "R" or not busy)]


def processes() -> Iterator[Process]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, ValueError):
            continue
        yield Process(int(entry.name), int(parent), state, command)
