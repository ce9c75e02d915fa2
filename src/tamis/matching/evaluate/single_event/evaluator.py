"""Evaluates a compiled set on a single event, in one kernel call: no columns, no batch."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import Binding
from tamis.diagrams.kernels import NONE
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.events.gathering import LIMITS, is_certainly_valid_name, is_unicode
from tamis.events.kinds import Type, Value
from tamis.matching.compile.compiled import Compiled
from tamis.matching.evaluate.cells import CellFinder, Ranker
from tamis.matching.evaluate.metering import Meter
from tamis.matching.evaluate.posting_kernels import CellsByEvent
from tamis.matching.evaluate.posting_lists import PostingLists
from tamis.matching.evaluate.single_event.plan import SinglePlan, plan_single_events
from tamis.matching.evaluate.single_event.spreading_kernels import (
    SingleArrays,
    SingleWorkspace,
    match_values,
)
from tamis.matching.evaluate.text_index import TextIndex

MAX_EXACT_INTEGER: Final = 1 << 53
NO_MATCHES: Final = np.empty(0, np.int32)

_SCALARS: Final = frozenset[type]({int, float, str, bool})
# What a declared type accepts as it is; a small integer is a float that compares alike.
_CLASSES: Final[Mapping[Type, frozenset[type]]] = {
    Type.INT: frozenset({int}),
    Type.FLOAT: frozenset({float, int}),
    Type.STR: frozenset({str}),
    Type.BOOL: frozenset({bool}),
}


class AskedAttribute(NamedTuple):
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
        self.is_simple: Final = self._predicates.is_only_texts
        """Whether the values of an attribute decide all predicates on it."""
        self.any_texts: Final = self._predicates.any_texts if self.is_simple else None
        """What tests the texts of all attributes, if anything does."""
        self._plan = plan_single_events(
            compiled, by_default=not self.is_simple, any_texts=self.any_texts is not None
        )
        # Otherwise predicates are found by columns.
        texts = self._predicates.texts if self.is_simple else {}
        exact = self._plan.ranking.are_exact.tolist()
        self.asked: Final[dict[str, AskedAttribute]] = {
            name: AskedAttribute(number, finder.rankers[name], texts.get(name), is_exact)
            for number, (name, is_exact) in enumerate(
                zip(compiled.variables.blocks, exact, strict=True)
            )
            if name
        }
        self._classes = {
            name: _CLASSES.get(declared.type, frozenset())
            for name, declared in (compiled.schema or {}).items()
        }
        self._free: deque[_SingleMemory] = deque()

    def evaluate(self, event: Event, meter: Meter | None = None) -> NDArray[np.int32] | None:
        """Return the subscriptions that an event satisfies; None if it is multivalued."""
        blocks, values, passing = list[int](), list[float](), list[int]()
        asked = self.asked
        for name, held in event.held.items():
            one = asked.get(name)
            if one is not None:
                if len(held) > 1:
                    return None
                self._hold(one, held[0], blocks, values, passing, meter=meter)
        if self.any_texts is not None:
            texts = ((n, v) for n, held in event.held.items() for v in held if type(v) is str)
            found = self.any_texts.rows_passed(texts, meter)
            return self._match(blocks, values, np.append(found, passing).astype(np.intp))
        if self.is_simple:
            return self._match(blocks, values, passing)
        passes = self._predicates.find(EventBatch.of_events([event]), meter)[:, 0]
        return self._match(blocks, values, np.flatnonzero(passes))

    def evaluate_plain(self, event: dict[str, Any]) -> NDArray[np.int32] | None:
        """Return the subscriptions that a mapping satisfies; None if it is not surely plain.

        Plain are flat mappings of valid names to single values of the declared types.
        """
        if len(event) > LIMITS.attributes or not self.is_simple:
            return None
        blocks, values, passing = list[int](), list[float](), list[int]()
        asked, classes, hold = self.asked, self._classes, self._hold
        for name, value in event.items():
            type_ = type(value)
            if type_ not in classes.get(name, _SCALARS):
                return None
            if type_ is int:
                if not -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER:
                    return None
            elif type_ is str and not is_unicode(value):
                return None
            one = asked.get(name)
            if one is not None:
                hold(one, value, blocks, values, passing, meter=None)
            elif not is_certainly_valid_name(name):
                return None
        if self.any_texts is not None:
            texts = ((name, value) for name, value in event.items() if type(value) is str)
            found = self.any_texts.rows_passed(texts)
            return self._match(blocks, values, np.append(found, passing).astype(np.intp))
        return self._match(blocks, values, passing)

    def _hold(
        self,
        asked: AskedAttribute,
        value: Value,
        blocks: list[int],
        values: list[float],
        passing: list[int],
        *,
        meter: Meter | None,
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
            passing += texts.rows_passed(value, meter)  # type: ignore[arg-type]

    def _match(
        self, blocks: list[int], values: list[float], passing: Sequence[int] | NDArray[np.intp]
    ) -> NDArray[np.int32]:
        try:
            memory = self._free.pop()
        except IndexError:
            memory = _SingleMemory(self.new_arrays())
        count = len(blocks)
        memory.blocks[:count] = array("q", blocks)
        memory.values[:count] = array("d", values)
        if len(passing):
            memory.passing[passing] = True
        size = match_values(memory.binding.address, count)
        if len(passing):
            memory.passing[passing] = False
        found = memory.found[:size].copy() if size else NO_MATCHES
        self._free.append(memory)
        return found

    def new_arrays(self) -> SingleArrays:
        """Return the plan with memory for one event at a time."""
        compiled = self._compiled
        blocks, predicates = len(compiled.variables.blocks), len(compiled.variables.predicates)
        cells = CellsByEvent(
            starts=np.zeros(2, np.int64),
            blocks=np.empty(blocks, np.int32),
            cells=np.empty(blocks, np.int32),
            passing=np.zeros((1, predicates), np.bool_),
            predicate=self._finder.predicate,
            first=compiled.variables.first,
        )
        postings = self._postings.new_workspace(most_values=blocks)
        workspace = _new_workspace(self._plan, blocks, compiled.count)
        return SingleArrays(*self._plan, postings, cells, np.zeros(1, np.int64), workspace)


class _SingleMemory:
    """Memory for one event at a time, bound for the kernels."""

    def __init__(self, arrays: SingleArrays) -> None:
        self.binding: Final = Binding(arrays)
        self.blocks: Final = _view(arrays.workspace.blocks, "q")
        self.values: Final = _view(arrays.workspace.values, "d")
        self.passing: Final = arrays.cells.passing[0]
        self.found: Final = arrays.workspace.found


def _view(memory: NDArray[Any], code: str) -> memoryview:
    """Return memory as a view, to which an array is assigned faster than to the array itself."""
    return memoryview(memory).cast("B").cast(code)  # type: ignore[arg-type, call-overload, no-any-return]


def _new_workspace(plan: SinglePlan, blocks: int, count: int) -> SingleWorkspace:
    tops, nodes = len(plan.upward.subscription), len(plan.graph.kinds)
    rows = len(plan.upward.starts) - 1 + tops
    is_true = np.zeros(-(-rows // 64) * 64, np.bool_)
    is_true[plan.tests.base] = True
    return SingleWorkspace(
        blocks=np.zeros(blocks + 1, np.int64),
        values=np.zeros(blocks + 1, np.float64),
        held=np.zeros(blocks + 1, np.int64),
        truth=np.packbits(is_true, bitorder="little").view("<u8").astype(np.uint64),
        is_present=np.zeros(blocks + 1, np.bool_),
        spans=np.empty(2 * rows + 2, np.uint32),
        marked=np.empty(rows + 1, np.int32),
        first_waiting=np.full(int(plan.upward.level.max(initial=0)) + 1, NONE, np.int32),
        next_waiting=np.full(nodes, NONE, np.int32),
        found=np.empty(count + 1, np.int32),
        tops=np.empty(tops + 1, np.int32),
        last=np.empty(tops + 1, np.uint32),
        counts=np.zeros(3, np.int64),
        bits=np.zeros(-(-count // 64), np.uint64),
    )
