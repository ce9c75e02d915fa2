"""Posting lists: the subscriptions that an event finds under its cells."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.multivalued_kernels import CellRuns, match_multivalued
from tamis.matching.evaluate.posting_kernels import CellsByEvent, PostingWorkspace, match_postings

Lists = tuple[NDArray[np.int64], NDArray[np.int32]]
"""The end of the list of subscriptions of each event, and all lists."""

# Stamps are 32-bit numbers; before they run out, they restart at 1.
MAX_STAMPS: Final = 1 << 30
# Room for matches beyond two full lists of all subscriptions.
SPARE_MATCHES: Final = 1024
# The key of its cell, the same again if that has a list, and the key of its attribute.
KEYS_PER_VALUE: Final = 3


class _PostingMemory(NamedTuple):
    arrays: PostingWorkspace
    found: NDArray[np.int32]


class PostingLists:
    """Finds matches in the posting lists of one compiled set; safe for any number of threads."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._free: deque[_PostingMemory] = deque()
        self.is_empty = len(compiled.unindexed) == compiled.count
        postings = compiled.arrays.postings
        # One is written before it is known whether it counts.
        self._other_keys: Final = len(postings.compound.kinds) + 1
        cells = postings.starts[: postings.cell_offset[-1] + 1]
        self._listed: Final = np.packbits(np.diff(cells) > 0, bitorder="little")

    def match(self, cells: CellsByEvent | CellRuns) -> Lists:
        """Return the end of the list of subscriptions of each event, and all lists.

        Runs of cells are those of events that may hold several values of an attribute.
        """
        length = len(cells.events if isinstance(cells, CellRuns) else cells.starts) - 1
        ends = np.zeros(length, np.int64)
        try:
            arrays, found = self._free.pop()
        except IndexError:
            arrays, found = self._new_memory()
        # Any event may hold very many values.
        if isinstance(cells, CellRuns):
            held = np.diff(cells.starts[cells.events]) + np.diff(cells.events)
            compounds = len(self._compiled.arrays.postings.compound.keys)
            most = int(held.max(initial=0)) + compounds + 1
        else:
            most = KEYS_PER_VALUE * int(np.diff(cells.starts).max(initial=0)) + self._other_keys
        if most > len(arrays.keys):
            arrays = arrays._replace(keys=np.empty(most, np.int64))
        parts: list[NDArray[np.int32]] = []
        event, before = 0, 0
        while event < length:
            first = event
            if isinstance(cells, CellRuns):
                event = match_multivalued(arrays, cells, first, ends, found)
            else:
                event = match_postings(arrays, cells, first, ends, found)
            count = int(ends[event - 1])
            ends[first:event] += before
            parts.append(found[:count].copy())
            before += count
        arrays.stamps[0] += length
        if arrays.stamps[0] > MAX_STAMPS:
            arrays.stamps[0] = 0
            arrays.seen[:] = 0
        self._free.append(_PostingMemory(arrays, found))
        return ends, parts[0] if len(parts) == 1 else np.concatenate([found[:0], *parts])

    def _new_memory(self) -> _PostingMemory:
        found = np.empty(2 * self._compiled.count + SPARE_MATCHES, np.int32)
        return _PostingMemory(self.new_workspace(), found)

    def new_workspace(self, most_values: int = 0) -> PostingWorkspace:
        """Return memory for a search, for events of up to this many values."""
        compiled = self._compiled
        postings = compiled.arrays.postings
        return PostingWorkspace(
            postings,
            *compiled.programs,
            compiled.variables.leaves,
            seen=np.zeros(compiled.count, np.int32),
            stamps=np.zeros(1, np.int64),
            cell_of=np.zeros(len(compiled.variables.blocks), np.int32),
            keys=np.empty(KEYS_PER_VALUE * most_values + self._other_keys, np.int64),
            stack=np.empty(compiled.programs.longest + 1, np.int8),
            listed=self._listed,
        )
