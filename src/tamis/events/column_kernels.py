"""Kernels that make columns of values found in texts, or in the buffers of Arrow."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import memory_reader
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


# --- numbers in the buffers of Arrow --------------------------------------------------------------

INT64, INT32, FLOAT64 = range(3)
"""The forms of numbers that are read."""

_MAX_EXACT_INTEGER: Final = 1 << 53

_bytes_at = memory_reader(np.uint8)
_int64_at = memory_reader(np.int64)
_int32_at = memory_reader(np.int32)
_float64_at = memory_reader(np.float64)


class PackedNumbers(NamedTuple):
    """The numbers of many columns, one column after the other."""

    starts: NDArray[np.int64]
    events: NDArray[np.int32]
    values: NDArray[np.float64]
    are_exact: NDArray[np.bool_]
    """For each column whether its numbers are what they were: floats that are not NaN."""


@kernel
def read_numbers(buffers: Annotated[NDArray[np.int64], 2], packed: PackedNumbers) -> None:
    """Read the numbers of columns that are not null.

    Each row of `buffers` has a form, the address of the bitmap or 0, that of the values, where the
    column begins in them, and its length.
    """
    events, values, count = packed.events, packed.values, 0
    for column in range(len(buffers)):
        form, bitmap, address, first, length = buffers[column]
        end, is_exact = first + length, True
        bits = _bytes_at(bitmap, (end + 7) >> 3)
        longs, shorts = _int64_at(address, end), _int32_at(address, end)
        floats = _float64_at(address, end)
        packed.starts[column] = count
        begin, place = count, first
        while place < end:
            if bitmap:
                left = bits[place >> 3] >> (place & 7)
                if left & 1 == 0:
                    # Most of a sparse column is null, so whole bytes of it are skipped.
                    place = place + 1 if left else (place | 7) + 1
                    continue
            events[count] = place - first
            count += 1
            place += 1
        # Apart from the loop above: the processor waits for many values at once, not for each.
        for place in range(begin, count):
            at = first + events[place]
            if form == INT64:
                is_exact &= -_MAX_EXACT_INTEGER <= longs[at] <= _MAX_EXACT_INTEGER
                values[place] = longs[at]
            elif form == INT32:
                values[place] = shorts[at]
            else:
                values[place] = floats[at]
                is_exact &= not np.isnan(floats[at])
        packed.are_exact[column] = is_exact
    packed.starts[-1] = count
