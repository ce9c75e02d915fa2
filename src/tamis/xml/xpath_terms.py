"""What XPath has beside paths, conditions and functions: comparisons and arithmetic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tamis.xml.paths import NodePath, NodeUnion, XMLExpression
from tamis.xml.work import Evaluation, Focus
from tamis.xml.xpath_functions import CoreFunctionCall
from tamis.xml.xpath_values import XPathType, compare_in_xpath, number_of
from tamis.xml.xql_terms import LiteralOperand


def type_of(expression: XMLExpression) -> XPathType:
    """Return what an expression of XPath gives."""
    match expression:
        case NodePath() | NodeUnion():
            return XPathType.NODE_SET
        case LiteralOperand():
            is_text = isinstance(expression.constant, str)
            return XPathType.STRING if is_text else XPathType.NUMBER
        case CoreFunctionCall():
            return expression.function.gives
        case XPathArithmetic():
            return XPathType.NUMBER
        case _:
            return XPathType.BOOLEAN


class XPathComparison(NamedTuple):
    """A comparison by the rules of XPath: of nodes, it is true if it is for some."""

    op: str
    left: XMLExpression
    right: XMLExpression

    @property
    def is_positional(self) -> bool:
        """Return whether a side is."""
        return self.left.is_positional or self.right.is_positional

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> bool:
        """Return whether the sides compare so."""
        evaluation.spend(1)
        left: Any = self.left.evaluate(evaluation, focus)
        right: Any = self.right.evaluate(evaluation, focus)
        return compare_in_xpath(evaluation, self.op, left, right)


def _quotient(dividend: float, divisor: float) -> float:
    if divisor:
        return dividend / divisor
    if not dividend or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1, divisor)


def _remainder(dividend: float, divisor: float) -> float:
    if math.isinf(dividend) or not divisor:
        return math.nan
    return math.fmod(dividend, divisor)


OPERATIONS: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "div": _quotient,
    "mod": _remainder,
}


class XPathArithmetic(NamedTuple):
    """A chain of operations, from left to right: a long one is no deep one."""

    first: XMLExpression
    others: tuple[tuple[str, XMLExpression], ...]
    """Each operation with its right side."""

    @property
    def is_positional(self) -> bool:
        """Return whether an operand is."""
        return self.first.is_positional or any(term.is_positional for _, term in self.others)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> float:
        """Return the number."""
        evaluation.spend(1 + len(self.others))
        number = _number(self.first, evaluation, focus)
        for op, term in self.others:
            number = OPERATIONS[op](number, _number(term, evaluation, focus))
        return number


def _number(term: XMLExpression, evaluation: Evaluation, focus: Focus) -> float:
    value: Any = term.evaluate(evaluation, focus)
    return number_of(evaluation, value)
