"""A compiled set meets a batch of events: tile after tile, a bit per subscription and event."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.matching.compiled import Compiled
from tamis.matching.kernels import (
    Lanes,
    evaluate_chunks,
    evaluate_program,
    set_leaf_rows,
    set_region_rows,
    set_rows,
)
from tamis.matching.predicates import events_that_pass
from tamis.matching.ranks import Ranker

# Words of events that are evaluated at a time: enough to keep the vector units busy.
TILE_WORDS: Final = 64
# The rows of a tile take at most this much memory; with many variables, tiles are narrower.
ROW_BYTES: Final = 64 * 1024 * 1024

Bitmap = NDArray[np.uint64]
Entries = tuple[NDArray[np.int32], NDArray[np.int32]]


class Facts(NamedTuple):
    """What a batch says about the variables of a compiled set."""

    entries: dict[str, Entries]
    """For each attribute the event and the cell of every value."""
    passing: dict[int, NDArray[np.bool_]]
    """For each variable that is a predicate, the events it holds for."""
    several: NDArray[np.bool_]
    """The events in which an attribute that matters holds several values."""


class Evaluator:
    """Evaluates one compiled set; made once, used for any number of batches."""

    def __init__(self, compiled: Compiled) -> None:
        self._compiled = compiled
        self._blocks = compiled.variables.blocks
        self._rankers = {name: Ranker(block.scale) for name, block in self._blocks.items()}
        sizes = np.diff(compiled.chunks.node_starts)
        self._largest_chunk = int(sizes.max(initial=0)) + 2
        per_word = 8 * max(1, len(compiled.variables), len(compiled.regions.begins))
        self._width = max(1, min(TILE_WORDS, ROW_BYTES // per_word))

    def evaluate(self, batch: EventBatch, threads: int = 1) -> Bitmap:
        """Return for every subscription the events that match, a bit each."""
        words = -(-len(batch) // 64)
        matched = np.zeros((self._compiled.count, words), np.uint64)
        facts = self._find_facts(batch)
        for first in range(0, words, self._width):
            last = min(first + self._width, words)
            events = np.arange(64 * first, min(64 * last, len(batch)))
            rows = self._rows(facts, events)
            tile = matched[:, first:last]
            self._evaluate_chunks(self._region_rows(rows), tile, threads)
            self._evaluate_graphs(facts, events, rows, tile)
        self._clear_padding(matched, len(batch))
        self._evaluate_several(facts, matched)
        return matched

    # --- what the events say -----------------------------------------------------------------

    def _find_facts(self, batch: EventBatch) -> Facts:
        entries: dict[str, Entries] = {}
        several = np.zeros(len(batch), np.bool_)
        for name in self._blocks:
            column = batch.columns.get(name, NO_COLUMN)
            entries[name] = self._rankers[name].rank(column)
            several |= column.several(len(batch))
        schema = self._compiled.schema
        passing = {
            variable: events_that_pass(predicate, batch, schema)
            for predicate, variable in self._compiled.variables.predicates.items()
        }
        return Facts(entries, passing, several)

    def _rows(self, facts: Facts, events: NDArray[np.int64]) -> Bitmap:
        """Return for every variable the events for which it is true, a bit each."""
        rows = np.zeros((len(self._compiled.variables), -(-len(events) // 64)), np.uint64)
        first, last = (int(events[0]), int(events[-1]) + 1) if len(events) else (0, 0)
        for name, block in self._blocks.items():
            holders, cells = facts.entries[name]
            here = (holders >= first) & (holders < last)
            # What is absent lies in the first cell.
            cell_of = np.zeros(len(events), np.int32)
            cell_of[holders[here] - first] = cells[here]
            set_rows(cell_of, rows[block.first : block.first + len(block.scale.cuts)])
        for variable, passing in facts.passing.items():
            rows[variable] = packed(passing[first:last])
        return rows

    def _region_rows(self, rows: Bitmap) -> Bitmap:
        regions = self._compiled.regions
        region_rows = np.empty((len(regions.begins), rows.shape[1]), np.uint64)
        set_region_rows(regions, rows, region_rows)
        return region_rows

    # --- diagrams ----------------------------------------------------------------------------

    def _evaluate_chunks(self, rows: Bitmap, matched: Bitmap, threads: int) -> None:
        chunks = self._compiled.chunks
        count = len(chunks.node_starts) - 1
        bounds = np.linspace(0, count, threads + 1).astype(int)

        def work(first: int, last: int) -> None:
            values = np.zeros((self._largest_chunk, rows.shape[1]), np.uint64)
            values[1] = ~np.uint64(0)
            evaluate_chunks(chunks, first, last, rows, values, matched)

        if threads == 1:
            work(0, count)
            return
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, bounds[:-1].tolist(), bounds[1:].tolist()))

    # --- programs ----------------------------------------------------------------------------

    def _evaluate_graphs(
        self, facts: Facts, events: NDArray[np.int64], rows: Bitmap, matched: Bitmap
    ) -> None:
        if len(self._compiled.graphs):
            found = self._evaluate_programs(facts, events, rows, self._compiled.graphs)
            matched[self._compiled.graphs] = found

    def _evaluate_several(self, facts: Facts, matched: Bitmap) -> None:
        """Put right the events that hold several values: diagrams are for one value each."""
        events = np.flatnonzero(facts.several)
        everyone = np.arange(self._compiled.count, dtype=np.int32)
        for first in range(0, len(events), 64):
            lanes = events[first : first + 64]
            rows = self._predicate_rows(facts, lanes)
            found = self._evaluate_programs(facts, lanes, rows, everyone)[:, 0]
            for lane, event in enumerate(lanes.tolist()):
                word, bit = event >> 6, np.uint64(1) << np.uint64(event & 63)
                holds = (found >> np.uint64(lane) & np.uint64(1)).astype(bool)
                matched[:, word] = np.where(holds, matched[:, word] | bit, matched[:, word] & ~bit)

    def _predicate_rows(self, facts: Facts, events: NDArray[np.int64]) -> Bitmap:
        rows = np.zeros((len(self._compiled.variables), -(-len(events) // 64)), np.uint64)
        for variable, passing in facts.passing.items():
            rows[variable] = packed(passing[events])
        return rows

    def _evaluate_programs(
        self,
        facts: Facts,
        events: NDArray[np.int64],
        rows: Bitmap,
        subscriptions: NDArray[np.int32],
    ) -> Bitmap:
        leaves, programs = self._compiled.variables.leaves, self._compiled.programs
        width = rows.shape[1]
        when_true = np.zeros((len(leaves.block), width), np.uint64)
        when_false = np.zeros_like(when_true)
        set_leaf_rows(leaves, self._lanes(facts, events), rows, when_true, when_false)
        longest = int(np.diff(programs.starts).max(initial=1))
        stack = np.empty((longest + 1, 2, width), np.uint64)
        found = np.empty((len(subscriptions), width), np.uint64)
        for number, subscription in enumerate(subscriptions.tolist()):
            evaluate_program(programs.program(subscription), when_true, when_false, stack)
            found[number] = stack[0, 0]
        return found

    def _lanes(self, facts: Facts, events: NDArray[np.int64]) -> Lanes:
        """Return the values of some events; what is absent has one, in the first cell."""
        lane_of = np.full(len(facts.several), -1, np.int32)
        lane_of[events] = np.arange(len(events))
        parts = [self._lanes_of(facts.entries[name], lane_of, len(events)) for name in self._blocks]
        return Lanes(
            starts=np.cumsum([0, *(len(lanes) for lanes, _ in parts)], dtype=np.int64),
            lanes=np.concatenate([np.empty(0, np.int32), *(lanes for lanes, _ in parts)]),
            cells=np.concatenate([np.empty(0, np.int32), *(cells for _, cells in parts)]),
            first=np.array([block.first for block in self._blocks.values()], np.int32),
        )

    @staticmethod
    def _lanes_of(entries: Entries, lane_of: NDArray[np.int32], count: int) -> Entries:
        holders, cells = entries
        lanes = lane_of[holders]
        here = lanes >= 0
        absent = np.setdiff1d(np.arange(count, dtype=np.int32), lanes[here])
        return (
            np.concatenate((lanes[here], absent)),
            np.concatenate((cells[here], np.zeros(len(absent), np.int32))),
        )

    @staticmethod
    def _clear_padding(matched: Bitmap, length: int) -> None:
        if length % 64:
            matched[:, -1] &= (np.uint64(1) << np.uint64(length % 64)) - np.uint64(1)


def packed(bits: NDArray[np.bool_]) -> Bitmap:
    """Return bits as words, the first in the lowest place."""
    padded = np.zeros(-(-len(bits) // 64) * 8, np.uint8)
    taken = np.packbits(bits, bitorder="little")
    padded[: len(taken)] = taken
    return padded.view("<u8").astype(np.uint64, copy=False)
