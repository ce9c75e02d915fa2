"""Access predicates: file subscriptions in posting lists under conditions that few events meet.

A filter that can be true only under one of some rare conditions (a symbol, a user, an attribute
that most events lack) is not evaluated for every event. It is filed under these conditions, and an
event looks only under those it meets. Two or three conditions that must all hold form a rarer
compound key.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import FREE, NONE
from tamis.matching.compile.access_kernels import (
    PREDICATE,
    PREDICATE_OR_DEFAULT,
    CellLayout,
    CompoundKeys,
    LeafKeys,
    Placement,
    Postings,
    enter_compound_keys,
    find_all_accesses,
    find_leaf_keys,
    find_rarest_keys,
    new_search,
    write_records,
)
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.variables import Variables

# An estimate, from tens of nanoseconds for evaluating a filter on its own and hundredths of one for
# a filter and an event in a diagram: above this share of all events, indexing does not pay.
MAX_EVENT_SHARE: Final = 1 / 500
# The checks of a conjunction mostly fail at once; any other program takes this much longer.
MAX_EVENT_SHARE_OF_PROGRAM: Final = MAX_EVENT_SHARE / 32
# If a smaller share of the subscriptions than this can be indexed, none is.
MIN_INDEXED_SHARE: Final = 1 / 32
# A test of up to this many cells is filed under each of them.
MAX_CELLS_PER_LEAF: Final = 16
# Events are assumed to have about this many attributes, even if filters test many more.
ATTRIBUTES_PER_EVENT: Final = 24
# A longer posting list is split by adding a cell to its key.
MAX_POSTINGS_PER_LIST: Final = 16


class Access(NamedTuple):
    """Which subscriptions are indexed, and their posting lists."""

    is_indexed: NDArray[np.bool_]
    postings: Postings


class _Keys(NamedTuple):
    """The possible keys of each side of each leaf: keys[starts[i] : starts[i + 1]]."""

    cost: NDArray[np.float64]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]


def find_access(programs: Programs, variables: Variables) -> Access:
    """Decide which programs are indexed under which keys.

    Every event has to search the posting lists; if they hold only a few of many subscriptions, it
    is cheaper to index none.
    """
    access = _find(programs, variables, MAX_EVENT_SHARE, MAX_EVENT_SHARE_OF_PROGRAM)
    if 0 < access.is_indexed.sum() < MIN_INDEXED_SHARE * len(access.is_indexed):
        access = _find(programs, variables, 0.0, 0.0)
    return access


def _find(programs: Programs, variables: Variables, rare: float, rare_program: float) -> Access:
    offsets = _cell_offsets(variables)
    keys = _leaf_keys(variables, offsets)
    count = len(programs.starts) - 1
    search = new_search(programs.longest)
    found, sizes = np.empty(len(programs.codes) + 1, np.int32), np.empty(count, np.int32)
    used = find_all_accesses(*programs, keys.cost, rare, rare_program, search, found, sizes)
    members, under = _expand(found[:used], sizes, keys)
    total = int(offsets[-1]) + len(variables.blocks)
    rarest = RarestCells(programs, *_single_cells(keys, variables, offsets))
    compounds = CompoundPlacement(rarest)
    joined = _split_long_lists(rarest, compounds, members, under, total)
    enough = rarest.rare_enough(rare)
    for cells in (2, 3):
        compounds.take(
            np.flatnonzero((sizes == NONE) & (enough == cells)), cells, MAX_POSTINGS_PER_LIST
        )
    alone = under[~joined]
    met, compound = compounds.postings(total, offsets)
    single = np.pad(alone[:, None], ((0, 0), (0, 2)), constant_values=NONE)
    records = _write_postings(
        programs,
        variables,
        offsets,
        members=np.concatenate((members[~joined], compounds.members)),
        cells=np.concatenate((single, compounds.keys)),
        keys=np.concatenate((alone, met)),
        key_count=total + len(compound[2]),
    )
    is_indexed = sizes != NONE
    is_indexed[compounds.members] = True
    return Access(is_indexed, Postings(offsets, *records, CompoundKeys(*compound)))


def _split_long_lists(
    rarest: RarestCells,
    compounds: CompoundPlacement,
    members: NDArray[np.int32],
    under: NDArray[np.int64],
    total: int,
) -> NDArray[np.bool_]:
    """Move subscriptions of long lists to compound keys; return which were moved."""
    longest = np.bincount(under, minlength=total)[under] > MAX_POSTINGS_PER_LIST
    alone = np.bincount(members, minlength=len(rarest.keys))[members] == 1
    has_two = (rarest.keys[members, 0] == under) & (rarest.keys[members, 1] != NONE)
    joined: NDArray[np.bool_] = longest & alone & has_two
    compounds.take(members[joined].astype(np.int64), 2, MAX_POSTINGS_PER_LIST)
    return joined


def _single_cells(
    keys: _Keys, variables: Variables, offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int32]]:
    """Return the single cell in which each leaf is true, or NONE, with its cost and attribute."""
    single = np.diff(keys.starts)[::2] == 1
    own = np.full(len(single), NONE, np.int64)
    own[single] = keys.keys[keys.starts[:-1:2][single]]
    own[own >= offsets[-1]] = NONE
    return own, keys.cost, variables.leaves.block


def _write_postings(
    programs: Programs,
    variables: Variables,
    offsets: NDArray[np.int64],
    *,
    members: NDArray[np.int32],
    cells: NDArray[np.int64],
    keys: NDArray[np.int64],
    key_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return where the records of each key begin, and the records of all members by key."""
    order = np.argsort(keys, kind="stable")
    members = members[order]
    has_other_keys = np.bincount(members, minlength=1)[members] > 1
    records = np.empty(int((2 + 3 * np.diff(programs.starts)[members]).sum()), np.int32)
    ends = np.zeros(len(members) + 1, np.int64)
    write_records(
        *programs,
        variables.leaves,
        CellLayout(variables.chains != FREE, offsets, variables.first),
        Placement(members, cells[order], has_other_keys),
        ends[1:],
        records,
    )
    counts = np.zeros(key_count + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=key_count), out=counts[1:])
    return ends[counts], records[: ends[-1]].copy()


def _cell_offsets(variables: Variables) -> NDArray[np.int64]:
    sizes = [block.partition.size for block in variables.blocks.values()]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _leaf_keys(variables: Variables, offsets: NDArray[np.int64]) -> _Keys:
    """Find the possible keys of each side of each leaf, and the share of events they cover."""
    sides = 2 * len(variables.leaves.block)
    # A predicate holds only for a present value, unless a default replaces it.
    predicate = np.zeros(len(variables), np.int8)
    for asked, variable in variables.predicates.items():
        predicate[variable] = PREDICATE_OR_DEFAULT if asked.completed else PREDICATE
    found = LeafKeys(
        cost=np.empty(sides, np.float64),
        counts=np.empty(sides, np.int64),
        keys=np.empty(sides * MAX_CELLS_PER_LEAF, np.int64),
    )
    layout = CellLayout(variables.chains != FREE, offsets, variables.first)
    usual = usual_presence(len(variables.blocks))
    used = find_leaf_keys(variables.leaves, predicate, layout, usual, MAX_CELLS_PER_LEAF, found)
    starts = np.zeros(sides + 1, np.int64)
    np.cumsum(found.counts, out=starts[1:])
    return _Keys(found.cost, starts, found.keys[:used].copy())


def usual_presence(attributes: int) -> float:
    """Return the share of events assumed to have an attribute, of so many that filters test."""
    return min(1.0, ATTRIBUTES_PER_EVENT / max(1, attributes))


def _expand(
    found: NDArray[np.int32], sizes: NDArray[np.int32], keys: _Keys
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return every indexed program once for each of its keys, and the keys."""
    indexed = np.flatnonzero(sizes != NONE)
    owners = np.repeat(indexed, sizes[indexed])
    first, last = keys.starts[found], keys.starts[found + 1]
    counts = last - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
    return np.repeat(owners, counts).astype(np.int32), keys.keys[places]


MAX_CELLS_PER_KEY: Final = 3

Integer = TypeVar("Integer", np.int32, np.int64)


class RarestCells:
    """The three rarest cells, of different attributes, that each conjunction requires."""

    def __init__(
        self,
        programs: Programs,
        leaf_key: NDArray[np.int64],
        leaf_cost: NDArray[np.float64],
        leaf_block: NDArray[np.int32],
    ) -> None:
        count = len(programs.starts) - 1
        self.keys: Final = np.full((count, MAX_CELLS_PER_KEY), NONE, np.int64)
        """The rarest first; NONE if there are no more."""
        cost = np.ones((count, MAX_CELLS_PER_KEY), np.float64)
        find_rarest_keys(*programs, leaf_key, leaf_cost, leaf_block, self.keys, cost)
        self.cost: Final = np.cumprod(cost, axis=1)
        """The share of events in the first, in the first two, and in all three."""
        self.cost[self.keys == NONE] = np.inf

    def rare_enough(self, most: float) -> NDArray[np.int64]:
        """Return how many cells are needed to be rare enough; 0 if all together are not."""
        enough = self.cost <= most
        return np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, 0)


class CompoundPlacement:
    """The conjunctions filed under compound keys."""

    def __init__(self, rarest: RarestCells) -> None:
        self._rarest = rarest
        self._members: list[NDArray[np.int64]] = []
        self._keys: list[NDArray[np.int64]] = []

    def take(self, members: NDArray[np.int64], cells: int, longest: int) -> None:
        """File conjunctions under this many cells, or one more if the list would be too long."""
        keys = self._rarest.keys[members].copy()
        keys[:, cells:] = NONE
        if cells < MAX_CELLS_PER_KEY:
            _, number = distinct_rows(keys)
            is_long = np.bincount(number, minlength=1)[number] > longest
            too_long = is_long & (self._rarest.keys[members, cells] != NONE)
            self.take(members[too_long], cells + 1, longest)
            members, keys = members[~too_long], keys[~too_long]
        self._members.append(members)
        # In the order of attributes, so that a lookup need try only one order.
        ordered = np.sort(np.where(keys == NONE, np.iinfo(np.int64).max, keys), axis=1)
        self._keys.append(np.where(ordered == np.iinfo(np.int64).max, NONE, ordered))

    @property
    def members(self) -> NDArray[np.int32]:
        """Return the conjunctions."""
        return np.concatenate([np.empty(0, np.int32), *self._members]).astype(np.int32)

    @property
    def keys(self) -> NDArray[np.int64]:
        """Return the cells of each of them."""
        return np.concatenate([np.empty((0, MAX_CELLS_PER_KEY), np.int64), *self._keys])

    def postings(
        self, first_key: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        """Return the key of each member, and the table by which events find keys."""
        keys = self.keys
        different, under = distinct_rows(keys)
        blocks = np.searchsorted(offsets, keys, side="right").astype(np.int32) - 1
        blocks[keys == NONE] = NONE
        kinds, _ = distinct_rows(blocks)
        table = np.zeros(1 << (2 * len(different) + 1).bit_length(), np.int32)
        enter_compound_keys(different, table)
        has_threes = np.array([(kinds[:, -1] != NONE).any()])
        compound = (kinds, table, different, np.array([first_key]), has_threes)
        return first_key + under, compound


def distinct_rows(rows: NDArray[Integer]) -> tuple[NDArray[Integer], NDArray[np.int64]]:
    """Return the distinct rows of numbers from NONE up, ascending, and which of them each row is.

    >>> distinct_rows(np.array([[5, NONE], [3, 2], [5, NONE]]))
    (array([[ 3,  2],
           [ 5, -1]]), array([1, 0, 1]))
    """
    base = int(rows.max(initial=NONE)) + 2
    if base ** rows.shape[1] >= 1 << 63:
        different, number = np.unique(rows, axis=0, return_inverse=True)
        return different, number.reshape(-1)
    # Each row as one number, in the same order: they are sorted many times as fast.
    packed = np.zeros(len(rows), np.int64)
    for column in rows.T:
        packed = packed * base + (column + 1)
    _, first, number = np.unique(packed, return_index=True, return_inverse=True)
    return rows[first], number
