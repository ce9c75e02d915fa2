"""What became of deliveries, written to disk many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from tamis.errors import StorageError
from tamis.storage import DeadLetter, Retry, StateStore

# How long a settled delivery may wait for others before it is written.
PAUSE: Final = 0.01
AGAIN: Final = 0.5


Outcomes = dict[tuple[int, int], Retry | DeadLetter | None]
"""What is to become of events, by number and sequence, the last decision alone; None: nothing."""


class AcknowledgementWriter:
    """Gathers acknowledgements, retries and dead letters.

    What is lost of them in a crash comes again: a delivery is settled at least once.
    """

    def __init__(self, state: StateStore) -> None:
        self._state = state
        self._outcomes: Outcomes = {}
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def acknowledge(self, number: int, sequences: Iterable[int]) -> None:
        """Let events not come again."""
        self._outcomes.update({(number, sequence): None for sequence in sequences})
        self._note()

    def retry(self, number: int, sequence: int, attempts: int, due: float) -> None:
        """Let an event come again at a later time."""
        self._outcomes[number, sequence] = Retry(number, sequence, attempts, due)
        self._note()

    def bury(self, letter: DeadLetter) -> None:
        """Give an event up."""
        self._outcomes[letter.number, letter.sequence] = letter
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
            outcomes, self._outcomes = self._outcomes, {}
            await self._write(outcomes)
            if not self._work.is_set():
                self._idle.set()

    async def _write(self, outcomes: Outcomes) -> None:
        settle = partial(
            self._state.settle,
            acknowledged=[key for key, outcome in outcomes.items() if outcome is None],
            retries=[outcome for outcome in outcomes.values() if isinstance(outcome, Retry)],
            dead=[outcome for outcome in outcomes.values() if isinstance(outcome, DeadLetter)],
        )
        while True:
            try:
                await asyncio.to_thread(settle)
            except StorageError:
                # A full disk empties again; until then all this is at hand.
                await asyncio.sleep(AGAIN)
            else:
                return

    def _note(self) -> None:
        self._idle.clear()
        self._work.set()
