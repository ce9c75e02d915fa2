"""What the tests add to collections, and a program that watches one until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tamis
from tamis import message_class
from tamis.collections import DACertifiedBag


@message_class("tests.Job")
@dataclass(frozen=True)
class Job:
    number: int
    word: str = ""

    def is_odd(self) -> bool:
        return self.number % 2 == 1


async def watch(url: str, handled: Path) -> None:
    """Write the number of each job to a file, which survives the process."""
    async with tamis.connect(url) as bus:
        with handled.open("a", encoding="utf-8") as file:

            def handle(job: Job) -> None:
                file.write(f"{job.number}\n")
                file.flush()
                os.fsync(file.fileno())

            jobs = DACertifiedBag[Job]("/jobs", bus)
            watching = await jobs.contains(None, handle, name="writer")
            await watching.wait()


async def watch_on(url: str, handled: Path) -> None:
    """Watch again if the broker is not there at the start, as whoever starts the program would."""
    while True:
        try:
            await watch(url, handled)
        except tamis.DisconnectedError:
            await asyncio.sleep(0.1)  # a pace at which to try again


if __name__ == "__main__":
    asyncio.run(watch_on(sys.argv[1], Path(sys.argv[2])))
