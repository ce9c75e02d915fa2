"""The plan that is chosen costs hardly more than the best, in operations that are really done."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from benchmarks.engines import compiled_of
from benchmarks.workloads import boolean, conjunctions, paper

from tamis.events.batch import EventBatch
from tamis.matching.compile import plans
from tamis.matching.compile.access_kernels import HAS_OTHER_KEYS, MAX_CHECKS, NEEDS_PROGRAM
from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.plans import PLANS
from tamis.matching.evaluate.cells import CellFinder

MOST = 1.2
"""How much more than the best the chosen plan may cost."""
SIZE = 1_500
EVENTS = 24

WORKLOADS: dict[str, Callable[[int, int], Any]] = {
    "A": conjunctions.workload_a,
    "B": conjunctions.workload_b,
    "C": conjunctions.workload_c,
    "growth": conjunctions.growth,
    "uneven growth": lambda count, seed: conjunctions.growth(count, seed, even=False),
    "Boolean": boolean.subscriptions,
    "paper": paper.subscriptions,
}
QUICK = ("A", "growth")
"""Those that choose different plans; the others run in the slow suite."""


class Lists(NamedTuple):
    """What an event finds under each key: conjunctions, and steps of other programs."""

    conjunctions: dict[int, int]
    steps: dict[int, int]


def lists_of(compiled: Compiled) -> Lists:
    postings, lengths = compiled.arrays.postings, np.diff(compiled.programs.starts)
    lists = Lists({}, {})
    starts, records = postings.starts.tolist(), postings.records.tolist()
    for key in range(len(starts) - 1):
        place = starts[key]
        while place < starts[key + 1]:
            member, task = records[place], records[place + 1]
            place += 2 + 3 * (task & MAX_CHECKS & ~(HAS_OTHER_KEYS | NEEDS_PROGRAM))
            if task & NEEDS_PROGRAM:
                lists.steps[key] = lists.steps.get(key, 0) + int(lengths[member])
            else:
                lists.conjunctions[key] = lists.conjunctions.get(key, 0) + 1
    return lists


def spent(compiled: Compiled, batch: EventBatch) -> float:
    """Return the nanoseconds of all operations on a batch, each as the model takes it to be."""
    unindexed = compiled.unindexed
    steps = np.diff(compiled.programs.starts)[unindexed].sum()
    regions = len(compiled.arrays.regions.begins)
    each = plans.ROW_NS * len(unindexed) + plans.STEP_NS * steps + plans.REGION_NS * regions
    if len(unindexed) == compiled.count:
        return float(each) * batch.length
    cells = CellFinder(compiled).find(batch).by_attribute
    attribute = np.repeat(np.arange(len(cells.starts) - 1), np.diff(cells.starts))
    postings, lists = compiled.arrays.postings, lists_of(compiled)
    offset, compound = postings.cell_offset, postings.compound
    numbers = {
        tuple(key): int(compound.first[0]) + n for n, key in enumerate(compound.keys.tolist())
    }
    total = float(each) * batch.length
    for event in range(batch.length):
        own = cells.events == event
        keys = sorted((offset[attribute[own]] + cells.cells[own]).tolist())
        found = [*keys, *(offset[-1] + attribute[own]).tolist()]
        sizes = (2, 3) if compound.has_threes[0] else (2,)
        possible = [pair for size in sizes for pair in combinations(keys, size)]
        found += [numbers[k] for k in ((*p, -1, -1)[:3] for p in possible) if k in numbers]
        lookups = min(len(possible), len(compound.kinds))
        total += plans.EVENT_NS + plans.VALUE_NS * len(keys) + plans.LOOKUP_NS * lookups
        total += plans.CANDIDATE_NS * sum(lists.conjunctions.get(key, 0) for key in found)
        total += plans.PROGRAM_STEP_NS * sum(lists.steps.get(key, 0) for key in found)
    return total


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in WORKLOADS],
)
def test_no_plan_is_much_better_than_the_chosen_one(name: str) -> None:
    work = WORKLOADS[name](SIZE, 1)
    batch = EventBatch.of_events(work.events(EVENTS, 2).dicts())
    costs = {}
    for plan in PLANS:
        with patch.object(plans, "PLANS", (plan,)):
            costs[plan] = spent(compiled_of(work), batch)
    chosen = spent(compiled_of(work), batch)
    assert chosen <= MOST * min(costs.values()), f"{chosen:,.0f} of {costs}"
    if name == "B":
        # Otherwise this would show nothing.
        assert max(costs.values()) > 20 * min(costs.values())
