"""Access: subscriptions that few events concern wait under what those events hold.

A filter that can be true only where one of some rare things is so (a symbol, a user, an attribute
that most events lack) is not evaluated for every event. It waits under those things, and an event
looks only under what it holds. Two or three things that must all be so make one rarer thing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FREE, NONE
from tamis.matching.access_kernels import (
    HELD,
    STANDS_IN,
    find_all_accesses,
    find_leaf_keys,
    new_search,
    write_records,
)
from tamis.matching.combination_kernels import Meeting
from tamis.matching.combinations import MOST, Combinations, Rarest
from tamis.matching.variables import Variables
from tamis.matching.waiting_kernels import Postings

# An estimate, from tens of nanoseconds for a filter alone and hundredths of one for it and an event
# in a diagram: above this share of all events, waiting is no gain.
RARE: Final = 1 / 500
# The checks of a conjunction mostly fail at once; any other program takes so much longer.
RARE_PROGRAM: Final = RARE / 32
# A smaller share of the subscriptions than this does not wait, however rare each is.
FEW: Final = 1 / 32
# A test of up to this many cells waits under each of them.
MOST_CELLS: Final = 16
# Events are taken to have about this many attributes, where filters know many more.
USUAL_ATTRIBUTES: Final = 24
# Subscriptions wait under one cell more where more than this many would wait without it.
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
    """Decide which programs wait for what.

    Every event has to look for what waits; where that is few among many, none had better wait.
    """
    access = _find(codes, starts, variables, RARE, RARE_PROGRAM)
    if 0 < access.waits.sum() < FEW * len(access.waits):
        access = _find(codes, starts, variables, 0.0, 0.0)
    return access


def _find(
    codes: NDArray[np.int32],
    starts: NDArray[np.int64],
    variables: Variables,
    rare: float,
    rare_program: float,
) -> Access:
    offsets = _cell_offsets(variables)
    keys = _leaf_keys(variables, offsets)
    count = len(starts) - 1
    search = new_search(int(np.diff(starts).max(initial=1)))
    found, sizes = np.empty(len(codes) + 1, np.int32), np.empty(count, np.int32)
    used = find_all_accesses(codes, starts, keys.cost, rare, rare_program, search, found, sizes)
    members, under = _expand(found[:used], sizes, keys)
    total = int(offsets[-1]) + len(variables.blocks)
    rarest = Rarest((codes, starts), *_single_cells(keys, variables, offsets))
    combinations = Combinations(rarest)
    joined = _join_crowds(rarest, combinations, members, under, total)
    enough = rarest.rare_enough(rare)
    for cells in (2, 3):
        combinations.take(np.flatnonzero((sizes == NONE) & (enough == cells)), cells, CROWD)
    alone = under[~joined]
    met, meeting = combinations.postings(total, offsets)
    waiting = _Waiting(
        np.concatenate((members[~joined], combinations.members)),
        np.concatenate((alone, met)),
        np.concatenate(
            (np.pad(alone[:, None], ((0, 0), (0, 2)), constant_values=NONE), combinations.keys)
        ),
    )
    waits = sizes != NONE
    waits[combinations.members] = True
    records = waiting.records((codes, starts), variables, offsets, total + len(meeting[2]))
    return Access(waits, Postings(offsets, *records, Meeting(*meeting)))


def _padded(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return single keys as combinations of one."""
    padded = np.full((len(keys), MOST), NONE, np.int64)
    padded[:, 0] = keys
    return padded


def _join_crowds(
    rarest: Rarest,
    combinations: Combinations,
    members: NDArray[np.int32],
    under: NDArray[np.int64],
    total: int,
) -> NDArray[np.bool_]:
    """Let those wait under two cells who would be many under one; tell which did."""
    crowd = np.bincount(under, minlength=total)[under] > CROWD
    alone = np.bincount(members, minlength=len(rarest.keys))[members] == 1
    has_two = (rarest.keys[members, 0] == under) & (rarest.keys[members, 1] != NONE)
    joined: NDArray[np.bool_] = crowd & alone & has_two
    combinations.take(members[joined].astype(np.int64), 2, CROWD)
    return joined


def _single_cells(
    keys: _Keys, variables: Variables, offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]]:
    """Return for each leaf the one cell that it is true in, or NONE, its cost and attribute."""
    single = np.diff(keys.starts)[::2] == 1
    own = np.full(len(single), NONE, np.int64)
    own[single] = keys.keys[keys.starts[:-1:2][single]]
    own[own >= offsets[-1]] = NONE
    return own, keys.cost, variables.leaves.block


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
            np.bincount(members, minlength=1)[members] > 1,
            ends[1:],
            records,
        )
        counts = np.zeros(total + 1, np.int64)
        np.cumsum(np.bincount(self.under, minlength=total), out=counts[1:])
        return ends[counts], records[: ends[-1]].copy()


def _cell_offsets(variables: Variables) -> NDArray[np.int64]:
    sizes = [block.partition.size for block in variables.blocks.values()]
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
