"""What the tests add to collections, and programs that watch one until they are killed."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import tamis
from tamis import message_class
from tamis.collections import DACertifiedBag, DAQueue


@message_class("tests.Job")
@dataclass(frozen=True)
class Job:
    number: int
    word: str = ""

    def is_odd(self) -> bool:
        return self.number % 2 == 1


async def watch(url: str, handled: Path, kind: str) -> None:
    """Write the number of each job to a file, which survives the process."""
    async with tamis.connect(url) as bus:
        with handled.open("a", encoding="utf-8") as file:

            def handle(job: Job) -> None:
                file.write(f"{job.number}\n")
                file.flush()
                os.fsync(file.fileno())

            if kind == "queue":
                watching = await DAQueue[Job]("/jobs", bus).contains(None, handle)
            else:
                jobs = DACertifiedBag[Job]("/jobs", bus)
                watching = await jobs.contains(None, handle, name="writer")
            await watching.wait()


async def watch_on(url: str, handled: Path, kind: str) -> None:
    """Watch again if the broker is not there at the start, as whoever starts the program would."""
    while True:
        try:
            await watch(url, handled, kind)
        except tamis.DisconnectedError:
            await asyncio.sleep(0.1)  # a pace at which to try again


if __name__ == "__main__":
    asyncio.run(watch_on(sys.argv[1], Path(sys.argv[2]), sys.argv[3]))
