"""What stays open: connections and event streams, so that a broker that stops can end them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Stream(Protocol):
    """Something that goes on until it is told to stop."""

    def stop(self) -> None:
        """Finish what was begun, then end."""


class Streams:
    """All that is open at the moment."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.is_stopping = False

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def holding(self, stream: Stream) -> Iterator[None]:
        """Know a stream while it is open."""
        self._open.add(stream)
        self._empty.clear()
        if self.is_stopping:
            stream.stop()
        try:
            yield
        finally:
            self._open.discard(stream)
            if not self._open:
                self._empty.set()

    async def stop(self) -> None:
        """Tell all to end, and return when they have."""
        self.is_stopping = True
        for stream in [*self._open]:
            stream.stop()
        await self._empty.wait()
