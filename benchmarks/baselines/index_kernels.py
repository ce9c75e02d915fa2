"""Which predicates a value satisfies, as a list for every value of every attribute.

The values of these workloads are small whole numbers, so lists are addressed directly: the fastest
index possible, at the price of memory for wide predicates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.truths import holds
from benchmarks.workloads.forms import EQ, Predicates
from tamis.jit import kernel


class Leaves(NamedTuple):
    """Predicates, plain or negated, in the order of the index."""

    predicate: NDArray[np.int32]
    negated: NDArray[np.bool_]


class Index(NamedTuple):
    """The satisfied leaves of each value."""

    base: NDArray[np.int64]
    """Where the values of an attribute begin; one entry more than attributes."""
    start: NDArray[np.int64]
    leaves: NDArray[np.int32]


@kernel
def build_index(predicates: Predicates, leaves: Leaves, base: NDArray[np.int64]) -> Index:
    """Try every leaf on every value of its attribute; of an equality there is only one to try."""
    start = np.zeros(base[-1] + 1, np.int64)
    for leaf in range(len(leaves.predicate)):
        first, last = _candidates(predicates, leaves, base, leaf)
        for value in range(first, last):
            if _accepts(predicates, leaves, leaf, value):
                start[base[predicates.attribute[leaves.predicate[leaf]]] + value + 1] += 1
    for place in range(1, len(start)):
        start[place] += start[place - 1]
    found = np.empty(start[-1], np.int32)
    filled = start[:-1].copy()
    for leaf in range(len(leaves.predicate)):
        first, last = _candidates(predicates, leaves, base, leaf)
        for value in range(first, last):
            if _accepts(predicates, leaves, leaf, value):
                place = base[predicates.attribute[leaves.predicate[leaf]]] + value
                found[filled[place]] = leaf
                filled[place] += 1
    return Index(base, start, found)


@kernel
def _candidates(
    predicates: Predicates, leaves: Leaves, base: NDArray[np.int64], leaf: int
) -> tuple[int, int]:
    predicate = leaves.predicate[leaf]
    if predicates.op[predicate] == EQ and not leaves.negated[leaf]:
        value = int(predicates.low[predicate])
        return value, value + 1
    attribute = predicates.attribute[predicate]
    return 0, int(base[attribute + 1] - base[attribute])


@kernel
def _accepts(predicates: Predicates, leaves: Leaves, leaf: int, value: int) -> bool:
    passed = holds(predicates, leaves.predicate[leaf], float(value))
    return bool(passed != leaves.negated[leaf])
