"""Evaluates a compiled set on a single event given as JSON text, without making an event of it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import Binding
from tamis.diagrams.kernels import NONE
from tamis.events import EventLimits, Schema, Type
from tamis.events.json_kernels import ESCAPED_TEXT, FALSE, FLOAT, INTEGER, TEXT, TRUE
from tamis.events.json_scans import scan_limits, scan_workspace, scanned_values, wanted_paths
from tamis.filters.printing import ANY
from tamis.matching.evaluate.single_event.evaluator import NO_MATCHES, SingleEvaluator
from tamis.matching.evaluate.single_event.json_event_kernels import (
    ASKS,
    DECLINED,
    JsonArrays,
    SingleJsonArrays,
    match_asked,
    match_json,
)

LIMITS: Final = EventLimits()
# Values of lists are left to the strict reader, but two of them must fit to be noticed.
_SPARE_VALUES: Final = 2
# Texts of attributes that no filter names; an event with more is left to the strict reader.
_OTHER_TEXTS: Final = 256
_UNESCAPED_BYTES: Final = 4_096

# What a declared type accepts as it is; a small integer is a float that compares alike.
_ACCEPTED: Final[Mapping[Type, tuple[int, ...]]] = {
    Type.INT: (INTEGER,),
    Type.FLOAT: (FLOAT, INTEGER),
    Type.STR: (TEXT, ESCAPED_TEXT),
    Type.BOOL: (FALSE, TRUE),
}
_ANYTHING: Final = (INTEGER, FLOAT, TEXT, ESCAPED_TEXT, FALSE, TRUE)


class SingleJsonEvaluator:
    """Evaluates one compiled set on single events in JSON; safe for any number of threads."""

    def __init__(self, single: SingleEvaluator, schema: Schema | None) -> None:
        self._single = single
        declared: Mapping[str, object] = schema or {}
        self._names: Final = sorted({*single.asked, *declared})
        self._other_texts: Final = single.any_texts is not None and schema is None
        """Whether the texts of attributes that no filter names are read as well."""
        self._paths = wanted_paths(self._names, any_text=self._other_texts)
        self._accepted = [_accepted(name, schema) for name in self._names]
        self._texts = [asked and asked.texts for asked in map(single.asked.get, self._names)]
        if self._other_texts:
            self._names.append(ANY)
            self._accepted.append(sum(1 << form for form in (TEXT, ESCAPED_TEXT)))
            self._texts.append(None)
        self._free: deque[_JsonMemory] = deque()

    def evaluate(self, data: bytes) -> NDArray[np.int32] | None:
        """Return the subscriptions that an event satisfies; None if the strict reader decides."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = self._new_memory()
        size = match_json(memory.binding.address, data) if self._single.is_simple else DECLINED
        if size == ASKS:
            size = self._ask(memory, data)
        found = None
        if size >= 0:
            found = memory.found[:size].copy() if size else NO_MATCHES
        self._free.append(memory)
        return found

    def _ask(self, memory: _JsonMemory, data: bytes) -> int:
        """Match the event that was read once its texts have been tested by predicates."""
        values, passed = memory.values, list[int]()
        any_texts, all_texts = self._single.any_texts, list[tuple[str, str]]()
        for place in range(int(memory.counts[0])):
            path, form = values.paths[place], values.forms[place]
            texts = self._texts[path]
            if (texts is not None or any_texts is not None) and form in (TEXT, ESCAPED_TEXT):
                start = int(values.integers[place])
                text = data[start : start + int(values.lengths[place])].decode()
                text = json.loads(f'"{text}"') if form == ESCAPED_TEXT else text
                all_texts.append((self._names[path], text))
                if texts is not None:
                    passed += texts.rows_passed(text)
        rows: Sequence[int] | NDArray[np.int32] = passed
        if any_texts is not None:
            found = any_texts.rows_passed(all_texts)
            rows = np.concatenate((found, np.array(passed, np.int32)))
        memory.passing[rows] = True
        size = match_asked(memory.binding.address)
        memory.passing[rows] = False
        return size

    def _new_memory(self) -> _JsonMemory:
        single, names = self._single, self._names
        blocks = [single.asked[name].block if name in single.asked else NONE for name in names]
        asks = [one.texts is not None for one in single.asked.values()]
        arrays = JsonArrays(
            wanted=self._paths,
            limits=np.array(scan_limits(LIMITS), np.int64),
            work=scan_workspace(LIMITS),
            found=scanned_values(
                len(names) + (_OTHER_TEXTS if self._other_texts else _SPARE_VALUES)
            ),
            block_of_path=np.array(blocks, np.int32),
            accepted=np.array(self._accepted, np.int64),
            is_seen=np.zeros(len(names), np.bool_),
            asks=np.array(asks, np.bool_),
            asks_any=np.array([single.any_texts is not None], np.bool_),
            unescaped=np.empty(_UNESCAPED_BYTES, np.uint8),
            counts=np.zeros(2, np.int64),
        )
        return _JsonMemory(SingleJsonArrays(single.new_arrays(), arrays))


class _JsonMemory:
    """Memory for one event at a time, bound for the kernels."""

    def __init__(self, arrays: SingleJsonArrays) -> None:
        self.binding: Final = Binding(arrays)
        self.values: Final = arrays.json.found
        self.counts: Final = arrays.json.counts
        self.passing: Final = arrays.single.cells.passing[0]
        self.found: Final = arrays.single.workspace.found


def _accepted(name: str, schema: Schema | None) -> int:
    declared = schema.get(name) if schema is not None else None
    forms = _ANYTHING if declared is None else _ACCEPTED.get(declared.type, ())
    return sum(1 << form for form in forms)
