"""Events in which an attribute holds several values: all programs are run, for 64 at a time."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.matching.compiled import Compiled
from tamis.matching.facts import Entries, Facts, packed
from tamis.matching.found import Found
from tamis.matching.lane_kernels import Lanes, evaluate_programs, set_leaf_rows

_NOTHING: Final[Entries] = (np.empty(0, np.int32), np.empty(0, np.int32))


def put_right(compiled: Compiled, facts: Facts, found: Found) -> Found:
    """Put right what was found for events that hold several values: all else is for one each."""
    several = np.flatnonzero(facts.several)
    waits = np.ones(compiled.count, np.bool_)
    waits[found.everyday] = False
    holders, members = [found.waiting_events()], [found.waiting]
    for first in range(0, len(several), 64):
        lanes = several[first : first + 64]
        words = _truths(compiled, facts, lanes)
        for lane, event in enumerate(lanes.tolist()):
            holds = (words >> np.uint64(lane) & np.uint64(1)).astype(bool)
            found.set_everyday(event, holds[found.everyday])
            late = np.flatnonzero(holds & waits).astype(np.int32)
            holders.append(np.full(len(late), event))
            members.append(late)
    events = np.concatenate(holders)
    order = np.argsort(events, kind="stable")
    counts = np.bincount(events, minlength=len(found.ends))
    return found._replace(ends=np.cumsum(counts), waiting=np.concatenate(members)[order])


def _truths(compiled: Compiled, facts: Facts, events: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return for every subscription a word: which of up to 64 events match."""
    variables, programs = compiled.variables, compiled.programs
    rows = np.zeros((len(variables), 1), np.uint64)
    rows[list(variables.predicates.values())] = packed(facts.passing[:, events])
    when_true = np.zeros((len(variables.leaves.block), 1), np.uint64)
    when_false = np.zeros_like(when_true)
    lanes = _lanes(compiled, facts, events)
    set_leaf_rows(variables.leaves, lanes, rows, when_true, when_false)
    stack = np.empty((programs.longest + 1, 2), np.uint64)
    truths = np.empty(compiled.count, np.uint64)
    evaluate_programs(*programs, when_true[:, 0], when_false[:, 0], stack, truths)
    return truths


def _lanes(compiled: Compiled, facts: Facts, events: NDArray[np.int64]) -> Lanes:
    """Return the values of some events; what is absent has one, in the first cell."""
    lane_of = np.full(len(facts.several), -1, np.int32)
    lane_of[events] = np.arange(len(events))
    parts = [
        _lanes_of(facts.entries.get(name, _NOTHING), lane_of, len(events))
        for name in compiled.variables.blocks
    ]
    return Lanes(
        starts=np.cumsum([0, *(len(lanes) for lanes, _ in parts)], dtype=np.int64),
        lanes=np.concatenate([np.empty(0, np.int32), *(lanes for lanes, _ in parts)]),
        cells=np.concatenate([np.empty(0, np.int32), *(cells for _, cells in parts)]),
        first=compiled.variables.first,
    )


def _lanes_of(entries: Entries, lane_of: NDArray[np.int32], count: int) -> Entries:
    holders, cells = entries
    lanes = lane_of[holders]
    here = lanes >= 0
    absent = np.setdiff1d(np.arange(count, dtype=np.int32), lanes[here])
    return (
        np.concatenate((lanes[here], absent)),
        np.concatenate((cells[here], np.zeros(len(absent), np.int32))),
    )
