"""From bits to counts and lists."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.jit import inlined, kernel

# Counts are kept in binary, a row of bits for each power of two.
PLANES: Final = 32
# Rows of room that counting needs besides.
COUNTING_ROOM: Final = 6


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
    matched: NDArray[np.uint64],
    planes: NDArray[np.uint64],
    room: NDArray[np.uint64],
    counts: NDArray[np.int64],
) -> None:
    """Add to each event's count the subscriptions whose bit is set.

    Eight rows at a time are added in a tree, as one would add up long columns of numbers: most of
    the work is on whole rows, and none on single bits before the end. Planes and room are zeros.
    """
    twos_a, twos_b, fours_a, fours_b, eights, nothing = room
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
    for plane in range(len(planes)):
        for word in range(planes.shape[1]):
            bits = planes[plane, word]
            if bits != 0:
                for bit in range(64):
                    one = np.int64(bits >> np.uint64(bit) & np.uint64(1))
                    counts[64 * word + bit] += one << plane


@kernel
def list_matches(
    subscriptions: NDArray[np.int32],
    matched: NDArray[np.uint64],
    offset: int,
    places: NDArray[np.int64],
    members: NDArray[np.int32],
) -> None:
    """Write for each event the subscriptions whose bit is set, from places[event] on; move that."""
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
def list_indexed(
    waiting: NDArray[np.int32],
    ends: NDArray[np.int64],
    in_force: NDArray[np.bool_],
    offset: int,
    places: NDArray[np.int64],
    members: NDArray[np.int32],
) -> None:
    """Write for each event those of its list that are in force, in order after what is there.

    An empty mask means that all are.
    """
    start = 0
    for event in range(len(ends)):
        first = place = places[event]
        for number in range(start, ends[event]):
            if len(in_force) == 0 or in_force[waiting[number]]:
                members[place] = waiting[number] + offset
                place += 1
        start = ends[event]
        places[event] = place
        if place - first > 1:
            members[first:place].sort()


@kernel
def sort_lists(
    starts: NDArray[np.int64], places: NDArray[np.int64], members: NDArray[np.int32]
) -> None:
    """Put each event's list in order, from where it starts to where it ends so far."""
    for event in range(len(places)):
        if places[event] - starts[event] > 1:
            members[starts[event] : places[event]].sort()


@kernel
def count_indexed(
    waiting: NDArray[np.int32],
    ends: NDArray[np.int64],
    in_force: NDArray[np.bool_],
    counts: NDArray[np.int64],
) -> None:
    """Add to each event's count those of its list that are in force."""
    start = 0
    for event in range(len(ends)):
        for number in range(start, ends[event]):
            counts[event] += 1 if in_force[waiting[number]] else 0
        start = ends[event]
