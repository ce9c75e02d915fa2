"""Where texts are among the texts that filters compare with: by hash, or by their order."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.jit import borrowing, mixed_in

NO_TEXT: Final = -1


class EncodedTexts(NamedTuple):
    """Texts in UTF-8, whose order is that of their characters, and a hash table of them."""

    starts: NDArray[np.int64]
    """Where each begins in `encoded`, and where the last ends."""
    encoded: NDArray[np.uint8]
    slots: NDArray[np.int32]
    """The number of a text, or NO_TEXT; a power of two of them."""


def encoded(texts: list[str]) -> EncodedTexts:
    """Return texts in UTF-8, with an empty hash table."""
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    return EncodedTexts(
        starts=np.cumsum([0, *map(len, parts)], dtype=np.int64),
        encoded=np.frombuffer(b"".join(parts), np.uint8),
        slots=np.full(1 << (2 * len(texts) + 1).bit_length(), NO_TEXT, np.int32),
    )


@borrowing
def _hash_text(data: NDArray[np.uint8], start: int, end: int, block: int) -> int:
    mixed = int(block)
    for at in range(start, end):
        mixed = mixed_in(mixed, data[at])
    return mixed ^ (mixed >> 20)


@borrowing
def enter_texts(texts: EncodedTexts, first: int, last: int, block: int) -> None:
    """Enter the texts of an attribute in the hash table."""
    mask = len(texts.slots) - 1
    for text in range(first, last):
        start, end = texts.starts[text], texts.starts[text + 1]
        slot = _hash_text(texts.encoded, start, end, block) & mask
        while texts.slots[slot] != NO_TEXT:
            slot = (slot + 1) & mask
        texts.slots[slot] = text


@borrowing
def _is_equal(
    data: NDArray[np.uint8], start: int, end: int, texts: EncodedTexts, text: int
) -> bool:
    at = texts.starts[text]
    if texts.starts[text + 1] - at != end - start:
        return False
    for place in range(end - start):  # noqa: SIM110 - a kernel has no generators
        if data[start + place] != texts.encoded[at + place]:
            return False
    return True


@borrowing
def texts_passed(
    texts: EncodedTexts,
    first: int,
    last: int,
    block: int,
    data: NDArray[np.uint8],
    start: int,
    end: int,
) -> int:
    """Return how many of an attribute's texts, which ascend, come before a text or are it."""
    # A text that occurs in a filter is one of them.
    mask = len(texts.slots) - 1
    slot = _hash_text(data, start, end, block) & mask
    while texts.slots[slot] != NO_TEXT:
        text = texts.slots[slot]
        if first <= text < last and _is_equal(data, start, end, texts, text):
            return int(text - first + 1)
        slot = (slot + 1) & mask
    # What the text has in common with one before it and one after it, all between them have, too.
    low, high, length = first, last, end - start
    before = after = 0
    while low < high:
        middle = (low + high) >> 1
        at, same = texts.starts[middle], min(before, after)
        most = min(length, texts.starts[middle + 1] - at)
        while same < most and data[start + same] == texts.encoded[at + same]:
            same += 1
        is_after = same < length
        if same < most:
            is_after = data[start + same] > texts.encoded[at + same]
        if is_after:
            low, before = middle + 1, same
        else:
            high, after = middle, same
    return int(low - first)


@borrowing
def rank_texts(
    texts: EncodedTexts,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    passed: NDArray[np.int32],
) -> None:
    """Write for each text how many of the texts of one attribute it has passed."""
    last = len(texts.starts) - 1
    for number in range(len(starts)):
        passed[number] = texts_passed(texts, 0, last, 0, data, starts[number], ends[number])
