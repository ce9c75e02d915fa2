"""From flat arrays to Tamis filters; each atom is made once."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.workloads.events import Field
from benchmarks.workloads.forms import (
    AND,
    BETWEEN,
    COMPARISONS,
    IN,
    NOT,
    OR,
    XOR,
    Predicates,
)
from tamis.filters import Filter
from tamis.filters.boolean import And, Not, Or, Xor
from tamis.filters.build import between, compare, member

JOIN: dict[int, Callable[[Sequence[Filter]], Filter]] = {
    AND: And.of,
    OR: Or.of,
    XOR: Xor.of,
    NOT: lambda terms: Not.of(terms[0]),
}


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the garbage collector from walking over millions of objects that stay alive."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def number_atoms(fields: Sequence[Field], predicates: Predicates) -> list[Filter]:
    """Return the atom of each predicate on whole numbers."""
    with collector_paused():
        return [
            _atom(fields[attribute].name, op, (int(low), int(high)), _members(predicates, number))
            for number, (attribute, op, low, high) in enumerate(
                zip(
                    predicates.attribute.tolist(),
                    predicates.op.tolist(),
                    predicates.low.tolist(),
                    predicates.high.tolist(),
                    strict=True,
                )
            )
        ]


def _atom(name: str, op: int, ends: tuple[int, int], members: list[int]) -> Filter:
    if op == BETWEEN:
        return between(name, *ends)
    if op == IN:
        return member(name, members)
    return compare(name, COMPARISONS[op], ends[0])


def _members(predicates: Predicates, number: int) -> list[int]:
    if predicates.op[number] != IN:
        return []
    first, last = predicates.member_start[number : number + 2]
    return [int(value) for value in predicates.members[first:last]]
