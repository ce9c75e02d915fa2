"""Arbitrary Boolean expressions as ABE-Gen of the A-Tree paper draws them.

They are drawn as a graph in arrays, not by the shipped workload `abe`: the A-Tree shares the
sub-expressions as drawn, and the text of a filter does not keep them (`a and (b and c)` is one
conjunction of three). The distributions are the same; the tests compare them.

The parameters are the paper's; where it leaves something open, we chose. Depth counts levels, the
predicates being the first, so that depth 3 is a 4 × 4 tree. Each level below the root has a pool
of as many sub-expressions as there are expressions, from which the level above draws by Zipf.
`not` has one operand; `xor` and `xnor` have as many as the others and mean parity. Predicates:
40 % `=`, 4 % `!=`, 36 % `< <= > >=`, 10 % `between` 2 to 30 values, 10 % `in` three values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.boolean_kernels import XNOR, Graph, fill_programs, tree_sizes
from benchmarks.workloads.drawn import collector_paused
from benchmarks.workloads.events import Events, Field
from benchmarks.workloads.forms import (
    AND,
    BETWEEN,
    COMPARISONS,
    EQ,
    GE,
    GT,
    IN,
    LE,
    LT,
    NE,
    NOT,
    OR,
    XOR,
    Predicates,
    Programs,
    Rows,
)
from tamis.filters import Filter
from tamis.filters.boolean import And, Not, Or, Xor
from tamis.filters.build import between, comparison_of, membership_of

OPERATORS: Final = {AND: 0.40, OR: 0.40, NOT: 0.10, XOR: 0.05, XNOR: 0.05}
TESTS: Final = (
    {EQ: 0.40, NE: 0.04} | dict.fromkeys((LT, LE, GT, GE), 0.09) | {BETWEEN: 0.1, IN: 0.1}
)
WIDEST: Final = 30
LISTED: Final = 3


JOIN: dict[int, Callable[[Sequence[Filter]], Filter]] = {
    AND: And.of,
    OR: Or.of,
    XOR: Xor.of,
    NOT: lambda terms: Not.of(terms[0]),
}


class Shape(NamedTuple):
    """The parameters of ABE-Gen."""

    depth: int = 3
    children: int = 4
    attributes: int = 1000
    cardinality: int = 100
    zipf: float = 0.6
    per_event: int = 20


DEFAULT: Final = Shape()


class _Level(NamedTuple):
    op: NDArray[np.int8]
    arity: NDArray[np.int64]


class Workload:
    """Expressions as the roots of one graph, which shares sub-expressions as they were drawn."""

    def __init__(self, shape: Shape, tests: Predicates, graph: Graph, count: int) -> None:
        self.shape = shape
        self.predicates = tests
        self.graph = graph
        self.count = count
        names = range(shape.attributes)
        self.fields = tuple(Field(f"f{n}", int, shape.cardinality) for n in names)

    @cached_property
    def programs(self) -> Programs:
        """Return the expressions written out, without any sharing."""
        tests = len(self.predicates.op)
        sizes = tree_sizes(self.graph, tests)
        start = np.zeros(self.count + 1, np.int64)
        np.cumsum(sizes[-self.count :], out=start[1:])
        code = np.empty(start[-1], np.int32)
        fill_programs(self.graph, tests, start, code)
        return Programs(code, start)

    @cached_property
    def nodes(self) -> list[Filter]:
        """Return a filter for each node of the graph; the sharing is kept."""
        nodes = number_atoms(self.fields, self.predicates)
        children, start = self.graph.children.tolist(), self.graph.start.tolist()
        with collector_paused():
            for op, first, last in zip(self.graph.op.tolist(), start, start[1:], strict=False):
                terms = [nodes[child] for child in children[first:last]]
                nodes.append(Not.of(Xor.of(terms)) if op == XNOR else JOIN[op](terms))
        return nodes

    def filters(self, first: int = 0, last: int | None = None) -> list[Filter]:
        """Return the subscriptions, or some of them, as filters."""
        return self.nodes[-self.count :][first:last]

    def events(self, count: int, seed: int) -> Events:
        """Return events with a few of the attributes each."""
        rng = np.random.default_rng((seed, 2))
        attributes = distinct(rng, count, self.shape.attributes, self.shape.per_event)
        values = rng.integers(self.shape.cardinality, size=attributes.shape).astype(np.float64)
        start = np.arange(count + 1, dtype=np.int64) * self.shape.per_event
        return Events(self.fields, Rows(start, attributes.reshape(-1), values.reshape(-1)))


def subscriptions(count: int, seed: int, shape: Shape = DEFAULT) -> Workload:
    """Draw expressions, from the pool of predicates up."""
    rng = np.random.default_rng((seed, 1))
    levels = [_operators(rng, count, shape) for _ in range(shape.depth - 1)]
    tests, lowest = _tests(rng, int(levels[0].arity.sum()), shape)
    children = [lowest]
    for number, level in enumerate(levels[1:]):
        pool = len(tests.op) + number * count
        drawn = pool + zipf(rng, int(level.arity.sum()), count, shape.zipf)
        children.append(drawn.astype(np.int32))
    start = np.zeros(count * len(levels) + 1, np.int64)
    np.cumsum(np.concatenate([level.arity for level in levels]), out=start[1:])
    op = np.concatenate([level.op for level in levels])
    return Workload(shape, tests, Graph(op, start, np.concatenate(children)), count)


def _operators(rng: np.random.Generator, count: int, shape: Shape) -> _Level:
    op = rng.choice(list(OPERATORS), count, p=list(OPERATORS.values())).astype(np.int8)
    return _Level(op, np.where(op == NOT, 1, shape.children))


def _tests(
    rng: np.random.Generator, size: int, shape: Shape
) -> tuple[Predicates, NDArray[np.int32]]:
    """Draw `size` predicates; return the distinct ones, and the number of each that was drawn."""
    drawn = np.zeros((size, 2 + LISTED), np.int16)
    drawn[:, 0] = rng.integers(shape.attributes, size=size)
    op = drawn[:, 1] = rng.choice(list(TESTS), size, p=list(TESTS.values()))
    drawn[:, 2] = rng.integers(shape.cardinality, size=size)
    ranges = op == BETWEEN
    width = rng.integers(2, WIDEST + 1, size=int(ranges.sum()))
    drawn[ranges, 3] = np.minimum(drawn[ranges, 2] + width, shape.cardinality) - 1
    lists = op == IN
    drawn[lists, 2:] = distinct(rng, int(lists.sum()), shape.cardinality, LISTED)
    found, number = _unique_rows(drawn)
    return _predicates(found), number


def _unique_rows(rows: NDArray[np.int16]) -> tuple[NDArray[np.int16], NDArray[np.int32]]:
    key = np.zeros(len(rows), np.int64)
    for column in rows.T:
        key = key << 12 | column
    _, first, number = np.unique(key, return_index=True, return_inverse=True)
    return rows[first], number.astype(np.int32)


def _predicates(rows: NDArray[np.int16]) -> Predicates:
    op = rows[:, 1].astype(np.int8)
    member_start = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.where(op == IN, LISTED, 0), out=member_start[1:])
    return Predicates(
        attribute=rows[:, 0].astype(np.int32),
        op=op,
        low=rows[:, 2].astype(np.float64),
        high=rows[:, 3].astype(np.float64),
        member_start=member_start,
        members=rows[op == IN, 2:].reshape(-1).astype(np.float64),
        texts=np.zeros((0, 0), np.bool_),
    )


# --- random choices that NumPy does not have -----------------------------------------------------


def distinct(rng: np.random.Generator, rows: int, choices: int, width: int) -> NDArray[np.int32]:
    """Return rows of different numbers below `choices`, ascending."""
    drawn = np.empty((rows, width), np.int32)
    if width**2 > 2 * choices:
        # Few rows would be without repetition: shuffle all choices instead.
        every = np.tile(np.arange(choices, dtype=np.int32), (rows, 1))
        drawn[:] = np.sort(rng.permuted(every, axis=1)[:, :width], axis=1)
        return drawn
    again = np.arange(rows)
    while len(again):
        drawn[again] = np.sort(rng.integers(choices, size=(len(again), width)), axis=1)
        again = again[np.any(drawn[again, 1:] == drawn[again, :-1], axis=1)]
    return drawn


def zipf(rng: np.random.Generator, size: int, choices: int, exponent: float) -> NDArray[np.int64]:
    """Return numbers below `choices`, the r-th with a weight of r ** -exponent."""
    weights = np.cumsum(np.arange(1, choices + 1, dtype=np.float64) ** -exponent)
    found: NDArray[np.int64] = np.searchsorted(
        weights, rng.random(size) * weights[-1], side="right"
    )
    return found


# --- filters -------------------------------------------------------------------------------------


def number_atoms(fields: Sequence[Field], predicates: Predicates) -> list[Filter]:
    """Return the atom of each predicate on whole numbers."""
    with collector_paused():
        return [
            _atom(fields[attribute].name, op, (int(low), int(high)), _members(predicates, number))
            for number, (attribute, op, low, high) in enumerate(
                zip(
                    predicates.attribute.tolist(),
                    predicates.op.tolist(),
                    predicates.low.tolist(),
                    predicates.high.tolist(),
                    strict=True,
                )
            )
        ]


def _atom(name: str, op: int, ends: tuple[int, int], members: list[int]) -> Filter:
    if op == BETWEEN:
        return between(name, *ends)
    if op == IN:
        return membership_of(name, members)
    return comparison_of(name, COMPARISONS[op], ends[0])


def _members(predicates: Predicates, number: int) -> list[int]:
    if predicates.op[number] != IN:
        return []
    first, last = predicates.member_start[number : number + 2]
    return [int(value) for value in predicates.members[first:last]]
