"""From bits to counts and lists."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import memory_reader
from tamis.jit import borrowing, inlined, kernel, prefetch_address

# Counts are kept in binary, a row of bits for each power of two.
PLANES: Final = 32
COUNTING_ROWS: Final = 6


@inlined
def _add(
    total: NDArray[np.uint64],
    one: NDArray[np.uint64],
    other: NDArray[np.uint64],
    carry: NDArray[np.uint64],
) -> None:
    """Add two rows to a third, bit by bit, and write what is carried over."""
    for word in range(len(total)):
        both = total[word] ^ one[word]
        carry[word] = (total[word] & one[word]) | (both & other[word])
        total[word] = both ^ other[word]


@kernel
def _carry_over(planes: NDArray[np.uint64], first: int, carry: NDArray[np.uint64]) -> None:
    for plane in range(first, len(planes)):
        row, left = planes[plane], np.uint64(0)
        for word in range(len(carry)):
            both = row[word] & carry[word]
            row[word] ^= carry[word]
            carry[word] = both
            left |= both
        if left == 0:
            return


@kernel
def count_matches(
    bitmap: NDArray[np.uint64], workspace: NDArray[np.uint64], counts: NDArray[np.int64]
) -> None:
    """Add to each event's count the subscriptions whose bit is set, tile by tile.

    Eight rows at a time are added in a tree, as one would add up long columns of numbers: most of
    the work is on whole rows, and none on single bits before the end. The workspace has rows for
    the binary digits of the counts, and COUNTING_ROWS more, of which the last stays empty.
    """
    planes, width = workspace[:PLANES], bitmap.shape[2]
    twos_a, twos_b, fours_a = workspace[PLANES], workspace[PLANES + 1], workspace[PLANES + 2]
    fours_b, eights, nothing = workspace[PLANES + 3], workspace[PLANES + 4], workspace[PLANES + 5]
    for tile in range(len(bitmap)):
        matched, first = bitmap[tile], 64 * width * tile
        planes[:] = np.uint64(0)
        last = len(matched) - len(matched) % 8
        for row in range(0, last, 8):
            _add(planes[0], matched[row], matched[row + 1], twos_a)
            _add(planes[0], matched[row + 2], matched[row + 3], twos_b)
            _add(planes[1], twos_a, twos_b, fours_a)
            _add(planes[0], matched[row + 4], matched[row + 5], twos_a)
            _add(planes[0], matched[row + 6], matched[row + 7], twos_b)
            _add(planes[1], twos_a, twos_b, fours_b)
            _add(planes[2], fours_a, fours_b, eights)
            _carry_over(planes, 3, eights)
        for row in range(last, len(matched)):
            _add(planes[0], matched[row], nothing, twos_a)
            _carry_over(planes, 1, twos_a)
        for plane in range(PLANES):
            for word in range(width):
                bits = planes[plane, word]
                if bits != 0:
                    for bit in range(64):
                        one = np.int64(bits >> np.uint64(bit) & np.uint64(1))
                        counts[first + 64 * word + bit] += one << plane


@kernel
def count_indexed(
    indexed: NDArray[np.int32],
    ends: NDArray[np.int64],
    in_force: NDArray[np.bool_],
    counts: NDArray[np.int64],
) -> None:
    """Add to each event's count the subscriptions of its list that are in force."""
    start = 0
    for event in range(len(ends)):
        for number in range(start, ends[event]):
            counts[event] += 1 if in_force[indexed[number]] else 0
        start = ends[event]


@kernel
def _list_tile(
    subscriptions: NDArray[np.int32],
    matched: NDArray[np.uint64],
    offset: int,
    places: NDArray[np.int64],
    members: NDArray[np.int32],
) -> None:
    """Write the subscriptions whose bit is set, each event's from places[event] on; move that."""
    for row in range(len(matched)):
        member = subscriptions[row] + offset
        for word in range(matched.shape[1]):
            bits, event = matched[row, word], word << 6
            while bits:
                if bits & np.uint64(0xFF) == 0:
                    bits >>= np.uint64(8)
                    event += 8
                    continue
                if bits & np.uint64(1):
                    members[places[event]] = member
                    places[event] += 1
                bits >>= np.uint64(1)
                event += 1


@kernel
def list_matches(
    subscriptions: NDArray[np.int32],
    bitmap: NDArray[np.uint64],
    indexed: NDArray[np.int32],
    ends: NDArray[np.int64],
    in_force: NDArray[np.bool_],
    offset: int,
    places: NDArray[np.int64],
    members: NDArray[np.int32],
) -> None:
    """Write each event's matches in order, from places[event] on, and move that to their end.

    They are the subscriptions whose bit is set, and those of the event's list that are in force;
    an empty mask means that all are.
    """
    starts = places.copy()
    for tile in range(len(bitmap)):
        after = places[64 * bitmap.shape[2] * tile :]
        _list_tile(subscriptions, bitmap[tile], offset, after, members)
    start = 0
    for event in range(len(ends)):
        place = places[event]
        for number in range(start, ends[event]):
            if len(in_force) == 0 or in_force[indexed[number]]:
                members[place] = indexed[number] + offset
                place += 1
        start = ends[event]
        # Bits come in order, and so does a list of one.
        if place - starts[event] > 1 and place > places[event]:
            members[starts[event] : place].sort()
        places[event] = place


addresses_at = memory_reader(np.int64)


@borrowing
def prefetch_objects(address: int, size: int, numbers: NDArray[np.int32]) -> None:
    """Have some of `size` Python objects fetched, given where the array of them is."""
    addresses = addresses_at(address, size)
    for number in numbers:
        prefetch_address(addresses[number])
