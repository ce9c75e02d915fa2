"""The loops over a batch: tiles of events as rows of bits, cells, texts, multivalued events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import borrowing, inlined, kernel
from tamis.matching.compile.chunk_kernels import Chunks
from tamis.matching.compile.graph_kernels import (
    ALL,
    ANY,
    ODD,
    Graph,
    Regions,
    VariableCounts,
)
from tamis.matching.compile.program_kernels import LEAF, OP_AND, OP_NOT, OP_OR, Leaves, read_step


class CellsByAttribute(NamedTuple):
    """The cells of a batch, attribute by attribute."""

    starts: NDArray[np.int64]
    """Attribute b has the entries starts[b] to starts[b + 1]."""
    events: NDArray[np.int32]
    cells: NDArray[np.int32]
    passing: NDArray[np.uint64]
    """For each predicate the events for which it holds, a bit each."""


class TileWorkspace(NamedTuple):
    """Memory for one tile while it is evaluated."""

    variables: NDArray[np.uint64]
    """For the variables of one attribute."""
    rows: NDArray[np.uint64]
    """For the regions, and after them the inner nodes of the graph."""
    is_set: NDArray[np.bool_]
    """Which of those have a bit."""
    nodes: NDArray[np.uint64]
    """For the nodes of one chunk; the first two are all false and all true."""
    parts: NDArray[np.uint64]
    """For one node of the graph: four rows, of which the third is empty."""


@borrowing
def _set_breakpoint_rows(
    batch: CellsByAttribute, block: int, first_word: int, words: int, rows: NDArray[np.uint64]
) -> bool:
    """Fill the rows of an attribute's breakpoints, or return that no event has the attribute.

    A row has the events that lie below its breakpoint: each event is in the row of the first
    breakpoint above its cell and in all later ones. An absent attribute lies below all.
    """
    first, last = 64 * first_word, 64 * (first_word + words)
    anything = False
    for entry in range(batch.starts[block], batch.starts[block + 1]):
        if first <= batch.events[entry] < last:
            anything = True
            break
    if not anything or not len(rows):
        return anything
    rows[0] = ~np.uint64(0)
    rows[1:] = np.uint64(0)
    for entry in range(batch.starts[block], batch.starts[block + 1]):
        event, cell = batch.events[entry] - first, batch.cells[entry]
        if 0 <= event < last - first and cell > 0:
            bit = np.uint64(1) << np.uint64(event & 63)
            rows[0, event >> 6] &= ~bit
            if cell < len(rows):
                rows[cell, event >> 6] |= bit
    for point in range(1, len(rows)):
        before, row = rows[point - 1], rows[point]
        for word in range(len(row)):
            row[word] |= before[word]
    return anything


@inlined
def _set_region(
    breakpoints: NDArray[np.int32],
    begins: bool,
    guard: int,
    rows: NDArray[np.uint64],
    target: NDArray[np.uint64],
) -> bool:
    """Fill the row of a region from the rows of its variables; return whether it has a bit."""
    # Below and above a breakpoint are complements, so each breakpoint flips all bits.
    inverted = begins != (len(breakpoints) % 2 == 1)
    turn = ~np.uint64(0) if inverted else np.uint64(0)
    if len(breakpoints) == 0:
        target[:] = turn
    else:
        row = rows[breakpoints[0]]
        for word in range(len(target)):
            target[word] = row[word] ^ turn
        for point in breakpoints[1:]:
            row = rows[point]
            for word in range(len(target)):
                target[word] ^= row[word]
    if guard != NONE:
        row = rows[guard]
        for word in range(len(target)):
            target[word] &= ~row[word]
    found = np.uint64(0)
    for word in range(len(target)):
        found |= target[word]
    return bool(found != 0)


@borrowing
def set_region_rows(
    regions: Regions,
    counts: VariableCounts,
    batch: CellsByAttribute,
    first_word: int,
    words: int,
    workspace: TileWorkspace,
) -> None:
    """Fill the row of every region for the events from a word on, and mark those with a bit.

    The rows may be wider than the words asked for; what stands there means nothing.
    """
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    of_block, starts, begins = regions.of_block, regions.starts, regions.begins
    all_breakpoints, guards, passing = regions.breakpoints, regions.guard, batch.passing
    variables, rows, is_set = workspace.variables, workspace.rows, workspace.is_set
    for block in range(len(of_block) - 1):
        if of_block[block] == of_block[block + 1]:
            continue
        # The constants come last; they belong to no attribute.
        is_attribute = block < len(counts.breakpoints)
        breakpoints = counts.breakpoints[block] if is_attribute else 0
        predicates = counts.predicates[block] if is_attribute else 0
        count = counts.predicates[block + 1] - predicates if is_attribute else 0
        if is_attribute and not _set_breakpoint_rows(
            batch, block, first_word, words, variables[:breakpoints]
        ):
            variables[:breakpoints] = ~np.uint64(0)
        for number in range(count):
            for word in range(words):
                variables[breakpoints + number, word] = passing[
                    predicates + number, first_word + word
                ]
        for region in range(of_block[block], of_block[block + 1]):
            own = all_breakpoints[starts[region] : starts[region + 1]]
            inside = bool(begins[region])
            is_set[region] = _set_region(own, inside, guards[region], variables, rows[region])


@borrowing
def evaluate_chunks(
    chunks: Chunks,
    first: int,
    last: int,
    rows: NDArray[np.uint64],
    values: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate some chunks on all events of the rows.

    `values` has a row for each node of the largest chunk; the first two are all false and all true.
    """
    width, wanted = rows.shape[1], matched.shape[1]
    for chunk in range(first, last):
        # Slices of the chunk's own arrays: a fifth faster than offsets into those of all chunks.
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        # The white-hot centre: one pass, children before parents, vectorised over the words.
        for node in range(len(tests)):
            test = rows[regions[tests[node]]]
            low, high, value = values[lows[node]], values[highs[node]], values[node + 2]
            for word in range(width):
                value[word] = low[word] ^ (test[word] & (low[word] ^ high[word]))
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            value, target = values[chunks.roots[root]], matched[chunks.members[root]]
            for word in range(wanted):
                target[word] = value[word]


@inlined
def _all_of(
    children: NDArray[np.int32],
    rows: NDArray[np.uint64],
    is_set: NDArray[np.bool_],
    target: NDArray[np.uint64],
) -> bool:
    for child in children:
        if not is_set[child]:
            return False
    one, other = rows[children[0]], rows[children[1]]
    for word in range(len(target)):
        target[word] = one[word] & other[word]
    for child in children[2:]:
        row = rows[child]
        for word in range(len(target)):
            target[word] &= row[word]
    found = np.uint64(0)
    for word in range(len(target)):
        found |= target[word]
    return bool(found != 0)


@inlined
def _any_of(
    children: NDArray[np.int32],
    rows: NDArray[np.uint64],
    is_set: NDArray[np.bool_],
    target: NDArray[np.uint64],
) -> bool:
    found = False
    for child in children:
        if is_set[child]:
            row = rows[child]
            if found:
                for word in range(len(target)):
                    target[word] |= row[word]
            else:
                for word in range(len(target)):
                    target[word] = row[word]
            found = True
    return found


@inlined
def _parity_of(
    children: NDArray[np.int32],
    rows: NDArray[np.uint64],
    is_set: NDArray[np.bool_],
    wanted: int,
    parts: NDArray[np.uint64],
    target: NDArray[np.uint64],
) -> bool:
    odd, even = parts[0], parts[1]
    for term in range(0, len(children), 2):
        holds, fails = children[term], children[term + 1]
        if not is_set[holds] and not is_set[fails]:
            return False
        true = rows[holds] if is_set[holds] else parts[2]
        false = rows[fails] if is_set[fails] else parts[2]
        if term == 0:
            for word in range(len(target)):
                odd[word], even[word] = true[word], false[word]
            continue
        for word in range(len(target)):
            swapped = (odd[word] & false[word]) | (even[word] & true[word])
            even[word] = (even[word] & false[word]) | (odd[word] & true[word])
            odd[word] = swapped
    result = odd if wanted == ODD else even
    found = np.uint64(0)
    for word in range(len(target)):
        target[word] = result[word]
        found |= result[word]
    return bool(found != 0)


@borrowing
def evaluate_graph(
    graph: Graph,
    regions: int,
    workspace: TileWorkspace,
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate all nodes on all events of the rows.

    Where filters are selective, most rows have no bit at all: they are neither written nor read,
    only marked in `is_set`.
    """
    # Local names for the arrays: taking them out of their tuples inside the loop is expensive.
    rows, is_set, parts = workspace.rows, workspace.is_set, workspace.parts
    kinds, starts, all_children, members = graph.kinds, graph.starts, graph.children, graph.members
    inner = len(kinds) - len(members)
    for node in range(len(kinds)):
        children = all_children[starts[node] : starts[node + 1]]
        kind = kinds[node]
        target = rows[regions + node] if node < inner else parts[3]
        if kind == ALL:
            found = _all_of(children, rows, is_set, target)
        elif kind == ANY:
            found = _any_of(children, rows, is_set, target)
        else:
            found = _parity_of(children, rows, is_set, kind, parts, target)
        if node < inner:
            is_set[regions + node] = found
            continue
        result = matched[members[node - inner]]
        if found:
            for word in range(len(result)):
                result[word] = target[word]
        else:
            for word in range(len(result)):
                result[word] = np.uint64(0)


class UnindexedArrays(NamedTuple):
    """The unindexed subscriptions, compiled."""

    regions: Regions
    counts: VariableCounts
    chunks: Chunks
    graph: Graph


class Tile(NamedTuple):
    """Some words of events, and a row of bits for the matches of each unindexed subscription."""

    first_word: int
    words: int
    matched: NDArray[np.uint64]


@borrowing
def evaluate_tile(
    unindexed: UnindexedArrays, batch: CellsByAttribute, tile: Tile, workspace: TileWorkspace
) -> None:
    """Evaluate all unindexed subscriptions on the events of a tile."""
    regions, counts, chunks, graph = unindexed
    first_word, words, matched = tile
    set_region_rows(regions, counts, batch, first_word, words, workspace)
    last = len(chunks.node_starts) - 1
    evaluate_chunks(chunks, 0, last, workspace.rows, workspace.nodes, matched)
    evaluate_graph(graph, len(regions.begins), workspace, matched)


# --- cells and texts ------------------------------------------------------------------------------


@borrowing
def sort_by_event(
    batch: CellsByAttribute,
    starts: NDArray[np.int64],
    blocks: NDArray[np.int32],
    cells: NDArray[np.int32],
) -> None:
    """Write the cells of a batch event by event; `starts` must be zeros."""
    for event in batch.events:
        starts[event + 1] += 1
    for event in range(len(starts) - 1):
        starts[event + 1] += starts[event]
    for block in range(len(batch.starts) - 1):
        for entry in range(batch.starts[block], batch.starts[block + 1]):
            place = starts[batch.events[entry]]
            starts[batch.events[entry]] = place + 1
            blocks[place], cells[place] = block, batch.cells[entry]
    for event in range(len(starts) - 1, 0, -1):
        starts[event] = starts[event - 1]
    starts[0] = 0


class RankTable(NamedTuple):
    """The number of breakpoints up to each whole number, and just above it."""

    low: NDArray[np.float64]
    """The first whole number."""
    at: NDArray[np.int32]
    over: NDArray[np.int32]


@inlined
def _passed(low: float, at: NDArray[np.int32], over: NDArray[np.int32], value: float) -> int:
    """Return how many breakpoints of a table lie at or below a value."""
    whole = np.floor(value)
    if whole < low:
        return 0
    if whole - low >= len(at):
        return int(over[-1])
    number = int(whole - low)
    return int(at[number] if whole == value else over[number])


@borrowing
def look_up(table: RankTable, values: NDArray[np.float64], passed: NDArray[np.int32]) -> None:
    """Write for each value how many breakpoints lie at or below it."""
    low, at, over = table.low[0], table.at, table.over
    for place in range(len(values)):
        passed[place] = _passed(low, at, over, values[place])


class NumberRanks(NamedTuple):
    """The numbers among the breakpoints of all attributes."""

    starts: NDArray[np.int64]
    """Attribute b has the numbers from starts[b] to starts[b + 1], ascending."""
    numbers: NDArray[np.float64]
    first_cell: NDArray[np.int32]
    """For each attribute the cell of the least number."""
    table_starts: NDArray[np.int64]
    """Attribute b has the part of `tables` from table_starts[b] on, if it is not empty."""
    tables: RankTable


class PackedValues(NamedTuple):
    """Numbers, one column after the other."""

    starts: NDArray[np.int64]
    events: NDArray[np.int32]
    values: NDArray[np.float64]


class CellEntries(NamedTuple):
    """Cells with their events, attribute by attribute."""

    starts: NDArray[np.int64]
    events: NDArray[np.int32]
    cells: NDArray[np.int32]


@borrowing
def rank_packed(
    ranks: NumberRanks,
    place_of: NDArray[np.int32],
    packed: PackedValues,
    others: CellEntries,
    found: CellEntries,
) -> None:
    """Write the cells of all attributes: of numbers that are packed, and of others, as given.

    Attribute b has the packed numbers at place_of[b], or none if that is NONE.
    """
    # Local names for the arrays: taking them out of their tuples inside the loops is expensive.
    from_starts, from_events, from_values = packed.starts, packed.events, packed.values
    starts, events, cells = found.starts, found.events, found.cells
    count = 0
    for block in range(len(place_of)):
        starts[block] = count
        for entry in range(others.starts[block], others.starts[block + 1]):
            events[count], cells[count] = others.events[entry], others.cells[entry]
            count += 1
        place = place_of[block]
        if place == NONE:
            continue
        base = ranks.first_cell[block]
        table = slice(ranks.table_starts[block], ranks.table_starts[block + 1])
        low, at, over = ranks.tables.low[block], ranks.tables.at[table], ranks.tables.over[table]
        numbers = ranks.numbers[ranks.starts[block] : ranks.starts[block + 1]]
        for entry in range(from_starts[place], from_starts[place + 1]):
            value = from_values[entry]
            if len(at) > 0:
                passed = _passed(low, at, over, value)
            else:
                passed = np.searchsorted(numbers, value, side="right")
            events[count], cells[count] = from_events[entry], base + passed
            count += 1
    starts[-1] = count


@borrowing
def gather_holders(
    texts: NDArray[np.int32],
    events: NDArray[np.int32],
    starts: NDArray[np.int64],
    holders: NDArray[np.int32],
) -> None:
    """Group the events by their text; `starts` must be zeros.

    The holders of text t are holders[starts[t]] to holders[starts[t + 1]].
    """
    for text in texts:
        starts[text + 1] += 1
    for text in range(len(starts) - 1):
        starts[text + 1] += starts[text]
    for entry in range(len(texts) - 1, -1, -1):
        end = texts[entry] + 1
        starts[end] -= 1
        holders[starts[end]] = events[entry]
    ends = len(starts) - 1
    for text in range(ends):
        starts[text] = starts[text + 1]
    starts[ends] = len(texts)


@borrowing
def mark_holders(
    passed: NDArray[np.int32],
    texts: NDArray[np.int32],
    starts: NDArray[np.int64],
    holders: NDArray[np.int32],
    rows: NDArray[np.bool_],
) -> None:
    """Set, in each row that a text passes, the events that hold the text."""
    for number in range(len(passed)):
        row = passed[number]
        for at in range(starts[texts[number]], starts[texts[number] + 1]):
            rows[row, holders[at]] = True


# --- multivalued events ---------------------------------------------------------------------------


class Lanes(NamedTuple):
    """The cells that some events touch, for each attribute and event ascending, each once."""

    starts: NDArray[np.int64]
    """For attribute b, the cells of event e are starts[b, e] to starts[b, e + 1]."""
    cells: NDArray[np.int32]
    first: NDArray[np.int32]
    """For each attribute its first variable; variable v is the breakpoint above cell v - first."""


@borrowing
def lies_inside(leaves: Leaves, index: int, first: int, cells: NDArray[np.int32]) -> bool:
    """Return whether one of some ascending cells lies inside a leaf's side.

    Each step goes on after one of the breakpoints, so its cost depends little on the cells: a
    publisher chooses how many there are.
    """
    inside, place = bool(leaves.begins_inside[index]), 0
    for number in range(leaves.starts[index], leaves.starts[index + 1]):
        passed = place + np.searchsorted(
            cells[place:], leaves.variables[number] - first, side="right"
        )
        if inside and passed > place:
            return True
        inside, place = not inside, passed
    return inside and place < len(cells)


@kernel
def set_leaf_rows(
    leaves: Leaves,
    lanes: Lanes,
    rows: NDArray[np.uint64],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
) -> None:
    """Fill the rows of every leaf for events with several values; one passing value is enough.

    A leaf is false where a value lies on one of its sides and none makes it true.
    """
    for leaf in range(len(leaves.block)):
        block = leaves.block[leaf]
        if block == NONE:
            for side, target in ((2 * leaf, when_true[leaf]), (2 * leaf + 1, when_false[leaf])):
                if leaves.starts[side] == leaves.starts[side + 1]:
                    target[:] = ~np.uint64(0) if leaves.begins_inside[side] else np.uint64(0)
                else:
                    target[:] = rows[leaves.variables[leaves.starts[side]]]
                if leaves.guard[side] != NONE:
                    target[:] = ~rows[leaves.guard[side]]
            continue
        guard = leaves.guard[2 * leaf + 1]
        for lane in range(lanes.starts.shape[1] - 1):
            cells = lanes.cells[lanes.starts[block, lane] : lanes.starts[block, lane + 1]]
            bit = np.uint64(1) << np.uint64(lane & 63)
            if guard == NONE and lies_inside(leaves, 2 * leaf, lanes.first[block], cells):
                when_true[leaf, lane >> 6] |= bit
            elif lies_inside(leaves, 2 * leaf + 1, lanes.first[block], cells):
                when_false[leaf, lane >> 6] |= bit
        if guard != NONE:
            when_true[leaf] = rows[guard]
        for word in range(when_true.shape[1]):
            when_false[leaf, word] &= ~when_true[leaf, word]


@borrowing
def evaluate_programs(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
    stack: NDArray[np.uint64],
    truths: NDArray[np.uint64],
) -> None:
    """Evaluate every program on words of its leaves, and write for which events it is true.

    The stack holds two words for each step: where it is true, and where it is false.
    """
    for number in range(len(truths)):
        depth = 0
        for place in range(starts[number], starts[number + 1]):
            code = codes[place]
            op, first = read_step(code, depth)
            true, false = stack[first, 0], stack[first, 1]
            if op == LEAF:
                true, false = when_true[code], when_false[code]
            elif op == OP_NOT:
                true, false = false, true
            for term in range(first + 1, depth):
                other, unlike = stack[term, 0], stack[term, 1]
                if op == OP_AND:
                    true, false = true & other, false | unlike
                elif op == OP_OR:
                    true, false = true | other, false & unlike
                else:
                    true, false = (
                        (true & unlike) | (false & other),
                        (true & other) | (false & unlike),
                    )
            stack[first, 0], stack[first, 1] = true, false
            depth = first + 1
        truths[number] = stack[0, 0]
