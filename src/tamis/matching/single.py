"""A compiled set meets one event: no columns, no bits, and only what the event touches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.lines import SEGMENT_OF_KIND, Cut, Segment
from tamis.events import Event, Kind
from tamis.events.batch import EventBatch
from tamis.events.values import Value, kind_of
from tamis.matching.access_kernels import Values
from tamis.matching.compiled import Compiled
from tamis.matching.facts import FactFinder
from tamis.matching.single_kernels import (
    SingleRoom,
    Upward,
    Usual,
    evaluate_chunks_once,
    evaluate_graph_once,
    reset_truths,
    set_truths,
    turn_upward,
)
from tamis.matching.waiting import WaitingList

_NOT_SKIPPED: Final = np.zeros(1, np.bool_)


class SingleEvaluator:
    """Evaluates one compiled set on one event at a time; made once, for any number of threads."""

    def __init__(self, compiled: Compiled, finder: FactFinder, waiting: WaitingList) -> None:
        self._compiled = compiled
        self._finder = finder
        self._waiting = waiting
        variables, arrays = compiled.variables, compiled.arrays
        self._cuts: dict[str, tuple[int, Sequence[Cut]]] = {
            name: (number, block.scale.cuts)
            for number, (name, block) in enumerate(variables.blocks.items())
        }
        self._upward = _upward(compiled)
        begins = np.flatnonzero(arrays.regions.begins).astype(np.int32)
        blocks = np.searchsorted(arrays.regions.of_block, begins, side="right") - 1
        always = np.flatnonzero(np.diff(variables.counts.predicates)).astype(np.int32)
        self._usual = Usual(begins, blocks.astype(np.int32), always)
        self._no_predicates = np.zeros(0, np.bool_)
        self._rooms: list[SingleRoom] = []

    def evaluate(self, event: Event) -> NDArray[np.int32] | None:
        """Return the subscriptions that an event satisfies; None if it holds several values."""
        held: dict[int, int] = {}
        for name, values in event.items():
            known = self._cuts.get(name)
            if known is not None:
                if len(values) > 1:
                    return None
                held[known[0]] = bisect_right(known[1], position(values[0]))
        blocks = np.fromiter(held, np.int32, len(held))
        cells = np.fromiter(held.values(), np.int32, len(held))
        passing = self._passing(event)
        found = self._match_waiting(blocks, cells, passing)
        if len(self._compiled.everyday):
            found = np.concatenate((found, self._match_everyday(blocks, cells, passing)))
        return np.sort(found)

    def _passing(self, event: Event) -> NDArray[np.bool_]:
        if not self._compiled.variables.predicates:
            return self._no_predicates
        return self._finder.passing(EventBatch.of_events([event]))[:, 0]

    def _match_waiting(
        self, blocks: NDArray[np.int32], cells: NDArray[np.int32], passing: NDArray[np.bool_]
    ) -> NDArray[np.int32]:
        values = Values(
            starts=np.array((0, len(blocks)), np.int64),
            blocks=blocks,
            cells=cells,
            skipped=_NOT_SKIPPED,
            passing=passing.reshape(-1, 1),
            predicate=self._finder.predicate,
            first=self._compiled.variables.first,
        )
        return self._waiting.match(values)[1]

    def _match_everyday(
        self, blocks: NDArray[np.int32], cells: NDArray[np.int32], passing: NDArray[np.bool_]
    ) -> NDArray[np.int32]:
        arrays, lines = self._compiled.arrays, self._compiled.variables.counts
        room = self._rooms.pop() if self._rooms else self._new_room()
        depth = set_truths(arrays.regions, lines, blocks, cells, passing, self._usual, room)
        count = evaluate_chunks_once(arrays.chunks, room)
        count = evaluate_graph_once(arrays.graph, self._upward, room, depth, count)
        reset_truths(arrays.regions, blocks, self._usual, room)
        found = self._compiled.everyday[room.found[:count]]
        self._rooms.append(room)
        return found

    def _new_room(self) -> SingleRoom:
        compiled, arrays = self._compiled, self._compiled.arrays
        regions, nodes = len(arrays.regions.begins), len(arrays.graph.kinds)
        largest = int(np.diff(arrays.chunks.node_starts).max(initial=0))
        room = SingleRoom(
            truth=np.array(arrays.regions.begins),
            is_present=np.zeros(len(compiled.variables.blocks) + 1, np.bool_),
            nodes=np.zeros(largest + 2, np.bool_),
            stack=np.empty(regions + nodes, np.int32),
            counts=np.zeros(nodes, np.int32),
            is_odd=np.zeros(nodes, np.bool_),
            touched=np.empty(nodes, np.int32),
            found=np.empty(len(compiled.everyday), np.int32),
        )
        room.nodes[1] = True
        return room


def position(value: Value) -> Cut:
    """Return where on the line of its attribute a value lies."""
    kind = kind_of(value)
    if kind is None:
        return (Segment.OTHER,)
    # Bits are tested one by one, and lie nowhere in particular.
    return (SEGMENT_OF_KIND[kind],) if kind is Kind.BITS else (SEGMENT_OF_KIND[kind], value)


def _upward(compiled: Compiled) -> Upward:
    graph = compiled.arrays.graph
    rows = len(compiled.arrays.regions.begins) + len(graph.kinds) - len(graph.members)
    upward = Upward(
        np.zeros(rows + 1, np.int64),
        np.empty(len(graph.children), np.int32),
        np.empty(len(graph.kinds), np.int32),
    )
    turn_upward(graph, upward)
    return upward
