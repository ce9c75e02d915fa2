"""One event as JSON text, in one call: it is scanned, its values are ranked, and it is matched."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import bytes_as_array, reader
from tamis.diagrams.kernels import NONE
from tamis.events.json_kernels import (
    ESCAPED_TEXT,
    FLOAT,
    INTEGER,
    TEXT,
    TRUE,
    ScanLimits,
    ScannedValues,
    ScanWorkspace,
    WantedPaths,
    as_variable,
    scan_event,
)
from tamis.events.token_kernels import unescape
from tamis.jit import borrowing
from tamis.matching.evaluate.single_event.ranking_kernels import number_cell, text_cell
from tamis.matching.evaluate.single_event.spreading_kernels import (
    SingleArrays,
    arrays_at,
    insert,
    match_held,
)

DECLINED: Final = -1
"""The event is left to the strict reader."""
ASKS: Final = -2
"""The event has texts that predicates are to test first."""

_MAX_EXACT_INTEGER: Final = 1 << 53


class JsonArrays(NamedTuple):
    """What is looked for in the text of an event, and memory for it."""

    wanted: WantedPaths
    limits: NDArray[np.int64]
    """The fields of `ScanLimits`."""
    work: ScanWorkspace
    found: ScannedValues
    block_of_path: NDArray[np.int32]
    """For each path its attribute; NONE if only the schema declares it."""
    accepted: NDArray[np.int64]
    """For each path the forms that a value may have, a bit each."""
    is_seen: NDArray[np.bool_]
    """Which paths the event has, while it is read."""
    asks: NDArray[np.bool_]
    """Which attributes have predicates that test texts."""
    asks_any: NDArray[np.bool_]
    """Whether there are tests of any attribute, in an array of one."""
    unescaped: NDArray[np.uint8]
    """Memory for a text without its escapes."""
    counts: NDArray[np.int64]
    """How many values were found, and how many attributes are held."""


class SingleJsonArrays(NamedTuple):
    """All that a single event in JSON reads and writes."""

    single: SingleArrays
    json: JsonArrays


json_arrays_at = reader(SingleJsonArrays)


@borrowing
def _text_cell(address: Any, data: NDArray[np.uint8], number: int, block: int) -> int:
    """Return the cell of a text that was found; NONE if it is declined."""
    ranking, json = arrays_at(address).ranking, json_arrays_at(address).json
    start, length = json.found.integers[number], json.found.lengths[number]
    if json.found.forms[number] == TEXT:
        return text_cell(ranking, block, data, start, start + length)
    if length > len(json.unescaped):
        return NONE
    size = unescape(data, start, start + length, json.unescaped)
    return text_cell(ranking, block, json.unescaped, 0, size)


@borrowing
def _hold_found(address: Any, data: NDArray[np.uint8], size: int) -> int:
    """Hold the attributes that were found with their cells; return the result of the event."""
    single, json = arrays_at(address), json_arrays_at(address).json
    # Local names for the arrays: taking them out of their tuples inside the loop is expensive.
    ranking, held, found, is_seen = single.ranking, single.workspace.held, json.found, json.is_seen
    accepted, blocks, asks = json.accepted, json.block_of_path, json.asks
    count, other_texts = 0, json.wanted.any_text[0]
    result = ASKS if json.asks_any[0] else 0
    for number in range(size):
        path, form, cell = found.paths[number], found.forms[number], NONE
        if path == other_texts:
            continue
        block = blocks[path]
        if is_seen[path] or not accepted[path] >> form & 1:
            result = DECLINED
            break
        is_seen[path] = True
        integer = found.integers[number]
        is_exact = form != INTEGER or -_MAX_EXACT_INTEGER <= integer <= _MAX_EXACT_INTEGER
        if block == NONE:
            # Nothing tests it; but if the schema declares a float, not every integer is one.
            if not is_exact and accepted[path] >> FLOAT & 1:
                result = DECLINED
                break
            continue
        if form <= FLOAT:
            if is_exact and ranking.are_exact[block]:
                value = found.floats[number] if form == FLOAT else float(integer)
                cell = number_cell(ranking, block, value)
        elif form <= ESCAPED_TEXT:
            cell = _text_cell(address, data, number, block)
            if asks[block]:
                result = ASKS
        else:
            cell = ranking.boolean_cells[2 * block + (1 if form == TRUE else 0)]
        if cell == NONE:
            result = DECLINED
            break
        insert(held, count, int(block) << 32 | int(cell))
        count += 1
    for number in range(size):
        is_seen[found.paths[number]] = False
    json.counts[0], json.counts[1] = size, count
    return result


@borrowing
def match_json(address: Any, text: bytes) -> int:
    """Match the event in a text; return the number of matches, DECLINED or ASKS."""
    json, data = json_arrays_at(address).json, bytes_as_array(text)
    limits = ScanLimits(json.limits[0], json.limits[1], json.limits[2], json.limits[3])
    none = as_variable(0)
    size = scan_event(data, none, len(data), none, json.wanted, limits, json.work, json.found, none)
    if size < 0:
        return DECLINED
    result = _hold_found(address, data, size)
    return result if result < 0 else match_held(address, json.counts[1])


@borrowing
def match_asked(address: Any) -> int:
    """Match the event whose text was read, now that its predicates are known."""
    return match_held(address, json_arrays_at(address).json.counts[1])
