"""The decision diagram: shared nodes, one per function, that know how cuts of a line depend.

A variable is either free, or a cut of a line ("the attribute lies left of p"). The cuts of one
line are neighbours in the order, ascending. Where one is true, all later ones of its line are; so
the high child of a cut never asks about the same line again, and a cut that makes no difference
on either side of it is never built. What is left is the plain reduced form of Bryant, and it is
canonical: two functions that agree on every possible assignment have the same node.
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
    Store,
    chain,
    combine,
    grown,
    make_node,
    new_store,
    under,
)
from tamis.errors import TamisError

Node = int

# Most questions need less room than this, and clearing more would take longer than answering.
FIRST_ROOM: Final = 1 << 10
MOST_ROOM: Final = 1 << 22


class BudgetExceededError(TamisError):
    """The work on a diagram passed its budget; relations turn this into their safe answer."""


class Diagram:
    """Nodes over a fixed order of variables, built bottom up within a budget of steps."""

    def __init__(self, lines: Sequence[int], budget: int) -> None:
        """Make an empty diagram; `lines` gives for each variable its line, or FREE."""
        self.store = new_store(np.array(lines, np.int32), nodes=FIRST_ROOM, steps=budget)

    def __len__(self) -> int:
        return int(self.store.counters[0])

    @property
    def variable(self) -> Sequence[int]:
        """Return for each node the variable it asks for."""
        return list(map(int, self.store.variable[: len(self)]))

    @property
    def low(self) -> Sequence[Node]:
        """Return for each node where it leads if the variable is false."""
        return list(map(int, self.store.low[: len(self)]))

    @property
    def high(self) -> Sequence[Node]:
        """Return for each node where it leads if the variable is true."""
        return list(map(int, self.store.high[: len(self)]))

    def literal(self, variable: int) -> Node:
        """Return the function that is the variable itself."""
        return self._with_room(lambda store: make_node(store, variable, FALSE, TRUE))

    def cells(self, variables: Sequence[int], cells: int) -> Node:
        """Return where a line lies in some of its cells, given as a bit mask."""
        inside = [cells >> number & 1 for number in range(len(variables) + 1)]
        cuts, sides = np.array(variables, np.int64), np.array(inside, np.bool_)
        return self._with_room(lambda store: chain(store, cuts, sides))

    def both(self, f: Node, g: Node) -> Node:
        """Return f and g."""
        return self._with_room(lambda store: combine(store, AND, f, g))

    def differ(self, f: Node, g: Node) -> Node:
        """Return f xor g."""
        return self._with_room(lambda store: combine(store, XOR, f, g))

    def negate(self, f: Node) -> Node:
        """Return not f."""
        return self.differ(f, TRUE)

    def either(self, f: Node, g: Node) -> Node:
        """Return f or g."""
        return self._with_room(lambda store: combine(store, OR, f, g))

    def all(self, nodes: Sequence[Node]) -> Node:
        """Return the conjunction; from the last, which is deepest in the order if any is."""
        result = TRUE
        for node in reversed(nodes):
            result = self.both(node, result)
        return result

    def any(self, nodes: Sequence[Node]) -> Node:
        """Return the disjunction, likewise."""
        result = FALSE
        for node in reversed(nodes):
            result = self.either(node, result)
        return result

    def _with_room(self, work: Callable[[Store], Node]) -> Node:
        """Return the node that some work makes, with more room as long as it lacks that."""
        node = work(self.store)
        while node == NONE:
            room = 8 * len(self.store.variable)
            if self.store.counters[1] < 0 or room > MOST_ROOM:
                raise BudgetExceededError("the comparison of the filters passed its budget")
            self.store = grown(self.store, room)
            node = work(self.store)
        return node

    def paths(self, root: Node) -> Iterator[dict[int, bool]]:
        """Yield the ways to true: which variables are asked, and their answers."""
        # A path is a chain of steps that its siblings share, made a dict only when it is wanted.
        waiting: list[tuple[Node, _Step | None]] = [(root, None)]
        variables, lows, highs = self.variable, self.low, self.high
        while waiting:
            node, step = waiting.pop()
            if node == TRUE:
                yield _answers(step)
            elif node != FALSE:
                variable = variables[node]
                waiting.append((lows[node], _Step(variable, False, step)))
                waiting.append((highs[node], _Step(variable, True, step)))

    def reachable(self, *roots: Node) -> list[Node]:
        """Return the inner nodes under the roots, parents before children."""
        variables, lows, highs = self.variable, self.low, self.high
        seen: set[Node] = set()
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if node > TRUE and node not in seen:
                seen.add(node)
                waiting += (lows[node], highs[node])
        return sorted(seen, key=lambda node: (variables[node], node))

    def assert_consistent(self) -> None:
        """Check what every operation relies on; for tests."""
        variables, lows, highs = self.variable, self.low, self.high
        seen = set(zip(variables[2:], lows[2:], highs[2:], strict=True))
        assert len(seen) == len(self) - 2, "every node is there once"  # noqa: S101
        for variable, low, high in seen:
            assert variables[low] > variable < variables[high], "order"  # noqa: S101
            assert under(self.store, variable, low) != high, "redundant node"  # noqa: S101
            assert under(self.store, variable, high) == high, "line asked twice"  # noqa: S101


class _Step(NamedTuple):
    variable: int
    answer: bool
    before: _Step | None


def _answers(step: _Step | None) -> dict[int, bool]:
    answers = {}
    while step is not None:
        answers[step.variable] = step.answer
        step = step.before
    return answers
