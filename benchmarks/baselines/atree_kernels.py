"""The A-Tree: expressions as one graph, evaluated from the satisfied predicates upwards.

Only true values are propagated ("zero suppression"). Negations are pushed down to the predicates,
so a sub-expression has up to two nodes, one for true and one for false; unknown is neither. A node
for `and` or a parity listens only to the child that is least often true, and looks at the others
when that one is true ("propagation on demand"), so evaluation goes level by level.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.index_kernels import Index
from benchmarks.workloads.forms import Rows
from tamis.jit import kernel

LEAF, ALL, ANY, ODD, EVEN = range(5)
NEVER: Final = -1

# The data of a node are adjacent, so that visiting it costs one cache miss.
KIND, LEVEL, WHEN, CHILDREN, CHILDREN_END, PARENTS, RESULTS, RESULTS_END = range(8)
RECORD: Final = 8


class Tree(NamedTuple):
    """Nodes by level, the leaves first, and an empty one at the end."""

    by_value: Index
    nodes: NDArray[np.int32]
    """A record each: its kind, its level, the last event for which it was true, its lists."""
    level_start: NDArray[np.int64]
    """One entry more than levels."""
    children: NDArray[np.int32]
    """Of a parity by twos: the child being true, and being false."""
    parents: NDArray[np.int32]
    """The nodes that listen to a node; they end where those of the next begin."""
    results: NDArray[np.int32]
    """The subscriptions whose expression a node is."""


class Progress(NamedTuple):
    """The state of one event's evaluation."""

    queue: NDArray[np.int32]
    """Nodes to look at, those of each level from `level_start` on."""
    queued: NDArray[np.int64]
    """How many there are of each level."""


@kernel
def match_event(
    tree: Tree, rows: Rows, event: int, progress: Progress, now: int, out: NDArray[np.int32]
) -> int:
    """Write the subscriptions that an event satisfies, and return how many they are."""
    index, matched = tree.by_value, 0
    progress.queued[:] = 0
    for place in range(rows.start[event], rows.start[event + 1]):
        value = index.base[rows.attribute[place]] + int(rows.value[place])
        for leaf in index.leaves[index.start[value] : index.start[value + 1]]:
            matched = _became_true(tree, progress, leaf, now, out, matched)
    for level in range(1, len(tree.level_start) - 1):
        first = tree.level_start[level]
        for place in range(first, first + progress.queued[level]):
            node = progress.queue[place]
            if tree.nodes[node, KIND] == ANY or _is_true(tree, node, now):
                matched = _became_true(tree, progress, node, now, out, matched)
    return matched


@kernel
def _became_true(
    tree: Tree, progress: Progress, node: int, now: int, out: NDArray[np.int32], matched: int
) -> int:
    """Report a node's subscriptions and notify the nodes that listen to it."""
    tree.nodes[node, WHEN] = now
    for place in range(tree.nodes[node, RESULTS], tree.nodes[node, RESULTS_END]):
        out[matched] = tree.results[place]
        matched += 1
    for place in range(tree.nodes[node, PARENTS], tree.nodes[node + 1, PARENTS]):
        parent = tree.parents[place]
        if tree.nodes[parent, KIND] == ANY:
            if tree.nodes[parent, WHEN] == now:
                continue
            tree.nodes[parent, WHEN] = now
        level = tree.nodes[parent, LEVEL]
        progress.queue[tree.level_start[level] + progress.queued[level]] = parent
        progress.queued[level] += 1
    return matched


@kernel
def _is_true(tree: Tree, node: int, now: int) -> bool:
    """Evaluate a node after its first child became true."""
    kind = tree.nodes[node, KIND]
    first, last = tree.nodes[node, CHILDREN], tree.nodes[node, CHILDREN_END]
    if kind == ALL:
        for place in range(first + 1, last):
            if tree.nodes[tree.children[place], WHEN] != now:
                return False
        return True
    odd = False
    for place in range(first, last, 2):
        if tree.nodes[tree.children[place], WHEN] == now:
            odd = not odd
        elif tree.nodes[tree.children[place + 1], WHEN] != now:
            return False
    return bool(odd == (kind == ODD))


@kernel
def match_events(
    tree: Tree, rows: Rows, progress: Progress, now: int, out: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Match events one after the other, and return how many subscriptions each satisfied."""
    counts = np.empty(len(rows.start) - 1, np.int64)
    for event in range(len(counts)):
        counts[event] = match_event(tree, rows, event, progress, now + event, out)
    return counts
