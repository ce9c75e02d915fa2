"""What conditions ask of one element: where in it they look, and with what they compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Final, NamedTuple

from tamis.filters.atoms import MIRRORED
from tamis.xml.correlation import InnerTest
from tamis.xml.logic import AllHold, NodeCondition
from tamis.xml.node_patterns import NodePattern, PatternStep, document_attribute
from tamis.xml.nodes import XMLKind
from tamis.xml.paths import ANY_NODE, AxisStep, NodePath, NodeStep, NodeUnion, Selection
from tamis.xml.value_tests import MAX_XPATH_NUMBER, ValueTest
from tamis.xml.values import without_extra_space
from tamis.xml.xpath_terms import XPathComparison
from tamis.xml.xpath_values import number_from
from tamis.xml.xql_terms import (
    LiteralOperand,
    MethodCall,
    NodesOperand,
    XQLComparison,
    XQLOperand,
)

_TEXT_METHODS: Final = ("text", "value")
_STEP_KINDS: Final = {
    "child": XMLKind.ELEMENT,
    "descendant": XMLKind.ELEMENT,
    "attribute": XMLKind.ATTRIBUTE,
}


class StepLead(NamedTuple):
    """Where a step leads, what keeps some of the nodes there, and the steps that follow."""

    at: NodePattern
    selections: Sequence[Selection]
    rest: Sequence[NodeStep]
    is_up: bool = False


def lead_of(steps: Sequence[NodeStep], at: NodePattern) -> StepLead | None:
    """Return where the first step leads, with the `//` before it; None if it is not known."""
    first = steps[0]
    if not isinstance(first, AxisStep):
        return None
    if _is_anywhere(first) and len(steps) > 1 and isinstance(steps[1], AxisStep):
        return _lead_down(steps[1], at, steps[2:], is_deep=True)
    if first.test == ANY_NODE and first.axis.name == "self":
        return StepLead(at, first.selections, steps[1:])
    if first.test == ANY_NODE and first.axis.name == "parent":
        above = at.parent()
        return None if above is None else StepLead(above, first.selections, steps[1:], is_up=True)
    return _lead_down(first, at, steps[1:], is_deep=False)


def _is_anywhere(step: AxisStep) -> bool:
    return step.axis.name == "descendant-or-self" and step.test == ANY_NODE and not step.selections


def _lead_down(
    step: AxisStep, at: NodePattern, rest: Sequence[NodeStep], *, is_deep: bool
) -> StepLead | None:
    downward = _pattern_step(step, is_deep=is_deep)
    place = None if downward is None else at.then(downward)
    # Its name has to be read again, where events are made.
    if place is None or document_attribute(str(place)) != place:
        return None
    return StepLead(place, step.selections, rest)


def _pattern_step(step: AxisStep, *, is_deep: bool) -> PatternStep | None:
    kind, name, namespace = step.test
    axis = step.axis.name
    if kind is None or _STEP_KINDS.get(axis) is not kind:
        return None
    return PatternStep(name, namespace, axis == "attribute", is_deep or axis == "descendant")


# --- tests -------------------------------------------------------------------------------------


def tested_by(of: XQLComparison | XPathComparison) -> tuple[object, ValueTest] | None:
    """Return the nodes, None for the one at hand, and the test that they pass; None if unknown."""
    if isinstance(of, XPathComparison):
        return _tested_by_xpath(of)
    if of.user is not None:
        return None
    if isinstance(of.right, LiteralOperand):
        side, op, literal = of.left, of.op, of.right.constant
    elif isinstance(of.left, LiteralOperand):
        side, op, literal = of.right, MIRRORED[of.op], of.left.constant
    else:
        return None
    test = ValueTest(op, literal, of.is_caseless and isinstance(literal, str))
    return _tested_nodes(side, test)


def _tested_by_xpath(of: XPathComparison) -> tuple[object, ValueTest] | None:
    side, op, literal = of.left, of.op, of.right
    if isinstance(side, LiteralOperand):
        side, op, literal = of.right, MIRRORED[of.op], of.left
    if not isinstance(literal, LiteralOperand) or not isinstance(side, NodePath | NodeUnion):
        return None
    constant = literal.constant
    # What is not equal to something may only differ in white space, or be no number.
    if op == "!=" or isinstance(constant, date):
        return None
    if isinstance(constant, str):
        if op == "=":
            return side, ValueTest(op, without_extra_space(constant), is_xpath=True)
        constant = number_from(constant)
    if not abs(constant) < MAX_XPATH_NUMBER:
        return None
    return side, ValueTest(op, constant, is_xpath=True)


def _tested_nodes(side: XQLOperand, test: ValueTest) -> tuple[object, ValueTest] | None:
    match side:
        case NodesOperand(inner=inner):
            return inner, test
        case MethodCall(name=name, path=path) if name in _TEXT_METHODS:
            return path, test
        case _:
            return None


def plain_steps(expression: object) -> tuple[PatternStep, ...] | None:
    """Return the steps downward of a path that has nothing else; None if it is no such path."""
    if not isinstance(expression, NodePath) or expression.is_absolute:
        return None
    found: list[PatternStep] = []
    for step in expression.steps:
        if not isinstance(step, AxisStep) or step.selections:
            return None
        if step.axis.name == "self" and step.test == ANY_NODE:
            continue
        downward = _pattern_step(step, is_deep=False)
        if downward is None or downward.is_deep or (found and found[-1].is_attribute):
            return None
        found.append(downward)
    return tuple(found)


def is_plain_test(condition: object) -> bool:
    """Return whether a condition is that some node, found in plain steps, passes a test."""
    if not isinstance(condition, XQLComparison) or condition.of_all:
        return False
    found = tested_by(condition)
    return found is not None and (found[0] is None or plain_steps(found[0]) is not None)


def joined_terms(expression: object) -> Iterator[object]:
    """Yield what has to be true for an expression to be."""
    if isinstance(expression, AllHold):
        for term in expression.terms:
            yield from joined_terms(term)
    else:
        yield expression


def inner_tests(conditions: Iterable[object]) -> Iterator[InnerTest]:
    """Yield tests that an element passes if it satisfies all conditions."""
    for condition in conditions:
        for term in joined_terms(condition):
            if isinstance(term, NodePath) and not term.is_absolute:
                yield from tests_below(term.steps, None)
            elif isinstance(term, XQLComparison | XPathComparison):
                yield from _tests_of_comparison(term)


def _tests_of_comparison(of: XQLComparison | XPathComparison) -> Iterator[InnerTest]:
    found = tested_by(of)
    if found is None:
        return
    if isinstance(of, XQLComparison) and of.of_all and not isinstance(of.left, LiteralOperand):
        return
    expression, test = found
    if expression is None:
        yield InnerTest((), test)
    elif isinstance(expression, NodePath) and not expression.is_absolute:
        yield from tests_below(expression.steps, test)


def tests_below(steps: Sequence[NodeStep], test: ValueTest | None) -> Iterator[InnerTest]:
    """Yield tests that an element passes if steps lead from it to one that passes a test."""
    prefix: tuple[PatternStep, ...] = ()
    for step in steps:
        if not isinstance(step, AxisStep):
            return
        if step.axis.name != "self" or step.test != ANY_NODE:
            downward = _pattern_step(step, is_deep=False)
            if downward is None or downward.is_deep or (prefix and prefix[-1].is_attribute):
                return
            prefix = (*prefix, downward)
        conditions = [each for each in step.selections if isinstance(each, NodeCondition)]
        for inner in inner_tests(each.expression for each in conditions):
            if not (prefix and prefix[-1].is_attribute and inner.steps):
                yield InnerTest((*prefix, *inner.steps), inner.test)
    if test is not None:
        yield InnerTest(prefix, test)
