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
# true, which the record names, or these and more; the node is a parity of regions, which the record
# names; the node is a top that needs all of some nodes, or is a parity of them, which are looked up
# at last; or the node needs other nodes and is needed itself, and waits until those are known.
REACHES, CHECKS, CHECKS_MORE, LOOKS_UP, CHECKS_LAST, LOOKS_UP_LAST, WAITS = range(7)
CODE_BITS: Final = 3
CODE_MASK: Final = (1 << CODE_BITS) - 1

MAX_CELL: Final = (1 << 31) - 1

# Records are all over the memory: those of a span to come are fetched in time.
_SPANS_AHEAD: Final = 8


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
    """Each interval's first cell, the first after it, and its region's row: read together."""


class CellRows(NamedTuple):
    """For every cell of some attributes a bit for each of the attribute's regions, in words.

    They are for attributes of which a cell lies in many regions: to copy its bits takes less time
    than to find these regions.
    """

    starts: NDArray[np.int64]
    """Where the words of attribute b begin in `bits`; NONE if it has intervals instead."""
    words: NDArray[np.int32]
    """How many words each of its cells has."""
    first_word: NDArray[np.int32]
    """The word of the truths that its first region is in."""
    bits: NDArray[np.uint64]


class RegionTests(NamedTuple):
    """How the regions that an event lies in are found, and the rows of these regions."""

    regions: Regions
    counts: VariableCounts
    row: NDArray[np.int32]
    """For each region its row: those that are likely true together are neighbours."""
    cell_rows: CellRows
    intervals: Intervals
    """Of all regions that neither a predicate decides nor rows of cells have."""
    other_starts: NDArray[np.int32]
    """Attribute b has the other regions others[other_starts[b] : other_starts[b + 1]]."""
    others: NDArray[np.int32]
    base_starts: NDArray[np.int32]
    """Attribute b has the rows base[base_starts[b] : base_starts[b + 1]]."""
    base: NDArray[np.int32]
    """The rows of the regions that an event without attributes lies in."""
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
    has two other rows, and one that CHECKS_MORE then has how many more there are, and those. One
    that CHECKS_LAST has the number of all other rows, and those. One that LOOKS_UP has the number
    of the rows of all terms, plus one half if an odd number must be true, doubled, and those."""
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
    truth: NDArray[np.uint64]
    """A bit for every region, and for every node: they fit into the nearest caches."""
    is_present: NDArray[np.bool_]
    """For every attribute, and for the constants, which belong to none."""
    spans: NDArray[np.uint32]
    """Where the records of rows that are true begin and end: of the regions, and then of the nodes
    that follow from them."""
    marked: NDArray[np.int32]
    """The rows that are true, except those of attributes with rows of cells."""
    first_waiting: NDArray[np.int32]
    """For each level the first node that waits there, or NONE."""
    next_waiting: NDArray[np.int32]
    """For each node that waits the next one on its level, or NONE."""
    found: NDArray[np.int32]
    """The matches."""
    tops: NDArray[np.int32]
    """The tops that are true."""
    last: NDArray[np.uint32]
    """Records of tops that are looked up in the end."""
    counts: NDArray[np.int64]
    """How many spans, marked rows and tops there are."""
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
def _is_true(truth: NDArray[np.uint64], row: int) -> bool:
    # Rows are never negative: for an unsigned index, the place is not checked for that.
    unsigned = np.uint32(row)
    return bool(
        truth[unsigned >> np.uint32(6)] >> np.uint64(unsigned & np.uint32(63)) & np.uint64(1)
    )


@inlined
def set_true(truth: NDArray[np.uint64], row: int) -> None:
    """Set the bit of a row."""
    unsigned = np.uint32(row)
    truth[unsigned >> np.uint32(6)] |= np.uint64(1) << np.uint64(unsigned & np.uint32(63))


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


@inlined
def _add_span(spans: NDArray[np.uint32], head: int, tail: int, first: int, last: int) -> int:
    """Add the records of true rows, to the span before if they follow it; return the end.

    Spans before `head` have been read already.
    """
    if first == last:
        return tail
    if tail > head and spans[2 * tail - 1] == first:
        spans[2 * tail - 1] = last
        return tail
    spans[2 * tail] = first
    spans[2 * tail + 1] = last
    return tail + 1


@borrowing
def _copy_truths(address: Any, block: int, cell: int, tail: int) -> int:
    """Set the truths of an attribute's regions by the row of its cell; return where spans end."""
    arrays = arrays_at(address)
    rows, truth, spans = arrays.tests.cell_rows, arrays.workspace.truth, arrays.workspace.spans
    bits, starts = rows.bits, arrays.upward.starts
    words, first_word = int(rows.words[block]), int(rows.first_word[block])
    start = rows.starts[block] + cell * words
    for number in range(words):
        left = bits[start + number]
        truth[first_word + number] = left
        base = (first_word + number) << 6
        while left:
            first = np.int64(trailing_zeros(left))
            # From here on, the ones that follow each other are a run.
            others = ~(left >> np.uint64(first))
            last = 64 if first == 0 and others == 0 else first + np.int64(trailing_zeros(others))
            tail = _add_span(spans, 0, tail, int(starts[base + first]), int(starts[base + last]))
            left = left >> np.uint64(last) << np.uint64(last) if last < 64 else np.uint64(0)
    return tail


@borrowing
def _set_truths(address: Any, count: int) -> None:
    """Set the truths of the regions, and write the spans of their records."""
    arrays = arrays_at(address)
    tests, workspace, passing = arrays.tests, arrays.workspace, arrays.cells.passing[0]
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    of_block, starts, widest, bounds = tests.intervals
    always, others, row_starts = tests.always, tests.others, arrays.upward.starts
    truth, spans, marked = workspace.truth, workspace.spans, workspace.marked
    base, base_starts, other_starts = tests.base, tests.base_starts, tests.other_starts
    regions, counts, is_present = tests.regions, tests.counts, workspace.is_present
    tail = marks = 0
    for number in range(count + len(always)):
        entry = workspace.held[number] if number < count else np.int64(always[number - count]) << 32
        block, cell = int(entry >> 32), int(entry & _LOWER_HALF)
        if is_present[block]:
            continue
        is_present[block] = True
        for row in base[base_starts[block] : base_starts[block + 1]]:
            truth[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
        if tests.cell_rows.starts[block] != NONE:
            tail = _copy_truths(address, block, cell, tail)
        begin = marks
        for group in range(of_block[block], of_block[block + 1]):
            place = _after(bounds, starts[group], starts[group + 1], cell) - 1
            nearest = cell - widest[group]
            while place >= starts[group] and bounds[place, 0] > nearest:
                # Without a branch, which would often be mispredicted.
                marked[marks] = bounds[place, 2]
                marks += int(cell < bounds[place, 1])
                place -= 1
        breakpoints = counts.breakpoints[block]
        for region in others[other_starts[block] : other_starts[block + 1]]:
            passes = passing[counts.predicates[block] : counts.predicates[block + 1]]
            own = regions.breakpoints[regions.starts[region] : regions.starts[region + 1]]
            inside, guard = bool(regions.begins[region]), regions.guard[region]
            if lies_in(own, inside, guard, cell, breakpoints, passes):
                marked[marks] = tests.row[region]
                marks += 1
        for place in range(begin, marks):
            row = marked[place]
            set_true(truth, row)
            tail = _add_span(spans, 0, tail, int(row_starts[row]), int(row_starts[row + 1]))
    for block in range(len(base_starts) - 1 if len(base) else 0):
        if not is_present[block]:
            for row in base[base_starts[block] : base_starts[block + 1]]:
                tail = _add_span(spans, 0, tail, int(row_starts[row]), int(row_starts[row + 1]))
    workspace.counts[0], workspace.counts[1] = tail, marks


@borrowing
def _reset_truths(address: Any, count: int) -> None:
    """Restore the truths for an event without attributes."""
    tests, workspace = arrays_at(address).tests, arrays_at(address).workspace
    truth, cell_rows = workspace.truth, tests.cell_rows
    for row in workspace.marked[: workspace.counts[1]]:
        truth[row >> 6] = np.uint64(0)
    for number in range(count + len(tests.always)):
        block = tests.always[number - count] if number >= count else workspace.held[number] >> 32
        workspace.is_present[block] = False
        if cell_rows.starts[block] != NONE:
            for word in range(cell_rows.words[block]):
                truth[cell_rows.first_word[block] + word] = np.uint64(0)
    for row in tests.base:
        set_true(truth, row)


# --- the graph ------------------------------------------------------------------------------------


@inlined
def _is_parity(is_odd: bool, rows: NDArray[np.int32], truth: NDArray[np.uint64]) -> bool:
    """Return whether all terms of a parity are known, and an odd or even number is true."""
    for term in range(0, len(rows), 2):
        if _is_true(truth, rows[term]):
            is_odd = not is_odd
        elif not _is_true(truth, rows[term + 1]):
            return False
    return not is_odd


@inlined
def _are_true(rows: NDArray[np.int32], truth: NDArray[np.uint64]) -> bool:
    for row in rows:  # noqa: SIM110 - a kernel has no generators
        if not _is_true(truth, row):
            return False
    return True


@borrowing
def _spread(address: Any) -> None:
    """Spread truth from the regions to the nodes that follow from them, and write the tops."""
    arrays = arrays_at(address)
    graph, upward, workspace = arrays.graph, arrays.upward, arrays.workspace
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, records, spans, truth = upward.starts, upward.records, workspace.spans, workspace.truth
    kinds, children, child_starts = graph.kinds, graph.children, graph.starts
    first_waiting, next_waiting = workspace.first_waiting, workspace.next_waiting
    level, tops, inner = upward.level, workspace.tops, len(kinds) - len(upward.subscription)
    marked, last = workspace.marked, workspace.last
    regions, head, waiting = len(starts) - 1 - inner, 0, len(first_waiting)
    tail, marks = workspace.counts[0], workspace.counts[1]
    count = lasting = 0
    while True:
        while head < tail:
            prefetch(records, spans[2 * min(head + _SPANS_AHEAD, tail - 1)])
            place, end = int(spans[2 * head]), int(spans[2 * head + 1])
            head += 1
            while place < end:
                record = records[place]
                code, node = record & CODE_MASK, record >> CODE_BITS
                place += 1
                if code == REACHES:
                    if _is_true(truth, regions + node):
                        continue
                elif code == CHECKS:
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
                    if not passes or not _are_true(records[other:place], truth):
                        continue
                elif code == LOOKS_UP:
                    size = records[place]
                    own = records[place + 1 : place + 1 + (size >> 1)]
                    place += 1 + (size >> 1)
                    if not _is_parity(bool(size & 1), own, truth):
                        continue
                elif code == WAITS:
                    next_waiting[node] = first_waiting[level[node]]
                    first_waiting[level[node]] = node
                    waiting = min(waiting, level[node])
                    continue
                else:
                    last[lasting] = place - 1
                    lasting += 1
                    size = records[place] >> (1 if code == LOOKS_UP_LAST else 0)
                    place += 1 + size
                    continue
                set_true(truth, regions + node)
                if node < inner:
                    marked[marks] = regions + node
                    marks += 1
                    first, stop = starts[regions + node], starts[regions + node + 1]
                    tail = _add_span(spans, head, tail, int(first), int(stop))
                else:
                    tops[count] = node - inner
                    count += 1
        # All rows below the lowest level at which a node waits have their truths now.
        while waiting < len(first_waiting) and first_waiting[waiting] == NONE:
            waiting += 1
        if waiting == len(first_waiting):
            break
        node = first_waiting[waiting]
        first_waiting[waiting] = NONE
        while node != NONE:
            own = children[child_starts[node] : child_starts[node + 1]]
            if kinds[node] == ALL:
                holds = _are_true(own, truth)
            else:
                holds = _is_parity(kinds[node] == ODD, own, truth)
            if holds:
                set_true(truth, regions + node)
                marked[marks] = regions + node
                marks += 1
                first, stop = starts[regions + node], starts[regions + node + 1]
                tail = _add_span(spans, head, tail, int(first), int(stop))
            node = next_waiting[node]
    for number in range(lasting):
        place = int(last[number])
        code, node, size = (
            records[place] & CODE_MASK,
            records[place] >> CODE_BITS,
            records[place + 1],
        )
        if code == CHECKS_LAST:
            holds = _are_true(records[place + 2 : place + 2 + size], truth)
        else:
            own = records[place + 2 : place + 2 + (size >> 1)]
            holds = _is_parity(bool(size & 1), own, truth)
        if holds:
            set_true(truth, regions + node)
            tops[count] = node - inner
            count += 1
    workspace.counts[1], workspace.counts[2] = marks, count


@kernel
def _sort_first(numbers: NDArray[np.int32], count: int) -> None:
    """Sort the first numbers of an array.

    Numba compiles its sort into a borrowing kernel only if a counting one has had it compiled.
    """
    numbers[:count].sort()


@kernel
def _sort(found: NDArray[np.int32], bits: NDArray[np.uint64], count: int) -> None:
    """Sort the matches; many of them by marking each with a bit."""
    if 16 * count < len(bits) or count < 32:
        _sort_first(found, count)
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
def _take_tops(address: Any, count: int) -> int:
    """Append the subscriptions of the true tops to the matches; return where they end."""
    upward, workspace = arrays_at(address).upward, arrays_at(address).workspace
    tops, truth, found = workspace.tops, workspace.truth, workspace.found
    subscription, first, size = upward.subscription, len(upward.starts) - 1, workspace.counts[2]
    first_word, words = first >> 6, len(truth)
    # Tops are in the order of their subscriptions, and so are their bits.
    if 16 * size < words - first_word or size < 32:
        _sort_first(tops, size)
        for place in range(size):
            row = first + tops[place]
            truth[row >> 6] &= ~(np.uint64(1) << np.uint64(row & 63))
            found[count + place] = subscription[tops[place]]
        return count + int(size)
    below = (np.uint64(1) << np.uint64(first & 63)) - np.uint64(1)
    for word in range(first_word, words):
        left = truth[word] & ~below
        truth[word] &= below
        below = np.uint64(0)
        base = (word << 6) - first
        while left:
            found[count] = subscription[base + np.int64(trailing_zeros(left))]
            count += 1
            left &= left - np.uint64(1)
    return count


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
        _set_truths(address, count)
        _spread(address)
        found = _take_tops(address, found)
        _reset_truths(address, count)
    if listed > 0 and found > 1:
        _sort(workspace.found, workspace.bits, found)
    return found


@borrowing
def match_values(address: Any, count: int) -> int:
    """Match the event whose values are in the workspace; return the number of matches."""
    hold_values(address, count)
    return match_held(address, count)
