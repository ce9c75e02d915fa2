"""The truth of one predicate, and of all, for one event."""

# ruff: noqa: SIM110 - loops for a compiler

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.workloads.forms import BETWEEN, EQ, GE, GT, LE, LT, NE, TEXT, Predicates, Rows
from tamis.jit import kernel

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2


@kernel
def holds(predicates: Predicates, predicate: int, value: float) -> bool:
    """Return whether a value passes a predicate."""
    op, low = predicates.op[predicate], predicates.low[predicate]
    if op == EQ:
        return bool(value == low)
    if op == LT:
        return bool(value < low)
    if op == LE:
        return bool(value <= low)
    if op == GT:
        return bool(value > low)
    if op == GE:
        return bool(value >= low)
    if op == NE:
        return bool(value != low)
    if op == BETWEEN:
        return bool(low <= value <= predicates.high[predicate])
    if op == TEXT:
        return bool(predicates.texts[int(predicates.high[predicate]), int(value)])
    first, last = predicates.member_start[predicate], predicates.member_start[predicate + 1]
    for place in range(first, last):
        if predicates.members[place] == value:
            return True
    return False


@kernel
def assign(
    predicates: Predicates,
    by_attribute: NDArray[np.int64],
    rows: Rows,
    event: int,
    truth: NDArray[np.uint8],
) -> None:
    """Set the truth of every predicate; those of one attribute are neighbours."""
    truth[:] = UNKNOWN
    for place in range(rows.start[event], rows.start[event + 1]):
        attribute, value = rows.attribute[place], rows.value[place]
        for predicate in range(by_attribute[attribute], by_attribute[attribute + 1]):
            truth[predicate] = TRUE if holds(predicates, predicate, value) else FALSE
