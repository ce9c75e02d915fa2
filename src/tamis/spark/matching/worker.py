"""What a Python worker keeps from task to task: the shards that it has opened.

Spark uses a worker again for the next task, job or micro-batch, and a module lives as long as its
worker does. A shard is known by its path and its checksum, so a new version is never taken for an
old one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tamis.errors import LibraryError
from tamis.matching import Engine
from tamis.spark.library.library import Shard, read_ids

# What is mapped but not used costs little; this bounds what several versions may add up to.
MOST_OPEN: Final = 64


class Clock:
    """The time that expiry goes by: what the driver says, so that a task run again agrees."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds since 1970."""
        return self.now


class OpenShard(NamedTuple):
    """A shard in memory: its engine knows subscriptions by number."""

    engine: Engine
    ids: pa.Array[Any]


class Shelf:
    """The shards that are open, the least recently used first."""

    def __init__(self, most: int = MOST_OPEN) -> None:
        self.clock: Final = Clock()
        self._most = most
        self._open: OrderedDict[tuple[str, str], OpenShard] = OrderedDict()

    def open(self, folder: str, shards: Iterable[Shard]) -> list[OpenShard]:
        """Return shards, opened now or before."""
        opened = [self._one(folder, shard) for shard in shards]
        while len(self._open) > max(self._most, len(opened)):
            self._open.popitem(last=False)
        return opened

    def _one(self, folder: str, shard: Shard) -> OpenShard:
        known = (folder, shard.snapshot.sha256)
        if known not in self._open:
            self._open[known] = self._opened(Path(folder), shard)
        self._open.move_to_end(known)
        return self._open[known]

    def _opened(self, folder: Path, shard: Shard) -> OpenShard:
        engine = Engine.load(folder / shard.snapshot.name, clock=self.clock)
        ids = read_ids(folder / shard.ids.name)
        if not len(engine) == len(ids) == shard.subscriptions:
            raise LibraryError(
                folder / shard.snapshot.name,
                f"it should hold {shard.subscriptions:,} subscriptions, and holds {len(engine):,}",
            )
        return OpenShard(engine, ids)


SHELF: Final = Shelf()
