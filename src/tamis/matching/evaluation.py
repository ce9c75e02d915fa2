"""A compiled set meets a batch of events: tile after tile, a bit per subscription and event."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.events.batch import EventBatch
from tamis.matching.access_kernels import Values, Waiting, match_waiting
from tamis.matching.compiled import Compiled
from tamis.matching.evaluation_kernels import (
    deny_guarded,
    evaluate_chunks,
    evaluate_graphs,
    set_region_rows,
    set_rows,
)
from tamis.matching.lane_kernels import Lanes, evaluate_program, set_leaf_rows
from tamis.matching.memory import Memory
from tamis.matching.predicates import events_that_pass
from tamis.matching.program_kernels import new_scratch
from tamis.matching.ranks import Ranker

# Words of events that are evaluated at a time: enough to keep the vector units busy.
TILE_WORDS: Final = 64
VECTOR_WORDS: Final = 32
SCALAR_WORDS: Final = 8
# The rows of a tile take at most this much memory; with many variables, tiles are narrower.
ROW_BYTES: Final = 64 * 1024 * 1024

Bitmap = NDArray[np.uint64]
Entries = tuple[NDArray[np.int32], NDArray[np.int32]]
Lists = tuple[NDArray[np.int64], NDArray[np.int32]]


class Found(NamedTuple):
    """Which events of a batch match which subscriptions of a compiled set."""

    everyday: NDArray[np.int32]
    """The subscription of each row of the bitmap."""
    bitmap: Bitmap
    """For each of those the events that match, a bit each."""
    ends: NDArray[np.int64]
    """For each event where its part of `waiting` ends."""
    waiting: NDArray[np.int32]
    """The other subscriptions that match, event after event."""

    def without(self, events: Iterable[int]) -> Found:
        """Return the same without the matches of some events.

        An event that was refused is empty here; that it lacks everything must match nothing.
        """
        refused = np.zeros(len(self.ends), np.bool_)
        for event in events:
            refused[event] = True
            _set_column(self.bitmap, event, np.zeros(len(self.everyday), np.bool_))
        holders = self.waiting_events()
        kept = ~refused[holders]
        counts = np.bincount(holders[kept], minlength=len(self.ends))
        return self._replace(ends=np.cumsum(counts), waiting=self.waiting[kept])

    def waiting_events(self) -> NDArray[np.int64]:
        """Return the event of each of the waiting subscriptions."""
        return np.repeat(np.arange(len(self.ends)), np.diff(self.ends, prepend=0))


class Facts(NamedTuple):
    """What a batch says about the variables of a compiled set."""

    entries: dict[str, Entries]
    """For each attribute that some event has, the event and the cell of every value."""
    passing: dict[int, NDArray[np.bool_]]
    """For each variable that is a predicate, the events it holds for."""
    several: NDArray[np.bool_]
    """The events in which an attribute that matters holds several values."""


_NOTHING: Final[Entries] = (np.empty(0, np.int32), np.empty(0, np.int32))


class Evaluator:
    """Evaluates one compiled set; made once, used for any number of batches."""

    def __init__(self, compiled: Compiled) -> None:
        self.compiled = compiled
        self._blocks = compiled.variables.blocks
        self._rankers = {name: Ranker(block.scale) for name, block in self._blocks.items()}
        self._memory = Memory()
        self._numbers = {name: number for number, name in enumerate(self._blocks)}
        self._first = np.array([block.first for block in self._blocks.values()], np.int32)
        self._longest = int(np.diff(compiled.programs.starts).max(initial=1))
        sizes = np.diff(compiled.chunks.node_starts)
        self._largest_chunk = int(sizes.max(initial=0)) + 2
        counts = (len(compiled.variables), len(compiled.regions.begins), len(compiled.graphs.guard))
        per_word = 8 * max(1, *counts)
        self._width = max(1, min(TILE_WORDS, ROW_BYTES // per_word))

    def evaluate(self, batch: EventBatch, threads: int = 1) -> Found:
        """Return which events match which subscriptions."""
        facts = self._find_facts(batch)
        several = np.flatnonzero(facts.several)
        everyday = self._evaluate_everyday(facts, len(batch), threads)
        ends, waiting = self._evaluate_waiting(facts, len(batch))
        found = Found(self.compiled.everyday, everyday, ends, waiting)
        if len(several):
            found = self._evaluate_several(facts, several, found)
        return found.without(batch.errors) if batch.errors else found

    def _evaluate_everyday(self, facts: Facts, length: int, threads: int) -> Bitmap:
        words = -(-length // 64)
        # Every row is written below, whatever the memory held before.
        matched = self._memory.array(len(self.compiled.everyday), words)
        if not len(matched):
            return matched
        for first in range(0, words, self._width):
            last = min(first + self._width, words)
            events = np.arange(64 * first, min(64 * last, length))
            rows = self._rows(facts, events)
            tile = matched[:, first:last]
            self._evaluate_chunks(self._region_rows(rows), tile, threads)
            self._evaluate_graphs(rows, tile)
        if length % 64:
            matched[:, -1] &= (np.uint64(1) << np.uint64(length % 64)) - np.uint64(1)
        return matched

    # --- what the events say -----------------------------------------------------------------

    def _find_facts(self, batch: EventBatch) -> Facts:
        entries: dict[str, Entries] = {}
        several = np.zeros(len(batch), np.bool_)
        for name, column in batch.columns.items():
            if name in self._blocks:
                entries[name] = self._rankers[name].rank(column)
                several |= column.several(len(batch))
        schema = self.compiled.schema
        passing = {
            variable: events_that_pass(predicate, batch, schema)
            for predicate, variable in self.compiled.variables.predicates.items()
        }
        return Facts(entries, passing, several)

    def _rows(self, facts: Facts, events: NDArray[np.int64]) -> Bitmap:
        """Return for every variable the events for which it is true, a bit each."""
        # What is absent lies left of every cut.
        rows = np.full((len(self.compiled.variables), _padded(len(events))), ~np.uint64(0))
        first, last = (int(events[0]), int(events[-1]) + 1) if len(events) else (0, 0)
        for name, (holders, cells) in facts.entries.items():
            block = self._blocks[name]
            own = rows[block.first : block.first + len(block.scale.cuts)]
            own[:] = 0
            here = (holders >= first) & (holders < last)
            cell_of = np.zeros(len(events), np.int32)
            cell_of[holders[here] - first] = cells[here]
            set_rows(cell_of, own)
        for variable, passing in facts.passing.items():
            words = packed(passing[first:last])
            rows[variable, : len(words)] = words
        return rows

    def _region_rows(self, rows: Bitmap) -> Bitmap:
        regions = self.compiled.regions
        region_rows = np.empty((len(regions.begins), rows.shape[1]), np.uint64)
        set_region_rows(regions, rows, region_rows)
        return region_rows

    # --- diagrams ----------------------------------------------------------------------------

    def _evaluate_chunks(self, rows: Bitmap, matched: Bitmap, threads: int) -> None:
        chunks = self.compiled.chunks
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

    # --- what waits --------------------------------------------------------------------------

    def _evaluate_waiting(self, facts: Facts, length: int) -> Lists:
        """Return for each event where its list of subscriptions ends, and all lists."""
        ends = np.zeros(length, np.int64)
        if len(self.compiled.everyday) == self.compiled.count:
            return ends, np.empty(0, np.int32)
        values, waiting = self._values(facts, length), self._waiting()
        room = np.empty(2 * self.compiled.count + 1024, np.int32)
        parts: list[NDArray[np.int32]] = []
        event, before = 0, 0
        while event < length:
            first = event
            event = match_waiting(waiting, values, first, ends, room)
            count = int(ends[event - 1])
            ends[first:event] += before
            parts.append(room[:count].copy())
            before += count
        return ends, np.concatenate([np.empty(0, np.int32), *parts])

    def _waiting(self) -> Waiting:
        compiled = self.compiled
        return Waiting(
            compiled.postings,
            *compiled.programs,
            compiled.variables.leaves,
            seen=np.zeros(compiled.count, np.int32),
            cell_of=np.zeros(len(self._blocks), np.int32),
            stack=np.empty(self._longest + 1, np.int8),
        )

    def _values(self, facts: Facts, length: int) -> Values:
        """Return what the events hold, event after event."""
        events = [holders for holders, _ in facts.entries.values()]
        cells = [cells for _, cells in facts.entries.values()]
        blocks = np.repeat(
            np.array([self._numbers[name] for name in facts.entries], np.int32),
            [len(part) for part in events],
        )
        holders = np.concatenate([np.empty(0, np.int32), *events])
        order = np.argsort(holders, kind="stable")
        starts = np.zeros(length + 1, np.int64)
        np.cumsum(np.bincount(holders, minlength=length), out=starts[1:])
        predicate = np.full(len(self.compiled.variables), NONE, np.int32)
        predicate[list(facts.passing)] = np.arange(len(facts.passing))
        return Values(
            starts=starts,
            blocks=blocks[order],
            cells=np.concatenate([np.empty(0, np.int32), *cells])[order],
            skipped=facts.several,
            passing=np.array([*facts.passing.values()], np.bool_).reshape(-1, length),
            predicate=predicate,
            first=self._first,
        )

    # --- programs ----------------------------------------------------------------------------

    def _evaluate_graphs(self, rows: Bitmap, matched: Bitmap) -> None:
        graphs = self.compiled.graphs
        if not len(graphs.members):
            return
        side_rows = np.empty((len(graphs.guard), rows.shape[1]), np.uint64)
        set_region_rows(graphs.sides, rows, side_rows)
        deny_guarded(graphs.guard, rows, side_rows)
        longest = int(np.diff(graphs.starts).max(initial=1))
        stack = np.empty((longest + 1, 2, rows.shape[1]), np.uint64)
        evaluate_graphs(graphs, side_rows, new_scratch(longest), stack, matched)

    def _evaluate_several(self, facts: Facts, several: NDArray[np.int64], found: Found) -> Found:
        """Put right the events that hold several values: all else is for one value each."""
        everyone = np.arange(self.compiled.count, dtype=np.int32)
        waits = np.ones(self.compiled.count, np.bool_)
        waits[found.everyday] = False
        holders, members = [found.waiting_events()], [found.waiting]
        for first in range(0, len(several), 64):
            lanes = several[first : first + 64]
            rows = self._predicate_rows(facts, lanes)
            words = self._evaluate_programs(facts, lanes, rows, everyone)[:, 0]
            for lane, event in enumerate(lanes.tolist()):
                holds = (words >> np.uint64(lane) & np.uint64(1)).astype(bool)
                _set_column(found.bitmap, event, holds[found.everyday])
                late = np.flatnonzero(holds & waits).astype(np.int32)
                holders.append(np.full(len(late), event))
                members.append(late)
        events = np.concatenate(holders)
        order = np.argsort(events, kind="stable")
        counts = np.bincount(events, minlength=len(found.ends))
        return found._replace(ends=np.cumsum(counts), waiting=np.concatenate(members)[order])

    def _predicate_rows(self, facts: Facts, events: NDArray[np.int64]) -> Bitmap:
        rows = np.zeros((len(self.compiled.variables), -(-len(events) // 64)), np.uint64)
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
        leaves, programs = self.compiled.variables.leaves, self.compiled.programs
        width = rows.shape[1]
        when_true = np.zeros((len(leaves.block), width), np.uint64)
        when_false = np.zeros_like(when_true)
        set_leaf_rows(leaves, self._lanes(facts, events), rows, when_true, when_false)
        stack = np.empty((self._longest + 1, 2, width), np.uint64)
        found = np.empty((len(subscriptions), width), np.uint64)
        for number, subscription in enumerate(subscriptions.tolist()):
            evaluate_program(programs.program(subscription), when_true, when_false, stack)
            found[number] = stack[0, 0]
        return found

    def _lanes(self, facts: Facts, events: NDArray[np.int64]) -> Lanes:
        """Return the values of some events; what is absent has one, in the first cell."""
        lane_of = np.full(len(facts.several), -1, np.int32)
        lane_of[events] = np.arange(len(events))
        parts = [
            self._lanes_of(facts.entries.get(name, _NOTHING), lane_of, len(events))
            for name in self._blocks
        ]
        return Lanes(
            starts=np.cumsum([0, *(len(lanes) for lanes, _ in parts)], dtype=np.int64),
            lanes=np.concatenate([np.empty(0, np.int32), *(lanes for lanes, _ in parts)]),
            cells=np.concatenate([np.empty(0, np.int32), *(cells for _, cells in parts)]),
            first=self._first,
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


def _set_column(bitmap: Bitmap, event: int, holds: NDArray[np.bool_]) -> None:
    word, bit = event >> 6, np.uint64(1) << np.uint64(event & 63)
    column = bitmap[:, word]
    bitmap[:, word] = np.where(holds, column | bit, column & ~bit)


def _padded(events: int) -> int:
    """Return how many words to evaluate for so many events.

    The compiler's vector loop takes 32 words at a time and leaves the rest to a scalar one, which
    takes longer for 16 words than the vectors do for 32.
    """
    words = -(-events // 64)
    return words if words <= SCALAR_WORDS else -(-words // VECTOR_WORDS) * VECTOR_WORDS


def packed(bits: NDArray[np.bool_]) -> Bitmap:
    """Return bits as words, the first in the lowest place."""
    padded = np.zeros(-(-len(bits) // 64) * 8, np.uint8)
    taken = np.packbits(bits, bitorder="little")
    padded[: len(taken)] = taken
    return padded.view("<u8").astype(np.uint64, copy=False)
