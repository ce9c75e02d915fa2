"""Evaluates a compiled set on a batch of events: tile by tile, a bit per subscription and event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.batch_kernels import (
    CellsByAttribute,
    Tile,
    TileWorkspace,
    UnindexedArrays,
    evaluate_chunks,
    evaluate_graph,
    evaluate_tile,
    set_region_rows,
    sort_by_event,
)
from tamis.matching.evaluate.cells import CellFinder
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.multivalued import MultivaluedEvaluator, match_mixed
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.posting_lists import Lists, PostingLists
from tamis.matching.evaluate.segment_matches import (
    MIN_KEPT_BYTES,
    Bitmap,
    Memory,
    SegmentMatches,
    zero_rows,
)
from tamis.matching.evaluate.single_event.evaluator import SingleEvaluator
from tamis.matching.evaluate.single_event.json_evaluator import SingleJsonEvaluator

# Words of events in a tile: enough to keep the vector units busy, but no more rows than fit the
# last-level cache.
MAX_TILE_WORDS: Final = 64
MIN_TILE_WORDS: Final = 8
MAX_ROW_BYTES: Final = 24 * 1024 * 1024
# Whether each predicate holds for each event takes up to this much; larger batches are cut.
MAX_PREDICATE_BYTES: Final = 128 * 1024 * 1024
# The bits of one batch should take no more than this, but it has at least some events.
MAX_BITMAP_BYTES: Final = 32 * 1024 * 1024
MIN_BATCH_EVENTS: Final = 4_096
MAX_BATCH_EVENTS: Final = 65_536


class Evaluator:
    """Evaluates one compiled set; made once, used for any number of batches and threads."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled: Final = compiled
        self._finder = CellFinder(compiled)
        self._postings = PostingLists(compiled)
        self._multivalued = MultivaluedEvaluator(compiled)
        self.is_metered: Final = self._finder.predicates.are_metered
        """Whether there are tests that an event can make slow."""
        self._memory = Memory()
        self._free: deque[TileWorkspace] = deque()
        regions, graph = compiled.arrays.regions, compiled.arrays.graph
        counts = compiled.variables.counts
        self._unindexed = UnindexedArrays(regions, counts, compiled.arrays.chunks, graph)
        self._rows = len(regions.begins) + len(graph.kinds) - len(graph.members)
        self._tile_words, self._max_events = self._sizes()
        fitting = 8 * MAX_BITMAP_BYTES // max(1, len(compiled.unindexed))
        self.max_events: Final = min(max(fitting, MIN_BATCH_EVENTS), MAX_BATCH_EVENTS) // 64 * 64
        """How many events a batch should have at most, for the memory of its bits."""

    def _sizes(self) -> tuple[int, int]:
        """Return how many words of events make a tile, and how many events are taken at once."""
        width = MAX_TILE_WORDS
        while width > MIN_TILE_WORDS and 8 * width * self._rows > MAX_ROW_BYTES:
            width //= 2
        # A byte, a bit, and a byte again where posting lists want them event by event.
        bytes_per_word = 64 * len(self.compiled.variables.predicates) * (9 / 8 + 1)
        words = MAX_PREDICATE_BYTES / max(1, bytes_per_word)
        while width > 1 and words < width:
            width //= 2
        return width, 64 * width * max(1, int(words / width))

    def evaluate(
        self, batch: EventBatch, threads: int = 1, meter: Meter | None = None
    ) -> SegmentMatches:
        """Return which events match which subscriptions, as far as the meter allows."""
        if batch.length > self._max_events:
            return self._evaluate_in_parts(batch, threads, meter)
        cells = self._finder.find(batch, meter)
        by_attribute = cells.by_attribute
        bitmap = self._evaluate_unindexed(by_attribute, batch.length, threads)
        lists: Lists = np.zeros(batch.length, np.int64), np.empty(0, np.int32)
        if not self._postings.is_empty:
            by_event = CellsByEvent(
                starts=np.zeros(batch.length + 1, np.int64),
                blocks=np.empty_like(by_attribute.events),
                cells=np.empty_like(by_attribute.cells),
                passing=np.ascontiguousarray(cells.passing.T),
                predicate=self._finder.predicate,
                first=self.compiled.variables.first,
            )
            sort_by_event(by_attribute, by_event.starts, by_event.blocks, by_event.cells)
            if cells.multivalued is None:
                lists = self._postings.match(by_event)
            else:
                lists = match_mixed(self._postings, by_event, cells.multivalued)
        matches = SegmentMatches(self.compiled.unindexed, bitmap, *lists)
        if cells.multivalued is not None:
            self._multivalued.recompute(cells, cells.multivalued, matches)
        return matches.without(batch.errors) if batch.errors else matches

    def _evaluate_in_parts(
        self, batch: EventBatch, threads: int, meter: Meter | None
    ) -> SegmentMatches:
        """Evaluate some whole tiles after the other, as many as the memory for predicates takes."""
        words, rows, width = -(-batch.length // 64), len(self.compiled.unindexed), self._tile_words
        # Every row is written below, whatever the memory held before.
        bitmap = self._memory.array(-(-words // width), rows, width)
        bitmap[-1] = 0
        ends, indexed = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
        count = 0
        for first in range(0, batch.length, self._max_events):
            last = min(first + self._max_events, batch.length)
            if meter is not None:
                meter.part = first
            part = self.evaluate(batch.part(first, last), threads, meter)
            tiles, _, own_width = part.bitmap.shape
            tile = first // (64 * width)
            bitmap[tile : tile + tiles, :, :own_width] = part.bitmap
            ends.append(part.ends + count)
            indexed.append(part.indexed)
            count += len(part.indexed)
        return SegmentMatches(
            self.compiled.unindexed, bitmap, np.concatenate(ends), np.concatenate(indexed)
        )

    def evaluate_one(self, event: Event, meter: Meter | None = None) -> NDArray[np.int32]:
        """Return the subscriptions that one event satisfies, ascending."""
        found = self.single.evaluate(event, meter)
        if found is not None:
            return found
        matches = self.evaluate(EventBatch.of_events([event]), meter=meter)
        unindexed = matches.unindexed[matches.bitmap[0, :, 0] != 0]
        return np.sort(np.concatenate((unindexed, matches.indexed)))

    def testing(self, predicate: int) -> NDArray[np.int32]:
        """Return the subscriptions that use a predicate, or one that is tested with it."""
        starts, users = self._users
        rows = self._finder.predicates.asking_as(predicate)
        return np.unique(np.concatenate([users[starts[row] : starts[row + 1]] for row in rows]))

    @cached_property
    def _users(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Where the subscriptions of each predicate start, and all of them."""
        leaves, programs = self.compiled.variables.leaves, self.compiled.programs
        predicate, count = self._finder.predicate, len(self.compiled.variables.predicates)
        # A side asks a predicate by its variable or by its guard; it never asks two.
        of_side = np.full(len(leaves.guard), NONE, np.int32)
        asked = predicate[leaves.variables]
        side_of = np.repeat(np.arange(len(leaves.guard)), np.diff(leaves.starts))
        of_side[side_of[asked >= 0]] = asked[asked >= 0]
        guarded = np.flatnonzero(leaves.guard >= 0)
        of_side[guarded] = predicate[leaves.guard[guarded]]
        user = np.repeat(np.arange(self.compiled.count, dtype=np.int32), np.diff(programs.starts))
        is_leaf = programs.codes >= 0
        # The two sides of a leaf may ask different predicates.
        row = of_side.reshape(-1, 2)[programs.codes[is_leaf]].ravel()
        user = np.repeat(user[is_leaf], 2)
        row, user = row[row >= 0], user[row >= 0]
        order = np.argsort(row, kind="stable")
        return np.searchsorted(row[order], np.arange(count + 1)), user[order]

    @cached_property
    def single(self) -> SingleEvaluator:
        """Return what evaluates single events, if they have one value for each attribute."""
        return SingleEvaluator(self.compiled, self._finder, self._postings)

    @cached_property
    def single_json(self) -> SingleJsonEvaluator:
        """Return what evaluates single events in JSON."""
        return SingleJsonEvaluator(self.single, self.compiled.schema)

    def _evaluate_unindexed(self, cells: CellsByAttribute, length: int, threads: int) -> Bitmap:
        """Return a bit for each tile, unindexed subscription and event."""
        words, rows = -(-length // 64), len(self.compiled.unindexed)
        width = max(1, min(self._tile_words, words))
        shape = -(-words // width), rows, width
        # Every row is written below, whatever the memory held before.
        is_large = 8 * width * rows * shape[0] >= MIN_KEPT_BYTES
        bitmap = self._memory.array(*shape) if is_large else np.empty(shape, np.uint64)
        if not rows or not words:
            return bitmap
        if threads == 1:
            for tile in range(len(bitmap)):
                self._evaluate_tile(cells, tile * width, bitmap[tile], words)
        else:
            self._evaluate_on_threads(cells, bitmap, words, threads)
        # Clear the bits past the last event.
        word, rest = divmod(length - (len(bitmap) - 1) * width * 64, 64)
        if rest:
            bitmap[-1, :, word] &= (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
            word += 1
        bitmap[-1, :, word:] = 0
        return bitmap

    def _evaluate_tile(
        self, cells: CellsByAttribute, first_word: int, matched: Bitmap, words: int
    ) -> None:
        # The compiler's vector loops take many words at a time and leave the rest to slower ones,
        # so a workspace is as wide as the next power of two.
        count = matched.shape[1]
        width = 1 if count == 1 else max(MIN_TILE_WORDS, 1 << (count - 1).bit_length())
        workspace = None
        try:
            while workspace is None or workspace.rows.shape[1] != width:
                workspace = self._free.pop()
        except IndexError:
            workspace = self._new_workspace(width)
        tile = Tile(first_word, min(count, words - first_word), matched)
        evaluate_tile(self._unindexed, cells, tile, workspace)
        self._free.append(workspace)

    def _evaluate_on_threads(
        self, cells: CellsByAttribute, bitmap: Bitmap, words: int, threads: int
    ) -> None:
        """Give each thread its tiles; if those are too few, divide the chunks of each tile."""
        width = bitmap.shape[2]
        if len(bitmap) >= threads:
            _share(
                lambda tile: self._evaluate_tile(cells, tile * width, bitmap[tile], words),
                range(len(bitmap)),
                threads,
            )
            return
        for tile, matched in enumerate(bitmap):
            self._divide_tile(cells, tile * width, matched, words, threads)

    def _divide_tile(
        self, cells: CellsByAttribute, first_word: int, matched: Bitmap, words: int, threads: int
    ) -> None:
        arrays, count = self.compiled.arrays, matched.shape[1]
        width = 1 if count == 1 else max(MIN_TILE_WORDS, 1 << (count - 1).bit_length())
        workspace = self._new_workspace(width)
        wanted = min(count, words - first_word)
        counts = self.compiled.variables.counts
        set_region_rows(arrays.regions, counts, cells, first_word, wanted, workspace)
        bounds = (
            np.linspace(0, len(arrays.chunks.node_starts) - 1, threads + 1).astype(int).tolist()
        )

        def work(part: int) -> None:
            nodes = workspace.nodes if part == 0 else self._new_nodes(width)
            first, last = bounds[part : part + 2]
            evaluate_chunks(arrays.chunks, first, last, workspace.rows, nodes, matched)

        _share(work, range(threads), threads)
        evaluate_graph(arrays.graph, len(arrays.regions.begins), workspace, matched)

    def _new_workspace(self, width: int) -> TileWorkspace:
        counts = self.compiled.variables.counts
        variables = counts.breakpoints + np.diff(counts.predicates)
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


def _share(work: Callable[[int], None], tasks: Iterable[int], threads: int) -> None:
    """Run tasks on several threads, including this one."""
    left = iter(tasks)

    def do_next() -> None:
        for task in left:
            work(task)

    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(do_next) for _ in range(threads - 1)]
        do_next()
        for other in others:
            other.result()
