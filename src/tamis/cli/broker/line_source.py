"""Lines of a file or of standard input, read beside other work."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import BinaryIO, Final, NamedTuple

from tamis.events import read_lines

_MOST_WAITING: Final = 2_000


class Line(NamedTuple):
    """A line and its number, which begins at 1."""

    number: int
    text: bytes


async def lines_of(stream: BinaryIO) -> AsyncIterator[Line]:
    """Yield the lines of a stream; while none comes, the event loop is free for others."""
    loop = asyncio.get_running_loop()
    waiting: deque[Line | OSError | None] = deque()
    has_news = asyncio.Event()
    room = threading.Semaphore(_MOST_WAITING)

    def put(item: Line | OSError | None) -> None:
        waiting.append(item)
        # The loop may be gone, if nobody wants to hear the rest.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(has_news.set)

    def read() -> None:
        end: OSError | None = None
        try:
            for number, text in enumerate(read_lines(stream), start=1):
                room.acquire()
                put(Line(number, text))
        except OSError as error:
            end = error
        put(end)

    threading.Thread(target=read, name="tamis input", daemon=True).start()
    while True:
        while not waiting:
            has_news.clear()
            await has_news.wait()
        item = waiting.popleft()
        if item is None:
            return
        if isinstance(item, OSError):
            raise item
        room.release()
        yield item
