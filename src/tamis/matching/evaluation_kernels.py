"""Evaluation: rows of bits, one bit per event, a machine word of events at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import kernel


class Chunks(NamedTuple):
    """The diagrams of all chunks, one after the other."""

    node_starts: NDArray[np.int64]
    test: NDArray[np.uint16]
    low: NDArray[np.uint16]
    high: NDArray[np.uint16]
    region_starts: NDArray[np.int64]
    regions: NDArray[np.int32]
    """For each test of a chunk the region it asks for."""
    root_starts: NDArray[np.int64]
    roots: NDArray[np.uint16]
    members: NDArray[np.int32]
    """For each root the subscription it belongs to."""


@kernel
def evaluate_chunks(
    chunks: Chunks,
    first: int,
    last: int,
    rows: NDArray[np.uint64],
    values: NDArray[np.uint64],
    matched: NDArray[np.uint64],
) -> None:
    """Evaluate some chunks on all events of the rows, a machine word of events at a time.

    `values` is room for the largest chunk; its first two rows are all false and all true.
    """
    width, wanted = rows.shape[1], matched.shape[1]
    for chunk in range(first, last):
        # Slices of the chunk's own arrays: a fifth faster than offsets into those of all chunks.
        nodes = slice(chunks.node_starts[chunk], chunks.node_starts[chunk + 1])
        tests, lows, highs = chunks.test[nodes], chunks.low[nodes], chunks.high[nodes]
        regions = chunks.regions[chunks.region_starts[chunk] : chunks.region_starts[chunk + 1]]
        # The white-hot centre: one pass, children before parents, vectorised over the words.
        for node in range(len(tests)):
            test = rows[regions[tests[node]]]
            low, high, value = values[lows[node]], values[highs[node]], values[node + 2]
            for word in range(width):
                value[word] = low[word] ^ (test[word] & (low[word] ^ high[word]))
        for root in range(chunks.root_starts[chunk], chunks.root_starts[chunk + 1]):
            value, target = values[chunks.roots[root]], matched[chunks.members[root]]
            for word in range(wanted):
                target[word] = value[word]
