"""What a batch of events says about the variables of a compiled set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.events.batch import EventBatch
from tamis.matching.compiled import Compiled
from tamis.matching.predicates import PredicateIndex
from tamis.matching.ranks import Ranker
from tamis.matching.row_kernels import Held, sort_by_event
from tamis.matching.waiting_kernels import Values

Entries = tuple[NDArray[np.int32], NDArray[np.int32]]


class Facts(NamedTuple):
    """The cells that the values of a batch lie in, and the predicates that hold."""

    entries: Mapping[str, Entries]
    """For each attribute that some event has, the event and the cell of every value."""
    passing: NDArray[np.bool_]
    """For each predicate and event."""
    several: NDArray[np.bool_]
    """The events in which an attribute that matters holds several values."""
    several_names: frozenset[str]
    """Those attributes."""


class FactFinder:
    """Finds the facts for one compiled set."""

    def __init__(self, compiled: Compiled) -> None:
        self._first = compiled.variables.first
        self._predicates = PredicateIndex(compiled.variables.predicates, compiled.schema)
        blocks = compiled.variables.blocks
        self._rankers = {name: Ranker(block.partition) for name, block in blocks.items()}
        self.predicate = np.full(len(compiled.variables), NONE, np.int32)
        """For each variable which predicate it is, or NONE."""
        for number, variable in enumerate(compiled.variables.predicates.values()):
            self.predicate[variable] = number

    def find(self, batch: EventBatch) -> Facts:
        """Return what a batch says."""
        entries: dict[str, Entries] = {}
        several, names = np.zeros(len(batch), np.bool_), set[str]()
        for name, column in batch.columns.items():
            if name in self._rankers:
                entries[name] = self._rankers[name].rank(column)
                holds_several = column.several(len(batch))
                if holds_several.any():
                    several |= holds_several
                    names.add(name)
        return Facts(entries, self.passing(batch), several, frozenset(names))

    def passing(self, batch: EventBatch) -> NDArray[np.bool_]:
        """Return for each predicate and event whether it holds."""
        return self._predicates.find(batch)

    def held(self, facts: Facts) -> Held:
        """Return the facts attribute by attribute."""
        nothing = np.empty(0, np.int32)
        parts = [facts.entries.get(name, (nothing, nothing)) for name in self._rankers]
        return Held(
            starts=np.cumsum([0, *(len(events) for events, _ in parts)], dtype=np.int64),
            events=np.concatenate([nothing, *(events for events, _ in parts)]),
            cells=np.concatenate([nothing, *(cells for _, cells in parts)]),
            passing=packed(facts.passing),
        )

    def values(self, facts: Facts, held: Held) -> Values:
        """Return the facts event by event."""
        starts = np.zeros(len(facts.several) + 1, np.int64)
        blocks, cells = np.empty_like(held.events), np.empty_like(held.cells)
        sort_by_event(held, starts, blocks, cells)
        return Values(
            starts=starts,
            blocks=blocks,
            cells=cells,
            passing=np.ascontiguousarray(facts.passing.T),
            predicate=self.predicate,
            first=self._first,
        )


def packed(bits: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return rows of bits as words, the first in the lowest place."""
    rows, count = bits.shape
    padded = np.zeros((rows, -(-count // 64) * 8), np.uint8)
    taken = np.packbits(bits, axis=1, bitorder="little")
    padded[:, : taken.shape[1]] = taken
    return padded.view("<u8").astype(np.uint64, copy=False)
