"""The checkpointer: copies what the state has written to its place, beside the work.

Otherwise a writer would do it now and then, and the events behind it would wait for the disk.
"""

from __future__ import annotations

import asyncio

from tamis.ports import Executor
from tamis.storage import StateStore


class Checkpointer:
    """Makes checkpoints of the state when they are due."""

    def __init__(self, state: StateStore, executor: Executor) -> None:
        self._state = state
        self._executor = executor

    async def run(self) -> None:
        """Make checkpoints until cancelled; after that, writers do it themselves."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()
        self._state.when_checkpoint_due(lambda: loop.call_soon_threadsafe(due.set))
        try:
            while True:
                await due.wait()
                due.clear()
                await self._executor.run(self._state.checkpoint)
        finally:
            self._state.when_checkpoint_due(None)
