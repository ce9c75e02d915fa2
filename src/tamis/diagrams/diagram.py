"""The decision diagram: shared nodes, one per function, that know which variables imply others.

A variable is either free, or a breakpoint ("the attribute lies left of p"). The breakpoints of one
value order form a *chain*: they are neighbours in the variable order, ascending, and where one is
true, all later ones of its chain are. So the high child of a breakpoint never tests the same chain
again, and a breakpoint that makes no difference on either side of it is never built. The result is
Bryant's reduced form, and it is canonical: two functions that agree on every possible assignment
have the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from tamis.diagrams.kernels import (
    AND,
    FALSE,
    NONE,
    OR,
    TRUE,
    XOR,
    NodeTable,
    cell_chain,
    combine,
    grown,
    make_node,
    new_node_table,
    under,
)
from tamis.errors import TamisError

Node = int

# Most questions need fewer nodes than this, and clearing more would dominate the time.
FIRST_NODES: Final = 1 << 10
MAX_NODES: Final = 1 << 22


class BudgetExceededError(TamisError):
    """The work on a diagram exceeded its budget; relations turn this into their safe answer."""


class Nodes(NamedTuple):
    """For each node its variable, and its low and high child."""

    variables: list[int]
    lows: list[Node]
    highs: list[Node]


class Diagram:
    """Nodes over a fixed order of variables, built bottom up within a budget of steps."""

    def __init__(self, chains: Sequence[int], budget: int) -> None:
        """Make an empty diagram; `chains` gives for each variable its chain, or FREE."""
        self.budget: Final = budget
        self.table = new_node_table(np.array(chains, np.int32), nodes=FIRST_NODES, steps=budget)

    def __len__(self) -> int:
        return int(self.table.counters[0])

    def nodes(self) -> Nodes:
        """Return all nodes as lists, for walks in plain Python."""
        table, count = self.table, len(self)
        columns = (table.variable, table.low, table.high)
        return Nodes(*(column[:count].tolist() for column in columns))

    def literal(self, variable: int) -> Node:
        """Return the function that is the variable itself."""
        return self._with_room(lambda table: make_node(table, variable, FALSE, TRUE))

    def cells(self, variables: Sequence[int], cells: int) -> Node:
        """Return where an attribute lies in some cells of its partition, given as a bit mask."""
        inside = [cells >> number & 1 for number in range(len(variables) + 1)]
        breakpoints, sides = np.array(variables, np.int64), np.array(inside, np.bool_)
        return self._with_room(lambda table: cell_chain(table, breakpoints, sides))

    def both(self, f: Node, g: Node) -> Node:
        """Return f and g."""
        return self._with_room(lambda table: combine(table, AND, f, g))

    def differ(self, f: Node, g: Node) -> Node:
        """Return f xor g."""
        return self._with_room(lambda table: combine(table, XOR, f, g))

    def negate(self, f: Node) -> Node:
        """Return not f."""
        return self.differ(f, TRUE)

    def either(self, f: Node, g: Node) -> Node:
        """Return f or g."""
        return self._with_room(lambda table: combine(table, OR, f, g))

    def all(self, nodes: Sequence[Node]) -> Node:
        """Return the conjunction, starting from the last, usually the deepest in the order."""
        result = TRUE
        for node in reversed(nodes):
            result = self.both(node, result)
        return result

    def any(self, nodes: Sequence[Node]) -> Node:
        """Return the disjunction, in the same order."""
        result = FALSE
        for node in reversed(nodes):
            result = self.either(node, result)
        return result

    def _with_room(self, work: Callable[[NodeTable], Node]) -> Node:
        """Return the node that `work` makes, growing the table as long as it runs out of room."""
        node = work(self.table)
        while node == NONE:
            room = 8 * len(self.table.variable)
            if self.table.counters[1] < 0 or room > MAX_NODES:
                raise BudgetExceededError("the comparison of the filters exceeded its budget")
            self.table = grown(self.table, room)
            node = work(self.table)
        return node

    def paths(self, root: Node) -> Iterator[dict[int, bool]]:
        """Yield the paths to true: the variables tested on each, with their values."""
        # A path is a linked list that shares its steps with its siblings.
        waiting: list[tuple[Node, _PathStep | None]] = [(root, None)]
        variables, lows, highs = self.nodes()
        while waiting:
            node, step = waiting.pop()
            if node == TRUE:
                yield _answers(step)
            elif node != FALSE:
                variable = variables[node]
                waiting.append((lows[node], _PathStep(variable, False, step)))
                waiting.append((highs[node], _PathStep(variable, True, step)))

    def reachable(self, *roots: Node) -> list[Node]:
        """Return the inner nodes under the roots, parents before children."""
        variables, lows, highs = self.nodes()
        seen: set[Node] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node > TRUE and node not in seen:
                seen.add(node)
                waiting += (lows[node], highs[node])
        return sorted(seen, key=lambda node: (variables[node], node))

    def assert_consistent(self) -> None:
        """Check the invariants; for tests."""
        variables, lows, highs = self.nodes()
        seen = set(zip(variables[2:], lows[2:], highs[2:], strict=True))
        assert len(seen) == len(self) - 2, "every node is there once"  # noqa: S101
        for variable, low, high in seen:
            assert variables[low] > variable < variables[high], "order"  # noqa: S101
            assert under(self.table, variable, low) != high, "redundant node"  # noqa: S101
            assert under(self.table, variable, high) == high, "chain asked twice"  # noqa: S101


class _PathStep(NamedTuple):
    variable: int
    answer: bool
    before: _PathStep | None


def _answers(step: _PathStep | None) -> dict[int, bool]:
    answers = {}
    while step is not None:
        answers[step.variable] = step.answer
        step = step.before
    return answers
