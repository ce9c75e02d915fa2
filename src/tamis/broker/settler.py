"""What became of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from tamis.errors import StorageError
from tamis.storage import DeadLetter, Retry, State

# How long a settled delivery may wait for others before it is written.
PAUSE: Final = 0.01
AGAIN: Final = 0.5


class Settler:
    """Gathers acknowledgements, retries and dead letters.

    What is lost of them in a crash comes again: a delivery is settled at least once.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._acknowledged: list[tuple[int, int]] = []
        self._retries: list[Retry] = []
        self._dead: list[DeadLetter] = []
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def acknowledge(self, number: int, sequences: Iterable[int]) -> None:
        """Let events not come again."""
        self._acknowledged.extend((number, sequence) for sequence in sequences)
        self._note()

    def retry(self, number: int, sequence: int, attempts: int, due: float) -> None:
        """Let an event come again at a later time."""
        self._retries.append(Retry(number, sequence, attempts, due))
        self._note()

    def bury(self, letter: DeadLetter) -> None:
        """Give an event up."""
        self._dead.append(letter)
        self._note()

    async def settled(self) -> None:
        """Return when all is on disk."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write what comes, for ever."""
        while True:
            await self._work.wait()
            await asyncio.sleep(PAUSE)
            self._work.clear()
            acknowledged, self._acknowledged = self._acknowledged, []
            retries, self._retries = self._retries, []
            dead, self._dead = self._dead, []
            await self._write(acknowledged, retries, dead)
            if not self._work.is_set():
                self._idle.set()

    async def _write(
        self,
        acknowledged: list[tuple[int, int]],
        retries: list[Retry],
        dead: list[DeadLetter],
    ) -> None:
        while True:
            try:
                await asyncio.to_thread(
                    self._state.settle, acknowledged=acknowledged, retries=retries, dead=dead
                )
            except StorageError:
                # A full disk empties again; until then all this is at hand.
                await asyncio.sleep(AGAIN)
            else:
                return

    def _note(self) -> None:
        self._idle.clear()
        self._work.set()
