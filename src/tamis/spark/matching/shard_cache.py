"""The shards that a Python worker has open.

Spark reuses a worker for the next task, job or micro-batch, and a module lives as long as its
worker. The cache identifies a shard by the checksums of its files, so it never mistakes a shard of
a new version for an old one, or for another with the same filters, whose snapshot is the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tamis.errors import LibraryError
from tamis.matching import Engine
from tamis.spark.library.ids import read_ids
from tamis.spark.library.manifests import Shard
from tamis.spark.library.places import LibraryPlace

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
        self._open: OrderedDict[tuple[str, str, str], OpenShard] = OrderedDict()

    def open(self, place: LibraryPlace, shards: Iterable[Shard]) -> list[OpenShard]:
        """Return shards, opening those that are not open yet."""
        opened = [self._get(place, shard) for shard in shards]
        while len(self._open) > max(self._capacity, len(opened)):
            self._open.popitem(last=False)
        return opened

    def _get(self, place: LibraryPlace, shard: Shard) -> OpenShard:
        removed = "" if shard.removed is None else shard.removed.sha256
        key = (shard.snapshot.sha256, shard.ids.sha256, removed)
        if key not in self._open:
            self._open[key] = _load(place, shard)
        self._open.move_to_end(key)
        return self._open[key]


def _load(place: LibraryPlace, shard: Shard) -> OpenShard:
    path = place.path(shard.snapshot)
    removed = None if shard.removed is None else read_ids(place.path(shard.removed)).to_numpy()
    engine = Engine.load(path, without=removed)
    ids = read_ids(place.path(shard.ids))
    if len(engine) != shard.subscriptions or len(ids) != shard.numbers:
        raise LibraryError(
            path,
            f"it should hold {shard.subscriptions:,} subscriptions, but holds {len(engine):,}",
        )
    return OpenShard(engine, ids)


SHARDS: Final = ShardCache()
