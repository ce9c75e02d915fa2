"""Kernels that make columns of values found in texts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.events.json_kernels import hash_path
from tamis.jit import kernel


@kernel
def order_by_path(
    paths: NDArray[np.int32], starts: NDArray[np.int64], order: NDArray[np.int64]
) -> None:
    """Sort the places of values by path; `starts` gets where the places of each path begin."""
    starts[:] = 0
    for path in paths:
        starts[path + 1] += 1
    for path in range(1, len(starts)):
        starts[path] += starts[path - 1]
    nexts = starts.copy()
    for place in range(len(paths)):
        path = paths[place]
        order[nexts[path]] = place
        nexts[path] += 1


@kernel
def number_texts(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    slots: NDArray[np.int32],
    codes: NDArray[np.int32],
    firsts: NDArray[np.int32],
) -> int:
    """Number equal texts alike, in the order of their first occurrence; return how many differ.

    `slots` is a hash table of -1, at least twice as long as there are texts; `firsts` gets the
    place of the first occurrence of each.
    """
    last, different = len(slots) - 1, 0
    for place in range(len(starts)):
        start, length = starts[place], lengths[place]
        mixed = hash_path(data, start, start + length)
        slot = (mixed ^ (mixed >> 20)) & last
        while True:
            code = slots[slot]
            if code < 0:
                slots[slot] = different
                firsts[different] = place
                codes[place] = different
                different += 1
                break
            other = firsts[code]
            if lengths[other] == length:
                same = True
                for at in range(length):
                    if data[starts[other] + at] != data[start + at]:
                        same = False
                        break
                if same:
                    codes[place] = code
                    break
            slot = (slot + 1) & last
    return different


@kernel
def copy_spans(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    copy: NDArray[np.uint8],
) -> None:
    """Copy parts of a text, one right after the other."""
    to = 0
    for start, end in zip(starts, ends):  # noqa: B905 - Numba has no strict
        for at in range(start, end):
            copy[to] = data[at]
            to += 1
