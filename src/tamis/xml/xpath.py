"""The parser of XPath 1.0: text to paths, comparisons, conditions and calls.

What an expression gives is known from its text, so whatever needs nodes and does not get them is
refused here. A rule that calls itself goes through `QueryTokens.nested`, so the depth of the text
is limited; operators of one kind in a row make one expression, however many they are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from tamis.errors import LimitError
from tamis.xml.axes import AXES, Axis
from tamis.xml.logic import AllHold, Negation, NodeCondition, SomeHold, Subscript
from tamis.xml.nodes import XMLKind
from tamis.xml.paths import (
    ANY_NODE,
    AxisStep,
    GroupStep,
    NodeExpression,
    NodePath,
    NodeStep,
    NodeTest,
    NodeUnion,
    Selection,
    XMLExpression,
)
from tamis.xml.scanning import NAME, QUOTED, QueryOpening, QueryToken
from tamis.xml.work import XMLQueryLimits
from tamis.xml.xpath_functions import CORE_FUNCTIONS, CoreFunctionCall
from tamis.xml.xpath_terms import XPathArithmetic, XPathComparison, type_of
from tamis.xml.xpath_values import XPathType
from tamis.xml.xql_terms import LiteralOperand, NodesOperand, WithId

_DIGITS: Final = r"[0-9]++(?:\.[0-9]*+)?|\.[0-9]++"
TOKEN: Final = re.compile(
    rf"{_DIGITS}|{QUOTED}|{NAME}(?::(?:{NAME}|\*))?|\$|//|::|\.\.|!=|<=|>=|\S"
)
_NUMBER: Final = re.compile(_DIGITS)

# From the operators that bind tightest to those that bind loosest.
_COMPARISONS: Final = (("<", "<=", ">", ">="), ("=", "!="))
_LEVELS: Final = (("*", "div", "mod"), ("+", "-"), *_COMPARISONS, ("and",), ("or",))
_OPERATORS: Final = {op for level in _LEVELS for op in level}
_MAX_COMPARISONS: Final = 8
"""Comparisons in a row, as in `1 < 2 = true()`: each is one side of the next."""

_NODE_TYPES: Final[Mapping[str, NodeTest]] = {
    "node": ANY_NODE,
    "text": NodeTest(XMLKind.TEXT),
    "comment": NodeTest(XMLKind.COMMENT),
    "processing-instruction": NodeTest(XMLKind.INSTRUCTION),
}
# Functions that are conditions, and how many arguments they take.
_CONDITIONS: Final = {"boolean": 1, "not": 1, "true": 0, "false": 0}
FUNCTION_NAMES: Final = (*CORE_FUNCTIONS, *_CONDITIONS, "id")

_ANYWHERE: Final = AxisStep(AXES["descendant-or-self"], ANY_NODE)
_HERE: Final = AxisStep(AXES["self"], ANY_NODE)
_PLACE: Final = CoreFunctionCall(CORE_FUNCTIONS["position"])


class XPathParser(QueryOpening[XMLExpression]):
    """Parses one query."""

    def __init__(self, text: str, *, limits: XMLQueryLimits, namespaces: Mapping[str, str]) -> None:
        super().__init__(text, TOKEN, limits, namespaces)

    def _whole(self) -> XMLExpression:
        return self._expression()

    # --- operators -----------------------------------------------------------------------------

    def _expression(self) -> XMLExpression:
        with self._tokens.nested():
            operands = [self._operand()]
            operators: list[str] = []
            # After an operand, `*` and a name such as `and` are operators.
            while self._tokens.current.text in _OPERATORS:
                operators.append(self._tokens.take().text)
                operands.append(self._operand())
        for level in _LEVELS:
            operands, operators = _joined(level, operands, operators)
        return operands[0]

    def _operand(self) -> XMLExpression:
        minuses = 0
        while self._tokens.skip("-"):
            minuses += 1
        found = self._union()
        if not minuses:
            return found
        sign = -1.0 if minuses % 2 else 1.0
        if isinstance(found, LiteralOperand) and isinstance(found.constant, float):
            return LiteralOperand(sign * found.constant)
        return XPathArithmetic(LiteralOperand(sign), (("*", found),))

    def _union(self) -> XMLExpression:
        start = self._tokens.current
        terms = [self._path()]
        while self._tokens.current.text == "|":
            self._only_nodes(terms[-1], start, 'before "|"')
            self._tokens.take()
            start = self._tokens.current
            terms.append(self._path())
            self._only_nodes(terms[-1], start, 'after "|"')
        if len(terms) == 1:
            return terms[0]
        return NodeUnion(tuple(cast("NodeExpression", term) for term in terms))

    def _only_nodes(self, term: XMLExpression, start: QueryToken, where: str) -> NodeExpression:
        found = type_of(term)
        if found is not XPathType.NODE_SET:
            raise self._tokens.error(f"nodes are needed {where}, and this is a {found}", at=start)
        return cast("NodeExpression", term)

    # --- paths ---------------------------------------------------------------------------------

    def _path(self) -> XMLExpression:
        token = self._tokens.current
        if self._tokens.skip("/"):
            steps = self._steps() if self._starts_step() else ()
            return NodePath(tuple(steps), is_absolute=True)
        if self._tokens.skip("//"):
            return NodePath((_ANYWHERE, *self._steps()), is_absolute=True)
        if not self._starts_primary():
            return NodePath(tuple(self._steps()))
        found = self._primary()
        following = self._tokens.current
        if following.text not in {"[", "/", "//"}:
            return found
        group = GroupStep(
            self._only_nodes(found, token, f"before {following.shown}"), self._selections()
        )
        return NodePath((group, *self._more_steps()))

    def _starts_primary(self) -> bool:
        token = self._tokens.current
        if token.is_name:
            return self._tokens.ahead(1).text == "(" and token.text not in _NODE_TYPES
        is_number = bool(_NUMBER.fullmatch(token.text))
        return token.is_quoted or is_number or token.text in {"(", "$"}

    def _starts_step(self) -> bool:
        token = self._tokens.current
        return token.is_name or token.text in {".", "..", "*", "@"}

    def _steps(self) -> Sequence[NodeStep]:
        return (self._step(), *self._more_steps())

    def _more_steps(self) -> Sequence[NodeStep]:
        found: list[NodeStep] = []
        while self._tokens.current.text in {"/", "//"}:
            if self._tokens.take().text == "//":
                found.append(_ANYWHERE)
            found.append(self._step())
        return found

    def _step(self) -> AxisStep:
        token = self._tokens.current
        if self._tokens.skip(".", ".."):
            axis = AXES["self"] if token.text == "." else AXES["parent"]
            if self._tokens.current.text == "[":
                raise self._tokens.error(
                    f'a filter cannot follow "{token.text}"',
                    hint=f"write {axis.name}::node()[…]",
                )
            return AxisStep(axis, ANY_NODE)
        axis = self._axis()
        return AxisStep(axis, self._node_test(axis), self._selections())

    def _axis(self) -> Axis:
        if self._tokens.skip("@"):
            return AXES["attribute"]
        if self._tokens.ahead(1).text != "::":
            return AXES["child"]
        token = self._tokens.take()
        self._tokens.take()
        if token.text not in AXES:
            raise self._tokens.error(
                f"{token.shown} is not an axis", at=token, meant=token.text, known=AXES
            )
        return AXES[token.text]

    def _node_test(self, axis: Axis) -> NodeTest:
        token = self._tokens.take()
        if token.text == "*":
            return NodeTest(axis.principal)
        if not token.is_name:
            raise self._tokens.nothing_before(token)
        if self._tokens.current.text == "(":
            return self._node_type(token)
        prefix, colon, local = token.text.partition(":")
        if not colon:
            return NodeTest(axis.principal, token.text, "")
        namespace = self._namespaces.of(prefix, self._tokens, token)
        return NodeTest(axis.principal, None if local == "*" else local, namespace)

    def _node_type(self, token: QueryToken) -> NodeTest:
        if token.text not in _NODE_TYPES:
            raise self._tokens.error(
                f"{token.text}() cannot be a step of a path",
                at=token,
                meant=token.text,
                known=_NODE_TYPES,
            )
        test = _NODE_TYPES[token.text]
        self._tokens.expect("(", f"after {token.text}")
        if self._tokens.current.is_quoted:
            if token.text != "processing-instruction":
                raise self._tokens.error(f"{token.text}() takes nothing")
            test = NodeTest(test.kind, self._tokens.quoted())
        self._tokens.expect(")", f"after {token.text}(")
        return test

    def _selections(self) -> tuple[Selection, ...]:
        found: list[Selection] = []
        while True:
            opening = self._tokens.current
            if not self._tokens.skip("["):
                return tuple(found)
            found.append(_selection(self._expression()))
            self._tokens.expect("]", self._tokens.opened_by(opening))

    # --- what is no path -----------------------------------------------------------------------

    def _primary(self) -> XMLExpression:
        token = self._tokens.current
        if token.is_quoted:
            return LiteralOperand(self._tokens.quoted())
        if token.is_name:
            return self._call()
        self._tokens.take()
        if token.text == "(":
            found = self._expression()
            self._tokens.expect(")", self._tokens.opened_by(token))
            return found
        if token.text == "$":
            raise self._tokens.error(
                f"the variable ${self._tokens.current.text} has no value: there are none here",
                at=token,
                hint="write the value itself",
            )
        return LiteralOperand(float(token.text))

    def _call(self) -> XMLExpression:
        token = self._tokens.take()
        name = token.text
        if name not in FUNCTION_NAMES:
            raise self._tokens.error(
                f"{name}() is not a function of XPath 1.0",
                at=token,
                meant=name,
                known=FUNCTION_NAMES,
            )
        starts, arguments = self._arguments(name)
        if name in _CONDITIONS:
            self._check_count(token, len(arguments), _CONDITIONS[name], _CONDITIONS[name])
            return _condition(name, arguments)
        if name == "id":
            self._check_count(token, len(arguments), 1, 1)
            return _with_id(arguments[0])
        function = CORE_FUNCTIONS[name]
        most = None if function.has_more else len(function.takes)
        self._check_count(token, len(arguments), function.required, most)
        for number, (argument, start) in enumerate(zip(arguments, starts, strict=True)):
            if function.type_at(number) is XPathType.NODE_SET:
                self._only_nodes(argument, start, f"by {name}()")
        if function.is_of_focus and not arguments:
            arguments = [NodePath((_HERE,))]
        return CoreFunctionCall(function, tuple(arguments))

    def _arguments(self, name: str) -> tuple[Sequence[QueryToken], list[XMLExpression]]:
        self._tokens.expect("(", f"after {name}")
        starts: list[QueryToken] = []
        found: list[XMLExpression] = []
        while not self._tokens.skip(")"):
            if found:
                self._tokens.expect(",", f"between two arguments of {name}()")
            starts.append(self._tokens.current)
            found.append(self._expression())
        return starts, found

    def _check_count(self, token: QueryToken, count: int, least: int, most: int | None) -> None:
        if count >= least and (most is None or count <= most):
            return
        if most is None:
            takes = f"at least {least} arguments"
        elif least == most:
            takes = {0: "no argument", 1: "one argument"}.get(least, f"{least} arguments")
        else:
            takes = f"{least} or {most} arguments"
        raise self._tokens.error(f"{token.text}() takes {takes}, not {count}", at=token)


def _joined(
    level: Sequence[str], operands: Sequence[XMLExpression], operators: Sequence[str]
) -> tuple[list[XMLExpression], list[str]]:
    """Join operands with the operators of one level; return those with the others."""
    runs: list[tuple[XMLExpression, list[tuple[str, XMLExpression]]]] = [(operands[0], [])]
    left: list[str] = []
    for op, operand in zip(operators, operands[1:], strict=True):
        if op in level:
            runs[-1][1].append((op, operand))
        else:
            left.append(op)
            runs.append((operand, []))
    return [_chain(first, others) if others else first for first, others in runs], left


def _chain(first: XMLExpression, others: Sequence[tuple[str, XMLExpression]]) -> XMLExpression:
    """Return operations of one level, from left to right."""
    op = others[0][0]
    if op in {"and", "or"}:
        terms = (first, *(term for _, term in others))
        return AllHold(terms) if op == "and" else SomeHold(terms)
    if not any(op in level for level in _COMPARISONS):
        return XPathArithmetic(first, tuple(others))
    if len(others) > _MAX_COMPARISONS:
        raise LimitError("comparisons in a row", actual=len(others), limit=_MAX_COMPARISONS)
    found = first
    for op, term in others:
        found = XPathComparison(op, found, term)
    return found


def _selection(expression: XMLExpression) -> Selection:
    """Return what `[ … ]` keeps: a number means the node at that place."""
    if type_of(expression) is not XPathType.NUMBER:
        return NodeCondition(expression)
    if isinstance(expression, LiteralOperand):
        place = cast("float", expression.constant)
        if math.isfinite(place) and place >= 1 and place.is_integer():
            return Subscript(((int(place) - 1, int(place) - 1),))
    if isinstance(expression, CoreFunctionCall) and expression.function.name == "last":
        return Subscript(((-1, -1),))
    return NodeCondition(XPathComparison("=", _PLACE, expression))


def _condition(name: str, arguments: Sequence[XMLExpression]) -> XMLExpression:
    if name == "not":
        return Negation(arguments[0])
    # A term alone makes it true or false; all of none are true, and some of none are not.
    return SomeHold(()) if name == "false" else AllHold(tuple(arguments))


def _with_id(words: XMLExpression) -> NodePath:
    if type_of(words) is XPathType.NODE_SET:
        return NodePath((GroupStep(WithId(NodesOperand(cast("NodeExpression", words)))),))
    return NodePath((GroupStep(WithId(CoreFunctionCall(CORE_FUNCTIONS["string"], (words,)))),))
