"""What a batch of events says about the variables of a compiled set."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.diagrams.value_order import BRACKET_OF_KIND, NUMBERS, OTHER, TEXTS, Partition
from tamis.events import Kind
from tamis.events.batch import Column, Entries, EventBatch, split_numbers
from tamis.events.kinds import KINDS
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.batch_kernels import RankTable, look_up, sort_by_event
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.predicates import PredicateIndex
from tamis.matching.evaluate.tile_kernels import CellsByAttribute

EventCells = tuple[NDArray[np.int32], NDArray[np.int32]]
"""The event and the cell of every value of one attribute."""


_NONE: Final = np.empty(0, np.int32)

# A binary search among fewer breakpoints is as fast as a table.
MIN_TABLE_BREAKPOINTS: Final = 16
MAX_TABLE_ENTRIES: Final = 1 << 16
MOST_NEGATIVE: Final = -float(2**50)


class Ranker:
    """Finds cells of one partition."""

    def __init__(self, partition: Partition) -> None:
        keys = partition.values_by_bracket()
        self._base: Final = partition.first_cells()
        self._numbers: Final = _NumberBreakpoints(keys[NUMBERS])
        self._texts: Final[Sequence[str]] = keys[TEXTS]
        self._stored: Final = {
            kind: np.array(list(map(traits.store, keys[BRACKET_OF_KIND[kind]])), traits.dtype)
            for kind, traits in KINDS.items()
            if traits.store is not None
        }
        self._passed_at: Final = {text: passed for passed, text in enumerate(self._texts, 1)}

    def rank(self, column: Column) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return the event and the cell of every value; what is absent has none."""
        found = [(e.events, self._cells(kind, e)) for kind, e in column.entries.items()]
        if len(found) == 1:
            return found[0]
        events, cells = zip((_NONE, _NONE), *found, strict=True)
        return np.concatenate(events), np.concatenate(cells)

    def _cells(self, kind: Kind | None, entries: Entries) -> NDArray[np.int32]:
        bracket = OTHER if kind is None else BRACKET_OF_KIND[kind]
        return np.asarray(self._base[bracket] + self._passed(kind, entries), np.int32)

    def _passed(self, kind: Kind | None, entries: Entries) -> Any:
        """Return how many breakpoints of its bracket every value has passed."""
        match kind:
            case Kind.NUMBER:
                return self._numbers.passed(entries)
            case Kind.TEXT:
                return self._passed_by_texts(entries.texts)[entries.values]
            case None:
                return np.zeros(len(entries.events), np.int32)
            case _:
                return _passed_stored(self._stored[kind], entries.values)

    def _passed_by_texts(self, texts: Sequence[str]) -> NDArray[np.int32]:
        # A text that some filter names is a breakpoint itself, and found five times as fast.
        breakpoints, passed_at = self._texts, self._passed_at.get
        return np.array(
            [passed_at(text) or bisect_right(breakpoints, text) for text in texts], np.int32
        )


def _passed_stored(breakpoints: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    if len(breakpoints) > 1:
        return np.searchsorted(breakpoints, values, side="right")
    # With one breakpoint, as booleans have, a comparison is many times as fast.
    return values >= breakpoints[0] if len(breakpoints) else np.zeros(len(values), np.int32)


class _NumberBreakpoints:
    """The breakpoints of a value order that are numbers, ascending."""

    def __init__(self, breakpoints: Sequence[int | float]) -> None:
        self._floats, self._residues = split_numbers(breakpoints)
        self._groups: Final = np.unique(self._floats)
        """Large integers that are different may have one float; those are a group."""
        self._keys: Final = self._key(self._floats, self._residues)
        self._table: Final = None if self._residues is not None else _table(self._floats)

    def passed(self, entries: Entries) -> NDArray[np.integer]:
        """Return how many of the breakpoints every number has passed."""
        if self._residues is None and entries.residues is None:
            if self._table is None:
                return np.searchsorted(self._floats, entries.values, side="right")
            passed = np.empty(len(entries.values), np.int32)
            look_up(self._table, entries.values, passed)
            return passed
        keys = self._key(entries.values, entries.residues)
        return np.searchsorted(self._keys, keys, side="right")

    def _key(
        self, floats: NDArray[np.float64], residues: NDArray[np.int16] | None
    ) -> NDArray[np.int64]:
        """Return integers in the order of the numbers: by the group, then by the residue.

        A number between two groups has the key under all of the second, for residues are more
        than -(2**15), that of no number.
        """
        groups = np.searchsorted(self._groups, floats)
        inside = groups < np.searchsorted(self._groups, floats, side="right")
        offsets = np.where(inside, 0 if residues is None else residues, -(2**15))
        return groups * 2**16 + offsets


def _table(breakpoints: NDArray[np.float64]) -> RankTable | None:
    """Return what tells the ranks of breakpoints at whole numbers, or None if it is not worth it.

    A test of equality with a whole number has a breakpoint under it and one right over it. Then all
    that lies between two whole numbers has passed the same.
    """
    if (
        len(breakpoints) < MIN_TABLE_BREAKPOINTS
        or not MOST_NEGATIVE < breakpoints[0] <= breakpoints[-1] < -MOST_NEGATIVE
    ):
        return None
    whole = np.floor(breakpoints)
    low, high = int(whole[0]), int(whole[-1])
    right_over = np.nextafter(whole, np.inf)
    if (
        high - low >= MAX_TABLE_ENTRIES
        or not ((breakpoints == whole) | (breakpoints == right_over)).all()
    ):
        return None
    numbers = np.arange(low, high + 1, dtype=np.float64)
    return RankTable(
        low=np.array([low], np.float64),
        at=np.searchsorted(breakpoints, numbers, side="right").astype(np.int32),
        over=np.searchsorted(breakpoints, np.nextafter(numbers, np.inf), side="right").astype(
            np.int32
        ),
    )


class BatchCells(NamedTuple):
    """The cells that the values of a batch lie in, and the predicates that hold."""

    entries: Mapping[str, EventCells]
    """For each attribute that some event has, the event and the cell of every value."""
    passing: NDArray[np.bool_]
    """For each predicate and event."""
    several: NDArray[np.bool_]
    """The events in which an attribute that matters holds several values."""
    multivalued_names: frozenset[str]
    """Those attributes."""


class CellFinder:
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

    def find(self, batch: EventBatch) -> BatchCells:
        """Return what a batch says."""
        entries: dict[str, EventCells] = {}
        several, names = np.zeros(len(batch), np.bool_), set[str]()
        for name, column in batch.columns.items():
            if name in self._rankers:
                entries[name] = self._rankers[name].rank(column)
                holds_several = column.several(len(batch))
                if holds_several.any():
                    several |= holds_several
                    names.add(name)
        return BatchCells(entries, self.passing(batch), several, frozenset(names))

    def passing(self, batch: EventBatch) -> NDArray[np.bool_]:
        """Return for each predicate and event whether it holds."""
        return self._predicates.find(batch)

    def held(self, found_cells: BatchCells) -> CellsByAttribute:
        """Return the facts attribute by attribute."""
        nothing = np.empty(0, np.int32)
        parts = [found_cells.entries.get(name, (nothing, nothing)) for name in self._rankers]
        return CellsByAttribute(
            starts=np.cumsum([0, *(len(events) for events, _ in parts)], dtype=np.int64),
            events=np.concatenate([nothing, *(events for events, _ in parts)]),
            cells=np.concatenate([nothing, *(cells for _, cells in parts)]),
            passing=packed(found_cells.passing),
        )

    def values(self, found_cells: BatchCells, held: CellsByAttribute) -> CellsByEvent:
        """Return the facts event by event."""
        starts = np.zeros(len(found_cells.several) + 1, np.int64)
        blocks, cells = np.empty_like(held.events), np.empty_like(held.cells)
        sort_by_event(held, starts, blocks, cells)
        return CellsByEvent(
            starts=starts,
            blocks=blocks,
            cells=cells,
            passing=np.ascontiguousarray(found_cells.passing.T),
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
