"""The core functions of XPath 1.0, each with what it takes and gives.

`boolean`, `not`, `true` and `false` are not here: the parser makes conditions of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tamis.xml.logic import counts_as_true
from tamis.xml.nodes import XML_NAMESPACE, XMLNode
from tamis.xml.paths import XMLExpression
from tamis.xml.values import without_extra_space
from tamis.xml.work import Evaluation, Focus
from tamis.xml.xpath_values import (
    XPathType,
    XPathValue,
    number_from,
    number_of,
    string_of,
)

_NODE_SET: Final = XPathType.NODE_SET
_STRING: Final = XPathType.STRING
_NUMBER: Final = XPathType.NUMBER
_BOOLEAN: Final = XPathType.BOOLEAN


class CoreFunction(NamedTuple):
    """A function of the library that every XPath has."""

    name: str
    gives: XPathType
    takes: tuple[XPathType, ...]
    result: Callable[..., XPathValue]
    """Takes the evaluation, the focus, and the arguments, each of its type."""
    required: int
    is_of_focus: bool = False
    """Whether it is of the node at hand if it has no argument."""
    has_more: bool = False
    """Whether more arguments of the last type may follow."""

    def type_at(self, place: int) -> XPathType:
        """Return the type of an argument."""
        return self.takes[min(place, len(self.takes) - 1)]


class CoreFunctionCall(NamedTuple):
    """A call of a core function."""

    function: CoreFunction
    arguments: tuple[XMLExpression, ...] = ()

    @property
    def is_positional(self) -> bool:
        """Return whether it, or an argument, asks for the place of the node at hand."""
        is_place = self.function.name in {"position", "last"}
        return is_place or any(argument.is_positional for argument in self.arguments)

    def evaluate(self, evaluation: Evaluation, focus: Focus) -> XPathValue:
        """Return what the function gives."""
        evaluation.spend(1 + len(self.arguments))
        values = [
            _converted(evaluation, argument.evaluate(evaluation, focus), self.function.type_at(at))
            for at, argument in enumerate(self.arguments)
        ]
        result = self.function.result(evaluation, focus, *values)
        if isinstance(result, str):
            evaluation.read(result)
        return result

    def values(self, evaluation: Evaluation, focus: Focus) -> Sequence[Any]:
        """Return what the function gives, as the one value of an operand."""
        return (self.evaluate(evaluation, focus),)

    @property
    def is_cast(self) -> bool:
        """Return that its text is not taken for a number."""
        return False


def _converted(evaluation: Evaluation, value: Any, wanted: XPathType) -> XPathValue:
    if wanted is _STRING:
        text = string_of(evaluation, value)
        evaluation.read(text)
        return text
    if wanted is _NUMBER:
        return number_of(evaluation, value)
    if wanted is _BOOLEAN:
        return counts_as_true(value)
    return value  # type: ignore[no-any-return]  # the parser has refused what are not nodes


def _of_texts(function: Callable[..., XPathValue]) -> Callable[..., XPathValue]:
    """Return a function that needs neither the document nor the node at hand."""
    return lambda _evaluation, _focus, *values: function(*values)


# --- nodes -------------------------------------------------------------------------------------


def _first(part: Callable[[XMLNode], str]) -> Callable[..., XPathValue]:
    return lambda _evaluation, _focus, nodes: part(nodes[0]) if nodes else ""


def _sum(evaluation: Evaluation, _: Focus, nodes: Sequence[XMLNode]) -> float:
    total = 0.0
    for node in nodes:
        total += number_from(evaluation.text_of(node))
    return total


def _lang(_: Evaluation, focus: Focus, wanted: str) -> bool:
    node: XMLNode | None = focus.node
    while node is not None:
        for attribute in node.attributes:
            if attribute.name == "lang" and attribute.namespace == XML_NAMESPACE:
                found, asked = attribute.content.lower(), wanted.lower()
                return found == asked or found.startswith(f"{asked}-")
        node = node.parent
    return False


# --- strings -----------------------------------------------------------------------------------


def _before(text: str, part: str) -> str:
    head, found, _ = text.partition(part) if part else ("", "", "")
    return head if found else ""


def _after(text: str, part: str) -> str:
    return text.partition(part)[2] if part else text


def _substring(text: str, start: float, length: float | None = None) -> str:
    first = nearest(start)
    end = math.inf if length is None else first + nearest(length)
    # With NaN neither is true: no place is in it.
    if not (first <= len(text) and end > 1):
        return ""
    return text[int(max(first, 1)) - 1 : int(max(min(end, len(text) + 1), 1)) - 1]


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, str | None] = {}
    for place, character in enumerate(old):
        table.setdefault(ord(character), new[place] if place < len(new) else None)
    return text.translate(table)


# --- numbers -----------------------------------------------------------------------------------


def _whole(number: float, rounded: Callable[[float], int]) -> float:
    # Zero keeps the sign of what it was made of.
    return math.copysign(rounded(number), number) if math.isfinite(number) else number


def nearest(number: float) -> float:
    """Return the nearest whole number, of two the greater."""
    return _whole(number, lambda n: math.floor(n) + (n - math.floor(n) >= 0.5))


_FUNCTIONS: Final = (
    CoreFunction("last", _NUMBER, (), lambda _, focus: float(focus.size), 0),
    CoreFunction("position", _NUMBER, (), lambda _, focus: focus.position + 1.0, 0),
    CoreFunction("count", _NUMBER, (_NODE_SET,), _of_texts(lambda nodes: float(len(nodes))), 1),
    CoreFunction("local-name", _STRING, (_NODE_SET,), _first(lambda n: n.name), 0, True),
    CoreFunction("namespace-uri", _STRING, (_NODE_SET,), _first(lambda n: n.namespace), 0, True),
    CoreFunction("name", _STRING, (_NODE_SET,), _first(lambda n: n.qualified_name), 0, True),
    CoreFunction("string", _STRING, (_STRING,), _of_texts(lambda text: text), 0, True),
    CoreFunction(
        "concat",
        _STRING,
        (_STRING,),
        _of_texts(lambda *texts: "".join(texts)),
        2,
        has_more=True,
    ),
    CoreFunction("starts-with", _BOOLEAN, (_STRING, _STRING), _of_texts(str.startswith), 2),
    CoreFunction("contains", _BOOLEAN, (_STRING, _STRING), _of_texts(str.__contains__), 2),
    CoreFunction("substring-before", _STRING, (_STRING, _STRING), _of_texts(_before), 2),
    CoreFunction("substring-after", _STRING, (_STRING, _STRING), _of_texts(_after), 2),
    CoreFunction("substring", _STRING, (_STRING, _NUMBER, _NUMBER), _of_texts(_substring), 2),
    CoreFunction(
        "string-length", _NUMBER, (_STRING,), _of_texts(lambda text: float(len(text))), 0, True
    ),
    CoreFunction("normalize-space", _STRING, (_STRING,), _of_texts(without_extra_space), 0, True),
    CoreFunction("translate", _STRING, (_STRING,) * 3, _of_texts(_translate), 3),
    CoreFunction("lang", _BOOLEAN, (_STRING,), _lang, 1),
    CoreFunction("number", _NUMBER, (_NUMBER,), _of_texts(lambda number: number), 0, True),
    CoreFunction("sum", _NUMBER, (_NODE_SET,), _sum, 1),
    CoreFunction("floor", _NUMBER, (_NUMBER,), _of_texts(lambda n: _whole(n, math.floor)), 1),
    CoreFunction("ceiling", _NUMBER, (_NUMBER,), _of_texts(lambda n: _whole(n, math.ceil)), 1),
    CoreFunction("round", _NUMBER, (_NUMBER,), _of_texts(nearest), 1),
)
CORE_FUNCTIONS: Final[Mapping[str, CoreFunction]] = {each.name: each for each in _FUNCTIONS}
