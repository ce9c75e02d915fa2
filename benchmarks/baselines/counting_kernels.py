"""The counting algorithm: satisfied predicates count down what their subscriptions still need."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.index_kernels import Index
from benchmarks.workloads.forms import Programs, Rows
from tamis.jit import kernel

# Copying a byte in a row is this much cheaper than setting one somewhere.
_COPY: Final = 32


class Counting(NamedTuple):
    """An index of predicates, and the subscriptions of each predicate."""

    by_value: Index
    start: NDArray[np.int64]
    """Where the subscriptions of a predicate begin; one entry more than predicates."""
    subscriptions: NDArray[np.int32]
    needed: NDArray[np.uint8]
    """How many predicates a subscription has."""
    missing: NDArray[np.uint8]
    """How many of them the event has not satisfied yet; as `needed` between events."""


@kernel
def build_postings(
    programs: Programs, predicates: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the subscriptions of each predicate."""
    start = np.zeros(predicates + 1, np.int64)
    for token in programs.code:
        if token >= 0:
            start[token + 1] += 1
    for predicate in range(predicates):
        start[predicate + 1] += start[predicate]
    found = np.empty(start[-1], np.int32)
    filled = start[:-1].copy()
    for subscription in range(len(programs.start) - 1):
        for place in range(programs.start[subscription], programs.start[subscription + 1]):
            token = programs.code[place]
            if token >= 0:
                found[filled[token]] = subscription
                filled[token] += 1
    return start, found


@kernel
def match_event(counting: Counting, rows: Rows, event: int, out: NDArray[np.int32]) -> int:
    """Write the subscriptions that an event satisfies, and return how many they are."""
    index, missing = counting.by_value, counting.missing
    matched = touched = 0
    for place in range(rows.start[event], rows.start[event + 1]):
        value = index.base[rows.attribute[place]] + int(rows.value[place])
        for leaf in index.leaves[index.start[value] : index.start[value + 1]]:
            first, last = counting.start[leaf], counting.start[leaf + 1]
            touched += last - first
            for subscription in counting.subscriptions[first:last]:
                missing[subscription] -= 1
                if missing[subscription] == 0:
                    out[matched] = subscription
                    matched += 1
    if touched * _COPY > len(missing):
        missing[:] = counting.needed
    else:
        _forget(counting, rows, event)
    return matched


@kernel
def _forget(counting: Counting, rows: Rows, event: int) -> None:
    """Undo the counts of an event by repeating its steps."""
    index = counting.by_value
    for place in range(rows.start[event], rows.start[event + 1]):
        value = index.base[rows.attribute[place]] + int(rows.value[place])
        for leaf in index.leaves[index.start[value] : index.start[value + 1]]:
            for number in range(counting.start[leaf], counting.start[leaf + 1]):
                subscription = counting.subscriptions[number]
                counting.missing[subscription] = counting.needed[subscription]


@kernel
def match_events(counting: Counting, rows: Rows, out: NDArray[np.int32]) -> NDArray[np.int64]:
    """Match events one after the other, and return how many subscriptions each satisfied."""
    counts = np.empty(len(rows.start) - 1, np.int64)
    for event in range(len(counts)):
        counts[event] = match_event(counting, rows, event, out)
    return counts
