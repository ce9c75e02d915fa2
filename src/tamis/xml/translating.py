"""From queries over documents to filters over attributes, and what is left to check.

A filter sees, for each place in a document, the values of all nodes there. What it cannot tell,
such as which values lie in one element, is weakened, never strengthened: the filter holds wherever
the query is true. `some` returns where some node at a place makes an expression true, or false, and
whether the filter holds nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from tamis.filters.atoms import Atom, Present
from tamis.filters.boolean import FALSE, TRUE, And, Filter, Or
from tamis.xml.axes import AXES
from tamis.xml.correlation import InnerTest, key_test, other_than_number
from tamis.xml.inner_tests import (
    StepLead,
    inner_tests,
    is_plain_test,
    joined_terms,
    lead_of,
    plain_steps,
    tested_by,
    tests_below,
)
from tamis.xml.logic import AllHold, Negation, NodeCondition, SomeHold
from tamis.xml.node_patterns import NodePattern
from tamis.xml.paths import (
    ANY_NODE,
    AxisStep,
    GroupStep,
    NodeIntersection,
    NodePath,
    NodeStep,
    NodeUnion,
)
from tamis.xml.value_tests import Approximation, ValueTest, negated
from tamis.xml.values import comparison_holds
from tamis.xml.xpath_terms import XPathComparison, type_of
from tamis.xml.xpath_values import XPathType
from tamis.xml.xql_terms import (
    LiteralOperand,
    MethodCall,
    NodesOperand,
    XQLComparison,
    XQLOperand,
)

MAX_PATH_STEPS: Final = 64
"""A longer path is not followed: what it may find is left to check."""
MAX_PARTS: Final = 512
"""Parts of a query that are translated; parentheses with `|` in a path multiply them."""

_DOCUMENT: Final = NodePattern()
_NUMBERS: Final = ("count", "end")
"""Methods that give something even if a path finds nothing."""


def approximate(expression: object, *, correlated: bool = True) -> Approximation:
    """Return a filter that holds for every document for which an expression is true.

    With `correlated`, keys tell which values lie in one element.
    """
    found = _QueryTranslator(correlated=correlated).some(expression, _DOCUMENT, truth=True)
    if found.filter.matches({}):
        # Otherwise it would hold of events that are no documents.
        return found._replace(filter=_conjunction([Present(str(_DOCUMENT)), found.filter]))
    return found


class _QueryTranslator:
    def __init__(self, *, correlated: bool) -> None:
        self._correlated = correlated
        self._left = MAX_PARTS

    def some(self, expression: object, at: NodePattern, *, truth: bool) -> Approximation:
        """Return where an expression is true, or false, of some node at a place."""
        self._left -= 1
        if self._left < 0:
            return _some_node(at)
        match expression:
            case Negation(term=term):
                return self.some(term, at, truth=not truth)
            case AllHold(terms=terms) if truth:
                return self._all(terms, at)
            case SomeHold(terms=terms) if not truth:
                return _together(at, [self.some(term, at, truth=False) for term in terms])
            case AllHold(terms=terms) | SomeHold(terms=terms):
                return _either([self.some(term, at, truth=truth) for term in terms])
            case XQLComparison():
                return self._comparison(expression, at, truth=truth)
            case XPathComparison():
                return self._xpath_comparison(expression, at, truth=truth)
            case MethodCall(path=path) if path is not None and expression.name not in _NUMBERS:
                return self._found(path, at, None, truth=truth)
            case _:
                return self._found(expression, at, None, truth=truth)

    def _all(self, terms: Sequence[object], at: NodePattern) -> Approximation:
        parts = [self.some(term, at, truth=True) for term in terms]
        key = self._key_test(at, [*inner_tests(terms)])
        return _together(at, parts, _said_by(key, terms))

    def _key_test(self, at: NodePattern, tests: Sequence[InnerTest]) -> Approximation | None:
        # One node passes all tests anyway if there is only one.
        if not self._correlated or at.is_single:
            return None
        return key_test(at, tests)

    # --- nodes ---------------------------------------------------------------------------------

    def _found(
        self, expression: object, at: NodePattern, test: ValueTest | None, *, truth: bool
    ) -> Approximation:
        """Return where an expression finds a node that passes a test, or finds none."""
        found = self._nodes(expression, at, test)
        return found if truth else _none_such(at, found)

    def _nodes(self, expression: object, at: NodePattern, test: ValueTest | None) -> Approximation:
        match expression:
            case None:
                return _some_node(at, exact=True) if test is None else test.at(at)
            case NodePath(steps=steps, is_absolute=is_absolute):
                return self._path(steps, at, test, is_absolute=is_absolute)
            case NodeUnion(terms=terms):
                return _either([self._nodes(term, at, test) for term in terms])
            case NodeIntersection(terms=terms):
                parts = [self._nodes(term, at, test) for term in terms]
                return Approximation(_conjunction([part.filter for part in parts]), exact=False)
            case _:
                return _some_node(at)

    def _path(
        self,
        steps: Sequence[NodeStep],
        at: NodePattern,
        test: ValueTest | None,
        *,
        is_absolute: bool,
    ) -> Approximation:
        if not is_absolute:
            return self._steps(steps, at, test)
        found = self._steps(steps, _DOCUMENT, test)
        # It is looked for from a node that has to be there.
        return found._replace(filter=_conjunction([_there(at), found.filter]))

    def _steps(
        self, steps: Sequence[NodeStep], at: NodePattern, test: ValueTest | None
    ) -> Approximation:
        """Return where steps lead from some node at a place to one that passes a test."""
        self._left -= 1
        if len(steps) > MAX_PATH_STEPS or self._left < 0:
            return _some_node(at)
        if not steps:
            return _some_node(at, exact=True) if test is None else test.at(at)
        if isinstance(steps[0], GroupStep):
            return self._group(steps[0], steps[1:], at, test)
        lead = lead_of(steps, at)
        if lead is None:
            return _some_node(at)
        found = self._kept(lead, test)
        # Where a path goes up again, what it came from has to be there.
        return Approximation(And.of((_there(at), found.filter)), False) if lead.is_up else found

    def _group(
        self, step: GroupStep, rest: Sequence[NodeStep], at: NodePattern, test: ValueTest | None
    ) -> Approximation:
        after = (
            (AxisStep(AXES["self"], ANY_NODE, step.selections), *rest) if step.selections else rest
        )
        match step.inner:
            case NodePath(steps=steps, is_absolute=is_absolute):
                return self._path((*steps, *after), at, test, is_absolute=is_absolute)
            case NodeUnion(terms=terms):
                groups = [(GroupStep(term), *after) for term in terms]
                return _either([self._steps(each, at, test) for each in groups])
            case _:
                return _some_node(at)

    def _kept(self, lead: StepLead, test: ValueTest | None) -> Approximation:
        """Return where some node at a place is kept by selections and leads on."""
        conditions = [
            term
            for selection in lead.selections
            if isinstance(selection, NodeCondition)
            for term in joined_terms(selection.expression)
        ]
        parts = [self.some(condition, lead.at, truth=True) for condition in conditions]
        if lead.rest or test is not None or not parts:
            parts.append(self._steps(lead.rest, lead.at, test))
        below = [*tests_below(lead.rest, test)]
        # One condition alone has its key further down.
        key = None
        if len(conditions) + bool(below) > 1:
            key = self._key_test(lead.at, [*inner_tests(conditions), *below])
            is_tested = not lead.rest or plain_steps(NodePath(tuple(lead.rest))) is not None
            key = (
                _said_by(key, conditions) if is_tested and (test or not lead.rest) else _vague(key)
            )
        is_every_one = all(isinstance(each, NodeCondition) for each in lead.selections)
        found = _together(lead.at, parts, key)
        return found if is_every_one else found._replace(exact=False)

    # --- comparisons ---------------------------------------------------------------------------

    def _comparison(self, of: XQLComparison, at: NodePattern, *, truth: bool) -> Approximation:
        found = tested_by(of)
        if found is None:
            return self._inexact_comparison(of, at, truth=truth)
        expression, test = found
        if not of.of_all or isinstance(of.left, LiteralOperand):
            return self._found(expression, at, test, truth=truth)
        return self._every(expression, at, test, truth=truth)

    def _xpath_comparison(
        self, of: XPathComparison, at: NodePattern, *, truth: bool
    ) -> Approximation:
        found = tested_by(of)
        if found is not None:
            return self._found(found[0], at, found[1], truth=truth)
        sides = of.left, of.right
        if not truth or any(type_of(side) is XPathType.BOOLEAN for side in sides):
            return _some_node(at)
        # Of nodes, there have to be some.
        nodes = [side for side in sides if type_of(side) is XPathType.NODE_SET]
        parts = [self._nodes(side, at, None)._replace(exact=False) for side in nodes]
        return _together(at, parts) if parts else _some_node(at)

    def _every(
        self, expression: object, at: NodePattern, test: ValueTest, *, truth: bool
    ) -> Approximation:
        """Return where every node that is found passes a test, or some does not."""
        is_text = isinstance(test.literal, str)
        failing = self._nodes(expression, at, test.complement)
        others = self._no_numbers(expression, at, test)
        if others is not None:
            some_fails = _either([failing, others])
            if not truth:
                return some_fails
            if some_fails.is_always_exact:
                return _none_such(at, some_fails)
        if not truth:
            # A text that is no number passes neither a test nor its complement.
            return failing if is_text else self._nodes(expression, at, None)._replace(exact=False)
        none_fails = _none_such(at, failing)
        if is_text or not at.is_single:
            return none_fails
        some_passes = self._nodes(expression, at, test)
        nothing = _none_such(at, self._nodes(expression, at, None))
        either = Or.of((nothing.filter, some_passes.filter))
        return Approximation(_conjunction([none_fails.filter, either]), exact=False)

    def _no_numbers(
        self, expression: object, at: NodePattern, test: ValueTest
    ) -> Approximation | None:
        """Return where some node that is found is no number, if that matters and is known."""
        if not self._correlated or not at.is_single or not isinstance(test.literal, int | float):
            return None
        steps = plain_steps(expression)
        return other_than_number(at, steps) if steps else None

    def _inexact_comparison(
        self, of: XQLComparison, at: NodePattern, *, truth: bool
    ) -> Approximation:
        sides = of.left, of.right
        if isinstance(of.left, LiteralOperand) and isinstance(of.right, LiteralOperand):
            if of.user is None:
                return _constant(of, at, truth=truth)
        elif truth and not of.of_all:
            # Both sides have some value.
            parts = [self._operand(side, of, at) for side in sides]
            return _together(at, [part._replace(exact=False) for part in parts])
        return _some_node(at)

    def _operand(self, side: XQLOperand, of: XQLComparison, at: NodePattern) -> Approximation:
        """Return where an operand can have a value that satisfies a comparison."""
        match side:
            case NodesOperand(inner=inner):
                return self._nodes(inner, at, None)
            case MethodCall(name="count", path=path) if path is not None:
                other = of.right if side is of.left else of.left
                return _some_node(at) if _holds_of_none(of, other) else self._nodes(path, at, None)
            case MethodCall(path=path):
                return self._nodes(path, at, None)
            case _:
                return _some_node(at)


# --- approximations ----------------------------------------------------------------------------


def _there(at: NodePattern) -> Filter:
    return TRUE if at.is_document else Present(str(at))


def _some_node(at: NodePattern, *, exact: bool = False) -> Approximation:
    """Return where there is a node at a place: all that is known, unless it is `exact`."""
    return Approximation(_there(at), exact)


def _none_such(at: NodePattern, found: Approximation) -> Approximation:
    """Return where from some node at a place nothing is found."""
    if not found.is_always_exact or not at.is_single:
        return _some_node(at)
    return Approximation(_conjunction([_there(at), negated(found.filter)]), exact=True)


def _together(
    at: NodePattern, parts: Sequence[Approximation], key: Approximation | None = None
) -> Approximation:
    """Return where some node at a place has all of several parts.

    A key that is exact says it all, unless there are too many.
    """
    if not parts:
        return _some_node(at, exact=True)
    keys = frozenset[str]().union(*(part.keys for part in parts))
    filters = [part.filter for part in parts]
    # That there is one for each part does not mean that it is one and the same.
    exact = all(part.exact for part in parts) and (at.is_single or len(parts) < 2)
    if not exact:
        filters.insert(0, _there(at))
    if key is not None:
        filters.append(key.filter)
        if key.exact and not exact:
            exact, keys = True, key.keys
    return Approximation(_conjunction(filters), exact, keys if exact else frozenset())


def _said_by(key: Approximation | None, conditions: Sequence[object]) -> Approximation | None:
    """Return a key that is exact only if it says all that conditions do."""
    terms = [term for condition in conditions for term in joined_terms(condition)]
    return key if all(map(is_plain_test, terms)) else _vague(key)


def _vague(key: Approximation | None) -> Approximation | None:
    return None if key is None else key._replace(exact=False)


def _either(parts: Sequence[Approximation]) -> Approximation:
    filters = list(dict.fromkeys(part.filter for part in parts))
    exact = all(part.exact for part in parts)
    keys = frozenset[str]().union(*(part.keys for part in parts)) if exact else frozenset()
    return Approximation(TRUE if TRUE in filters else Or.of(filters), exact, keys)


def _conjunction(filters: Sequence[Filter]) -> Filter:
    """Join filters, without those that others say."""
    joined = And.of(one for one in filters if one != TRUE)
    terms = [*dict.fromkeys(joined.terms)] if isinstance(joined, And) else [joined]
    there = {term.attribute for term in terms if isinstance(term, Atom)}
    return And.of(term for term in terms if not _is_said_by(term, there))


def _is_said_by(term: Filter, there: AbstractSet[str]) -> bool:
    """Return whether there is a node at a place because there are others, or values, in it."""
    if not isinstance(term, Present):
        return False
    inside = (term.attribute + "/", term.attribute + "[")
    return any(name.startswith(inside) for name in there)


def _constant(of: XQLComparison, at: NodePattern, *, truth: bool) -> Approximation:
    left, right = of.left, of.right
    assert isinstance(left, LiteralOperand)  # noqa: S101 - the caller looked
    assert isinstance(right, LiteralOperand)  # noqa: S101
    holds = comparison_holds(
        of.op, left.constant, right.constant, cast=False, caseless=of.is_caseless
    )
    return _some_node(at, exact=True) if holds is truth else Approximation(FALSE, exact=True)


def _holds_of_none(of: XQLComparison, other: XQLOperand) -> bool:
    """Return whether no nodes at all may be enough."""
    if not isinstance(other, LiteralOperand) or of.user is not None:
        return True
    left, right = (other.constant, 0) if other is of.left else (0, other.constant)
    return comparison_holds(of.op, left, right, cast=False, caseless=of.is_caseless)
