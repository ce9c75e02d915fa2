"""Evaluates a compiled set on a single event, in one kernel call: no columns, no batch."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import Binding
from tamis.diagrams.kernels import NONE
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.events.kinds import Value
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.cells import CellFinder, Ranker
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.posting_lists import PostingLists
from tamis.matching.evaluate.predicates import TextIndex
from tamis.matching.evaluate.single_kernels import SingleArrays, SingleWorkspace, match_values
from tamis.matching.evaluate.single_plan import SinglePlan, plan_single_events

MAX_EXACT_INTEGER: Final = 1 << 53
_NOTHING: Final = np.empty(0, np.int32)


class _Asked(NamedTuple):
    """An attribute that subscriptions test."""

    block: int
    ranker: Ranker
    texts: TextIndex | None
    """Its text predicates."""
    is_exact: bool
    """Whether its breakpoints are exact as floats."""


class SingleEvaluator:
    """Evaluates one compiled set on single events; safe for any number of threads."""

    def __init__(self, compiled: Compiled, finder: CellFinder, postings: PostingLists) -> None:
        self._compiled = compiled
        self._finder = finder
        self._postings = postings
        self._predicates = finder.predicates
        self._general = bool(compiled.variables.predicates) and not self._predicates.is_only_texts
        self._plan = plan_single_events(compiled, by_default=self._general)
        exact = self._plan.ranking.are_exact.tolist()
        self._asked: dict[str, _Asked] = {
            name: _Asked(number, finder.rankers[name], self._predicates.texts.get(name), is_exact)
            for number, (name, is_exact) in enumerate(
                zip(compiled.variables.blocks, exact, strict=True)
            )
        }
        self._free: deque[_SingleMemory] = deque()

    def evaluate(self, event: Event) -> NDArray[np.int32] | None:
        """Return the subscriptions that an event satisfies; None if it is multivalued."""
        blocks, values = list[int](), list[float]()
        passing = list[int]()
        asked = self._asked
        for name, held in event.held.items():
            one = asked.get(name)
            if one is not None:
                if len(held) > 1:
                    return None
                self._hold(one, held[0], blocks, values, passing)
        return self._match(event, blocks, values, passing)

    def _hold(
        self,
        asked: _Asked,
        value: Value,
        blocks: list[int],
        values: list[float],
        passing: list[int],
    ) -> None:
        """Note a value: a number for the kernel to rank, of any other the cell."""
        block, ranker, texts, is_exact = asked
        type_ = type(value)
        is_number = is_exact and (
            -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER  # type: ignore[operator]
            if type_ is int
            else type_ is float and value == value  # noqa: PLR0124 - only NaN differs from itself
        )
        if is_number:
            blocks.append(block)
            values.append(value)  # type: ignore[arg-type]
            return
        blocks.append(~block)
        values.append(ranker.cell(value))
        if texts is not None and type_ is str:
            passing += texts.rows_passed(value)  # type: ignore[arg-type]

    def _match(
        self, event: Event, blocks: list[int], values: list[float], passing: list[int]
    ) -> NDArray[np.int32]:
        try:
            memory = self._free.pop()
        except IndexError:
            memory = self._new_memory()
        count = len(blocks)
        memory.blocks[:count] = array("q", blocks)
        memory.values[:count] = array("d", values)
        if self._general:
            memory.passing[:] = self._predicates.find(EventBatch.of_events([event]))[:, 0]
        elif passing:
            memory.passing[passing] = True
        size = match_values(memory.binding.address, count)
        if passing and not self._general:
            memory.passing[passing] = False
        found = memory.found[:size].copy() if size else _NOTHING
        self._free.append(memory)
        return found

    def _new_memory(self) -> _SingleMemory:
        return _SingleMemory(self._plan, self._compiled, self._finder, self._postings)


class _SingleMemory:
    """Memory for one event at a time, bound for the kernels."""

    def __init__(
        self, plan: SinglePlan, compiled: Compiled, finder: CellFinder, postings: PostingLists
    ) -> None:
        blocks, predicates = len(compiled.variables.blocks), len(compiled.variables.predicates)
        workspace = _new_workspace(plan, blocks, compiled.count)
        cells = CellsByEvent(
            starts=np.zeros(2, np.int64),
            blocks=np.empty(blocks, np.int32),
            cells=np.empty(blocks, np.int32),
            passing=np.zeros((1, predicates), np.bool_),
            predicate=finder.predicate,
            first=compiled.variables.first,
        )
        arrays = postings.new_workspace(most_values=blocks)
        ends = np.zeros(1, np.int64)
        self.binding: Final = Binding(SingleArrays(*plan, arrays, cells, ends, workspace))
        self.blocks: Final = _view(workspace.blocks, "q")
        self.values: Final = _view(workspace.values, "d")
        self.passing: Final = cells.passing[0]
        self.found: Final = workspace.found


def _view(memory: NDArray[Any], code: str) -> memoryview:
    """Return memory as a view, to which an array is assigned faster than to the array itself."""
    return memoryview(memory).cast("B").cast(code)  # type: ignore[arg-type, call-overload, no-any-return]


def _new_workspace(plan: SinglePlan, blocks: int, count: int) -> SingleWorkspace:
    regions, nodes = len(plan.tests.regions.begins), len(plan.graph.kinds)
    truth = np.zeros(regions + nodes, np.bool_)
    truth[plan.tests.base] = True
    return SingleWorkspace(
        blocks=np.zeros(blocks + 1, np.int64),
        values=np.zeros(blocks + 1, np.float64),
        held=np.zeros(blocks + 1, np.int64),
        truth=truth,
        is_present=np.zeros(blocks + 1, np.bool_),
        queue=np.empty(regions + nodes + 1, np.int32),
        first_waiting=np.full(int(plan.upward.level.max(initial=0)) + 1, NONE, np.int32),
        next_waiting=np.full(nodes, NONE, np.int32),
        found=np.empty(count + 1, np.int32),
        bits=np.zeros(-(-count // 64), np.uint64),
    )
