"""Evaluates a compiled set on a single event: no columns, no bits, only what the event touches."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.value_order import BRACKET_OF_KIND, OTHER, Partition
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.events.kinds import Value, kind_of
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.cells import CellFinder
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.posting_lists import PostingLists
from tamis.matching.evaluate.single_kernels import (
    SingleWorkspace,
    Upward,
    Usual,
    evaluate_chunks_once,
    evaluate_graph_once,
    plan_upward,
    reset_truths,
    set_truths,
    turn_upward,
)


class SingleEvaluator:
    """Evaluates one compiled set on single events; reusable by any number of threads."""

    def __init__(self, compiled: Compiled, finder: CellFinder, postings: PostingLists) -> None:
        self._compiled = compiled
        self._finder = finder
        self._postings = postings
        variables, arrays = compiled.variables, compiled.arrays
        self._rankers = {
            name: _SingleRanker(number, block.partition)
            for number, (name, block) in enumerate(variables.blocks.items())
        }
        self._upward = _upward(compiled)
        begins = np.flatnonzero(arrays.regions.begins).astype(np.int32)
        blocks = np.searchsorted(arrays.regions.of_block, begins, side="right") - 1
        always = np.flatnonzero(np.diff(variables.counts.predicates)).astype(np.int32)
        self._usual = Usual(begins, blocks.astype(np.int32), always)
        self._no_predicates = np.zeros(0, np.bool_)
        self._free: deque[SingleWorkspace] = deque()

    def evaluate(self, event: Event) -> NDArray[np.int32] | None:
        """Return the subscriptions that an event satisfies; None if it is multivalued."""
        held: dict[int, int] = {}
        for name, values in event.items():
            ranker = self._rankers.get(name)
            if ranker is not None:
                if len(values) > 1:
                    return None
                held[ranker.number] = ranker.cell(values[0])
        blocks = np.array(sorted(held), np.int32)
        cells = np.array([held[block] for block in blocks.tolist()], np.int32)
        passing = self._passing(event)
        found = np.empty(0, np.int32)
        if not self._postings.is_empty:
            found = self._match_postings(blocks, cells, passing)
        if len(self._compiled.unindexed):
            found = np.concatenate((found, self._match_unindexed(blocks, cells, passing)))
        return np.sort(found)

    def _passing(self, event: Event) -> NDArray[np.bool_]:
        if not self._compiled.variables.predicates:
            return self._no_predicates
        # A copy: a kernel is compiled anew for an array that is not contiguous.
        return self._finder.predicates.find(EventBatch.of_events([event]))[:, 0].copy()

    def _match_postings(
        self, blocks: NDArray[np.int32], cells: NDArray[np.int32], passing: NDArray[np.bool_]
    ) -> NDArray[np.int32]:
        values = CellsByEvent(
            starts=np.array((0, len(blocks)), np.int64),
            blocks=blocks,
            cells=cells,
            passing=passing.reshape(1, -1),
            predicate=self._finder.predicate,
            first=self._compiled.variables.first,
        )
        return self._postings.match(values)[1]

    def _match_unindexed(
        self, blocks: NDArray[np.int32], cells: NDArray[np.int32], passing: NDArray[np.bool_]
    ) -> NDArray[np.int32]:
        arrays, counts = self._compiled.arrays, self._compiled.variables.counts
        try:
            workspace = self._free.pop()
        except IndexError:
            workspace = self._new_workspace()
        tail = set_truths(arrays.regions, counts, blocks, cells, passing, self._usual, workspace)
        first = evaluate_chunks_once(arrays.chunks, workspace)
        last = evaluate_graph_once(arrays.graph, self._upward, workspace, tail, first)
        reset_truths(arrays.regions, blocks, self._usual, workspace)
        # Tops are in the order of their members, because memory is read faster in order.
        tops = arrays.graph.members[np.sort(workspace.found[first:last])]
        rows = np.concatenate((workspace.found[:first], tops))
        self._free.append(workspace)
        return self._compiled.unindexed[rows]

    def _new_workspace(self) -> SingleWorkspace:
        compiled, arrays = self._compiled, self._compiled.arrays
        regions, nodes = len(arrays.regions.begins), len(arrays.graph.kinds)
        largest = int(np.diff(arrays.chunks.node_starts).max(initial=0))
        workspace = SingleWorkspace(
            truth=np.array(arrays.regions.begins),
            is_present=np.zeros(len(compiled.variables.blocks) + 1, np.bool_),
            nodes=np.zeros(largest + 2, np.bool_),
            queue=np.empty(regions + nodes + 1, np.int32),
            states=self._upward.needed.copy(),
            touched=np.empty(len(self._upward.parents), np.int32),
            found=np.empty(len(compiled.unindexed) + 1, np.int32),
        )
        workspace.nodes[1] = True
        return workspace


class _SingleRanker:
    """Finds the cell of a single value in the value order of one attribute."""

    def __init__(self, number: int, partition: Partition) -> None:
        self.number: Final = number
        keys, begins = partition.values_by_bracket(), partition.first_cells()
        self._other: Final = begins[OTHER]
        self._of_kind: Final = {
            kind: (begins[bracket], _compact(keys[bracket]))
            for kind, bracket in BRACKET_OF_KIND.items()
        }

    def cell(self, value: Value) -> int:
        """Return the cell of a value."""
        kind = kind_of(value)
        if kind is None:
            return self._other
        begin, keys = self._of_kind[kind]
        # Bits are tested one by one and have no keys.
        return begin + bisect_right(keys, value) if keys else begin


def _compact(keys: list[Any]) -> Sequence[Any]:
    """Return the numbers as a contiguous array, if they are exact as floats; else as given."""
    if keys and all(type(key) in {int, float} and float(key) == key for key in keys):
        return array("d", keys)
    return keys


def _upward(compiled: Compiled) -> Upward:
    graph, regions = compiled.arrays.graph, compiled.arrays.regions
    nodes = len(graph.kinds)
    rows = len(regions.begins) + nodes - len(graph.members)
    upward = Upward(
        np.zeros(rows + 1, np.int64),
        np.empty(len(graph.children), np.int32),
        np.empty(nodes, np.int32),
        np.empty(nodes, np.int8),
    )
    first, last = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    plan_upward(graph, regions, upward, first, last)
    turn_upward(graph, upward, first, last)
    return upward._replace(parents=upward.parents[: upward.starts[-1]].copy())
