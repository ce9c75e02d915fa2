"""One event at a time, in one call: cells, posting lists, and truth that spreads upward.

Truth spreads from the regions that the event lies in to the nodes of the graph above them, so
neither time nor memory depends on what the event does not touch.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import reader
from tamis.diagrams.kernels import NONE
from tamis.jit import borrowing, inlined, kernel, prefetch, trailing_zeros
from tamis.matching.compile.graph_kernels import ALL, ODD, Graph, Regions, VariableCounts
from tamis.matching.evaluate.posting_kernels import CellsByEvent, PostingWorkspace, match_postings
from tamis.matching.evaluate.single_event.ranking_kernels import Ranking, number_cell

# --- the plan -------------------------------------------------------------------------------------


# How a row that is true leads to a node: it makes the node true; it does if two other regions are
# true, which the record names, or these and more; the node is a parity of regions, which are looked
# up; or the node depends on other nodes, and waits until their truths are known.
REACHES, CHECKS, CHECKS_MORE, LOOKS_UP, WAITS = range(5)
CODE_BITS: Final = 3
CODE_MASK: Final = (1 << CODE_BITS) - 1

MAX_CELL: Final = (1 << 31) - 1

# The records of rows are all over the memory: those of a row to come are fetched in time.
_ROWS_AHEAD: Final = 8


class Intervals(NamedTuple):
    """The cells of regions as intervals, by attribute, by width, and then by their first cell.

    Widths are in groups, each up to twice as wide as the one before, so that of the intervals whose
    first cell is near enough to a cell, half or more hold it.
    """

    of_block: NDArray[np.int32]
    """Attribute b has the groups from of_block[b] to of_block[b + 1]."""
    starts: NDArray[np.int64]
    """Group g has the intervals from starts[g] to starts[g + 1]."""
    widest: NDArray[np.int32]
    """For each group the width of the widest interval."""
    bounds: Annotated[NDArray[np.int32], 2]
    """Each interval's first cell, the first after it, and its region: read together."""


class RegionTests(NamedTuple):
    """How the regions that an event lies in are found."""

    regions: Regions
    counts: VariableCounts
    intervals: Intervals
    """Of all regions that no predicate decides."""
    other_starts: NDArray[np.int32]
    """Attribute b has the other regions others[other_starts[b] : other_starts[b + 1]]."""
    others: NDArray[np.int32]
    base_starts: NDArray[np.int32]
    """Attribute b has the regions base[base_starts[b] : base_starts[b + 1]]."""
    base: NDArray[np.int32]
    """The regions that an event without attributes lies in."""
    always: NDArray[np.int32]
    """The attributes whose predicates may hold even where they are absent."""


class Upward(NamedTuple):
    """The graph from its rows upward.

    A node that needs all its children, or all its terms, is reached only from the rarest of them.
    Then the others are looked up.
    """

    starts: NDArray[np.uint32]
    """Row r has the records from starts[r] to starts[r + 1]."""
    records: NDArray[np.int32]
    """Each has a node and, in its last bits, how the row leads to it; a record that CHECKS also
    has two other rows, and one that CHECKS_MORE then has how many more there are, and those."""
    level: NDArray[np.int32]
    """For each node: those that it depends on have smaller levels."""
    subscription: NDArray[np.int32]
    """For each top its subscription."""


# --- regions --------------------------------------------------------------------------------------


@inlined
def lies_in(
    changes: NDArray[np.int32],
    inside: bool,
    guard: int,
    cell: int,
    breakpoints: int,
    passing: NDArray[np.bool_],
) -> bool:
    """Return whether a value in a cell lies in a region; `passing` covers this attribute only."""
    if guard != NONE and passing[guard - breakpoints]:
        return False
    for variable in changes:
        if variable < cell if variable < breakpoints else not passing[variable - breakpoints]:
            inside = not inside
    return inside


class SingleWorkspace(NamedTuple):
    """Memory for one event; between events it describes an event without attributes."""

    blocks: NDArray[np.int64]
    """The attributes of the event; the complement of one whose cell is given."""
    values: NDArray[np.float64]
    """The numbers that they hold, or the cells."""
    held: NDArray[np.int64]
    """The attributes in order, each with its cell in the lower half."""
    truth: NDArray[np.uint8]
    """A bit for every region, and for every node: they fit into the nearest caches."""
    is_present: NDArray[np.bool_]
    """For every attribute, and for the constants, which belong to none."""
    queue: NDArray[np.int32]
    """Rows of the graph that are true: the regions, and then the nodes that follow from them."""
    first_waiting: NDArray[np.int32]
    """For each level the first node that waits there, or NONE."""
    next_waiting: NDArray[np.int32]
    """For each node that waits the next one on its level, or NONE."""
    found: NDArray[np.int32]
    """The matches."""
    tops: NDArray[np.int32]
    """The tops that are true."""
    bits: NDArray[np.uint64]
    """A bit for each subscription, to sort many matches."""


class SingleArrays(NamedTuple):
    """All that a single event reads and writes."""

    ranking: Ranking
    tests: RegionTests
    graph: Graph
    upward: Upward
    postings: PostingWorkspace
    cells: CellsByEvent
    ends: NDArray[np.int64]
    """Memory for where the matches in posting lists end."""
    workspace: SingleWorkspace


arrays_at = reader(SingleArrays)

_LOWER_HALF: Final = (1 << 32) - 1
# Stamps are 32-bit numbers; before they run out, they restart at 1.
MAX_STAMPS: Final = 1 << 30


# Kernels pass the address on, because a call with all arrays takes longer than most of them run.


@borrowing
def hold_values(address: Any, count: int) -> None:
    """Find the cells of the event's values, and put its attributes in order."""
    ranking, workspace = arrays_at(address).ranking, arrays_at(address).workspace
    held = workspace.held
    for number in range(count):
        block, value = workspace.blocks[number], workspace.values[number]
        if block >= 0:
            cell = number_cell(ranking, block, value)
        else:
            block, cell = ~block, int(value)
        insert(held, number, block << 32 | cell)


@inlined
def insert(held: NDArray[np.int64], count: int, entry: int) -> None:
    """Insert an entry in `count` ascending ones."""
    # Events mostly name their attributes in one order, and mostly in the filters' order.
    place = count
    while place > 0 and held[place - 1] > entry:
        held[place] = held[place - 1]
        place -= 1
    held[place] = entry


@inlined
def _is_true(truth: NDArray[np.uint8], row: int) -> bool:
    # Rows are never negative: for an unsigned index, the place is not checked for that.
    unsigned = np.uint32(row)
    return bool(truth[unsigned >> np.uint32(3)] >> (unsigned & np.uint32(7)) & 1)


@inlined
def set_true(truth: NDArray[np.uint8], row: int) -> None:
    """Set the bit of a row."""
    truth[row >> 3] |= np.uint8(1 << (row & 7))


@inlined
def _after(bounds: NDArray[np.int32], first: int, last: int, cell: int) -> int:
    """Return the place after the last interval of a group that begins at a cell or before."""
    while first < last:
        middle = (first + last) >> 1
        if bounds[middle, 0] <= cell:
            first = middle + 1
        else:
            last = middle
    return first


@borrowing
def _set_truths(address: Any, count: int) -> int:
    """Set the truths of the regions, and write the true ones to the queue; return their number."""
    arrays = arrays_at(address)
    tests, workspace, passing = arrays.tests, arrays.workspace, arrays.cells.passing[0]
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    of_block, starts, widest, bounds = tests.intervals
    always, others = tests.always, tests.others
    truth, queue, is_present = workspace.truth, workspace.queue, workspace.is_present
    base, base_starts, other_starts = tests.base, tests.base_starts, tests.other_starts
    regions, counts = tests.regions, tests.counts
    tail = 0
    for number in range(count + len(always)):
        entry = workspace.held[number] if number < count else np.int64(always[number - count]) << 32
        block, cell = int(entry >> 32), int(entry & _LOWER_HALF)
        if is_present[block]:
            continue
        is_present[block] = True
        for region in base[base_starts[block] : base_starts[block + 1]]:
            truth[region >> 3] &= ~np.uint8(1 << (region & 7))
        begin = tail
        for group in range(of_block[block], of_block[block + 1]):
            place = _after(bounds, starts[group], starts[group + 1], cell) - 1
            nearest = cell - widest[group]
            while place >= starts[group] and bounds[place, 0] > nearest:
                # Without a branch, which would often be mispredicted.
                queue[tail] = bounds[place, 2]
                tail += int(cell < bounds[place, 1])
                place -= 1
        breakpoints = counts.breakpoints[block]
        for region in others[other_starts[block] : other_starts[block + 1]]:
            passes = passing[counts.predicates[block] : counts.predicates[block + 1]]
            own = regions.breakpoints[regions.starts[region] : regions.starts[region + 1]]
            inside, guard = bool(regions.begins[region]), regions.guard[region]
            if lies_in(own, inside, guard, cell, breakpoints, passes):
                queue[tail] = region
                tail += 1
        for place in range(begin, tail):
            set_true(truth, queue[place])
    for block in range(len(base_starts) - 1 if len(base) else 0):
        if not is_present[block]:
            for region in base[base_starts[block] : base_starts[block + 1]]:
                queue[tail] = region
                tail += 1
    return tail


@borrowing
def _reset_truths(address: Any, count: int, tail: int) -> None:
    """Restore the truths for an event without attributes, given that these rows are true."""
    tests, workspace = arrays_at(address).tests, arrays_at(address).workspace
    truth = workspace.truth
    for row in workspace.queue[:tail]:
        truth[row >> 3] = 0
    for number in range(count):
        workspace.is_present[workspace.held[number] >> 32] = False
    for block in tests.always:
        workspace.is_present[block] = False
    for region in tests.base:
        set_true(truth, region)


# --- the graph ------------------------------------------------------------------------------------


@inlined
def _is_parity(kind: int, children: NDArray[np.int32], truth: NDArray[np.uint8]) -> bool:
    """Return whether all terms of a parity are known, and an odd or even number is true."""
    is_odd = kind == ODD
    for term in range(0, len(children), 2):
        if _is_true(truth, children[term]):
            is_odd = not is_odd
        elif not _is_true(truth, children[term + 1]):
            return False
    return not is_odd


@inlined
def _are_true(children: NDArray[np.int32], truth: NDArray[np.uint8]) -> bool:
    for child in children:  # noqa: SIM110 - a kernel has no generators
        if not _is_true(truth, child):
            return False
    return True


@borrowing
def _spread(address: Any, tail: int) -> tuple[int, int]:
    """Add the inner nodes that follow from the true regions, and write the tops; count both."""
    arrays = arrays_at(address)
    graph, upward, workspace = arrays.graph, arrays.upward, arrays.workspace
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, records, queue, truth = upward.starts, upward.records, workspace.queue, workspace.truth
    kinds, children, child_starts = graph.kinds, graph.children, graph.starts
    first_waiting, next_waiting = workspace.first_waiting, workspace.next_waiting
    level, tops, inner = upward.level, workspace.tops, len(kinds) - len(upward.subscription)
    regions, head, waiting = len(starts) - 1 - inner, 0, len(first_waiting)
    count = 0
    while True:
        while head < tail:
            prefetch(records, starts[queue[min(head + _ROWS_AHEAD, tail - 1)]])
            row = queue[head]
            head += 1
            place, end = int(starts[row]), int(starts[row + 1])
            while place < end:
                record = records[place]
                code, node = record & CODE_MASK, record >> CODE_BITS
                place += 1
                if code == CHECKS:
                    # Both at once: most fail, but half of them not at the first.
                    passes = _is_true(truth, records[place]) & _is_true(truth, records[place + 1])
                    # Where the next record is must not wait for what this one says.
                    place += 2
                    if not passes:
                        continue
                elif code == CHECKS_MORE:
                    passes = _is_true(truth, records[place]) & _is_true(truth, records[place + 1])
                    other = place + 3
                    place = other + records[place + 2]
                    if not passes:
                        continue
                    while other < place and _is_true(truth, records[other]):
                        other += 1
                    if other < place:
                        continue
                elif code == REACHES:
                    if _is_true(truth, regions + node):
                        continue
                elif code == LOOKS_UP:
                    own = children[child_starts[node] : child_starts[node + 1]]
                    if not _is_parity(kinds[node], own, truth):
                        continue
                else:
                    next_waiting[node] = first_waiting[level[node]]
                    first_waiting[level[node]] = node
                    waiting = min(waiting, level[node])
                    continue
                set_true(truth, regions + node)
                if node < inner:
                    queue[tail] = regions + node
                    tail += 1
                else:
                    tops[count] = node - inner
                    count += 1
        # All rows below the lowest level at which a node waits have their truths now.
        while waiting < len(first_waiting) and first_waiting[waiting] == NONE:
            waiting += 1
        if waiting == len(first_waiting):
            return tail, count
        node = first_waiting[waiting]
        first_waiting[waiting] = NONE
        while node != NONE:
            own = children[child_starts[node] : child_starts[node + 1]]
            if kinds[node] == ALL:
                holds = _are_true(own, truth)
            else:
                holds = _is_parity(kinds[node], own, truth)
            if holds and node < inner:
                set_true(truth, regions + node)
                queue[tail] = regions + node
                tail += 1
            elif holds:
                tops[count] = node - inner
                count += 1
            node = next_waiting[node]


@kernel
def _sort(found: NDArray[np.int32], bits: NDArray[np.uint64], count: int) -> None:
    """Sort the matches; many of them by marking each with a bit."""
    if 16 * count < len(bits) or count < 32:
        found[:count].sort()
        return
    for place in range(count):
        bits[found[place] >> 6] |= np.uint64(1) << np.uint64(found[place] & 63)
    place = 0
    for word in range(len(bits)):
        left = bits[word]
        if left == 0:
            continue
        bits[word] = np.uint64(0)
        while left:
            found[place] = word << 6 | trailing_zeros(left)
            place += 1
            left &= left - np.uint64(1)


@borrowing
def _take_tops(address: Any, tops: int, count: int) -> int:
    """Append the subscriptions of the true tops to the matches; return where they end."""
    upward, workspace = arrays_at(address).upward, arrays_at(address).workspace
    top, truth, found = workspace.tops, workspace.truth, workspace.found
    first = len(upward.starts) - 1
    # Tops are in the order of their subscriptions, and memory is read faster in order.
    _sort(top, workspace.bits, tops)
    for place in range(tops):
        truth[(first + top[place]) >> 3] = 0
        found[count + place] = upward.subscription[top[place]]
    return count + tops


# --- the event ------------------------------------------------------------------------------------


@borrowing
def match_held(address: Any, count: int) -> int:
    """Match an event whose attributes and cells are held; return the number of matches."""
    arrays = arrays_at(address)
    workspace, cells, postings = arrays.workspace, arrays.cells, arrays.postings
    found = listed = 0
    if len(postings.postings.records):
        for number in range(count):
            cells.blocks[number] = workspace.held[number] >> 32
            cells.cells[number] = workspace.held[number] & _LOWER_HALF
        cells.starts[1] = count
        match_postings(postings, cells, 0, arrays.ends, workspace.found)
        found = listed = int(arrays.ends[0])
        postings.stamps[0] += 1
        if postings.stamps[0] > MAX_STAMPS:
            postings.stamps[0] = 0
            postings.seen[:] = 0
    if len(arrays.upward.subscription):
        tail, tops = _spread(address, _set_truths(address, count))
        found = _take_tops(address, tops, found)
        _reset_truths(address, count, tail)
    if listed > 0 and found > 1:
        _sort(workspace.found, workspace.bits, found)
    return found


@borrowing
def match_values(address: Any, count: int) -> int:
    """Match the event whose values are in the workspace; return the number of matches."""
    hold_values(address, count)
    return match_held(address, count)
