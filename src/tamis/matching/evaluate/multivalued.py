"""Evaluates events in which an attribute holds several values.

Posting lists are searched under all cells of such an event. Diagrams assume one value each, so
their result is correct only for subscriptions that do not test such an attribute. The others are
run as programs, for 64 such events at a time: an atom is true if any value makes it true.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.program_kernels import Leaves, gather_parts
from tamis.matching.compile.programs import Programs
from tamis.matching.evaluate.batch_kernels import Lanes, evaluate_programs, set_leaf_rows
from tamis.matching.evaluate.cells import BatchCells
from tamis.matching.evaluate.multivalued_kernels import CellRuns
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.posting_lists import Lists, PostingLists
from tamis.matching.evaluate.segment_matches import SegmentMatches

# Attributes that hold several values vary little from batch to batch. But publishers choose them,
# and a selection may be a copy of all programs.
MAX_KEPT_SELECTIONS: Final = 16
MAX_KEPT_SELECTION_BYTES: Final = 32 * 1024 * 1024


class _Affected(NamedTuple):
    """The subscriptions that test some attributes, with their own leaves."""

    members: NDArray[np.int32]
    programs: Programs
    leaves: Leaves
    blocks: NDArray[np.int32]
    """All attributes that they test."""

    @property
    def nbytes(self) -> int:
        """Return the size of all arrays."""
        return sum(array.nbytes for array in _arrays(self))


class SelectionCache:
    """The selections used last, few and small enough; safe for any number of threads."""

    def __init__(self) -> None:
        self._kept: OrderedDict[frozenset[str], _Affected] = OrderedDict()
        self._changing = Lock()
        self.nbytes = 0

    def get(self, names: frozenset[str]) -> _Affected | None:
        """Return the selection for some attributes, if it is kept."""
        with self._changing:
            if names in self._kept:
                self._kept.move_to_end(names)
            return self._kept.get(names)

    def put(self, names: frozenset[str], selection: _Affected) -> None:
        """Keep a selection, and forget those not used for longest while they are too much."""
        with self._changing:
            # Two threads may have made the same one.
            if names not in self._kept:
                self._kept[names] = selection
                self.nbytes += selection.nbytes
            while self.nbytes > MAX_KEPT_SELECTION_BYTES or len(self._kept) > MAX_KEPT_SELECTIONS:
                _, forgotten = self._kept.popitem(last=False)
                self.nbytes -= forgotten.nbytes


class MultivaluedEvaluator:
    """Recomputes the matches of events that hold several values."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._selections = SelectionCache()

    def recompute(
        self, cells: BatchCells, multivalued: NDArray[np.bool_], matched: SegmentMatches
    ) -> None:
        """Set the bits of those events."""
        affected = self._affected(cells.multivalued_names)
        if not len(affected.members):
            return
        row_of = np.full(self._compiled.count, -1, np.int32)
        row_of[self._compiled.unindexed] = np.arange(len(self._compiled.unindexed))
        rows = row_of[affected.members]
        events = np.flatnonzero(multivalued)
        for first in range(0, len(events), 64):
            some = events[first : first + 64]
            words = self._truths(affected, cells, some)
            # A byte for each subscription and event: words would take eight times as much.
            bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")
            holds = bits.reshape(-1, 64)[:, : len(some)].view(np.bool_)
            for lane, event in enumerate(some.tolist()):
                matched.set_bits(event, rows, holds[:, lane])

    def _affected(self, names: frozenset[str]) -> _Affected:
        affected = self._selections.get(names)
        if affected is None:
            affected = self._find_affected(names)
            self._selections.put(names, affected)
        return affected

    def _find_affected(self, names: frozenset[str]) -> _Affected:
        variables, programs = self._compiled.variables, self._compiled.programs
        blocks = [number for number, name in enumerate(variables.blocks) if name in names]
        asks = np.isin(variables.leaves.block, blocks)
        is_asking = (programs.codes >= 0) & asks[np.maximum(programs.codes, 0)]
        counts = np.add.reduceat(is_asking, programs.starts[:-1], dtype=np.int64)
        # Posting lists need no second look.
        unindexed = self._compiled.unindexed
        members = unindexed[counts[unindexed] > 0]
        used, own = programs.some(members).renumbered()
        leaves = _some_leaves(variables.leaves, used)
        asked = np.unique(leaves.block[leaves.block >= 0])
        return _Affected(members, own, leaves, asked)

    def _truths(
        self, affected: _Affected, cells: BatchCells, events: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return a word for every affected subscription: which of up to 64 events match."""
        variables = self._compiled.variables
        rows = np.zeros((len(variables), 1), np.uint64)
        passing = np.zeros((len(cells.passing), 64), np.bool_)
        passing[:, : len(events)] = cells.passing[:, events]
        packed = np.packbits(passing, axis=1, bitorder="little").view("<u8")
        rows[list(variables.predicates.values())] = packed
        when_true = np.zeros((len(affected.leaves.block), 1), np.uint64)
        when_false = np.zeros_like(when_true)
        lanes = self._lanes(affected.blocks, cells, events)
        set_leaf_rows(affected.leaves, lanes, rows, when_true, when_false)
        stack = np.empty((affected.programs.longest + 1, 2), np.uint64)
        truths = np.empty(len(affected.members), np.uint64)
        evaluate_programs(*affected.programs, when_true[:, 0], when_false[:, 0], stack, truths)
        return truths

    def _lanes(
        self, blocks: NDArray[np.int32], cells: BatchCells, events: NDArray[np.int64]
    ) -> Lanes:
        """Return the cells of some events; an absent attribute has one, the first."""
        starts, holders, found, _ = cells.by_attribute
        lane_of = np.full(cells.passing.shape[1], -1, np.int64)
        lane_of[events] = np.arange(len(events))
        ends, entries = gather_parts(starts, blocks)
        lanes = lane_of[holders[entries]]
        # One number for each attribute and event, then the cell.
        places = np.repeat(np.arange(len(blocks)), np.diff(ends)) * len(events) + lanes
        keys = (places[lanes >= 0] << 32) + found[entries][lanes >= 0]
        has_values = np.zeros(len(blocks) * len(events), np.bool_)
        has_values[places[lanes >= 0]] = True
        different = np.unique(np.concatenate((keys, np.flatnonzero(~has_values) << 32)))
        begins = np.searchsorted(different, np.arange(len(has_values) + 1) << 32)
        lane_starts = np.zeros((len(starts) - 1, len(events) + 1), np.int64)
        lane_starts[blocks, :-1] = begins[:-1].reshape(len(blocks), len(events))
        lane_starts[blocks, -1] = begins[len(events) :: len(events)]
        touched = (different & 0xFFFFFFFF).astype(np.int32)
        return Lanes(lane_starts, touched, self._compiled.variables.first)


def match_mixed(
    postings: PostingLists, cells: CellsByEvent, multivalued: NDArray[np.bool_]
) -> Lists:
    """Return the matches in posting lists of events of which some hold several values."""
    several = postings.match(_runs(cells, multivalued))
    if multivalued.all():
        return several
    others = postings.match(cells)
    counts = np.diff(others[0], prepend=0)
    own = np.diff(several[0], prepend=0)
    holders = np.repeat(np.arange(len(multivalued)), counts)
    members = np.concatenate((others[1][~multivalued[holders]], several[1]))
    events = np.concatenate(
        (holders[~multivalued[holders]], np.repeat(np.flatnonzero(multivalued), own))
    )
    counts[multivalued] = own
    return np.cumsum(counts), members[np.argsort(events, kind="stable")]


def _runs(cells: CellsByEvent, multivalued: NDArray[np.bool_]) -> CellRuns:
    """Return the cells of the events that hold several values."""
    holders = np.repeat(np.arange(len(multivalued)), np.diff(cells.starts))
    blocks, found, passing = cells.blocks, cells.cells, cells.passing
    if not multivalued.all():
        kept = multivalued[holders]
        holders, blocks, found = holders[kept], blocks[kept], found[kept]
        numbers = np.cumsum(multivalued) - 1
        holders, passing = numbers[holders], passing[: len(multivalued)][multivalued]
    # Cells come event by event, and attribute by attribute: number the runs, and sort in each.
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = (holders[1:] != holders[:-1]) | (blocks[1:] != blocks[:-1])
    run_of = np.cumsum(is_first) - 1
    keys = np.unique((run_of << 32) + found)
    runs = (keys >> 32).astype(np.int64)
    own = holders[is_first]
    return CellRuns(
        events=np.searchsorted(own, np.arange(int(np.count_nonzero(multivalued)) + 1)),
        starts=np.searchsorted(runs, np.arange(len(own) + 1)),
        blocks=blocks[is_first],
        cells=(keys & 0xFFFFFFFF).astype(np.int32),
        passing=np.ascontiguousarray(passing),
        predicate=cells.predicate,
        first=cells.first,
        absent=np.zeros(1, np.int32),
    )


def _arrays(tuples: tuple[Any, ...]) -> Iterator[NDArray[Any]]:
    """Yield the arrays of nested tuples."""
    for inner in tuples:
        if isinstance(inner, tuple):
            yield from _arrays(inner)
        else:
            yield inner


def _some_leaves(leaves: Leaves, used: NDArray[np.int32]) -> Leaves:
    """Return some of the leaves, over the same variables."""
    sides = np.stack((2 * used, 2 * used + 1), axis=1).ravel()
    starts, taken = gather_parts(leaves.starts, sides)
    return Leaves(
        starts=starts.astype(np.int32),
        variables=leaves.variables[taken],
        begins_inside=leaves.begins_inside[sides],
        guard=leaves.guard[sides],
        block=leaves.block[used],
        node=leaves.node[sides],
    )
