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
    alone = under[~joined]
    waiting = _Waiting(
        np.concatenate((members[~joined], pairs.members)),
        np.concatenate((alone, total + pairs.numbers)),
        np.concatenate((np.stack((alone, np.full(len(alone), NONE)), axis=1), pairs.keys)),
    )
    records = waiting.records((codes, starts), variables, offsets, total + len(pairs.different))
    return Access(waits, Postings(offsets, *records, *pairs.postings(total)))


class _Waiting(NamedTuple):
    """Subscriptions that wait, under what, and in which cells whoever looks there lies."""

    members: NDArray[np.int32]
    under: NDArray[np.int64]
    cells: NDArray[np.int64]

    def records(
        self,
        programs: tuple[NDArray[np.int32], NDArray[np.int64]],
        variables: Variables,
        offsets: NDArray[np.int64],
        total: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the records of all by what they wait under, and where each thing's begin."""
        order = np.argsort(self.under, kind="stable")
        members = self.members[order]
        records = np.empty(int((2 + 3 * np.diff(programs[1])[members]).sum()), np.int32)
        ends = np.zeros(len(members) + 1, np.int64)
        write_records(
            *programs,
            variables.leaves,
            variables.lines != FREE,
            offsets,
            variables.first,
            members,
            self.cells[order],
            ends[1:],
            records,
        )
        counts = np.zeros(total + 1, np.int64)
        np.cumsum(np.bincount(self.under, minlength=total), out=counts[1:])
        return ends[counts], records[: ends[-1]].copy()


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
        self.members = np.empty(0, np.int32)
        self.keys = np.empty((0, 2), np.int64)
        """For each member the lower and the higher key of its pair."""
        self.different = self.numbers = np.empty(0, np.int64)
        """The pairs, each once, as one number; and for each member which of them."""

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
        self.keys = np.stack((np.minimum(one, other), np.maximum(one, other)), axis=1)
        self.members = members[taken]
        both = self.keys[:, 0] << 31 | self.keys[:, 1]
        self.different, self.numbers = np.unique(both, return_inverse=True)
        joined = np.zeros(len(members), np.bool_)
        joined[taken] = True
        return joined

    def postings(self, first_key: int) -> tuple[Any, ...]:
        """Return the part of the postings that is about pairs; their keys begin with the first."""
        blocks = (np.searchsorted(self._offsets, self.keys, side="right") - 1).astype(np.int32)
        kinds = np.unique(blocks, axis=0) if len(blocks) else np.empty((0, 2), np.int32)
        pairs = self.different
        table = np.zeros(1 << (2 * len(pairs) + 1).bit_length(), np.int64)
        places = np.zeros(len(table), np.int32)
        fill_pair_table(pairs >> 31, pairs & (2**31 - 1), table, places)
        return kinds[:, 0].copy(), kinds[:, 1].copy(), table, places + np.int32(first_key)
