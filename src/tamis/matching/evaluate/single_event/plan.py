"""How single events are matched with a compiled set: ranking, regions, and the graph upward.

All unindexed subscriptions are in one graph here, those with a diagram too: a diagram takes as long
for an event that concerns none of its filters as for any other.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.diagrams.value_order import BRACKET_OF_KIND, BRACKETS, NUMBERS, TEXTS
from tamis.events import Kind
from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.graph_kernels import Graph
from tamis.matching.compile.graphs import build_graph, needed_sides, region_list
from tamis.matching.compile.variables import Variables
from tamis.matching.evaluate.single_event.plan_kernels import (
    NodePlan,
    plan_nodes,
    size_records,
    write_row_records,
)
from tamis.matching.evaluate.single_event.ranking_kernels import Ranking
from tamis.matching.evaluate.single_event.region_plan import plan_regions
from tamis.matching.evaluate.single_event.spreading_kernels import RegionTests, Upward
from tamis.matching.evaluate.text_order_kernels import encoded, enter_texts


class SinglePlan(NamedTuple):
    """The arrays that all single events read."""

    ranking: Ranking
    tests: RegionTests
    graph: Graph
    upward: Upward


def plan_single_events(compiled: Compiled, *, by_default: bool, any_texts: bool) -> SinglePlan:
    """Plan for a compiled set.

    Args:
        compiled: The set.
        by_default: Whether predicates may hold for absent attributes.
        any_texts: Whether predicates of no attribute have to be looked at.
    """
    variables = compiled.variables
    programs = compiled.programs.some(compiled.unindexed)
    sides = needed_sides(programs, variables.leaves)
    regions, numbers = region_list(variables.leaves, sides).by_attribute(variables)
    tests, share = plan_regions(regions, variables)
    row_of_side = np.full(2 * len(variables.leaves.block), NONE, np.int32)
    row_of_side[sides] = tests.row[numbers]
    graph = build_graph(programs, compiled.unindexed, row_of_side, len(share))
    always = np.flatnonzero(np.diff(variables.counts.predicates)).astype(np.int32)
    if by_default:
        tests = tests._replace(always=always)
    elif any_texts:
        # What is of no attribute comes last.
        tests = tests._replace(always=always[-1:])
    return SinglePlan(_ranking(variables), tests, graph, _upward(graph, share))


def _upward(graph: Graph, share: NDArray[np.float64]) -> Upward:
    nodes, regions = len(graph.kinds), len(share)
    inner = nodes - len(graph.members)
    plan = NodePlan(
        code=np.empty(nodes, np.int8),
        first=np.empty(nodes, np.int64),
        last=np.empty(nodes, np.int64),
        share=np.concatenate((share, np.empty(inner, np.float64))),
    )
    level = np.empty(nodes, np.int32)
    plan_nodes(graph, regions, plan, level)
    starts = np.zeros(regions + inner + 1, np.int64)
    size_records(graph, plan, starts)
    records = np.empty(starts[-1], np.int32)
    upward = Upward(starts.astype(np.uint32), records, level, graph.members)
    write_row_records(graph, plan, upward)
    return upward


def _ranking(variables: Variables) -> Ranking:
    partitions = [block.partition for block in variables.blocks.values()]
    values = [partition.values_by_bracket() for partition in partitions]
    firsts = np.array([partition.first_cells() for partition in partitions], np.int32).reshape(
        -1, len(BRACKETS)
    )
    numbers = [_floats(own[NUMBERS]) for own in values]
    texts = [own[TEXTS] for own in values]
    ranking = Ranking(
        number_starts=_starts([len(own[NUMBERS]) for own in values]),
        numbers=np.concatenate([np.empty(0), *(floats for floats, _ in numbers)]),
        are_exact=np.array([exact for _, exact in numbers], np.bool_),
        first_number_cell=firsts[:, NUMBERS].copy(),
        boolean_cells=_boolean_cells(firsts, values),
        text_starts=_starts([len(own) for own in texts]),
        first_text_cell=firsts[:, TEXTS].copy(),
        texts=encoded([text for own in texts for text in own]),
    )
    for block, (first, last) in enumerate(pairwise(ranking.text_starts.tolist())):
        enter_texts(ranking.texts, first, last, block)
    return ranking


def _starts(lengths: list[int]) -> NDArray[np.int64]:
    return np.cumsum([0, *lengths], dtype=np.int64)


def _floats(numbers: list[int | float]) -> tuple[NDArray[np.float64], bool]:
    """Return numbers as floats, and whether all of them are exact."""
    floats = np.array(list(map(float, numbers)), np.float64)
    return floats, floats.tolist() == numbers


def _boolean_cells(firsts: NDArray[np.int32], values: list[list[list[bool]]]) -> NDArray[np.int32]:
    bracket = BRACKET_OF_KIND[Kind.BOOLEAN]
    false = firsts[:, bracket]
    # The only breakpoint among booleans is true itself.
    true = false + np.array([len(own[bracket]) for own in values], np.int32)
    return np.stack((false, true), axis=1).ravel()
