"""Writing out a shared graph of expressions as postfix programs."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.forms import NOT, XOR
from tamis.jit import kernel

XNOR: Final = 4

_NOT_1 = -1 - (NOT | 1 << 2)


class Graph(NamedTuple):
    """Nodes over predicates; predicates have the first numbers, children come before parents."""

    op: NDArray[np.int8]
    start: NDArray[np.int64]
    children: NDArray[np.int32]


@kernel
def tree_sizes(graph: Graph, tests: int) -> NDArray[np.int64]:
    """Return how many tokens each node of the graph is when written out."""
    sizes = np.empty(len(graph.op), np.int64)
    for node in range(len(graph.op)):
        size = 2 if graph.op[node] == XNOR else 1
        for place in range(graph.start[node], graph.start[node + 1]):
            child = graph.children[place]
            size += 1 if child < tests else sizes[child - tests]
        sizes[node] = size
    return sizes


@kernel
def fill_programs(
    graph: Graph, tests: int, start: NDArray[np.int64], code: NDArray[np.int32]
) -> None:
    """Write the last nodes of the graph as programs, each from its end."""
    count = len(start) - 1
    stack = np.empty(1 << 16, np.int32)
    for program in range(count):
        end = start[program + 1]
        stack[0] = tests + len(graph.op) - count + program
        depth = 1
        while depth > 0:
            depth -= 1
            end -= 1
            if stack[depth] < tests:
                code[end] = stack[depth]
                continue
            node = stack[depth] - tests
            first, last = graph.start[node], graph.start[node + 1]
            op = graph.op[node]
            if op == XNOR:
                code[end] = _NOT_1
                end -= 1
                op = XOR
            code[end] = -1 - (op | (last - first) << 2)
            for place in range(first, last):
                stack[depth] = graph.children[place]
                depth += 1
