"""Conditions on nodes, and, or, not; subscripts: what XQL and XPath share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple

from tamis.xml.nodes import XMLNode
from tamis.xml.paths import XMLExpression
from tamis.xml.work import Evaluation, Focus


def counts_as_true(result: object) -> bool:
    """Return whether a result counts as true: nodes, values or a text if there are any."""
    # NaN, of which Python says that it is true, is false in XPath.
    return bool(result) and not (isinstance(result, float) and isnan(result))


class AllHold(NamedTuple):
    """True if every term is."""

    terms: tuple[XMLExpression, ...]

    @property
    def is_positional(self) -> bool:
        """Return whether a term is."""
        return any(term.is_positional for term in self.terms)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> bool:
        """Return whether every term is true."""
        evaluation.spend(len(self.terms))
        return all(counts_as_true(term.evaluate(evaluation, focus)) for term in self.terms)


class SomeHold(NamedTuple):
    """True if some term is."""

    terms: tuple[XMLExpression, ...]

    @property
    def is_positional(self) -> bool:
        """Return whether a term is."""
        return any(term.is_positional for term in self.terms)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> bool:
        """Return whether some term is true."""
        evaluation.spend(len(self.terms))
        return any(counts_as_true(term.evaluate(evaluation, focus)) for term in self.terms)


class Negation(NamedTuple):
    """True if its term is not."""

    term: XMLExpression

    @property
    def is_positional(self) -> bool:
        """Return whether its term is."""
        return self.term.is_positional

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> bool:
        """Return whether the term is false."""
        return not counts_as_true(self.term.evaluate(evaluation, focus))


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A filter `[ … ]`: keeps the nodes for which an expression is true."""

    expression: XMLExpression
    is_positional: bool = field(init=False)
    """Whether it depends on places: asked for each node, so it is known."""
    looks_at: None = field(init=False, default=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_positional", self.expression.is_positional)

    def kept(self, evaluation: Evaluation, nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
        """Return the nodes for which it holds."""
        evaluation.spend(len(nodes))
        size = len(nodes)
        if self.is_positional:
            focuses = [Focus(node, place, size) for place, node in enumerate(nodes)]
        else:
            focuses = [Focus(node) for node in nodes]
        return [focus.node for focus in focuses if evaluation.once(self, focus, self._holds)]

    def _holds(self, evaluation: Evaluation, focus: Focus) -> bool:
        return counts_as_true(self.expression.evaluate(evaluation, focus))


class Subscript(NamedTuple):
    """XQL's `[0, 2 $to$ 4, -1]`: keeps nodes by their places, counted from 0 or from the end.

    XPath's `[1]` and `[last()]` are such, too.
    """

    ranges: tuple[tuple[int, int], ...]

    @property
    def is_positional(self) -> bool:
        """Return that it depends on places."""
        return True

    @property
    def looks_at(self) -> int | None:
        """Return how many nodes are enough, None if a place is counted from the end."""
        ends = [end for places in self.ranges for end in places]
        return None if min(ends) < 0 else max(ends) + 1

    def kept(self, evaluation: Evaluation, nodes: Sequence[XMLNode]) -> Sequence[XMLNode]:
        """Return the nodes at the places, in their order."""
        evaluation.spend(len(nodes))
        size = len(nodes)
        places: set[int] = set()
        for first, last in self.ranges:
            low = first if first >= 0 else size + first
            high = last if last >= 0 else size + last
            kept = range(max(low, 0), min(high, size - 1) + 1)
            evaluation.spend(1 + len(kept))
            places.update(kept)
        return [node for place, node in enumerate(nodes) if place in places]
