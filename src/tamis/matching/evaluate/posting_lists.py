"""The subscriptions that wait, and what events find under what they hold."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.posting_kernels import CellsByEvent, PostingWorkspace, match_postings

Lists = tuple[NDArray[np.int64], NDArray[np.int32]]

MAX_STAMPS: Final = 1 << 30


class PostingLists:
    """Finds matches among the subscriptions that wait; any number of threads may ask."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._free: list[tuple[PostingWorkspace, NDArray[np.int32]]] = []
        self.is_empty = len(compiled.unindexed) == compiled.count

    def match(self, values: CellsByEvent) -> Lists:
        """Return for each event where its list of subscriptions ends, and all lists."""
        length = len(values.starts) - 1
        ends = np.zeros(length, np.int64)
        waiting, room = self._free.pop() if self._free else self._new()
        waiting = self._with_keys_for(waiting, values)
        parts: list[NDArray[np.int32]] = []
        event, before = 0, 0
        while event < length:
            first = event
            event = match_postings(waiting, values, first, ends, room)
            count = int(ends[event - 1])
            ends[first:event] += before
            parts.append(room[:count].copy())
            before += count
        _count_stamps(waiting, length)
        self._free.append((waiting, room))
        return ends, parts[0] if len(parts) == 1 else np.concatenate([room[:0], *parts])

    def _new(self) -> tuple[PostingWorkspace, NDArray[np.int32]]:
        compiled = self._compiled
        waiting = PostingWorkspace(
            compiled.arrays.postings,
            *compiled.programs,
            compiled.variables.leaves,
            seen=np.zeros(compiled.count, np.int32),
            stamps=np.zeros(1, np.int64),
            cell_of=np.zeros(len(compiled.variables.blocks), np.int32),
            keys=np.empty(0, np.int64),
            stack=np.empty(compiled.programs.longest + 1, np.int8),
        )
        return waiting, np.empty(2 * compiled.count + 1024, np.int32)

    def _with_keys_for(self, waiting: PostingWorkspace, values: CellsByEvent) -> PostingWorkspace:
        """Return the same with room for all keys of any event; one may hold very many values."""
        most = int(np.diff(values.starts).max(initial=0))
        room = 2 * most + len(self._compiled.arrays.postings.compound.kinds)
        if room <= len(waiting.keys):
            return waiting
        return waiting._replace(keys=np.empty(room, np.int64))


def _count_stamps(waiting: PostingWorkspace, events: int) -> None:
    """Take note that some events have had their stamps, and begin anew before there are none."""
    waiting.stamps[0] += events
    if waiting.stamps[0] > MAX_STAMPS:
        waiting.stamps[0] = 0
        waiting.seen[:] = 0
