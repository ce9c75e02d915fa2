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
    new_accesses,
    new_search,
    write_posting_records,
)
from tamis.matching.compile.plans import (
    Selectivity,
    choose_key_plan,
    packed_rows,
    shared_regions,
    usual_presence,
)
from tamis.matching.compile.programs import Programs
from tamis.matching.compile.variables import Variables

# A test of up to this many cells is filed under each of them.
MAX_CELLS_PER_LEAF: Final = 16


class Access(NamedTuple):
    """Which subscriptions are indexed, and their posting lists."""

    is_indexed: NDArray[np.bool_]
    postings: Postings


class _Keys(NamedTuple):
    """The possible keys of each side of each leaf: keys[starts[i] : starts[i + 1]]."""

    cost: NDArray[np.float64]
    starts: NDArray[np.int64]
    keys: NDArray[np.int64]


def find_access(programs: Programs, variables: Variables, plan: int | None = None) -> Access:
    """Decide which programs are indexed under which keys: as is cheapest, or as a plan says."""
    offsets = _cell_offsets(variables)
    keys = _leaf_keys(variables, offsets)
    count = len(programs.starts) - 1
    found, accesses = np.empty(len(programs.codes) + 1, np.int32), new_accesses(count)
    search = new_search(programs.longest)
    used = find_all_accesses(*programs, keys.cost, search, found, accesses)
    rarest = RarestCells(programs, *_single_cells(keys, variables, offsets))
    known = Selectivity(
        np.diff(programs.starts),
        shared_regions(programs.codes, programs.starts),
        accesses.is_conjunction,
        accesses.share,
        rarest.cost,
        blocks_of(rarest.keys, offsets),
    )
    chosen = choose_key_plan(known, len(variables.blocks), plan)
    is_single = chosen.cells == 1
    own = found[:used][np.repeat(is_single, accesses.sizes)]
    members, under = _expand(own, np.flatnonzero(is_single), accesses.sizes, keys)
    compounds = CompoundPlacement(rarest, chosen.cells)
    total = int(offsets[-1]) + len(variables.blocks)
    met, compound = compounds.postings(total, offsets)
    single = np.pad(under[:, None], ((0, 0), (0, 2)), constant_values=NONE)
    records = _write_postings(
        programs,
        variables,
        offsets,
        members=np.concatenate((members, compounds.members)),
        cells=np.concatenate((single, compounds.keys)),
        keys=np.concatenate((under, met)),
        key_count=total + len(compound[2]),
    )
    return Access(chosen.cells > 0, Postings(offsets, *records, CompoundKeys(*compound)))


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
    write_posting_records(
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


def _expand(
    found: NDArray[np.int32],
    indexed: NDArray[np.int64],
    sizes: NDArray[np.int32],
    keys: _Keys,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return every indexed program once for each of its keys, and the keys."""
    owners = np.repeat(indexed, sizes[indexed])
    first, last = keys.starts[found], keys.starts[found + 1]
    counts = last - first
    ends = np.cumsum(counts)
    places = np.repeat(first - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
    return np.repeat(owners, counts).astype(np.int32), keys.keys[places]


def blocks_of(keys: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the attributes of cells, NONE for none."""
    blocks = np.searchsorted(offsets, keys, side="right").astype(np.int32) - np.int32(1)
    blocks[keys == NONE] = NONE
    return blocks


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
        self.cost: Final[NDArray[Any]] = np.cumprod(cost, axis=1)
        """The share of events in the first, in the first two, and in all three."""
        self.cost[self.keys == NONE] = np.inf


class CompoundPlacement:
    """The conjunctions filed under compound keys."""

    def __init__(self, rarest: RarestCells, cells: NDArray[np.int8]) -> None:
        """File those that are to have two or three cells in their key under the rarest."""
        self.members: Final = np.flatnonzero(cells > 1).astype(np.int32)
        keys = rarest.keys[self.members]
        keys[np.arange(MAX_CELLS_PER_KEY) >= cells[self.members, None]] = NONE
        # In the order of attributes, so that a lookup need try only one order.
        ordered = np.sort(np.where(keys == NONE, np.iinfo(np.int64).max, keys), axis=1)
        self.keys: Final = np.where(ordered == np.iinfo(np.int64).max, NONE, ordered)
        """The cells of each of them."""

    def postings(
        self, first_key: int, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], tuple[Any, ...]]:
        """Return the key of each member, and the table by which events find keys."""
        keys = self.keys
        different, under = distinct_rows(keys)
        kinds, _ = distinct_rows(blocks_of(keys, offsets))
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
    packed = packed_rows(rows)
    if packed is None:
        different, number = np.unique(rows, axis=0, return_inverse=True)
        return different, number.reshape(-1)
    _, first, number = np.unique(packed, return_index=True, return_inverse=True)
    return rows[first], number
