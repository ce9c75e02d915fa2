"""A member of a group in a process of its own: it notes what it handles in a journal."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time

import tamis
from tamis.client import SubscribeOptions
from tamis.client.connection import Backoff

GROUP = "workers"
FILTER = "n > 0"
KEY = "key"


async def work(url: str, journal: str) -> None:
    """Handle events until killed; a note is written at once, and before the acknowledgement."""
    # A server that is killed again and again does not live long.
    setattr(Backoff, "next", lambda _: 0.05)  # noqa: B010 - a type checker minds the other form
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    options: SubscribeOptions = {
        "group": GROUP,
        "ordering_key": KEY,
        "start": "earliest",
        "acknowledge": "manual",
    }
    async with tamis.connect(url, timeout=120) as bus:
        async for event in bus.subscribe(FILTER, **options):
            began = time.monotonic_ns()
            await asyncio.sleep(random.uniform(0.0, 0.01))  # what it does
            note = f"{time.monotonic_ns()} {began} {event[KEY]} {event['n']} {event.attempt}\n"
            os.write(notes, note.encode())
            await event.ack()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
