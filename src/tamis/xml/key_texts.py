"""Keys of elements as texts: equal keys are equal texts, and numbers sort as texts do."""

from __future__ import annotations

import struct
from itertools import product
from typing import Final

from tamis.filters.folding import fold
from tamis.xml.node_patterns import ValueReading
from tamis.xml.values import number_in

SEPARATOR: Final = "\x1f"
"""Between the parts of a key: no document has this character."""
AFTER_SEPARATOR: Final = "\x20"
TOO_MANY: Final = "\x1e"
"""Stands for all keys of an element that has too many."""
NO_NUMBER: Final = "x"
"""Stands for a text that is no number."""
MAX_KEYS: Final = 64
"""Keys of one element, if parts of it occur several times."""

_SIGN: Final = 1 << 63


def number_key(number: float) -> str:
    """Return a text that sorts as the nearest float does.

    >>> number_key(-2) < number_key(-1.5) < number_key(0) < number_key(10) < number_key(1e300)
    True
    """
    (bits,) = struct.unpack(">Q", struct.pack(">d", float(number) + 0.0))
    return f"{bits ^ _SIGN if bits < _SIGN else ~bits & (2 * _SIGN - 1):016x}"


def part_of_key(text: str, reading: ValueReading) -> str | None:
    """Return what a normalised text is in a key, None if it is nothing."""
    match reading:
        case ValueReading.TEXT:
            return text
        case ValueReading.FOLDED:
            return fold(text)
        case ValueReading.NUMBER:
            number = number_in(text)
            return None if number is None else number_key(number)
        case ValueReading.NO_NUMBER:
            return NO_NUMBER if number_in(text) is None else None


def keys_of(parts: list[list[str]]) -> list[str]:
    """Return all keys of an element, given the parts that each column may have."""
    count = 1
    for part in parts:
        count *= len(part)
    if count > MAX_KEYS:
        return [TOO_MANY]
    return [SEPARATOR.join(each) for each in product(*parts)]
