"""Events in which an attribute holds several values.

Cells and diagrams are for one value each, so what they found of such an event is right only for
subscriptions that do not ask about such an attribute. The others are run as programs, for 64 such
events at a time, on what any of the values makes true.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.program_kernels import Leaves
from tamis.matching.compile.programs import Programs, gathered
from tamis.matching.evaluate.cells import BatchCells, EventCells, packed
from tamis.matching.evaluate.found import Found
from tamis.matching.evaluate.multivalued_kernels import Lanes, evaluate_programs, set_leaf_rows

_NOTHING: Final[EventCells] = (np.empty(0, np.int32), np.empty(0, np.int32))


class _Affected(NamedTuple):
    """The subscriptions that ask about some attributes, with leaves of their own."""

    members: NDArray[np.int32]
    programs: Programs
    leaves: Leaves
    names: list[str]
    """The attributes that they ask about, those and others."""


class MultivaluedEvaluator:
    """Puts right what was found for events that hold several values."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._affected: dict[frozenset[str], _Affected] = {}

    def recompute(self, found_cells: BatchCells, found: Found) -> Found:
        """Return what was found with the right matches for such events."""
        asked = found_cells.multivalued_names
        if asked not in self._affected:
            self._affected[asked] = self._find_affected(asked)
        affected = self._affected[asked]
        is_affected = np.zeros(self._compiled.count, np.bool_)
        is_affected[affected.members] = True
        holders, waiting = found.indexed_events(), found.waiting
        wrong = found_cells.several[holders] & is_affected[waiting]
        holding, members = [holders[~wrong]], [waiting[~wrong]]
        several = np.flatnonzero(found_cells.several)
        for first in range(0, len(several), 64):
            lanes = several[first : first + 64]
            late = self._recompute(affected, found_cells, lanes, found)
            holding.append(late[0])
            members.append(late[1])
        events = np.concatenate(holding)
        order = np.argsort(events, kind="stable")
        counts = np.bincount(events, minlength=len(found.ends))
        return found._replace(ends=np.cumsum(counts), waiting=np.concatenate(members)[order])

    def _recompute(
        self, affected: _Affected, found_cells: BatchCells, events: NDArray[np.int64], found: Found
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Set the bits of some events; return the matches among what waits."""
        words = self._truths(affected, found_cells, events)
        row_of = np.full(self._compiled.count, -1, np.int32)
        row_of[found.unindexed] = np.arange(len(found.unindexed))
        rows = row_of[affected.members]
        has_row = rows >= 0
        lanes = np.arange(len(events), dtype=np.uint64)
        holds = (words[:, None] >> lanes & np.uint64(1)).astype(np.bool_)
        for lane, event in enumerate(events.tolist()):
            found.set_unindexed(event, holds[has_row, lane], rows[has_row])
        waiting, lane_of = np.nonzero(holds[~has_row])
        return events[lane_of], affected.members[~has_row][waiting]

    def _find_affected(self, names: frozenset[str]) -> _Affected:
        variables, programs = self._compiled.variables, self._compiled.programs
        blocks = [number for number, name in enumerate(variables.blocks) if name in names]
        asks = np.isin(variables.leaves.block, blocks)
        is_asking = (programs.codes >= 0) & asks[np.maximum(programs.codes, 0)]
        counts = np.add.reduceat(is_asking, programs.starts[:-1], dtype=np.int64)
        members = np.flatnonzero(counts).astype(np.int32)
        used, own = programs.some(members).renumbered()
        leaves = _some_leaves(variables.leaves, used)
        asked = set(leaves.block.tolist())
        known = [name for number, name in enumerate(variables.blocks) if number in asked]
        return _Affected(members, own, leaves, known)

    def _truths(
        self, affected: _Affected, found_cells: BatchCells, events: NDArray[np.int64]
    ) -> NDArray[np.uint64]:
        """Return for every concerned subscription a word: which of up to 64 events match."""
        variables = self._compiled.variables
        rows = np.zeros((len(variables), 1), np.uint64)
        rows[list(variables.predicates.values())] = packed(found_cells.passing[:, events])
        when_true = np.zeros((len(affected.leaves.block), 1), np.uint64)
        when_false = np.zeros_like(when_true)
        lanes = self._lanes(affected.names, found_cells, events)
        set_leaf_rows(affected.leaves, lanes, rows, when_true, when_false)
        stack = np.empty((affected.programs.longest + 1, 2), np.uint64)
        truths = np.empty(len(affected.members), np.uint64)
        evaluate_programs(*affected.programs, when_true[:, 0], when_false[:, 0], stack, truths)
        return truths

    def _lanes(self, names: list[str], found_cells: BatchCells, events: NDArray[np.int64]) -> Lanes:
        """Return the values of some events; what is absent has one, in the first cell."""
        variables = self._compiled.variables
        lane_of = np.full(len(found_cells.several), -1, np.int32)
        lane_of[events] = np.arange(len(events))
        parts = dict.fromkeys(variables.blocks, _NOTHING)
        for name in names:
            parts[name] = _lanes_of(found_cells.entries.get(name, _NOTHING), lane_of, len(events))
        return Lanes(
            starts=np.cumsum([0, *(len(lanes) for lanes, _ in parts.values())], dtype=np.int64),
            lanes=np.concatenate([lanes for lanes, _ in parts.values()]),
            cells=np.concatenate([cells for _, cells in parts.values()]),
            first=variables.first,
        )


def _some_leaves(leaves: Leaves, used: NDArray[np.int32]) -> Leaves:
    """Return some of the leaves, over the same variables."""
    sides = np.stack((2 * used, 2 * used + 1), axis=1).ravel()
    starts, taken = gathered(leaves.starts, sides)
    return Leaves(
        starts=starts.astype(np.int32),
        variables=leaves.variables[taken],
        begins_inside=leaves.begins_inside[sides],
        guard=leaves.guard[sides],
        block=leaves.block[used],
        node=leaves.node[sides],
    )


def _lanes_of(entries: EventCells, lane_of: NDArray[np.int32], count: int) -> EventCells:
    holders, cells = entries
    lanes = lane_of[holders]
    here = lanes >= 0
    absent = np.setdiff1d(np.arange(count, dtype=np.int32), lanes[here])
    return (
        np.concatenate((lanes[here], absent)),
        np.concatenate((cells[here], np.zeros(len(absent), np.int32))),
    )
