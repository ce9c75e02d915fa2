"""Kernels that make columns of values found in texts, or in the buffers of Arrow."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import memory_reader
from tamis.events.json_kernels import hash_path
from tamis.jit import borrowing, inlined, kernel, trailing_zeros


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


@borrowing
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


@borrowing
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
_PLACES_AT_ONCE: Final = 2
_SPARE_PLACES: Final = 64 + _PLACES_AT_ONCE
_LAST_BIT: Final = np.uint64(1 << 63)
_ALL_BITS: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)

# Words of `struct ArrowArray` in the Arrow C data interface.
_LENGTH, _NULLS, _OFFSET, _CHILD_COUNT, _BUFFERS, _CHILDREN, _WORDS = 0, 1, 2, 4, 5, 6, 7

_bytes_at = memory_reader(np.uint8)
_words_at = memory_reader(np.uint64)
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


@inlined
def _present_word(
    words: NDArray[np.uint64], rest: NDArray[np.uint8], number: int, first: int, end: int
) -> np.uint64:
    """Return a word of a bitmap, with the bits of the places from `first` to before `end`.

    A buffer may end within its last word, which is then read byte by byte.
    """
    word = np.uint64(0)
    if number < len(words):
        word = words[number]
    else:
        for byte in range(8 * number, len(rest)):
            word |= np.uint64(rest[byte]) << np.uint64(8 * (byte - 8 * number))
    if 64 * number < first:
        word &= _ALL_BITS << np.uint64(first - 64 * number)
    if 64 * (number + 1) > end:
        word &= _ALL_BITS >> np.uint64(64 * (number + 1) - end)
    return word


@borrowing
def _list_present(
    bitmap: int, first: int, length: int, events: NDArray[np.int32], start: int, stop: int
) -> bool:
    """Write from `start` on which places of a column are not null; return if they end at `stop`.

    Two are written for each word, whether it has them or not: most words of a sparse column have
    none to two, and which of them the processor cannot guess. A word may be written after `stop`.
    """
    end = first + length
    size = (end + 7) >> 3
    words, rest = _words_at(bitmap, size >> 3), _bytes_at(bitmap, size)
    count = start
    for number in range(first >> 6, (end + 63) >> 6):
        if count > stop:
            # Its number of nulls was wrong.
            return False
        left, base = _present_word(words, rest, number, first, end), 64 * number - first
        for _ in range(_PLACES_AT_ONCE):
            lowest = trailing_zeros(left | _LAST_BIT)
            events[count] = base + lowest
            count += int(left != 0)
            left &= ~(np.uint64(1) << np.uint64(lowest))
        while left:
            lowest = trailing_zeros(left)
            events[count] = base + lowest
            count += 1
            left &= ~(np.uint64(1) << np.uint64(lowest))
    return count == stop


@borrowing
def _count_present(bitmap: int, first: int, length: int) -> int:
    """Return how many places of a column are not null."""
    end, count = first + length, 0
    size = (end + 7) >> 3
    words, rest = _words_at(bitmap, size >> 3), _bytes_at(bitmap, size)
    for number in range(first >> 6, (end + 63) >> 6):
        word = _present_word(words, rest, number, first, end)
        # Bits are added in pairs, then in fours, in bytes, and so on.
        word -= (word >> np.uint64(1)) & np.uint64(0x5555_5555_5555_5555)
        fours = np.uint64(0x3333_3333_3333_3333)
        word = (word & fours) + ((word >> np.uint64(2)) & fours)
        word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F_0F0F_0F0F_0F0F)
        word += word >> np.uint64(8)
        word += word >> np.uint64(16)
        word += word >> np.uint64(32)
        count += int(word & np.uint64(0x7F))
    return count


@borrowing
def _copy_numbers(
    form: int, address: int, first: int, length: int,
    events: NDArray[np.int32], values: NDArray[np.float64],
) -> bool:  # fmt: skip
    """Copy the numbers of a column at some places; return whether all are exact."""
    end, is_exact = first + length, True
    if form == INT64:
        longs = _int64_at(address, end)
        for place in range(len(events)):
            number = longs[first + events[place]]
            is_exact &= -_MAX_EXACT_INTEGER <= number <= _MAX_EXACT_INTEGER
            values[place] = number
    elif form == INT32:
        shorts = _int32_at(address, end)
        for place in range(len(events)):
            values[place] = shorts[first + events[place]]
    else:
        floats = _float64_at(address, end)
        for place in range(len(events)):
            values[place] = floats[first + events[place]]
            is_exact &= not np.isnan(values[place])
    return is_exact


@kernel
def read_numbers(table: int, columns: NDArray[np.int32], forms: NDArray[np.int8]) -> PackedNumbers:
    """Read the numbers that are not null of some columns of a table in the C data interface.

    A column whose buffers are not aligned is left out as if its numbers were not exact.
    """
    root = _int64_at(table, _WORDS)
    length, offset, children = (
        root[_LENGTH],
        root[_OFFSET],
        _int64_at(root[_CHILDREN], root[_CHILD_COUNT]),
    )
    starts = np.zeros(len(columns) + 1, np.int64)
    are_exact = np.zeros(len(columns), np.bool_)
    for place in range(len(columns)):
        column = _int64_at(children[columns[place]], _WORDS)
        bitmap, address = _int64_at(column[_BUFFERS], 2)
        item = 3 if forms[place] == INT32 else 7
        are_exact[place] = bitmap & 7 == 0 and address & item == 0 and (address != 0 or length == 0)
        count = length if are_exact[place] else 0
        if count > 0 and bitmap != 0:
            # Only what the column is a part of has a number of nulls.
            if offset == 0 and column[_LENGTH] == length and column[_NULLS] >= 0:
                count -= column[_NULLS]
            else:
                count = _count_present(bitmap, offset + column[_OFFSET], length)
        starts[place + 1] = starts[place] + count
    events = np.empty(starts[-1] + _SPARE_PLACES, np.int32)
    values = np.empty(starts[-1], np.float64)
    for place in range(len(columns)):
        column = _int64_at(children[columns[place]], _WORDS)
        bitmap, address = _int64_at(column[_BUFFERS], 2)
        first, own = offset + column[_OFFSET], events[starts[place] : starts[place + 1]]
        if are_exact[place] and bitmap != 0 and len(own) < length:
            are_exact[place] = _list_present(
                bitmap, first, length, events, starts[place], starts[place + 1]
            )
        else:
            for event in range(len(own)):
                own[event] = event
        if are_exact[place] and len(own) > 0:
            # Apart from the loop above: the processor waits for many values at once, not for each.
            numbers = values[starts[place] : starts[place + 1]]
            are_exact[place] = _copy_numbers(forms[place], address, first, length, own, numbers)
    return PackedNumbers(starts, events[: starts[-1]], values, are_exact)
