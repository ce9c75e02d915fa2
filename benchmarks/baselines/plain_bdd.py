"""The paper's engine: a shared BDD over independent Boolean variables.

The variables are what section 4 of the paper calls atomic formulas, `= < >` and for texts
`= within contains`; `x <= c` is `x = c or x < c`, as it says. With `every=True` each of the 208
comparisons is a separate variable instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import truths
from benchmarks.baselines.bdd_kernels import (
    BOTTOM,
    FALSE,
    FRAME,
    RESERVE,
    TRUE,
    Store,
    add_programs,
    apply,
    make,
    mark,
    rehash,
    restrict_programs,
)
from benchmarks.baselines.eval_kernels import (
    HIGH,
    LABEL,
    LOW,
    VALUE,
    Diagram,
    Message,
    assign_messages,
    evaluate_records,
    evaluate_split,
)
from benchmarks.workloads.forms import AND, OR, XOR, Programs, Rows
from benchmarks.workloads.paper import ATOMS, FIELDS, PRIMITIVES, Atom, predicates_of, value_atom

# How comparisons are built from primitive ones; `!=` is negated.
PARTS = {"<=": ("=", "<"), ">=": ("=", ">"), "!=": ("=",)}

# Values in every position relative to the constants of the workload.
SAMPLES: dict[type, Sequence[int | float | str]] = {
    int: range(81),
    float: [half / 2 for half in range(162)],
    str: ["".join(text) for length in range(5) for text in product("abc", repeat=length)],
}

MOST_VARIABLES = 1024
FIRST_STORE = 1 << 20


class Leaves(NamedTuple):
    """The comparisons of a workload in terms of the variables."""

    node: NDArray[np.int32]
    variables: NDArray[np.int32]
    """Up to two for each comparison, -1 where there is one only."""


class Bdd:
    """A shared BDD of subscriptions, compact and in topological order.

    Evaluation follows the paper to the letter, with a record per node that holds its value too.
    `split=True` keeps the values in an array of bytes instead, which later machines prefer.
    """

    def __init__(self, diagram: Diagram, variables: Sequence[Atom]) -> None:
        self.diagram = diagram
        self.variables = variables
        self._records = _records(diagram)
        predicates = predicates_of(variables)
        self._message = Message(
            predicates,
            np.searchsorted(predicates.attribute, np.arange(len(FIELDS) + 1)),
            np.empty(len(variables), np.uint8),
            np.empty(self.node_count + 2, np.uint8),
        )

    @property
    def node_count(self) -> int:
        """Return how many nodes the subscriptions need, terminals not counted."""
        return len(self.diagram.label)

    def assign(self, rows: Rows) -> None:
        """Evaluate the atoms of every message and nothing else."""
        assign_messages(self._message, rows)

    def evaluate(self, rows: Rows, *, partial: bool = False, split: bool = False) -> None:
        """Run EvalBDD, or for partial messages MVEvalBDD, for every message in turn."""
        if split:
            evaluate_split(self.diagram, self._message, rows, partial)
        else:
            evaluate_records(self._records, self._message, rows, partial)

    def matches(self, *, split: bool = False) -> NDArray[np.int64]:
        """Return the subscriptions that the last message satisfies; not part of the algorithms."""
        value = self._message.value if split else self._records[:, VALUE]
        return np.nonzero(value[self.diagram.output] == truths.TRUE)[0]


def _records(diagram: Diagram) -> NDArray[np.int32]:
    records = np.zeros((len(diagram.label) + 2, 4), np.int32)
    records[:-2, LOW], records[:-2, HIGH] = diagram.low, diagram.high
    records[:-2, LABEL] = diagram.label
    records[-2:, VALUE] = truths.FALSE, truths.TRUE
    return records


class Builder:
    """Builds the BDD of one set of subscriptions, plain first and then restricted."""

    def __init__(self, programs: Programs, *, every: bool = False) -> None:
        self.variables = ATOMS if every else PRIMITIVES
        self._programs = programs
        self._store = _new_store(FIRST_STORE)
        self._leaves = self._make_leaves()
        self._roots = np.zeros(len(programs), np.int32)
        self._in_rounds(
            lambda first: add_programs(self._store, programs, self._leaves.node, first, self._roots)
        )

    def bdd(self) -> Bdd:
        """Return what has been built so far, without unreachable nodes."""
        reached = mark(self._store, self._roots)
        reached[:2] = False
        nodes = np.nonzero(reached)[0]
        nodes = nodes[np.argsort(self._store.variable[nodes], kind="stable")]
        number = np.empty(len(reached), np.int32)
        number[nodes] = np.arange(len(nodes))
        number[[FALSE, TRUE]] = len(nodes), len(nodes) + 1
        low, high = number[self._store.low[nodes]], number[self._store.high[nodes]]
        label = self._store.variable[nodes]
        return Bdd(Diagram(label, low, high, number[self._roots]), self.variables)

    def restrict(self) -> None:
        """Restrict every subscription by the dependencies of its own atoms (section 7)."""
        clause = self._make_clauses()
        self._in_rounds(
            lambda first: restrict_programs(
                self._store, self._programs, self._leaves.variables, clause, first, self._roots
            )
        )

    def _in_rounds(self, work: Callable[[int], int]) -> None:
        done = 0
        while (done := work(done)) < len(self._roots):
            self._store = _grown(self._store)

    def _make_leaves(self) -> Leaves:
        position = {atom: number for number, atom in enumerate(self.variables)}
        node = np.empty(len(ATOMS), np.int32)
        variables = np.full((len(ATOMS), 2), -1, np.int32)
        for number, atom in enumerate(ATOMS):
            ops = (atom.op,) if atom in position else PARTS[atom.op]
            parts = [position[atom._replace(op=op)] for op in ops]
            variables[number, : len(parts)] = parts
            joined = FALSE
            for part in parts:
                joined = apply(self._store, OR, joined, make(self._store, part, FALSE, TRUE))
            negated = atom.op == "!=" and atom not in position
            node[number] = apply(self._store, XOR, joined, TRUE) if negated else joined
        return Leaves(node, variables)

    def _make_clauses(self) -> NDArray[np.int32]:
        """Return the dependency of each pair of variables: the paper's d({u, v})."""
        clause = np.full((len(self.variables), len(self.variables)), TRUE, np.int32)
        truths = [_truths(atom) for atom in self.variables]
        for u, one in enumerate(self.variables):
            for v, other in enumerate(self.variables[:u]):
                if one.field == other.field:
                    clause[u, v] = clause[v, u] = self._clause(u, v, truths[u], truths[v])
        return clause

    def _clause(
        self, u: int, v: int, u_holds: NDArray[np.bool_], v_holds: NDArray[np.bool_]
    ) -> int:
        possible = TRUE
        for u_true, v_true in product((False, True), repeat=2):
            if not np.any((u_holds == u_true) & (v_holds == v_true)):
                either = apply(
                    self._store, OR, self._literal(u, not u_true), self._literal(v, not v_true)
                )
                possible = apply(self._store, AND, possible, either)
        return possible

    def _literal(self, variable: int, positive: bool) -> int:
        low, high = (FALSE, TRUE) if positive else (TRUE, FALSE)
        return make(self._store, variable, low, high)


def _truths(atom: Atom) -> NDArray[np.bool_]:
    accepts = value_atom(atom).accepts
    return np.array([accepts(value) for value in SAMPLES[FIELDS[atom.field].type]])


def _new_store(nodes: int) -> Store:
    size = 1 << (2 * nodes - 1).bit_length()
    memo = 1 << 20
    store = Store(
        variable=np.empty(nodes, np.int32),
        low=np.empty(nodes, np.int32),
        high=np.empty(nodes, np.int32),
        unique=np.zeros(size, np.int32),
        memo_key=np.zeros(memo, np.int64),
        memo=np.empty(memo, np.int32),
        used=np.array([2]),
        stack=np.empty((MOST_VARIABLES, FRAME), np.int32),
        restrict_stack=np.empty((MOST_VARIABLES, FRAME), np.int32),
        seen=np.zeros(nodes, np.int64),
        waiting=np.empty(MOST_VARIABLES, np.int32),
    )
    store.variable[:2] = BOTTOM
    store.low[:2] = store.high[:2] = FALSE, TRUE
    return store


def _grown(store: Store) -> Store:
    """Return the same nodes with twice the capacity."""
    bigger = _new_store(max(2 * len(store.variable), 4 * RESERVE))
    used = int(store.used[0])
    for old, new in zip(store[:3], bigger[:3], strict=True):
        new[:used] = old[:used]
    bigger.used[0] = used
    rehash(bigger)
    return bigger
