"""From the values of one event to cells: numbers by binary search, texts by hash or by order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import borrowing, inlined
from tamis.matching.evaluate.text_order_kernels import EncodedTexts, texts_passed


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
def text_cell(ranking: Ranking, block: int, data: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the cell of a text, given as UTF-8."""
    first, last = ranking.text_starts[block], ranking.text_starts[block + 1]
    if first == last:
        return int(ranking.first_text_cell[block])
    passed = texts_passed(ranking.texts, first, last, block, data, start, end)
    return int(ranking.first_text_cell[block] + passed)
