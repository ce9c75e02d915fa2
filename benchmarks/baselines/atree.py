"""A straightforward A-Tree (Ji and Jacobsen, SIGMOD 2021) for mode `sql`.

It has the paper's shared graph and both optimizations (zero suppression, propagation on demand),
but no self-adjustment: it is built once from all expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.atree_building import (
    Demand,
    Nodes,
    Shared,
    choose_children,
    find_demand,
    find_roots,
    listen,
    make_nodes,
    share,
)
from benchmarks.baselines.atree_kernels import (
    CHILDREN,
    CHILDREN_END,
    KIND,
    LEVEL,
    NEVER,
    PARENTS,
    RECORD,
    RESULTS,
    RESULTS_END,
    WHEN,
    Progress,
    Tree,
    match_event,
    match_events,
)
from benchmarks.baselines.counting import value_base
from benchmarks.baselines.index_kernels import Index, Leaves, build_index
from benchmarks.workloads.events import Field
from benchmarks.workloads.forms import NOT, Predicates, Programs, Rows


class ATreeMatcher:
    """Any Boolean expressions over small whole numbers, one event at a time."""

    def __init__(self, fields: Sequence[Field], predicates: Predicates, programs: Programs) -> None:
        count = len(predicates.op)
        shared = share(programs, count, int((programs.code < 0).sum()))
        origin, is_true, level = _by_level(shared, find_demand(shared, count), count)
        number = np.full((count + len(shared.op), 2), -1, np.int32)
        number[origin, is_true.astype(np.int64)] = np.arange(len(origin))
        nodes = make_nodes(shared, count, origin, is_true, number)
        leaves = int(np.searchsorted(level, 1))
        index = build_index(
            predicates, Leaves(origin[:leaves], ~is_true[:leaves]), value_base(fields)
        )
        choose_children(nodes, _chances(index, nodes, fields))
        parent_start, parents = listen(nodes)
        roots = find_roots(shared, count, number)
        self._tree = Tree(
            index,
            _records(nodes, level, parent_start, np.sort(roots)),
            np.searchsorted(level, np.arange(level[-1] + 2)),
            nodes.children,
            parents,
            np.argsort(roots, kind="stable").astype(np.int32),
        )
        self._progress = Progress(
            np.empty(len(origin), np.int32), np.empty(int(level[-1]) + 1, np.int64)
        )
        self._out = np.empty(len(programs), np.int32)
        self._now = 0

    @property
    def node_count(self) -> int:
        """Return how many nodes there are, leaves included."""
        return len(self._tree.nodes) - 1

    @property
    def nbytes(self) -> int:
        """Return the memory of the whole structure."""
        arrays = (*self._tree.by_value, *self._tree[1:], *self._progress)
        return sum(array.nbytes for array in arrays)

    def match(self, rows: Rows, event: int) -> NDArray[np.int32]:
        """Return the subscriptions that one event satisfies."""
        self._now += 1
        found = match_event(self._tree, rows, event, self._progress, self._now, self._out)
        return self._out[:found].copy()

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """Match every event in turn, and return how many subscriptions each satisfied."""
        counts = match_events(self._tree, rows, self._progress, self._now + 1, self._out)
        self._now += len(counts)
        return counts


def _by_level(
    shared: Shared, demand: Demand, predicates: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.int8]]:
    """Return the origin of each node by level, whether it stands for true, and its level."""
    is_node = np.ones(len(demand.true), np.bool_)
    is_node[predicates:] = shared.op != NOT
    true = np.nonzero(demand.true & is_node)[0]
    false = np.nonzero(demand.false & is_node)[0]
    origin = np.concatenate((true, false)).astype(np.int32)
    is_true = np.arange(len(origin)) < len(true)
    order = np.argsort(demand.level[origin], kind="stable")
    return origin[order], is_true[order], demand.level[origin[order]]


def _records(
    nodes: Nodes,
    level: NDArray[np.int8],
    parent_start: NDArray[np.int64],
    roots: NDArray[np.int32],
) -> NDArray[np.int32]:
    records = np.zeros((len(level) + 1, RECORD), np.int32)
    records[:-1, KIND], records[:-1, LEVEL], records[:, WHEN] = nodes.kind, level, NEVER
    records[:-1, CHILDREN] = nodes.child_start[:-1]
    records[:-1, CHILDREN_END] = nodes.child_start[1:]
    records[:, PARENTS] = parent_start
    places = np.searchsorted(roots, np.arange(len(records) + 1))
    records[:, RESULTS], records[:, RESULTS_END] = places[:-1], places[1:]
    return records


def _chances(index: Index, nodes: Nodes, fields: Sequence[Field]) -> NDArray[np.float64]:
    """Return how often each leaf is true if all values are equally likely; 1 for other nodes.

    As if an event had one attribute: the children of a node are only compared with each other.
    """
    chance = np.ones(len(nodes.kind))
    widths = np.diff(index.base)
    share_of_value = np.repeat(1.0 / (widths * len(fields)), widths)
    per_entry = np.repeat(share_of_value, np.diff(index.start))
    found = np.bincount(index.leaves, per_entry)
    chance[: len(found)] = found
    return chance
