"""Comparisons with a literal as tests of an event's attribute."""

from __future__ import annotations

from datetime import date, datetime
from typing import Final, NamedTuple

from tamis.events import Kind
from tamis.filters.atoms import COMPLEMENTS, Compare, HasKind, Present, ValueAtom, caseless
from tamis.filters.boolean import TRUE, And, Constant, Filter, Not, Or
from tamis.xml.node_patterns import NodePattern
from tamis.xml.values import XQLValue

MAX_LITERAL: Final = 1_000
"""Longer texts are not compared in the engine: events have the first 1,024 characters."""
MAX_FOLDED_LITERAL: Final = 300
"""A character may become three when case is ignored."""
_MAX_NUMBER: Final = 2**62
"""Below this, numbers of events lie on the right side of it even if they had to be rounded."""

MAX_EXACT_NUMBER: Final = 2**53
"""Below this, every whole number is a float of its own, as it is in keys."""
MAX_XPATH_NUMBER: Final = 2**53
"""Below this, numbers of events compare as XPath's, which are all floats."""
HUGE: Final = Kind.BYTES
"""The kind of value that stands for a number that only XPath takes for one."""

_WEAKER: Final = {"<": "<=", ">": ">=", "<=": "<=", ">=": ">=", "=": "="}


class Approximation(NamedTuple):
    """A filter that holds wherever something else does, and whether it holds nowhere else."""

    filter: Filter
    exact: bool
    keys: frozenset[str] = frozenset()
    """Keys by which it is exact: not where a document has too many of them."""

    @property
    def is_always_exact(self) -> bool:
        """Return whether it is exact for every document."""
        return self.exact and not self.keys


class ValueTest(NamedTuple):
    """A comparison of the value of a node with a literal."""

    op: str
    literal: XQLValue
    is_caseless: bool = False
    is_xpath: bool = False
    """Whether XPath compares: it does not normalise texts, and reads fewer of them as numbers."""

    @property
    def complement(self) -> ValueTest:
        """Return the comparison that holds of values of the same kind where this one does not."""
        return self._replace(op=COMPLEMENTS[self.op])

    def at(self, pattern: NodePattern) -> Approximation:
        """Return where some node at a place passes."""
        name = str(pattern)
        if pattern.is_document:
            return Approximation(TRUE, exact=False)
        if isinstance(self.literal, str):
            found = self._of_text(name, self.literal)
            return found._replace(exact=found.exact and not self.is_xpath)
        if isinstance(self.literal, date):
            kind = Kind.TIMESTAMP if isinstance(self.literal, datetime) else Kind.DATE
            return Approximation(Compare(name, kind, self.op, self.literal), exact=True)
        if self.is_xpath:
            compared = Compare(name, Kind.NUMBER, self.op, self.literal)
            return Approximation(Or.of((compared, HasKind(name, HUGE))), exact=False)
        if abs(self.literal) < _MAX_NUMBER:
            return Approximation(Compare(name, Kind.NUMBER, self.op, self.literal), exact=True)
        if self.op == "!=":
            return Approximation(HasKind(name, Kind.NUMBER), exact=False)
        compared = Compare(name, Kind.NUMBER, _WEAKER[self.op], float(self.literal))
        return Approximation(compared, exact=False)

    def _of_text(self, name: str, literal: str) -> Approximation:
        if len(literal) > (MAX_FOLDED_LITERAL if self.is_caseless else MAX_LITERAL):
            return Approximation(Present(name), exact=False)
        compared: ValueAtom = Compare(name, Kind.TEXT, self.op, literal)
        return Approximation(caseless(compared) if self.is_caseless else compared, exact=True)


def negated(filter_: Filter) -> Filter:
    """Return where a filter does not hold; an attribute that is absent passes no test.

    >>> print(negated(Compare("price", Kind.NUMBER, "<", 5)))
    not (price is a number) or not (price < 5)
    """
    match filter_:
        case Constant(value=value):
            return Constant(not value)
        case And(terms=terms):
            return Or.of(map(negated, terms))
        case Or(terms=terms):
            return And.of(map(negated, terms))
        case Not(term=term):
            return term
        case ValueAtom():
            return Or.of((Not.of(filter_.known()), Not.of(filter_)))
        case _:
            return Not.of(filter_)
