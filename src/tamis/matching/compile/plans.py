"""How each subscription is found: a model of what the plans would cost, and the cheapest of them.

A plan is the largest number of cells in a key: with none, every subscription is evaluated for every
event; with one, subscriptions are filed under single cells or attributes, and each event looks up
those it has; with two or three, under compounds of cells, too, and each event looks up its pairs
and triples. Within a plan, each subscription takes the cheapest form that the plan has.

`benchmarks.plans` measures the plans beside the one that is chosen.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE

PLANS: Final = (0, 1, 2, 3)

# Estimates in nanoseconds per event, from what `benchmarks.plans` measures.
ROW_NS: Final = 0.035
"""A row of bits in the result, written and read again."""
STEP_NS: Final = 0.0025
"""A step of a program in a diagram or graph."""
REGION_NS: Final = 0.045
"""The row of a region that diagrams or graph test, however many subscriptions test it."""
EVENT_NS: Final = 60.0
"""An event that looks for posting lists,"""
VALUE_NS: Final = 10.0
"""and each of its values,"""
LOOKUP_NS: Final = 12.0
"""and each compound that it looks up."""
CANDIDATE_NS: Final = 15.0
"""A conjunction that an event finds: mostly its first check fails."""
PROGRAM_STEP_NS: Final = 12.0
"""A step of any other program that an event finds."""

# Events are assumed to have about this many attributes, even if filters test many more.
ATTRIBUTES_PER_EVENT: Final = 24


def usual_presence(attributes: int) -> float:
    """Return the share of events assumed to have an attribute, of this many that filters test."""
    return min(1.0, ATTRIBUTES_PER_EVENT / max(1, attributes))


class Selectivity(NamedTuple):
    """What is known of each subscription: the shares of events that would find it."""

    steps: NDArray[np.int64]
    """The length of its program."""
    regions: NDArray[np.float64]
    """The number of its leaves, where each counts for the subscriptions that share it."""
    is_conjunction: NDArray[np.bool_]
    single: NDArray[np.float64]
    """Under the keys of its access predicates; infinite if it has none."""
    compound: NDArray[np.float64]
    """Under its rarest cell, its two, and its three rarest; infinite if it has fewer."""
    blocks: NDArray[np.int32]
    """The attributes of those cells; NONE if it has fewer."""


class ChosenPlan(NamedTuple):
    """A plan, what it is expected to cost, and the number of cells in each subscription's key."""

    plan: int
    cost_ns: float
    """For each event."""
    cells: NDArray[np.int8]
    """0 for subscriptions that are evaluated for every event."""


def choose_key_plan(known: Selectivity, attributes: int, plan: int | None = None) -> ChosenPlan:
    """Return the plan that is expected to cost least, or the given one."""
    costs = _costs_by_cells(known)
    plans = PLANS if plan is None else (plan,)
    return min((_planned(costs, known, attributes, each) for each in plans), key=_cost)


def _cost(plan: ChosenPlan) -> float:
    return plan.cost_ns


def _costs_by_cells(known: Selectivity) -> NDArray[np.float64]:
    """Return what each subscription adds to the cost of an event, by the cells in its key."""
    program_ns = PROGRAM_STEP_NS * known.steps
    found_ns = np.where(known.is_conjunction, CANDIDATE_NS, program_ns)
    return np.stack(
        (
            ROW_NS + STEP_NS * known.steps + REGION_NS * known.regions,
            known.single * found_ns,
            known.compound[:, 1] * CANDIDATE_NS,
            known.compound[:, 2] * CANDIDATE_NS,
        ),
        axis=1,
    )


def _planned(
    costs: NDArray[np.float64], known: Selectivity, attributes: int, plan: int
) -> ChosenPlan:
    allowed = costs[:, : plan + 1]
    cells = allowed.argmin(axis=1).astype(np.int8)
    own = float(allowed.min(axis=1).sum()) if len(allowed) else 0.0
    held = min(attributes, ATTRIBUTES_PER_EVENT)
    if cells.any():
        own += EVENT_NS + held * VALUE_NS + _lookups(known.blocks, cells, held) * LOOKUP_NS
    return ChosenPlan(plan, own, cells)


def _lookups(blocks: NDArray[np.int32], cells: NDArray[np.int8], held: int) -> int:
    """Return how many compounds an event looks up: all it could have, or all kinds there are."""
    most = int(cells.max(initial=0))
    if most < 2:
        return 0
    pairs = held * (held - 1) // 2
    own = pairs if most == 2 else pairs * (held + 1) // 3
    kinds = 0
    for size in (2, 3):
        kinds += _distinct(np.sort(blocks[cells == size, :size], axis=1))
    return min(own, kinds)


def _distinct(rows: NDArray[np.int32]) -> int:
    packed = packed_rows(rows)
    return len(np.unique(rows, axis=0) if packed is None else np.unique(packed))


def packed_rows(rows: NDArray[np.integer]) -> NDArray[np.int64] | None:
    """Return each row of numbers from NONE up as one number, in the same order.

    They are sorted many times as fast; None if they do not fit into 64 bits.
    """
    base = int(rows.max(initial=NONE)) + 2
    if base ** rows.shape[1] >= 1 << 63:
        return None
    packed = np.zeros(len(rows), np.int64)
    for column in rows.T:
        packed = packed * base + (column + 1)
    return packed


def shared_regions(codes: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return how many leaves each program has, each divided by the number of its uses."""
    leaves = np.maximum(codes, 0)
    uses = np.bincount(leaves[codes >= 0], minlength=1)
    shares = np.where(codes >= 0, 1.0 / np.maximum(uses[leaves], 1), 0.0)
    sums = np.concatenate(([0.0], np.cumsum(shares)))
    found: NDArray[np.float64] = sums[starts[1:]] - sums[starts[:-1]]
    return found
