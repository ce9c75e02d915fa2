"""The loops that plan how truth spreads in the graph, and list the regions' intervals."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import kernel
from tamis.matching.compile.graph_kernels import ALL, ANY, ODD, Graph, Regions, VariableCounts
from tamis.matching.evaluate.single_event.spreading_kernels import (
    CHECKS,
    CHECKS_LAST,
    CHECKS_MORE,
    CODE_BITS,
    LOOKS_UP,
    LOOKS_UP_LAST,
    MAX_CELL,
    REACHES,
    WAITS,
    CellRows,
    Upward,
    lies_in,
)

# A node with so many children is reached from one of them, and the others are in its record.
_CHECKED_CHILDREN: Final = 3


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
            plan.code[node] = LOOKS_UP
            if kind == ALL:
                plan.code[node] = CHECKS if end - start <= _CHECKED_CHILDREN else CHECKS_MORE
            if level[node] > 1 and node >= inner:
                plan.code[node] = CHECKS_LAST if kind == ALL else LOOKS_UP_LAST
            elif level[node] > 1:
                plan.code[node] = WAITS
        if node < inner:
            share[regions + node] = min(1.0, total)


@kernel
def size_records(graph: Graph, plan: NodePlan, starts: NDArray[np.int64]) -> None:
    """Write where the records of each row will begin; `starts` must be zeros."""
    for node in range(len(graph.kinds)):
        size, code = 1, plan.code[node]
        if code == CHECKS:
            size = _CHECKED_CHILDREN
        elif code in (CHECKS_MORE, CHECKS_LAST):
            size = 1 + int(graph.starts[node + 1] - graph.starts[node])
        elif code in (LOOKS_UP, LOOKS_UP_LAST):
            size = 2 + int(graph.starts[node + 1] - graph.starts[node])
        for child in graph.children[plan.first[node] : plan.last[node]]:
            starts[child + 1] += size
    for row in range(len(starts) - 1):
        starts[row + 1] += starts[row]


@kernel
def write_row_records(graph: Graph, plan: NodePlan, upward: Upward) -> None:
    """Write the records of all rows."""
    places, records = upward.starts.astype(np.int64), upward.records
    for node in range(len(graph.kinds)):
        code = plan.code[node]
        for at in range(plan.first[node], plan.last[node]):
            child = graph.children[at]
            place = places[child]
            records[place] = node << CODE_BITS | int(code)
            place += 1
            if code in (CHECKS, CHECKS_MORE):
                place = _write_checks(graph, node, at, records, place)
            elif code == CHECKS_LAST:
                place = _write_others(graph, node, at, records, place)
            elif code in (LOOKS_UP, LOOKS_UP_LAST):
                place = _write_terms(graph, node, records, place)
            places[child] = place


@kernel
def _write_checks(
    graph: Graph, node: int, reached: int, records: NDArray[np.int32], place: int
) -> int:
    """Write the children of a node except the one that it is reached from; return the end."""
    count = 0
    for at in range(graph.starts[node], graph.starts[node + 1]):
        if at != reached:
            # After the first two comes the number of the others.
            records[place + count + (1 if count >= 2 else 0)] = graph.children[at]
            count += 1
    if count == 1:
        # The one is looked up twice, which is faster than to count.
        records[place + 1] = records[place]
    if count <= 2:
        return place + 2
    records[place + 2] = count - 2
    return place + count + 1


@kernel
def _write_others(
    graph: Graph, node: int, reached: int, records: NDArray[np.int32], place: int
) -> int:
    """Write the number of the children except one, and those; return the end."""
    start, end = graph.starts[node], graph.starts[node + 1]
    records[place] = end - start - 1
    place += 1
    for at in range(start, end):
        if at != reached:
            records[place] = graph.children[at]
            place += 1
    return place


@kernel
def _write_terms(graph: Graph, node: int, records: NDArray[np.int32], place: int) -> int:
    """Write what a parity asks for, and the rows of all its terms; return the end."""
    start, end = graph.starts[node], graph.starts[node + 1]
    records[place] = (end - start) << 1 | (1 if graph.kinds[node] == ODD else 0)
    place += 1
    for at in range(start, end):
        records[place] = graph.children[at]
        place += 1
    return place


# --- regions --------------------------------------------------------------------------------------


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
            is_base[region] = lies_in(own, begins, guard, 0, breakpoints, passes)
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


@kernel
def write_cell_rows(
    bounds: NDArray[np.int32], block: NDArray[np.int64], cells: NDArray[np.int32], rows: CellRows
) -> None:
    """Set the bits of intervals, which are of these attributes, in all cells that they hold."""
    for number in range(len(bounds)):
        own = block[number]
        words = rows.words[own]
        place = bounds[number, 2] - (rows.first_word[own] << 6)
        bit = np.uint64(1) << np.uint64(place & 63)
        start = rows.starts[own] + (place >> 6)
        for cell in range(bounds[number, 0], min(bounds[number, 1], cells[own])):
            rows.bits[start + cell * words] |= bit
