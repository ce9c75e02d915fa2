"""What the shards of a version found together in one batch of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.batch import EventBatch
from tamis.matching import Matches
from tamis.spark.matching.worker import OpenShard

Numbers = NDArray[np.int64]


class Found:
    """The matches of some events in all shards, in the order of events, then of shards."""

    def __init__(self, batch: EventBatch, shards: Sequence[OpenShard]) -> None:
        self.length: Final = len(batch)
        self.errors: Final[Mapping[int, TamisError]] = batch.errors
        self._shards = shards
        self._matches: list[Matches] = [shard.engine.match_batch(batch) for shard in shards]

    @cached_property
    def counts(self) -> Numbers:
        """Return how many subscriptions each event satisfies."""
        none = np.zeros(self.length, np.int64)
        return sum((matches.counts() for matches in self._matches), start=none)

    @cached_property
    def starts(self) -> Numbers:
        """Return where the matches of each event begin, and where the last end."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    @cached_property
    def _pairs(self) -> list[tuple[Numbers, NDArray[np.int32]]]:
        """Return for each shard the events that match, and the numbers of what they match."""
        return [matches.numbers() for matches in self._matches]

    @cached_property
    def _order(self) -> NDArray[np.intp] | None:
        """Return the order that brings the matches of each event together, if there is need."""
        if len(self._pairs) < 2:
            return None
        return np.argsort(np.concatenate([events for events, _ in self._pairs]), kind="stable")

    def numbers(self, firsts: Sequence[int]) -> Numbers:
        """Return all matches as numbers of subscriptions, given each shard's first number."""
        pairs = zip(self._pairs, firsts, strict=True)
        parts = [numbers + np.int64(first) for (_, numbers), first in pairs]
        joined = np.concatenate([np.empty(0, np.int64), *parts])
        return joined if self._order is None else joined[self._order]

    def ids(self, type_: pa.DataType) -> pa.Array[Any]:
        """Return all matches as ids of subscriptions."""
        parts = [
            shard.ids.take(pa.array(numbers))
            for shard, (_, numbers) in zip(self._shards, self._pairs, strict=True)
        ]
        if not parts:
            return pa.array([], type_)
        return parts[0] if self._order is None else pa.concat_arrays(parts).take(self._order)
