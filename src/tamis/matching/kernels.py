"""The inner loops of the engine: building a chunk's diagram, and evaluating it on many events.

A program is a filter in postfix: a code of 0 or more is a leaf, a negative one an operator with its
number of terms (see `operator_code`). Every step of it has two sides, where it is true and where
it is false; with unknown between them, one is not the other's complement. Only the sides that the
root's truth needs are built.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import (
    AND,
    FALSE,
    FREE,
    NONE,
    OR,
    TRUE,
    Store,
    combine,
    make_node,
    node_place,
)
from tamis.jit import kernel

# Operators of a program, under the number of their terms.
OP_AND, OP_OR, OP_XOR, OP_NOT = range(4)

_TRUE_SIDE: Final = 1
_FALSE_SIDE: Final = 2

# A filter is a diagram while that is the cheaper form: up to this many new nodes for each code of
# its program, found within this many steps. Most take one or two.
NODES_PER_CODE: Final = 8
STEPS_PER_CODE: Final = 64


def operator_code(op: int, terms: int) -> int:
    """Return the code of an operator that joins the last `terms` results."""
    return -(terms * 4 + op) - 1


class Leaves(NamedTuple):
    """The two sides of every leaf of a chunk: where a line lies in some cells, or a variable."""

    starts: NDArray[np.int32]
    """For side s of leaf i, its cuts are variables[starts[2 * i + s] : starts[2 * i + s + 1]]."""
    variables: NDArray[np.int32]
    begins_inside: NDArray[np.bool_]
    """Whether what lies left of the first cut is inside; for 2 * i + s."""
    guard: NDArray[np.int32]
    """A variable that must be false as well, or NONE; for 2 * i + s."""
    block: NDArray[np.int32]
    """The attribute whose cells the leaf is about, or NONE; for i."""
    node: NDArray[np.int32]
    """The node, once it was built, or NONE; for 2 * i + s."""


@kernel
def leaf_node(store: Store, leaves: Leaves, index: int) -> int:
    """Return the node of one side of a leaf."""
    if leaves.node[index] != NONE:
        return int(leaves.node[index])
    first, last = leaves.starts[index], leaves.starts[index + 1]
    inside = leaves.begins_inside[index] != ((last - first) % 2 == 1)
    node = TRUE if inside else FALSE
    for number in range(last - 1, first - 1, -1):
        inside = not inside
        node = make_node(store, leaves.variables[number], node, TRUE if inside else FALSE)
        if node == NONE:
            return NONE
    if leaves.guard[index] != NONE and node != FALSE:
        denied = make_node(store, leaves.guard[index], TRUE, FALSE)
        node = combine(store, AND, node, denied) if denied != NONE else NONE
    leaves.node[index] = node
    return node


class Scratch(NamedTuple):
    """Room for one program at a time."""

    parent: NDArray[np.int32]
    sides: NDArray[np.int8]
    stack: NDArray[np.int32]
    when_true: NDArray[np.int32]
    when_false: NDArray[np.int32]


def new_scratch(longest: int) -> Scratch:
    """Return room for programs of up to `longest` codes."""
    return Scratch(
        parent=np.empty(longest, np.int32),
        sides=np.empty(longest, np.int8),
        stack=np.empty(longest + 1, np.int32),
        when_true=np.empty(longest + 1, np.int32),
        when_false=np.empty(longest + 1, np.int32),
    )


@kernel
def mark_sides(program: NDArray[np.int32], scratch: Scratch) -> None:
    """Find out of every step which sides the truth of the last one needs."""
    depth = 0
    for place in range(len(program)):
        if program[place] < 0:
            for _ in range((-program[place] - 1) // 4):
                depth -= 1
                scratch.parent[scratch.stack[depth]] = place
        scratch.stack[depth] = place
        depth += 1
    scratch.sides[len(program) - 1] = _TRUE_SIDE
    for place in range(len(program) - 2, -1, -1):
        above = scratch.parent[place]
        op = (-program[above] - 1) % 4
        wanted = scratch.sides[above]
        if op == OP_XOR:
            wanted = _TRUE_SIDE | _FALSE_SIDE
        elif op == OP_NOT:
            wanted = (wanted & 1) << 1 | wanted >> 1
        scratch.sides[place] = wanted


@kernel
def build_program(
    store: Store, leaves: Leaves, program: NDArray[np.int32], scratch: Scratch
) -> int:
    """Return the node on which a program is true, or NONE past the budget."""
    mark_sides(program, scratch)
    true, false = scratch.when_true, scratch.when_false
    depth = 0
    for place in range(len(program)):
        code, sides = program[place], scratch.sides[place]
        if code >= 0:
            true[depth] = leaf_node(store, leaves, 2 * code) if sides & _TRUE_SIDE else FALSE
            false[depth] = leaf_node(store, leaves, 2 * code + 1) if sides & _FALSE_SIDE else FALSE
            if true[depth] == NONE or false[depth] == NONE:
                return NONE
            depth += 1
            continue
        op, terms = (-code - 1) % 4, (-code - 1) // 4
        depth -= terms
        if op == OP_NOT:
            true[depth], false[depth] = false[depth], true[depth]
        elif op == OP_XOR:
            for term in range(depth + 1, depth + terms):
                odd_a = combine(store, AND, true[depth], false[term])
                odd_b = combine(store, AND, false[depth], true[term])
                even_a = combine(store, AND, true[depth], true[term])
                even_b = combine(store, AND, false[depth], false[term])
                if odd_a == NONE or odd_b == NONE or even_a == NONE or even_b == NONE:
                    return NONE
                true[depth] = combine(store, OR, odd_a, odd_b)
                false[depth] = combine(store, OR, even_a, even_b)
                if true[depth] == NONE or false[depth] == NONE:
                    return NONE
        else:
            # From the last, which the variables' order tends to put deepest.
            whole, part = (AND, OR) if op == OP_AND else (OR, AND)
            last = depth + terms - 1
            for term in range(last - 1, depth - 1, -1):
                if sides & _TRUE_SIDE:
                    true[last] = combine(store, whole, true[term], true[last])
                if sides & _FALSE_SIDE:
                    false[last] = combine(store, part, false[term], false[last])
                if true[last] == NONE or false[last] == NONE:
                    return NONE
            true[depth], false[depth] = true[last], false[last]
        depth += 1
    return int(true[0])


@kernel
def _forget_from(store: Store, leaves: Leaves, first: int) -> None:
    """Take back the nodes from `first` on, in the reverse order of their making."""
    mask = len(store.unique) - 1
    for node in range(store.counters[0] - 1, first - 1, -1):
        place = node_place(store.variable[node], store.low[node], store.high[node]) & mask
        while store.unique[place] != node:
            place = (place + 1) & mask
        store.unique[place] = 0
    store.counters[0] = first
    store.memo_key[:] = 0
    for index in range(len(leaves.node)):
        if leaves.node[index] >= first:
            leaves.node[index] = NONE


@kernel
def build_chunk(
    store: Store,
    leaves: Leaves,
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    roots: NDArray[np.int32],
) -> int:
    """Build program after program; return how many there was room for.

    A program whose diagram would grow past a small multiple of its own length gets no root: it
    stays the graph that its codes are.
    """
    for number in range(len(roots)):
        program = codes[starts[number] : starts[number + 1]]
        before = store.counters[0]
        most = NODES_PER_CODE * len(program) + 16
        if before + 4 * most > len(store.variable):
            return number
        store.counters[1] = STEPS_PER_CODE * len(program) + 64
        root = build_program(store, leaves, program, scratch)
        if root == NONE or store.counters[0] - before > most:
            _forget_from(store, leaves, before)
            root = NONE
        roots[number] = root
    return len(roots)


@kernel
def keep_reachable(store: Store, roots: NDArray[np.int32], kept: NDArray[np.int32]) -> int:
    """Move the nodes that the roots need together, and renumber; return how many there are."""
    count = store.counters[0]
    kept[:count] = 0
    for root in roots:
        if root != NONE:
            kept[root] = 1
    for node in range(count - 1, TRUE, -1):
        if kept[node]:
            kept[store.low[node]] = 1
            kept[store.high[node]] = 1
    kept[FALSE] = FALSE
    kept[TRUE] = TRUE
    used = 2
    for node in range(2, count):
        if kept[node]:
            kept[node] = used
            store.variable[used] = store.variable[node]
            store.low[used] = kept[store.low[node]]
            store.high[used] = kept[store.high[node]]
            used += 1
    for number in range(len(roots)):
        if roots[number] != NONE:
            roots[number] = kept[roots[number]]
    return used


class Tests(NamedTuple):
    """Nodes that ask at once whether a line lies in a region, of whatever cells it is made."""

    region: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unique: NDArray[np.int32]
    """Open hashing of the nodes, 0 where free."""
    region_start: NDArray[np.int32]
    """Region r changes at the variables cuts[region_start[r] : region_start[r + 1]]."""
    region_begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]
    region_table: NDArray[np.int32]
    """Open hashing of the regions, their number plus one, 0 where free."""
    children: NDArray[np.int32]
    """Room for the cells of one line: where each leads."""
    counters: NDArray[np.int64]
    """Nodes and regions in use."""


def new_tests(nodes: int, variables: int) -> Tests:
    """Return an empty set of tests, with room for what as many nodes can come to."""
    size = 1 << (4 * nodes).bit_length()
    return Tests(
        region=np.empty(2 * nodes, np.int32),
        low=np.empty(2 * nodes, np.int32),
        high=np.empty(2 * nodes, np.int32),
        unique=np.zeros(size, np.int32),
        region_start=np.zeros(2 * nodes + 1, np.int32),
        region_begins=np.empty(2 * nodes, np.bool_),
        cuts=np.empty(4 * nodes + variables, np.int32),
        region_table=np.zeros(size, np.int32),
        children=np.empty(variables + 1, np.int32),
        counters=np.array([2, 0], np.int64),
    )


@kernel
def _region(tests: Tests, begins: bool, last: int) -> int:
    """Return the number of the region whose cuts were written from the first free place on."""
    number = tests.counters[1]
    first = tests.region_start[number]
    mixed = 1 if begins else 0
    for place in range(first, last):
        mixed = (mixed * 31 + tests.cuts[place]) & 0x3FFFFFFF
    mask = len(tests.region_table) - 1
    spot = (mixed ^ (mixed >> 15)) & mask
    while tests.region_table[spot] != 0:
        other = tests.region_table[spot] - 1
        start, end = tests.region_start[other], tests.region_start[other + 1]
        same = tests.region_begins[other] == begins and end - start == last - first
        for offset in range(last - first):
            same = same and tests.cuts[start + offset] == tests.cuts[first + offset]
        if same:
            return int(other)
        spot = (spot + 1) & mask
    tests.region_table[spot] = number + 1
    tests.region_begins[number] = begins
    tests.region_start[number + 1] = last
    tests.counters[1] = number + 1
    return int(number)


@kernel
def _test(tests: Tests, region: int, low: int, high: int) -> int:
    """Return the node that is `high` in a region and `low` outside."""
    mask = len(tests.unique) - 1
    spot = node_place(region, low, high) & mask
    while tests.unique[spot] != 0:
        node = tests.unique[spot]
        if tests.region[node] == region and tests.low[node] == low and tests.high[node] == high:
            return int(node)
        spot = (spot + 1) & mask
    node = int(tests.counters[0])
    tests.region[node], tests.low[node], tests.high[node] = region, low, high
    tests.unique[spot] = node
    tests.counters[0] = node + 1
    return node


@kernel
def _test_line(
    store: Store, tests: Tests, head: int, longest: int, renumbered: NDArray[np.int32]
) -> int:
    """Return the tests that stand for the chain of cuts from `head` on, up to the longest.

    A chain that leads to m different places takes m - 1 tests, however many cuts it has.
    """
    line = store.line[store.variable[head]]
    if line == FREE:
        longest = 1
    first = tests.region_start[tests.counters[1]]
    count, node = 0, head
    while node > TRUE and store.line[store.variable[node]] == line and count < longest:
        tests.children[count] = renumbered[store.high[node]]
        count += 1
        node = store.low[node]
    # A free variable is a chain of its own, however free the next one is.
    result = int(renumbered[node])
    if tests.counters[0] + count > len(tests.region) or first + count * count > len(tests.cuts):
        return NONE
    for cell in range(count - 1, -1, -1):
        child = tests.children[cell]
        done = child == renumbered[node]
        for later in range(cell + 1, count):
            done = done or tests.children[later] == child
        if done:
            continue
        place, inside, at = first, tests.children[0] == child, head
        for number in range(1, count + 1):
            into = number < count and tests.children[number] == child
            if into != inside:
                tests.cuts[place] = store.variable[at]
                place += 1
                inside = into
            at = store.low[at]
        region = _region(tests, tests.children[0] == child, place)
        result = _test(tests, region, result, child)
        first = tests.region_start[tests.counters[1]]
    return result


@kernel
def test_regions(
    store: Store,
    count: int,
    longest: int,
    roots: NDArray[np.int32],
    tests: Tests,
    renumbered: NDArray[np.int32],
) -> bool:
    """Make tests of regions of the first `count` nodes, and renumber the roots.

    Chains that other chains join midway may come to more tests than they had cuts, and to more
    than there is room for; then the answer is false, and the caller asks for shorter ones.
    """
    is_head = np.zeros(count, np.bool_)
    for number in range(len(roots)):
        if roots[number] != NONE:
            is_head[roots[number]] = True
    for node in range(2, count):
        line = store.line[store.variable[node]]
        low = store.low[node]
        is_head[store.high[node]] = True
        if low > TRUE and (longest == 1 or line == FREE or store.line[store.variable[low]] != line):
            is_head[low] = True
    renumbered[FALSE], renumbered[TRUE] = FALSE, TRUE
    for node in range(2, count):
        if is_head[node]:
            renumbered[node] = _test_line(store, tests, node, longest, renumbered)
            if renumbered[node] == NONE:
                return False
    for number in range(len(roots)):
        if roots[number] != NONE:
            roots[number] = renumbered[roots[number]]
    return True


@kernel
def set_rows(cells: NDArray[np.int32], rows: NDArray[np.uint64]) -> None:
    """Fill the rows of a line's cuts: which events lie left of each.

    Every event starts in the row of the first cut over its cell, and then is in all after it.
    """
    for event in range(len(cells)):
        if cells[event] < len(rows):
            rows[cells[event], event >> 6] |= np.uint64(1) << np.uint64(event & 63)
    for cut in range(1, len(rows)):
        for word in range(rows.shape[1]):
            rows[cut, word] |= rows[cut - 1, word]


class Regions(NamedTuple):
    """What the nodes of diagrams ask for: cells of a line, or one predicate."""

    starts: NDArray[np.int64]
    """Region r changes at the variables cuts[starts[r] : starts[r + 1]]."""
    begins: NDArray[np.bool_]
    cuts: NDArray[np.int32]


@kernel
def set_region_rows(
    regions: Regions, rows: NDArray[np.uint64], region_rows: NDArray[np.uint64]
) -> None:
    """Fill the row of every region from the rows of the cuts at which it changes."""
    for region in range(len(regions.begins)):
        target = region_rows[region]
        target[:] = ~np.uint64(0) if regions.begins[region] else np.uint64(0)
        for place in range(regions.starts[region], regions.starts[region + 1]):
            row = rows[regions.cuts[place]]
            for word in range(len(target)):
                target[word] ^= ~row[word]


class Chunks(NamedTuple):
    """The diagrams of all chunks, one after the other."""

    node_starts: NDArray[np.int64]
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    region_starts: NDArray[np.int64]
    regions: NDArray[np.int32]
    """For each test of a chunk the region it asks for."""
    root_starts: NDArray[np.int64]
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]
    """For each root the subscription it belongs to."""


@kernel
def evaluate_chunks(
    chunks: Chunks,
    first: int,
    last: int,
    rows: NDArray[np.uint64],
    values: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate some chunks on all events of the rows, a machine word of events at a time.

    `values` is room for the largest chunk; its first two rows are all false and all true.
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


class Lanes(NamedTuple):
    """The values of some events, for each attribute an entry per value."""

    starts: NDArray[np.int64]
    """For attribute b, its entries are starts[b] to starts[b + 1]."""
    lanes: NDArray[np.int32]
    cells: NDArray[np.int32]
    first: NDArray[np.int32]
    """For each attribute its first variable, so that variable v is the cut over cell v - first."""


@kernel
def _lies_inside(leaves: Leaves, index: int, first: int, cell: int) -> bool:
    inside = bool(leaves.begins_inside[index])
    for number in range(leaves.starts[index], leaves.starts[index + 1]):
        if leaves.variables[number] - first < cell:
            inside = not inside
    return inside


@kernel
def set_leaf_rows(
    leaves: Leaves,
    lanes: Lanes,
    rows: NDArray[np.uint64],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
) -> None:
    """Fill the rows of every leaf for events that may hold several values: some value passes.

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
        for entry in range(lanes.starts[block], lanes.starts[block + 1]):
            lane, cell = lanes.lanes[entry], lanes.cells[entry]
            bit = np.uint64(1) << np.uint64(lane & 63)
            if guard == NONE and _lies_inside(leaves, 2 * leaf, lanes.first[block], cell):
                when_true[leaf, lane >> 6] |= bit
            elif _lies_inside(leaves, 2 * leaf + 1, lanes.first[block], cell):
                when_false[leaf, lane >> 6] |= bit
        if guard != NONE:
            when_true[leaf] = rows[guard]
        for word in range(when_true.shape[1]):
            when_false[leaf, word] &= ~when_true[leaf, word]


@kernel
def evaluate_program(
    program: NDArray[np.int32],
    when_true: NDArray[np.uint64],
    when_false: NDArray[np.uint64],
    stack: NDArray[np.uint64],
) -> None:
    """Evaluate a program on rows of its leaves; the result is stack[0], where it is true.

    The stack holds two rows for each step: where it is true, and where it is false.
    """
    width = stack.shape[2]
    depth = 0
    for place in range(len(program)):
        code = program[place]
        if code >= 0:
            for word in range(width):
                stack[depth, 0, word] = when_true[code, word]
                stack[depth, 1, word] = when_false[code, word]
            depth += 1
            continue
        op, terms = (-code - 1) % 4, (-code - 1) // 4
        depth -= terms
        for word in range(width):
            true, false = stack[depth, 0, word], stack[depth, 1, word]
            if op == OP_NOT:
                true, false = false, true
            for term in range(depth + 1, depth + terms):
                other, unlike = stack[term, 0, word], stack[term, 1, word]
                if op == OP_AND:
                    true, false = true & other, false | unlike
                elif op == OP_OR:
                    true, false = true | other, false & unlike
                else:
                    true, false = (
                        (true & unlike) | (false & other),
                        (true & other) | (false & unlike),
                    )
            stack[depth, 0, word], stack[depth, 1, word] = true, false
        depth += 1


@kernel
def count_matches(matched: NDArray[np.uint64], counts: NDArray[np.int64]) -> None:
    """Add to each event's count the subscriptions whose bit is set."""
    for row in range(len(matched)):
        for word in range(matched.shape[1]):
            bits, event = matched[row, word], word << 6
            while bits:
                counts[event] += np.int64(bits & np.uint64(1))
                bits >>= np.uint64(1)
                event += 1


@kernel
def list_matches(
    matched: NDArray[np.uint64], places: NDArray[np.int64], members: NDArray[np.int32]
) -> None:
    """Write for each event the rows whose bit is set, from places[event] on, and move that."""
    for row in range(len(matched)):
        for word in range(matched.shape[1]):
            bits, event = matched[row, word], word << 6
            while bits:
                if bits & np.uint64(1):
                    members[places[event]] = row
                    places[event] += 1
                bits >>= np.uint64(1)
                event += 1


class Graphs(NamedTuple):
    """Programs that are evaluated as they are, for all events at once."""

    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    members: NDArray[np.int32]
    """For each program its row in the result."""
    sides: Regions
    """The sides of leaves that the programs need."""
    guard: NDArray[np.int32]
    """For each of those a variable that must be false as well, or NONE."""
    row: NDArray[np.int32]
    """For side s of leaf i, at 2 * i + s: which of those it is, or NONE."""


@kernel
def mark_needed_sides(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    scratch: Scratch,
    needed: NDArray[np.bool_],
) -> None:
    """Find the sides of leaves that the truth of some programs needs."""
    for number in range(len(starts) - 1):
        program = codes[starts[number] : starts[number + 1]]
        mark_sides(program, scratch)
        for place in range(len(program)):
            if program[place] >= 0:
                for side in range(2):
                    if scratch.sides[place] >> side & 1:
                        needed[2 * program[place] + side] = True


@kernel
def deny_guarded(
    guard: NDArray[np.int32], rows: NDArray[np.uint64], side_rows: NDArray[np.uint64]
) -> None:
    """Take from each side the events for which its guard is true."""
    for side in range(len(guard)):
        if guard[side] != NONE:
            for word in range(side_rows.shape[1]):
                side_rows[side, word] &= ~rows[guard[side], word]


@kernel
def evaluate_graphs(
    graphs: Graphs,
    side_rows: NDArray[np.uint64],
    scratch: Scratch,
    stack: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate programs on all events of the rows, only the sides that each step needs."""
    width = side_rows.shape[1]
    for number in range(len(graphs.members)):
        program = graphs.codes[graphs.starts[number] : graphs.starts[number + 1]]
        mark_sides(program, scratch)
        depth = 0
        for place in range(len(program)):
            code, sides = program[place], scratch.sides[place]
            if code >= 0:
                for side in range(2):
                    if sides >> side & 1:
                        row, target = side_rows[graphs.row[2 * code + side]], stack[depth, side]
                        for word in range(width):
                            target[word] = row[word]
                depth += 1
                continue
            op, terms = (-code - 1) % 4, (-code - 1) // 4
            depth -= terms
            true, false = stack[depth, 0], stack[depth, 1]
            if op == OP_NOT:
                for word in range(width):
                    true[word], false[word] = false[word], true[word]
            for term in range(depth + 1, depth + terms):
                other, unlike = stack[term, 0], stack[term, 1]
                if op == OP_XOR:
                    for word in range(width):
                        odd = (true[word] & unlike[word]) | (false[word] & other[word])
                        false[word] = (true[word] & other[word]) | (false[word] & unlike[word])
                        true[word] = odd
                    continue
                if sides & _TRUE_SIDE:
                    if op == OP_AND:
                        for word in range(width):
                            true[word] &= other[word]
                    else:
                        for word in range(width):
                            true[word] |= other[word]
                if sides & _FALSE_SIDE:
                    if op == OP_AND:
                        for word in range(width):
                            false[word] |= unlike[word]
                    else:
                        for word in range(width):
                            false[word] &= unlike[word]
            depth += 1
        target = matched[graphs.members[number]]
        for word in range(len(target)):
            target[word] = stack[0, 0, word]
