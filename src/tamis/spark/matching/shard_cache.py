"""The shards that a Python worker has open.

Spark reuses a worker for the next task, job or micro-batch, and a module lives as long as its
worker. The cache identifies a shard by its path and checksum, so it never mistakes a new version
for an old one.
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

# An unused mapping costs little; this bounds what several versions may add up to.
MAX_OPEN_SHARDS: Final = 64


class OpenShard(NamedTuple):
    """A shard in memory; its engine identifies subscriptions by number."""

    engine: Engine
    ids: pa.Array[Any]


class ShardCache:
    """Open shards, the least recently used first."""

    def __init__(self, capacity: int = MAX_OPEN_SHARDS) -> None:
        self._capacity = capacity
        self._open: OrderedDict[tuple[str, str], OpenShard] = OrderedDict()

    def open(self, folder: str, shards: Iterable[Shard]) -> list[OpenShard]:
        """Return shards, opening those that are not open yet."""
        opened = [self._get(folder, shard) for shard in shards]
        while len(self._open) > max(self._capacity, len(opened)):
            self._open.popitem(last=False)
        return opened

    def _get(self, folder: str, shard: Shard) -> OpenShard:
        key = (folder, shard.snapshot.sha256)
        if key not in self._open:
            self._open[key] = _load(Path(folder), shard)
        self._open.move_to_end(key)
        return self._open[key]


def _load(folder: Path, shard: Shard) -> OpenShard:
    engine = Engine.load(folder / shard.snapshot.name)
    ids = read_ids(folder / shard.ids.name)
    if not len(engine) == len(ids) == shard.subscriptions:
        raise LibraryError(
            folder / shard.snapshot.name,
            f"it should hold {shard.subscriptions:,} subscriptions, but holds {len(engine):,}",
        )
    return OpenShard(engine, ids)


SHARDS: Final = ShardCache()
