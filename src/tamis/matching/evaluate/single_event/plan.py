"""How single events are matched with a compiled set: ranking, regions, and the graph upward.

All unindexed subscriptions are in one graph here, those with a diagram too: a diagram takes as long
for an event that concerns none of its filters as for any other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.diagrams.value_order import BRACKET_OF_KIND, BRACKETS, NUMBERS, TEXTS
from tamis.events import Kind
from tamis.matching.compile.compiled import Compiled
from tamis.matching.compile.graph_kernels import Graph, Regions
from tamis.matching.compile.graphs import build_graph, needed_sides, region_list
from tamis.matching.compile.plans import usual_presence
from tamis.matching.compile.variables import Variables
from tamis.matching.evaluate.single_event.plan_kernels import (
    NodePlan,
    find_base,
    list_intervals,
    plan_nodes,
    size_records,
    write_records,
)
from tamis.matching.evaluate.single_event.ranking_kernels import (
    NO_TEXT,
    EncodedTexts,
    Ranking,
    enter_texts,
)
from tamis.matching.evaluate.single_event.spreading_kernels import Intervals, RegionTests, Upward


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
    row_of_side = np.full(2 * len(variables.leaves.block), NONE, np.int32)
    row_of_side[sides] = numbers
    graph = build_graph(programs, compiled.unindexed, row_of_side, len(regions.begins))
    tests = _region_tests(regions, variables)
    always = np.flatnonzero(np.diff(variables.counts.predicates)).astype(np.int32)
    if by_default:
        tests = tests._replace(always=always)
    elif any_texts:
        # What is of no attribute comes last.
        tests = tests._replace(always=always[-1:])
    share = _shares(tests, variables)
    return SinglePlan(_ranking(variables), tests, graph, _upward(graph, share))


def _region_tests(regions: Regions, variables: Variables) -> RegionTests:
    count = len(regions.begins)
    is_base, asks = np.empty(count, np.bool_), np.empty(count, np.bool_)
    nothing = np.zeros(len(variables.predicates), np.bool_)
    find_base(regions, variables.counts, is_base, asks, nothing)
    others, base = np.flatnonzero(asks).astype(np.int32), np.flatnonzero(is_base).astype(np.int32)
    return RegionTests(
        regions,
        variables.counts,
        _intervals(regions, asks),
        other_starts=np.searchsorted(others, regions.of_block).astype(np.int32),
        others=others,
        base_starts=np.searchsorted(base, regions.of_block).astype(np.int32),
        base=base,
        always=np.empty(0, np.int32),
    )


def _intervals(regions: Regions, asks: NDArray[np.bool_]) -> Intervals:
    most = len(regions.begins) + len(regions.breakpoints)
    low, high, region = (np.empty(most, np.int32) for _ in range(3))
    count = list_intervals(regions, asks, low, high, region)
    low, high, region = low[:count], high[:count], region[:count]
    block = np.searchsorted(regions.of_block, region, side="right") - 1
    width = high - low
    # Widths from 1 to 32 bits: 1, 2 to 3, 4 to 7, and so on.
    group = 32 * block + np.frexp(width.astype(np.float64))[1]
    order = np.lexsort((low, group))
    groups, starts = np.unique(group[order], return_index=True)
    widest = np.maximum.reduceat(width[order], starts) if count else width
    return Intervals(
        of_block=np.searchsorted(groups, 32 * np.arange(len(regions.of_block))).astype(np.int32),
        starts=np.append(starts, count).astype(np.int64),
        widest=widest,
        bounds=np.stack((low[order], high[order], region[order]), axis=1),
    )


def _shares(tests: RegionTests, variables: Variables) -> NDArray[np.float64]:
    """Return about which share of events lies in each region."""
    usual, intervals = usual_presence(len(variables.blocks)), tests.intervals
    cells = np.append(variables.counts.breakpoints + 1.0, 1.0)
    low, high, region = intervals.bounds.T
    block = np.searchsorted(tests.regions.of_block, region, side="right") - 1
    width = np.minimum(high, cells[block]) - low
    count = len(tests.regions.begins)
    share: NDArray[np.float64] = np.zeros(count)
    np.add.at(share, region, usual * width / cells[block])
    share[tests.others] = usual
    share[tests.base] = 1.0
    return share


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
    write_records(graph, plan, upward)
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
        texts=_encoded([text for own in texts for text in own]),
    )
    enter_texts(ranking)
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


def _encoded(texts: list[str]) -> EncodedTexts:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return EncodedTexts(
        starts=_starts([len(text) for text in encoded]),
        encoded=np.frombuffer(b"".join(encoded), np.uint8),
        slots=np.full(1 << (2 * len(texts) + 1).bit_length(), NO_TEXT, np.int32),
    )
