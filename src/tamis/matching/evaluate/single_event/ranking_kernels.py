"""From the values of one event to cells: numbers by binary search, texts by hash or by order."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import borrowing, inlined, mixed_in

NO_TEXT: Final = -1


class Ranking(NamedTuple):
    """The breakpoints of all attributes, as the values that they lie at."""

    number_starts: NDArray[np.int64]
    """Attribute b has the numbers from number_starts[b] to number_starts[b + 1]."""
    numbers: NDArray[np.float64]
    are_exact: NDArray[np.bool_]
    """For each attribute whether its numbers are exact as floats."""
    first_number_cell: NDArray[np.int32]
    """For each attribute the cell of the least number."""
    boolean_cells: NDArray[np.int32]
    """For each attribute the cell of false and the cell of true."""
    text_starts: NDArray[np.int64]
    """Attribute b has the texts from text_starts[b] to text_starts[b + 1], ascending."""
    first_text_cell: NDArray[np.int32]
    texts: EncodedTexts


class EncodedTexts(NamedTuple):
    """Texts in UTF-8, whose order is that of their characters, and a hash table of them."""

    starts: NDArray[np.int64]
    """Where each begins in `encoded`, and where the last ends."""
    encoded: NDArray[np.uint8]
    slots: NDArray[np.int32]
    """The number of a text, or NO_TEXT; a power of two of them."""


@inlined
def number_cell(ranking: Ranking, block: int, number: float) -> int:
    """Return the cell of a number that is not NaN."""
    numbers = ranking.numbers
    first, last = ranking.number_starts[block], ranking.number_starts[block + 1]
    start = first
    while first < last:
        middle = (first + last) >> 1
        if numbers[middle] <= number:
            first = middle + 1
        else:
            last = middle
    return int(ranking.first_number_cell[block] + first - start)


@borrowing
def _hash_text(data: NDArray[np.uint8], start: int, end: int, block: int) -> int:
    mixed = int(block)
    for at in range(start, end):
        mixed = mixed_in(mixed, data[at])
    return mixed ^ (mixed >> 20)


@borrowing
def enter_texts(ranking: Ranking) -> None:
    """Enter all texts in the empty hash table."""
    texts = ranking.texts
    last = len(texts.slots) - 1
    for block in range(len(ranking.text_starts) - 1):
        for text in range(ranking.text_starts[block], ranking.text_starts[block + 1]):
            start, end = texts.starts[text], texts.starts[text + 1]
            slot = _hash_text(texts.encoded, start, end, block) & last
            while texts.slots[slot] != NO_TEXT:
                slot = (slot + 1) & last
            texts.slots[slot] = text


@inlined
def _compare(data: NDArray[np.uint8], start: int, end: int, texts: EncodedTexts, text: int) -> int:
    """Return a negative number, 0 or a positive one: a text comes before, is, or comes after."""
    at, stop = texts.starts[text], texts.starts[text + 1]
    while start < end and at < stop and data[start] == texts.encoded[at]:
        start += 1
        at += 1
    if start < end and at < stop:
        # Bytes are unsigned, and so would be their difference.
        return int(np.int64(data[start]) - np.int64(texts.encoded[at]))
    return int((end - start) - (stop - at))


@borrowing
def text_cell(ranking: Ranking, block: int, data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the cell of a text, given as UTF-8."""
    texts, first, last = ranking.texts, ranking.text_starts[block], ranking.text_starts[block + 1]
    base = ranking.first_text_cell[block] - first
    if first == last:
        return int(base + first)
    # A text that occurs in a filter is a breakpoint itself.
    mask = len(texts.slots) - 1
    slot = _hash_text(data, start, end, block) & mask
    while texts.slots[slot] != NO_TEXT:
        text = texts.slots[slot]
        if first <= text < last and _compare(data, start, end, texts, text) == 0:
            return int(base + text + 1)
        slot = (slot + 1) & mask
    while first < last:
        middle = (first + last) >> 1
        if _compare(data, start, end, texts, middle) >= 0:
            first = middle + 1
        else:
            last = middle
    return int(base + first)
