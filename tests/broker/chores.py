"""A broker's chores, done when a test wants them."""

from __future__ import annotations

from tamis.broker.broker import Broker


async def do_all_chores(broker: Broker) -> None:
    """Do every chore once, in order."""
    for chore in broker.housekeeping._chores:
        await chore.run()
