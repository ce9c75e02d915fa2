"""One event at a time, in one call: cells, posting lists, and truth that spreads upward.

Truth spreads from the regions that the event lies in to the nodes of the graph above them, so
neither time nor memory depends on what the event does not touch.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import reader
from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, trailing_zeros
from tamis.matching.compile.graph_kernels import ALL, ANY, ODD, Graph, Regions, VariableCounts
from tamis.matching.evaluate.posting_kernels import CellsByEvent, PostingWorkspace, match_postings
from tamis.matching.evaluate.ranking_kernels import Ranking, number_cell

# --- the plan -------------------------------------------------------------------------------------


# How a row that is true leads to a node: it makes the node true; it does if other regions are true,
# which the record names; the node is a parity of regions, which are looked up; or the node depends
# on other nodes, and waits until their truths are known.
REACHES, CHECKS, LOOKS_UP, WAITS = range(4)
CODE_BITS: Final = 2
CODE_MASK: Final = (1 << CODE_BITS) - 1

MAX_CELL: Final = (1 << 31) - 1


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
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    """Interval i holds the cells low[i] <= c < high[i]."""
    region: NDArray[np.int32]


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

    starts: NDArray[np.int64]
    """Row r has the records from starts[r] to starts[r + 1]."""
    records: NDArray[np.int32]
    """Each has a node and, in its last bits, how the row leads to it; a record that CHECKS also
    has the number of other rows, and the rows."""
    level: NDArray[np.int32]
    """For each node: those that it depends on have smaller levels."""
    subscription: NDArray[np.int32]
    """For each top its subscription."""


class NodePlan(NamedTuple):
    """How each node is reached, and by which of its children."""

    code: NDArray[np.int8]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    share: NDArray[np.float64]
    """About which share of events makes each row true."""


@kernel
def _rarest(children: NDArray[np.int32], step: int, share: NDArray[np.float64]) -> int:
    """Return the place of the rarest child, or of the rarest term of two."""
    best, least = 0, np.inf
    for place in range(0, len(children), step):
        own = share[children[place]]
        if step == 2:
            own += share[children[place + 1]]
        if own < least:
            best, least = place, own
    return best


@kernel
def plan_nodes(graph: Graph, regions: int, plan: NodePlan, level: NDArray[np.int32]) -> None:
    """Choose for each node how its children lead to it, and which of them."""
    share, inner = plan.share, len(graph.kinds) - len(graph.members)
    for node in range(len(graph.kinds)):
        kind, start, end = graph.kinds[node], graph.starts[node], graph.starts[node + 1]
        children = graph.children[start:end]
        level[node] = 1
        for child in children:
            if child >= regions:
                level[node] = max(level[node], level[child - regions] + 1)
        plan.code[node], plan.first[node], plan.last[node] = REACHES, start, end
        total = 0.0
        if kind == ANY:
            for child in children:
                total += share[child]
        else:
            step = 1 if kind == ALL else 2
            rarest = _rarest(children, step, share)
            total = share[children[rarest]]
            if step == 2:
                total += share[children[rarest + 1]]
            plan.first[node], plan.last[node] = start + rarest, start + rarest + step
            plan.code[node] = CHECKS if kind == ALL else LOOKS_UP
            if level[node] > 1:
                plan.code[node] = WAITS
        if node < inner:
            share[regions + node] = min(1.0, total)


@kernel
def size_records(graph: Graph, plan: NodePlan, starts: NDArray[np.int64]) -> None:
    """Write where the records of each row will begin; `starts` must be zeros."""
    for node in range(len(graph.kinds)):
        size = 1
        if plan.code[node] == CHECKS:
            size += graph.starts[node + 1] - graph.starts[node]
        for child in graph.children[plan.first[node] : plan.last[node]]:
            starts[child + 1] += size
    for row in range(len(starts) - 1):
        starts[row + 1] += starts[row]


@kernel
def write_records(graph: Graph, plan: NodePlan, upward: Upward) -> None:
    """Write the records of all rows."""
    places, records = upward.starts.copy(), upward.records
    for node in range(len(graph.kinds)):
        for at in range(plan.first[node], plan.last[node]):
            child = graph.children[at]
            place = places[child]
            records[place] = node << CODE_BITS | int(plan.code[node])
            place += 1
            if plan.code[node] == CHECKS:
                records[place] = graph.starts[node + 1] - graph.starts[node] - 1
                place += 1
                for other in range(graph.starts[node], graph.starts[node + 1]):
                    if other != at:
                        records[place] = graph.children[other]
                        place += 1
            places[child] = place


# --- regions --------------------------------------------------------------------------------------


@inlined
def _lies_in(
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


@kernel
def find_base(
    regions: Regions,
    counts: VariableCounts,
    is_base: NDArray[np.bool_],
    asks: NDArray[np.bool_],
    passing: NDArray[np.bool_],
) -> None:
    """Find the regions that an event without attributes lies in, and those with predicates."""
    for block in range(len(regions.of_block) - 1):
        # The constants come last; they belong to no attribute.
        is_attribute = block < len(counts.breakpoints)
        breakpoints = counts.breakpoints[block] if is_attribute else 0
        passes = passing
        if is_attribute:
            passes = passing[counts.predicates[block] : counts.predicates[block + 1]]
        for region in range(regions.of_block[block], regions.of_block[block + 1]):
            own = regions.breakpoints[regions.starts[region] : regions.starts[region + 1]]
            begins, guard = bool(regions.begins[region]), regions.guard[region]
            is_base[region] = _lies_in(own, begins, guard, 0, breakpoints, passes)
            asks[region] = guard != NONE
            for variable in own:
                asks[region] |= variable >= breakpoints


@kernel
def list_intervals(
    regions: Regions,
    asks: NDArray[np.bool_],
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    region_of: NDArray[np.int32],
) -> int:
    """Write the intervals of all regions that no predicate decides; return their number."""
    count = 0
    for region in range(len(regions.begins)):
        if asks[region]:
            continue
        inside, start = bool(regions.begins[region]), 0
        for variable in regions.breakpoints[regions.starts[region] : regions.starts[region + 1]]:
            if inside:
                low[count], high[count], region_of[count] = start, variable + 1, region
                count += 1
            inside, start = not inside, variable + 1
        if inside:
            low[count], high[count], region_of[count] = start, MAX_CELL, region
            count += 1
    return count


class SingleWorkspace(NamedTuple):
    """Memory for one event; between events it describes an event without attributes."""

    blocks: NDArray[np.int64]
    """The attributes of the event; the complement of one whose cell is given."""
    values: NDArray[np.float64]
    """The numbers that they hold, or the cells."""
    held: NDArray[np.int64]
    """The attributes in order, each with its cell in the lower half."""
    truth: NDArray[np.bool_]
    """For every region, and for every node."""
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
    """Memory for the number of matches in posting lists."""
    workspace: SingleWorkspace


arrays_at = reader(SingleArrays)

_LOWER_HALF: Final = (1 << 32) - 1
# Stamps are 32-bit numbers; before they run out, they restart at 1.
MAX_STAMPS: Final = 1 << 30


# Kernels pass the address on, because a call with all arrays takes longer than most of them run.


@kernel
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
def _after(low: NDArray[np.int32], first: int, last: int, cell: int) -> int:
    """Return the place after the last interval of a group that begins at a cell or before."""
    while first < last:
        middle = (first + last) >> 1
        if low[middle] <= cell:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _set_truths(address: Any, count: int) -> int:
    """Set the truths of the regions, and write the true ones to the queue; return their number."""
    arrays = arrays_at(address)
    tests, workspace, passing = arrays.tests, arrays.workspace, arrays.cells.passing[0]
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    of_block, starts, widest, low, high, region_of = tests.intervals
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
            truth[region] = False
        begin = tail
        for group in range(of_block[block], of_block[block + 1]):
            place = _after(low, starts[group], starts[group + 1], cell) - 1
            nearest = cell - widest[group]
            while place >= starts[group] and low[place] > nearest:
                # Without a branch, which would often be mispredicted.
                queue[tail] = region_of[place]
                tail += int(cell < high[place])
                place -= 1
        breakpoints = counts.breakpoints[block]
        for region in others[other_starts[block] : other_starts[block + 1]]:
            passes = passing[counts.predicates[block] : counts.predicates[block + 1]]
            own = regions.breakpoints[regions.starts[region] : regions.starts[region + 1]]
            inside, guard = bool(regions.begins[region]), regions.guard[region]
            if _lies_in(own, inside, guard, cell, breakpoints, passes):
                queue[tail] = region
                tail += 1
        for place in range(begin, tail):
            truth[queue[place]] = True
    for block in range(len(base_starts) - 1 if len(base) else 0):
        if not is_present[block]:
            for region in base[base_starts[block] : base_starts[block + 1]]:
                queue[tail] = region
                tail += 1
    return tail


@kernel
def _reset_truths(address: Any, count: int, tail: int) -> None:
    """Restore the truths for an event without attributes, given that these rows are true."""
    tests, workspace = arrays_at(address).tests, arrays_at(address).workspace
    truth = workspace.truth
    for row in workspace.queue[:tail]:
        truth[row] = False
    for number in range(count):
        workspace.is_present[workspace.held[number] >> 32] = False
    for block in tests.always:
        workspace.is_present[block] = False
    for region in tests.base:
        truth[region] = True


# --- the graph ------------------------------------------------------------------------------------


@inlined
def _is_parity(kind: int, children: NDArray[np.int32], truth: NDArray[np.bool_]) -> bool:
    """Return whether all terms of a parity are known, and an odd or even number is true."""
    is_odd = kind == ODD
    for term in range(0, len(children), 2):
        if truth[children[term]]:
            is_odd = not is_odd
        elif not truth[children[term + 1]]:
            return False
    return not is_odd


@inlined
def _are_true(children: NDArray[np.int32], truth: NDArray[np.bool_]) -> bool:
    for child in children:  # noqa: SIM110 - a kernel has no generators
        if not truth[child]:
            return False
    return True


@kernel
def _spread(address: Any, tail: int) -> int:
    """Add to the true regions in the queue the nodes that follow; return where they end."""
    arrays = arrays_at(address)
    graph, upward, workspace = arrays.graph, arrays.upward, arrays.workspace
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    starts, records, queue, truth = upward.starts, upward.records, workspace.queue, workspace.truth
    kinds, children, child_starts = graph.kinds, graph.children, graph.starts
    first_waiting, next_waiting = workspace.first_waiting, workspace.next_waiting
    level, inner = upward.level, len(kinds) - len(upward.subscription)
    regions, head, waiting = len(truth) - len(kinds), 0, len(first_waiting)
    while True:
        while head < tail:
            row = queue[head]
            head += 1
            # Tops lead nowhere.
            if row - regions >= inner:
                continue
            place, end = starts[row], starts[row + 1]
            while place < end:
                record = records[place]
                code, node = record & CODE_MASK, record >> CODE_BITS
                place += 1
                if code == CHECKS:
                    other = place + 1
                    place = other + records[place]
                    while other < place and truth[records[other]]:
                        other += 1
                    if other < place:
                        continue
                elif code == REACHES:
                    if truth[regions + node]:
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
                truth[regions + node] = True
                queue[tail] = regions + node
                tail += 1
        # All rows below the lowest level at which a node waits have their truths now.
        while waiting < len(first_waiting) and first_waiting[waiting] == NONE:
            waiting += 1
        if waiting == len(first_waiting):
            return tail
        node = first_waiting[waiting]
        first_waiting[waiting] = NONE
        while node != NONE:
            own = children[child_starts[node] : child_starts[node + 1]]
            if kinds[node] == ALL:
                holds = _are_true(own, truth)
            else:
                holds = _is_parity(kinds[node], own, truth)
            if holds:
                truth[regions + node] = True
                queue[tail] = regions + node
                tail += 1
            node = next_waiting[node]


@kernel
def _take_tops(address: Any, tail: int, count: int) -> int:
    """Write the subscriptions whose top is among the true rows; return where they end."""
    upward, workspace = arrays_at(address).upward, arrays_at(address).workspace
    queue, found, subscription = workspace.queue, workspace.found, upward.subscription
    first = len(workspace.truth) - len(subscription)
    for place in range(tail):
        top = queue[place] - first
        if top >= 0:
            found[count] = subscription[top]
            count += 1
    return count


# --- the event ------------------------------------------------------------------------------------


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


@kernel
def match_held(address: Any, count: int) -> int:
    """Match an event whose attributes and cells are held; return the number of matches."""
    arrays = arrays_at(address)
    workspace, cells, postings = arrays.workspace, arrays.cells, arrays.postings
    found = 0
    if len(postings.postings.records):
        for number in range(count):
            cells.blocks[number] = workspace.held[number] >> 32
            cells.cells[number] = workspace.held[number] & _LOWER_HALF
        cells.starts[1] = count
        match_postings(postings, cells, 0, arrays.ends, workspace.found)
        found = arrays.ends[0]
        postings.stamps[0] += 1
        if postings.stamps[0] > MAX_STAMPS:
            postings.stamps[0] = 0
            postings.seen[:] = 0
    if len(arrays.upward.subscription):
        tail = _spread(address, _set_truths(address, count))
        found = _take_tops(address, tail, found)
        _reset_truths(address, count, tail)
    if found > 1:
        _sort(workspace.found, workspace.bits, found)
    return found


@kernel
def match_values(address: Any, count: int) -> int:
    """Match the event whose values are in the workspace; return the number of matches."""
    hold_values(address, count)
    return match_held(address, count)
