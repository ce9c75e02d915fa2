"""A compiled set meets a batch of events: tile after tile, a bit per subscription and event."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.cells import CellFinder
from tamis.matching.evaluate.found import Bitmap, Found
from tamis.matching.evaluate.memory import Memory, zero_rows
from tamis.matching.evaluate.multivalued import MultivaluedEvaluator
from tamis.matching.evaluate.posting_lists import Lists, PostingLists
from tamis.matching.evaluate.single import SingleEvaluator
from tamis.matching.evaluate.tile_kernels import (
    CellsByAttribute,
    evaluate_chunks,
    evaluate_graph,
    set_region_rows,
)

# Words of events that are evaluated at a time: enough to keep the vector units busy, unless the
# rows of so many events would not stay in the last cache.
MAX_TILE_WORDS: Final = 64
MIN_TILE_WORDS: Final = 8
MAX_ROW_BYTES: Final = 24 * 1024 * 1024


class TileWorkspace(NamedTuple):
    """What one tile needs while it is evaluated."""

    variables: Bitmap
    """For the variables of one attribute."""
    rows: Bitmap
    """For the regions, and after them the inner nodes of the graph."""
    is_set: NDArray[np.bool_]
    """Which of those have a bit."""
    nodes: Bitmap
    """For the nodes of one chunk; the first two are all false and all true."""
    parts: Bitmap
    """For one node of the graph."""


class Evaluator:
    """Evaluates one compiled set; made once, used for any number of batches."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._finder = CellFinder(compiled)
        self._waiting = PostingLists(compiled)
        self._several = MultivaluedEvaluator(compiled)
        self._memory = Memory()
        self._free: list[TileWorkspace] = []
        regions, graph = compiled.arrays.regions, compiled.arrays.graph
        self._rows = len(regions.begins) + len(graph.kinds) - len(graph.members)

    def evaluate(self, batch: EventBatch, threads: int = 1) -> Found:
        """Return which events match which subscriptions."""
        found_cells = self._finder.find(batch)
        held = self._finder.held(found_cells)
        unindexed = self._evaluate_unindexed(held, len(batch), threads)
        lists: Lists = np.zeros(len(batch), np.int64), np.empty(0, np.int32)
        if not self._waiting.is_empty:
            lists = self._waiting.match(self._finder.values(found_cells, held))
        found = Found(self.compiled.unindexed, unindexed, *lists)
        if found_cells.several.any():
            found = self._several.recompute(found_cells, found)
        return found.without(batch.errors) if batch.errors else found

    def evaluate_one(self, event: Event) -> NDArray[np.int32]:
        """Return the subscriptions that one event satisfies, ascending."""
        found = self._single.evaluate(event)
        if found is not None:
            return found
        several = self.evaluate(EventBatch.of_events([event]))
        unindexed = several.unindexed[several.bitmap[0, :, 0] != 0]
        return np.sort(np.concatenate((unindexed, several.waiting)))

    @cached_property
    def _single(self) -> SingleEvaluator:
        return SingleEvaluator(self.compiled, self._finder, self._waiting)

    def _evaluate_unindexed(self, held: CellsByAttribute, length: int, threads: int) -> Bitmap:
        """Return a bit for each subscription and event, tile by tile."""
        words, rows = -(-length // 64), len(self.compiled.unindexed)
        width = self._width(words)
        tiles = -(-words // width)
        # Every row is written below, whatever the memory held before.
        matched = self._memory.array(tiles * rows, width).reshape(tiles, rows, width)
        if rows:
            # Tiles are for threads; where there are too few, threads share what is in one.
            apart = threads if tiles >= threads else 1

            def work(tile: int) -> None:
                wanted = min(width, words - tile * width)
                self._evaluate_tile(held, tile * width, wanted, matched[tile], threads // apart)

            _share(work, range(tiles), apart)
            _clear_beyond(matched[-1:], length - (tiles - 1) * width * 64)
        return matched

    def _width(self, words: int) -> int:
        """Return how many words make a tile."""
        width = MAX_TILE_WORDS
        while width > MIN_TILE_WORDS and 8 * width * self._rows > MAX_ROW_BYTES:
            width //= 2
        return max(1, min(width, words))

    def _evaluate_tile(
        self, held: CellsByAttribute, first_word: int, wanted: int, matched: Bitmap, threads: int
    ) -> None:
        arrays, regions = self.compiled.arrays, len(self.compiled.arrays.regions.begins)
        room = self._take_workspace(matched.shape[1])
        lines = self.compiled.variables.counts
        places = (room.variables, room.rows, room.is_set)
        set_region_rows(arrays.regions, lines, held, first_word, wanted, *places)
        chunks = len(arrays.chunks.node_starts) - 1
        bounds = np.linspace(0, chunks, threads + 1).astype(int).tolist()

        def work(part: int) -> None:
            own = room.nodes if part == 0 else self._new_nodes(room.nodes.shape[1])
            evaluate_chunks(arrays.chunks, bounds[part], bounds[part + 1], room.rows, own, matched)

        _share(work, range(threads), threads)
        evaluate_graph(arrays.graph, regions, room.rows, room.is_set, room.parts, matched)
        self._free.append(room)

    def _take_workspace(self, words: int) -> TileWorkspace:
        """Return room for a tile, that of an earlier one where there is some.

        The compiler's vector loops take many words at a time and leave the rest to slower ones, so
        a tile is as wide as the next power of two.
        """
        width = 1 if words == 1 else max(MIN_TILE_WORDS, 1 << (words - 1).bit_length())
        while self._free:
            room = self._free.pop()
            if room.rows.shape[1] == width:
                return room
        lines = self.compiled.variables.counts
        variables = lines.cuts + np.diff(lines.predicates)
        return TileWorkspace(
            variables=zero_rows(int(variables.max(initial=0)), width),
            rows=zero_rows(self._rows, width),
            is_set=np.zeros(self._rows, np.bool_),
            nodes=self._new_nodes(width),
            parts=zero_rows(4, width),
        )

    def _new_nodes(self, width: int) -> Bitmap:
        sizes = np.diff(self.compiled.arrays.chunks.node_starts)
        nodes = zero_rows(int(sizes.max(initial=0)) + 2, width)
        nodes[1] = ~np.uint64(0)
        return nodes


def _clear_beyond(tile: Bitmap, events: int) -> None:
    """Clear the bits of events that there are not."""
    word, rest = divmod(events, 64)
    if rest:
        tile[:, :, word] &= (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
        word += 1
    tile[:, :, word:] = 0


def _share(work: Callable[[int], None], tasks: Iterable[int], threads: int) -> None:
    """Do tasks, on several threads if there are several, of which this is one."""
    left = iter(tasks)

    def do_next() -> None:
        for task in left:
            work(task)

    if threads == 1:
        do_next()
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(do_next) for _ in range(threads - 1)]
        do_next()
        for other in others:
            other.result()
