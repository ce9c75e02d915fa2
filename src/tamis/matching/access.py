"""Access: subscriptions that few events concern wait under what those events hold.

A filter that can be true only where one of some rare things is so (a symbol, a user, an attribute
that most events lack) is not evaluated for every event. It waits under those things, and an event
looks only under what it holds. Two things that must both be so make one rarer thing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FREE, NONE
from tamis.matching.access_kernels import (
    HELD,
    STANDS_IN,
    Postings,
    Queue,
    fill_pair_table,
    find_all_accesses,
    find_leaf_keys,
    find_partners,
    new_search,
    write_records,
)
from tamis.matching.variables import Variables

# An estimate, from tens of nanoseconds for a filter alone and hundredths of one for it and an event
# in a diagram: above this share of all events, waiting is no gain.
RARE: Final = 1 / 500
# The checks of a conjunction mostly fail at once; any other program takes so much longer.
RARE_PROGRAM: Final = RARE / 32
# A test of up to this many cells waits under each of them.
MOST_CELLS: Final = 16
# Events are taken to have about this many attributes, where filters know many more.
USUAL_ATTRIBUTES: Final = 24
# Subscriptions wait under a pair where more than this many would wait under the single thing.
CROWD: Final = 16


class Access(NamedTuple):
    """Which subscriptions wait, and under what."""

    waits: NDArray[np.bool_]
    postings: Postings


class _Keys(NamedTuple):
    """Under what each side of each leaf could wait: keys[starts[i] : starts[i + 1]]."""

    cost: NDArray[np.float64]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]


def find_access(
    codes: NDArray[np.int32], starts: NDArray[np.int64], variables: Variables
) -> Access:
    """Decide which programs wait for what."""
    offsets = _cell_offsets(variables)
    keys = _leaf_keys(variables, offsets)
    count = len(starts) - 1
    search = new_search(int(np.diff(starts).max(initial=1)))
    found, sizes = np.empty(len(codes) + 1, np.int32), np.empty(count, np.int32)
    used = find_all_accesses(codes, starts, keys.cost, RARE, RARE_PROGRAM, search, found, sizes)
    waits = sizes != NONE
    members, under = _expand(found[:used], sizes, keys)
    total = int(offsets[-1]) + len(variables.blocks)
    pairs = _Pairs(codes, starts, keys, offsets)
    crowd = np.bincount(under, minlength=total)[under] > CROWD
    joined = pairs.take(members, under, crowd)
    queues = _Queues(codes, starts, variables)
    queue = queues.queue(members[~joined], under[~joined], total)
    return Access(waits, Postings(offsets, queue, *pairs.postings(queues)))


def _cell_offsets(variables: Variables) -> NDArray[np.int64]:
    sizes = [len(block.scale.bounds) for block in variables.blocks.values()]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _leaf_keys(variables: Variables, offsets: NDArray[np.int64]) -> _Keys:
    """Find out under what each side of each leaf could wait, and how much of all events that is."""
    sides = 2 * len(variables.leaves.block)
    # A predicate holds only of a value that is there, unless a default stands in for it.
    predicate = np.zeros(len(variables), np.int8)
    for asked, variable in variables.predicates.items():
        predicate[variable] = STANDS_IN if asked.completed else HELD
    cost, counts = np.empty(sides, np.float64), np.empty(sides, np.int64)
    usual = min(1.0, USUAL_ATTRIBUTES / max(1, len(variables.blocks)))
    given = (variables.leaves, predicate, variables.first, offsets, usual, MOST_CELLS)
    keys = np.empty(sides * MOST_CELLS, np.int64)
    used = find_leaf_keys(*given, cost, counts, keys)
    starts = np.zeros(sides + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    return _Keys(cost, starts, keys[:used].copy())


def _expand(
    found: NDArray[np.int32], sizes: NDArray[np.int32], keys: _Keys
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return every program that waits as often as it has keys, and those keys."""
    waiting = np.flatnonzero(sizes != NONE)
    owners = np.repeat(waiting, sizes[waiting])
    first, last = keys.starts[found], keys.starts[found + 1]
    counts = last - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
    return np.repeat(owners, counts).astype(np.int32), keys.keys[places]


class _Queues:
    """Puts subscriptions into the order of what they wait for, each with its checks."""

    def __init__(
        self, codes: NDArray[np.int32], starts: NDArray[np.int64], variables: Variables
    ) -> None:
        self._programs = codes, starts
        self._leaves = variables.leaves
        self._is_cut = variables.lines != FREE
        blocks = variables.blocks.values()
        self._bounds = np.array(
            [(block.first, len(block.scale.bounds)) for block in blocks], np.int32
        ).reshape(-1, 2)

    def queue(self, members: NDArray[np.int32], under: NDArray[np.int64], total: int) -> Queue:
        """Return the members by the thing they wait under."""
        ordered = members[np.argsort(under, kind="stable")]
        lengths = np.diff(self._programs[1])[ordered]
        records = np.empty(int((2 + 3 * lengths).sum()), np.int32)
        ends = np.zeros(len(ordered) + 1, np.int64)
        write_records(
            *self._programs,
            self._leaves,
            self._is_cut,
            self._bounds,
            ordered,
            ends[1:],
            records,
        )
        counts = np.zeros(total + 1, np.int64)
        np.cumsum(np.bincount(under, minlength=total), out=counts[1:])
        return Queue(ends[counts], records[: ends[-1]].copy())


class _Pairs:
    """Conjunctions that wait under two cells at once."""

    def __init__(
        self,
        codes: NDArray[np.int32],
        starts: NDArray[np.int64],
        keys: _Keys,
        offsets: NDArray[np.int64],
    ) -> None:
        self._programs = codes, starts
        self._keys = keys
        self._offsets = offsets
        self._first = self._second = np.empty(0, np.int64)
        self._members = np.empty(0, np.int32)

    def take(
        self, members: NDArray[np.int32], under: NDArray[np.int64], crowd: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Take those of the crowd that have a partner for their key; tell which."""
        alone = np.bincount(members, minlength=len(self._programs[1]))[members] == 1
        asked = np.flatnonzero(crowd & alone & (under < self._offsets[-1]))
        partners = under[asked].copy()
        single = np.diff(self._keys.starts)[::2] == 1
        own = np.full(len(single), NONE, np.int64)
        own[single] = self._keys.keys[self._keys.starts[:-1:2][single]]
        own[own >= self._offsets[-1]] = NONE
        find_partners(*self._programs, own, self._keys.cost, members[asked], partners)
        taken = asked[partners != NONE]
        one, other = under[taken], partners[partners != NONE]
        self._first, self._second = np.minimum(one, other), np.maximum(one, other)
        self._members = members[taken]
        joined = np.zeros(len(members), np.bool_)
        joined[taken] = True
        return joined

    def postings(self, queues: _Queues) -> tuple[Any, ...]:
        """Return the part of the postings that is about pairs."""
        blocks = np.stack(
            [
                np.searchsorted(self._offsets, keys, side="right") - 1
                for keys in (self._first, self._second)
            ],
            axis=1,
        ).astype(np.int32)
        kinds = np.unique(blocks, axis=0) if len(blocks) else np.empty((0, 2), np.int32)
        pairs, under = np.unique(self._first << 31 | self._second, return_inverse=True)
        queue = queues.queue(self._members, under, len(pairs))
        table = np.zeros(1 << (2 * len(pairs) + 1).bit_length(), np.int64)
        places = np.zeros(len(table), np.int32)
        fill_pair_table(pairs >> 31, pairs & (2**31 - 1), table, places)
        return kinds[:, 0].copy(), kinds[:, 1].copy(), table, places, queue
