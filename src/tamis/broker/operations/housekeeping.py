"""Periodic chores: expiry, late acknowledgements, changed rights, checkpoints, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from tamis.broker.operations.health import Health
from tamis.broker.operations.logs import get_logger
from tamis.errors import TamisError

LOG: Final = get_logger("tamis.broker")


class Chore(NamedTuple):
    """Work that is repeated at an interval."""

    name: str
    interval_seconds: float
    run: Callable[[], Awaitable[object]]


class Housekeeping:
    """The chores of one broker."""

    def __init__(self, chores: Sequence[Chore], health: Health) -> None:
        self._chores = chores
        self._health = health

    async def run(self) -> None:
        """Repeat every chore until cancelled."""
        await asyncio.gather(*map(self._repeat, self._chores))

    async def _repeat(self, chore: Chore) -> None:
        problem = f"the chore {chore.name!r} fails"
        while True:
            await asyncio.sleep(chore.interval_seconds)
            try:
                await chore.run()
            except TamisError as error:
                LOG.warning("chore failed", chore=chore.name, reason=str(error))
            except Exception as error:
                # A bug, but the other chores must continue: some of them revoke rights.
                LOG.exception("chore failed", chore=chore.name)
                self._health.warn(problem, repr(error))
            else:
                self._health.clear(problem)
