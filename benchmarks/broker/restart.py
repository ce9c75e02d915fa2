"""How long a broker with very many durable subscriptions takes to restart.

With the compiled engine that it saved when it stopped, and without, when it compiles all filters.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from benchmarks import harness
from benchmarks.broker.servers import tamis
from benchmarks.harness import Contender, Row, measure, step
from benchmarks.reporting import Sheet, durations
from tamis.storage import NEVER, Storage, StoredSubscription

ENGINE: Final = "engine"
SUBSCRIPTIONS_PER_WRITE: Final = 10_000


def measured(folder: Path, count: int) -> list[Row]:
    """Restart a broker in turns."""
    _fill(folder / "data", count)
    with step("compiled for the first time"), tamis(folder):
        pass
    kept = folder / "kept"
    shutil.copytree(folder / "data" / ENGINE, kept)
    return measure(
        [
            Contender("with what was compiled before", partial(_start, folder, kept), 1),
            Contender("all compiled anew", partial(_start, folder, None), 1),
        ],
        harness.REPEATS,
    )


def sheets(rows: list[Row]) -> list[Sheet]:
    """Start and stop a broker; return the time of the start."""
    return [durations(rows)]


def _start(folder: Path, kept: Path | None) -> None:
    place = folder / "data" / ENGINE
    shutil.rmtree(place, ignore_errors=True)
    if kept is not None:
        shutil.copytree(kept, place)
    with tamis(folder):
        pass


def _fill(data: Path, count: int) -> None:
    """Store subscriptions of three conditions each, as a broker does."""
    dice = Random(1)
    with Storage.open(data) as store, step(f"stored {count:,} subscriptions"):
        for first in range(0, count, SUBSCRIPTIONS_PER_WRITE):
            some = range(first, min(first + SUBSCRIPTIONS_PER_WRITE, count))
            store.state.add_subscriptions([_subscription(dice, number) for number in some])


def _subscription(dice: Random, number: int) -> StoredSubscription:
    symbol, price, volume = number % 5_000, dice.randint(1, 1_000), dice.randint(1, 10**6)
    return StoredSubscription(
        owner="anonymous",
        name=f"s{number}",
        filter=f'symbol = "S{symbol}" and price < {price} and volume > {volume}',
        language="tamis",
        mode="sql",
        created_at=0.0,
        expires_at=NEVER,
        start=1,
        overflow="wait",
        durable=True,
        max_attempts=0,
        extra="{}",
    )
