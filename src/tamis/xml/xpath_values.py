"""Values of XPath 1.0: node-sets, strings, numbers and booleans, converted and compared."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, cast

from tamis.filters.atoms import COMPARISONS
from tamis.xml.logic import counts_as_true
from tamis.xml.nodes import XMLNode
from tamis.xml.work import Evaluation

XPathValue = Sequence[XMLNode] | str | float | bool
"""A value of XPath; nodes are in document order."""

_NUMBER: Final = re.compile(r"[ \t\r\n]*+(-?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++))[ \t\r\n]*+")


class XPathType(StrEnum):
    """What an expression gives: without variables, its text decides."""

    NODE_SET = "node-set"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"


def number_from(text: str) -> float:
    """Return the number that a text is, NaN if it is none; there are no exponents.

    >>> number_from(" -7.5 "), number_from("1e3")
    (-7.5, nan)
    """
    found = _NUMBER.fullmatch(text)
    return float(found[1]) if found else math.nan


def number_text(number: float) -> str:
    """Return a number as XPath writes it, with as many digits as tell it from others.

    >>> number_text(1e21), number_text(-0.0), number_text(2.50), number_text(1 / 3)
    ('1000000000000000000000', '0', '2.5', '0.3333333333333333')
    """
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number.is_integer():
        return str(int(number)) if abs(number) < 2**53 else format(Decimal(repr(number)), "f")
    return format(Decimal(repr(number)), "f")


def is_node_set(value: object) -> bool:
    """Return whether a value is nodes."""
    return isinstance(value, list | tuple)


def string_of(evaluation: Evaluation, value: XPathValue) -> str:
    """Return a value as a string; of nodes, the text of the first."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    return evaluation.text_of(value[0]) if value else ""


def number_of(evaluation: Evaluation, value: XPathValue) -> float:
    """Return a value as a number."""
    if isinstance(value, float):
        return value
    if isinstance(value, bool):
        return float(value)
    return number_from(string_of(evaluation, value))


def compare_in_xpath(evaluation: Evaluation, op: str, left: XPathValue, right: XPathValue) -> bool:
    """Return whether two values satisfy a comparison; of nodes, whether some do."""
    is_order = op not in {"=", "!="}
    if isinstance(left, bool) or isinstance(right, bool):
        left, right = _beside_boolean(left, is_order), _beside_boolean(right, is_order)
        if not is_order:
            return COMPARISONS[op](counts_as_true(left), counts_as_true(right))
    lefts, rights = _members(evaluation, left), _members(evaluation, right)
    if is_order or isinstance(left, float) or isinstance(right, float):
        return _some_numbers(
            op,
            [number_of(evaluation, each) for each in lefts],
            [number_of(evaluation, each) for each in rights],
        )
    return _some(op, lefts, rights)


def _beside_boolean(value: XPathValue, is_order: bool) -> XPathValue:
    """Return a value that is compared with a boolean: nodes are true if there are some."""
    return counts_as_true(value) if is_node_set(value) or not is_order else value


def _members(evaluation: Evaluation, value: XPathValue) -> Sequence[str | float | bool]:
    if not is_node_set(value):
        return (cast("str | float | bool", value),)
    return [evaluation.text_of(node) for node in cast("Sequence[XMLNode]", value)]


def _some_numbers(op: str, lefts: Sequence[float], rights: Sequence[float]) -> bool:
    known = [each for each in lefts if each == each], [each for each in rights if each == each]  # noqa: PLR0124 - NaN is not equal to itself
    if op == "!=":
        has_other = len(known[0]) < len(lefts) or len(known[1]) < len(rights)
        return bool(lefts) and bool(rights) and (has_other or _some(op, *known))
    return _some(op, *known)


def _some(op: str, lefts: Collection[Any], rights: Collection[Any]) -> bool:
    """Return whether some of both satisfy a comparison, in linear time."""
    if not lefts or not rights:
        return False
    match op:
        case "=":
            return not {*lefts}.isdisjoint(rights)
        case "!=":
            return len({*lefts, *rights}) > 1
        case "<" | "<=":
            return COMPARISONS[op](min(lefts), max(rights))
        case _:
            return COMPARISONS[op](max(lefts), min(rights))
