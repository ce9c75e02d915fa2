"""What a program is found by: literals of which one is true wherever the program is, and probes."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.covering.program_kernels import (
    ATOM_WORDS,
    ATOMS,
    BEGIN_POINT,
    BELOW,
    END_POINT,
    FIRST_PROBE,
    FOUND,
    GIVEN_UP,
    HEADER,
    IS_POINT,
    LENGTH,
    LITERALS,
    LITERALS_AT,
    MAX_NODES,
    MAX_POINTS,
    MAX_PROBES,
    NODES,
    OP_AND,
    OP_ATOM,
    OP_CONSTANT,
    OP_NOT,
    OP_OR,
    OP_XOR,
    OPERATOR_BITS,
    PROBES,
    PROBES_AT,
    SEGMENT_BITS,
    SHARED_FIRST,
    UNFILED,
    Workspace,
    note_attributes,
    search,
)
from tamis.jit import borrowing

# A range is worth less than values under which as many are filed.
RANGE_PENALTY: Final = 16
_ENDLESS: Final = 1 << 40


class NodeCosts(NamedTuple):
    """What `write_description` notes of each node."""

    costs: Annotated[NDArray[np.int64], 2]
    """How many filters are where it would be filed: if it is to be true, false, or known."""
    sizes: NDArray[np.int32]
    """How many nodes it has, with those under it."""
    wanted: NDArray[np.uint8]
    """Which of the three is wanted, as a set."""


def new_node_costs() -> NodeCosts:
    """Return room for the nodes of a program."""
    return NodeCosts(
        np.empty((MAX_NODES, 3), np.int64),
        np.empty(MAX_NODES, np.int32),
        np.empty(MAX_NODES, np.uint8),
    )


# --- access literals --------------------------------------------------------------------------


@borrowing
def _literal_cost(
    words: NDArray[np.int32],
    at: int,
    row: int,
    mask: int,
    point_heads: NDArray[np.int64],
    range_heads: NDArray[np.int64],
) -> int:
    """Return how many filters are about where one with a literal would be filed."""
    cost = points = 0
    is_range = False
    first = at + words[row + 1]
    if words[first] & mask:
        return _ENDLESS
    for place in range(first + 1, at + words[row + ATOM_WORDS + 1]):
        segment = words[place]
        if segment & mask:
            points += 1
            is_range = is_range or not segment & IS_POINT
            cost += 1 + point_heads[2 * (segment >> SEGMENT_BITS), 1]
    if is_range or points > MAX_POINTS:
        return int(RANGE_PENALTY + range_heads[2 * words[row], 1])
    return int(cost)


@borrowing
def _find_costs(
    words: NDArray[np.int32],
    at: int,
    point_heads: NDArray[np.int64],
    range_heads: NDArray[np.int64],
    notes: NodeCosts,
) -> None:
    """Find the costs of each node."""
    costs, sizes = notes.costs, notes.sizes
    row = at + HEADER + words[at + NODES]
    for node in range(words[at + NODES]):
        word = words[at + HEADER + node]
        op, count = word & 7, word >> OPERATOR_BITS
        sizes[node] = 1
        if op == OP_ATOM:
            for wish in range(3):
                costs[node, wish] = _literal_cost(
                    words, at, row, wish + 1, point_heads, range_heads
                )
            row += ATOM_WORDS
        elif op == OP_CONSTANT:
            costs[node, 0] = _ENDLESS if count else 0
            costs[node, 1] = 0 if count else _ENDLESS
            costs[node, 2] = _ENDLESS
        elif op == OP_NOT:
            costs[node, 0], costs[node, 1] = costs[node - 1, 1], costs[node - 1, 0]
            costs[node, 2] = costs[node - 1, 2]
            sizes[node] += sizes[node - 1]
        else:
            term = node - 1
            least_true, least_false, least_known = _ENDLESS, _ENDLESS, _ENDLESS
            every_true = every_false = 0
            for _ in range(count):
                least_true = min(least_true, costs[term, 0])
                least_false = min(least_false, costs[term, 1])
                least_known = min(least_known, costs[term, 2])
                every_true = min(_ENDLESS, every_true + costs[term, 0])
                every_false = min(_ENDLESS, every_false + costs[term, 1])
                sizes[node] += sizes[term]
                term -= sizes[term]
            if op == OP_XOR:
                costs[node, 0] = costs[node, 1] = costs[node, 2] = least_known
            else:
                costs[node, 0] = least_true if op == OP_AND else every_true
                costs[node, 1] = every_false if op == OP_AND else least_false
                costs[node, 2] = min(_ENDLESS, costs[node, 0] + costs[node, 1])


@borrowing
def _pass_wish(notes: NodeCosts, node: int, count: int, wish: int, to_all: bool) -> None:
    """Wish something of all terms of a node, or of that where fewest are filed."""
    term = best = node - 1
    for _ in range(count):
        if to_all:
            notes.wanted[term] |= 1 << wish
        elif notes.costs[term, wish] < notes.costs[best, wish]:
            best = term
        term -= notes.sizes[term]
    if not to_all:
        notes.wanted[best] |= 1 << wish


@borrowing
def _write_access_literals(words: NDArray[np.int32], at: int, notes: NodeCosts) -> None:
    """Choose literals of which one is true wherever the program is."""
    nodes = words[at + NODES]
    place = at + words[at + LITERALS_AT]
    if notes.costs[nodes - 1, 0] >= _ENDLESS:
        words[at + LITERALS] = UNFILED
        words[at + PROBES_AT] = place - at
        return
    for node in range(nodes):
        notes.wanted[node] = node == nodes - 1
    atom = words[at + ATOMS]
    literals = 0
    for node in range(nodes - 1, -1, -1):
        word = words[at + HEADER + node]
        op, count = word & 7, word >> OPERATOR_BITS
        wanted = notes.wanted[node]
        if op == OP_ATOM:
            atom -= 1
            if wanted:
                # True is 1, false is 2, and known is either.
                words[place] = atom
                words[place + 1] = 3 if wanted & 4 else wanted
                place += 2
                literals += 1
        elif op == OP_NOT and wanted:
            notes.wanted[node - 1] |= (wanted & 4) | (wanted & 1) << 1 | (wanted & 2) >> 1
        elif op == OP_XOR and wanted:
            _pass_wish(notes, node, count, 2, False)
        elif op in (OP_AND, OP_OR):
            if wanted & 5:
                _pass_wish(notes, node, count, 0, op == OP_OR)
            if wanted & 6:
                _pass_wish(notes, node, count, 1, op == OP_AND)
    words[at + LITERALS] = literals
    words[at + PROBES_AT] = place - at


# --- probes -----------------------------------------------------------------------------------


@borrowing
def _upper_end(labels: NDArray[np.int64], work: Workspace, depth: int) -> int:
    """Return the last place of a cell that a search has chosen.

    What is true at the first place of a range and not all over it is most often false there.
    """
    low = labels[work.cells[work.chosen[depth]]]
    end = END_POINT
    for number in range(work.cell_ends[depth - 1] if depth else 0, work.cell_ends[depth]):
        point = work.cells[number]
        if low < labels[point] < labels[end]:
            end = point
    return BELOW - end


# --- all of it --------------------------------------------------------------------------------


@borrowing
def write_description(
    words: NDArray[np.int32],
    labels: NDArray[np.int64],
    point_heads: NDArray[np.int64],
    range_heads: NDArray[np.int64],
    work: Workspace,
    notes: NodeCosts,
) -> int:
    """Write the access literals and the probes of a program behind it; there is room for them.

    Return NO_EVENT if no event matches, and GIVEN_UP if none was found.
    """
    _find_costs(words, 0, point_heads, range_heads, notes)
    _write_access_literals(words, 0, notes)
    place = words[PROBES_AT]
    smallest, written = 1 << 30, 0
    attributes = note_attributes(words, 0, work, 0)
    for number in range(attributes):
        work.positions[work.attributes[number]] = 0
        work.counts[work.attributes[number]] = 0
    for number in range(MAX_PROBES):
        rotation = number * attributes // MAX_PROBES
        # An odd rotation tries high values first.
        rotation += (rotation + number) & 1
        found = search(words, 0, words, 0, 0, labels, work, rotation)
        if found == GIVEN_UP and not written:
            found = search(words, 0, words, 0, 0, labels, work, SHARED_FIRST)
        if found != FOUND:
            if written:
                break
            return found
        begin, size = place, 0
        for depth in range(attributes):
            point = work.cells[work.chosen[depth]]
            if point != BEGIN_POINT:
                words[place + 1] = work.attributes[depth]
                words[place + 2] = _upper_end(labels, work, depth) if rotation & 1 else point
                place += 2
                size += 1
        words[begin] = size
        place += 1
        # Programs are filed under breakpoints, so the first probe has no upper ends.
        if size < smallest and not rotation & 1:
            smallest = size
            words[FIRST_PROBE] = begin
        written += 1
    words[PROBES] = written
    words[LENGTH] = place
    return FOUND


@borrowing
def rename(
    words: NDArray[np.int32],
    points: NDArray[np.int32],
    attributes: NDArray[np.int32],
    is_known: bool,
) -> None:
    """Give the breakpoints and attributes of a program other numbers, or just mark them."""
    row = HEADER + words[NODES]
    for _ in range(words[ATOMS]):
        attribute = words[row]
        if is_known:
            words[row] = attributes[attribute]
        else:
            attributes[attribute] = 1
        for place in range(words[row + 1], words[row + ATOM_WORDS + 1]):
            point = words[place] >> SEGMENT_BITS
            if is_known:
                words[place] += (points[point] - point) << SEGMENT_BITS
            else:
                points[point] = 1
        row += ATOM_WORDS
    probe = words[PROBES_AT]
    for _ in range(words[PROBES]):
        # Its breakpoints are those of atoms.
        if is_known:
            for number in range(words[probe]):
                place = probe + 1 + 2 * number
                words[place] = attributes[words[place]]
                point = words[place + 1]
                words[place + 1] = points[point] if point >= 0 else BELOW - points[BELOW - point]
        probe += 1 + 2 * words[probe]
