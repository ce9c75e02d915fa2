"""Parts of a filter that never decide: without them, it matches the same events.

All variants of a filter share its variables, so they share one diagram, in which equal filters are
equal nodes. Each comparison of two variants costs no more than building the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from tamis.diagrams.diagram import BudgetExceededError, Node
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import FALSE, TRUE
from tamis.filters import Filter
from tamis.filters.boolean import And, Connective, Not, Or

# Parts of one filter to try; each takes time in proportion to the whole.
MAX_PARTS: Final = 64


class RedundantPart(NamedTuple):
    """A part that can be removed, and why."""

    part: Filter
    reason: str


class RedundancyReport(NamedTuple):
    """The parts that can be removed one after the other, and what remains then."""

    parts: list[RedundantPart]
    rest: Filter
    complete: bool
    """Whether every part was tried."""


def redundant_parts(filter_: Filter, encoding: Encoding) -> RedundancyReport:
    """Return the parts that a filter does not need, in an encoding of the filter."""
    found: list[RedundantPart] = []
    try:
        wanted = _matching(filter_, encoding)
        for _ in range(MAX_PARTS):
            removed = _first_redundant(filter_, wanted, encoding)
            if removed is None:
                return RedundancyReport(found, filter_, complete=_part_count(filter_) <= MAX_PARTS)
            part, filter_ = removed
            found.append(part)
    except BudgetExceededError:
        pass
    return RedundancyReport(found, filter_, complete=False)


def _first_redundant(
    filter_: Filter, wanted: Node, encoding: Encoding
) -> tuple[RedundantPart, Filter] | None:
    for connective, part, without in islice(_variants(filter_), MAX_PARTS):
        if _matching(without, encoding) == wanted:
            return RedundantPart(part, _reason(part, connective, encoding)), without
    return None


def _part_count(filter_: Filter) -> int:
    return sum(1 for _ in islice(_variants(filter_), MAX_PARTS + 1))


def _matching(filter_: Filter, encoding: Encoding) -> Node:
    return encoding.diagram.both(encoding.possible(), encoding.matches(filter_))


def _variants(filter_: Filter) -> Iterator[tuple[Connective, Filter, Filter]]:
    """Yield each part of an `and` or `or`, with its connective and the filter without it."""
    match filter_:
        case Not(term=term):
            for connective, part, without in _variants(term):
                yield connective, part, Not.of(without)
        case Connective(terms=terms):
            for at, term in enumerate(terms):
                before, after = terms[:at], terms[at + 1 :]
                if isinstance(filter_, And | Or):
                    yield filter_, term, type(filter_).of((*before, *after))
                for connective, part, without in _variants(term):
                    yield connective, part, type(filter_).of((*before, without, *after))


def _reason(part: Filter, connective: Connective, encoding: Encoding) -> str:
    true = encoding.where(part, truth=True)
    if true == FALSE:
        return "it can never be true"
    if true == TRUE:
        return "it is always true"
    others = list(connective.terms)
    others.remove(part)
    if part in others:
        return "it is written twice"
    for other in others:
        beside = encoding.where(other, truth=True)
        both = encoding.diagram.both(true, beside)
        if isinstance(connective, Or) and both == true:
            return f"whenever it is true, so is {brief_filter(other)}"
        if isinstance(connective, And) and both == beside:
            return f"whenever {brief_filter(other)} is true, so is it"
    return "the rest decides alone"


def brief_filter(part: Filter) -> str:
    """Return a part of a filter for a sentence."""
    shown = str(part)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
