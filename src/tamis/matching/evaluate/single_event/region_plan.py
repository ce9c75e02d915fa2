"""How the regions that an event lies in are found: rows of bits for cells, or sorted intervals."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.matching.compile.graph_kernels import Regions
from tamis.matching.compile.plans import usual_presence
from tamis.matching.compile.variables import Variables
from tamis.matching.evaluate.single_event.plan_kernels import (
    find_base,
    list_intervals,
    write_cell_rows,
)
from tamis.matching.evaluate.single_event.spreading_kernels import (
    CellRows,
    Intervals,
    RegionTests,
)

_WORD: Final = 64
# With so many bytes for each region at most, all rows together are about as large as the graph.
_MAX_BYTES_PER_REGION: Final = 192


class _IntervalList(NamedTuple):
    """Intervals of cells, each of a region of an attribute."""

    low: NDArray[np.int32]
    high: NDArray[np.int32]
    region: NDArray[np.int32]
    block: NDArray[np.int64]

    def some(self, chosen: NDArray[np.bool_]) -> _IntervalList:
        return _IntervalList(
            self.low[chosen], self.high[chosen], self.region[chosen], self.block[chosen]
        )

    def bounds(self, row: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the cells and the rows of the intervals' regions."""
        return np.stack((self.low, self.high, row[self.region]), axis=1)


def plan_regions(regions: Regions, variables: Variables) -> tuple[RegionTests, NDArray[np.float64]]:
    """Return how regions are found, and for each row about which share of events lies in it."""
    count, blocks = len(regions.begins), len(regions.of_block) - 1
    is_base, asks = np.empty(count, np.bool_), np.empty(count, np.bool_)
    nothing = np.zeros(len(variables.predicates), np.bool_)
    find_base(regions, variables.counts, is_base, asks, nothing)
    others, base = np.flatnonzero(asks).astype(np.int32), np.flatnonzero(is_base).astype(np.int32)
    found = _interval_list(regions, asks)
    # Constants come last, and have no cells.
    cells = np.append(variables.counts.breakpoints.astype(np.int64) + 1, 1)
    held = (np.minimum(found.high, cells[found.block]) - found.low).astype(np.float64)
    in_all: NDArray[np.float64] = np.zeros(blocks)
    np.add.at(in_all, found.block, held)
    has_rows = _have_rows(np.diff(regions.of_block), cells, in_all)
    row, cell_rows = _numbered(found, regions, has_rows, cells)
    tests = RegionTests(
        regions,
        variables.counts,
        row,
        cell_rows,
        _intervals(found.some(~has_rows[found.block]), row, blocks),
        other_starts=np.searchsorted(others, regions.of_block).astype(np.int32),
        others=others,
        base_starts=np.searchsorted(base, regions.of_block).astype(np.int32),
        base=row[base],
        always=np.empty(0, np.int32),
    )
    usual = usual_presence(len(variables.blocks))
    share: NDArray[np.float64] = np.zeros(_row_count(regions, cell_rows))
    np.add.at(share, row[found.region], usual * held / cells[found.block])
    share[row[others]] = usual
    share[row[base]] = 1.0
    return tests, share


_LikenessKeys = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]


def _interval_list(regions: Regions, asks: NDArray[np.bool_]) -> _IntervalList:
    most = len(regions.begins) + len(regions.breakpoints)
    low, high, region = (np.empty(most, np.int32) for _ in range(3))
    count = list_intervals(regions, asks, low, high, region)
    block = np.searchsorted(regions.of_block, region[:count], side="right") - 1
    return _IntervalList(low[:count], high[:count], region[:count], block)


def _have_rows(
    regions: NDArray[np.int32], cells: NDArray[np.int64], held: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Return which attributes get rows of bits, given how many cells all their regions hold."""
    words = -(-regions // _WORD)
    is_small = 8.0 * words * cells <= _MAX_BYTES_PER_REGION * regions
    # A word takes about as long as a region that is found by its interval.
    return is_small & (held >= words * cells) & (regions > 0)


def _numbered(
    found: _IntervalList, regions: Regions, has_rows: NDArray[np.bool_], cells: NDArray[np.int64]
) -> tuple[NDArray[np.int32], CellRows]:
    """Number the rows of regions: first those of cells with rows, which begin with a word each."""
    sizes = np.diff(regions.of_block)
    words = np.where(has_rows, -(-sizes // _WORD), 0)
    block = np.repeat(np.arange(len(sizes)), sizes)
    high, low, kind = _likeness(found, regions)
    order = np.lexsort((high, low, kind, block))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order)) - regions.of_block[block]
    own = np.where(has_rows, 0, sizes)
    first_word = np.cumsum(words) - words
    firsts = np.where(has_rows, _WORD * first_word, _WORD * words.sum() + np.cumsum(own) - own)
    lengths = words * cells.astype(np.int64)
    rows = CellRows(
        starts=np.where(has_rows, np.cumsum(lengths) - lengths, NONE),
        words=words.astype(np.int32),
        first_word=first_word.astype(np.int32),
        bits=np.zeros(lengths.sum(), np.uint64),
    )
    row = (firsts[block] + place).astype(np.int32)
    chosen = found.some(has_rows[found.block])
    write_cell_rows(chosen.bounds(row), chosen.block, cells.astype(np.int32), rows)
    return row, rows


def _likeness(found: _IntervalList, regions: Regions) -> _LikenessKeys:
    """Return keys, the first one last, by which regions that hold the same cells are neighbours.

    Of an attribute, first those that begin with its least cell, by their ends; then those that end
    with its last one; and the others by width, roughly, and then by their first cell.
    """
    count = len(regions.begins)
    low, high = np.zeros(count, np.int32), np.zeros(count, np.int32)
    # A region of several intervals counts as from the first to the last.
    low[found.region[::-1]] = found.low[::-1]
    high[found.region] = found.high
    sizes = np.diff(regions.of_block)
    block = np.repeat(np.arange(len(sizes)), sizes)
    least, greatest = np.full(len(sizes), np.iinfo(np.int32).max), np.zeros(len(sizes), np.int32)
    np.minimum.at(least, found.block, found.low)
    np.maximum.at(greatest, found.block, found.high)
    width = np.frexp((high - low).astype(np.float64))[1].astype(np.int32)
    kind = np.where(low == least[block], -2, np.where(high == greatest[block], -1, width))
    return high, low, kind.astype(np.int32)


def _row_count(regions: Regions, rows: CellRows) -> int:
    sizes = np.diff(regions.of_block)
    return int(_WORD * rows.words.sum() + sizes[rows.words == 0].sum())


def _intervals(found: _IntervalList, row: NDArray[np.int32], blocks: int) -> Intervals:
    width = found.high - found.low
    # Widths from 1 to 32 bits: 1, 2 to 3, 4 to 7, and so on.
    group = 32 * found.block + np.frexp(width.astype(np.float64))[1]
    order = np.lexsort((found.low, group))
    groups, starts = np.unique(group[order], return_index=True)
    widest = np.maximum.reduceat(width[order], starts) if len(width) else width
    return Intervals(
        of_block=np.searchsorted(groups, 32 * np.arange(blocks + 1)).astype(np.int32),
        starts=np.append(starts, len(width)).astype(np.int64),
        widest=widest,
        bounds=found.bounds(row)[order],
    )
