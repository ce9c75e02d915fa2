"""The words of XQL: its tokens, operators and functions, and subscripts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tamis.errors import FilterSyntaxError
from tamis.xml.logic import Subscript
from tamis.xml.nodes import XMLKind
from tamis.xml.scanning import NAME, QUOTED, QueryToken, QueryTokens
from tamis.xml.xql_terms import METHOD_NAMES

TOKEN: Final = re.compile(
    rf"\$[\w.-]*+\$?|-?[0-9]++(?:\.[0-9]++)?|-?\.[0-9]++|{QUOTED}|{NAME}(?::(?:{NAME}|\*))?"
    r"|//|\.\.|!=|<=|>=|\S"
)
INTEGER: Final = re.compile(r"-?[0-9]+")
NUMBER: Final = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)")

_PLAIN: Final = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# How a comparison is written, what it is, and whether it ignores case.
OPERATORS: Final[Mapping[str, tuple[str, bool]]] = {
    **{op: (op, False) for op in _PLAIN.values()},
    **{f"${name}$": (op, False) for name, op in _PLAIN.items()},
    **{f"$i{name}$": (op, True) for name, op in _PLAIN.items()},
}
KEYWORDS: Final = ("$and$", "$or$", "$not$", "$any$", "$all$", "$union$", "$intersect$", "$to$")
# Functions that give nodes: the axis, and the kind of nodes; the name in quotes may follow.
NODE_FUNCTIONS: Final[Mapping[str, tuple[str, XMLKind | None]]] = {
    "element": ("child", XMLKind.ELEMENT),
    "attribute": ("attribute", XMLKind.ATTRIBUTE),
    "textNode": ("child", XMLKind.TEXT),
    "comment": ("child", XMLKind.COMMENT),
    "pi": ("child", XMLKind.INSTRUCTION),
    "node": ("child", None),
}
NAMED_FUNCTIONS: Final = ("element", "attribute", "pi")
FUNCTION_NAMES: Final = (*NODE_FUNCTIONS, "ancestor", "id", "date")
_AFTER_A_NAME: Final = {"and", "or", "$and$", "$or$", "$union$", "$intersect$", "$to$", *OPERATORS}
TAKEN_NAMES: Final = (*FUNCTION_NAMES, *METHOD_NAMES)


def is_plain_not(tokens: QueryTokens) -> bool:
    """Return whether `not` comes next as a word of the language, not as a name."""
    after = tokens.ahead(1)
    if tokens.current.text != "not" or after.text in _AFTER_A_NAME:
        return False
    return after.is_name or after.text[:1] in {"(", ".", "/", "@", "*", "'", '"', "$"}


def is_subscript(tokens: QueryTokens) -> bool:
    """Return whether a subscript comes next, rather than a filter."""
    after = tokens.ahead(1).text
    is_whole = bool(INTEGER.fullmatch(tokens.current.text))
    return is_whole and after in {"]", ",", "$to$", ""}


def read_subscript(tokens: QueryTokens) -> Subscript:
    """Take a subscript."""
    ranges = [_range(tokens)]
    while tokens.skip(","):
        ranges.append(_range(tokens))
    return Subscript(tuple(ranges))


def _range(tokens: QueryTokens) -> tuple[int, int]:
    first = _place(tokens)
    return (first, _place(tokens)) if tokens.skip("$to$") else (first, first)


def _place(tokens: QueryTokens) -> int:
    token = tokens.take()
    if not INTEGER.fullmatch(token.text) or len(token.text) > 18:
        raise tokens.error("a subscript is a whole number, counted from 0", at=token)
    return int(token.text)


def missing_name(tokens: QueryTokens, token: QueryToken) -> FilterSyntaxError:
    """Return the error for a token that cannot begin a step."""
    if token.text[:1] == "$" and token.text not in KEYWORDS and token.text not in OPERATORS:
        known = [*OPERATORS, *KEYWORDS]
        reason = f"{token.shown} is not an operator of XQL"
        return tokens.error(reason, at=token, meant=token.text, known=known)
    if token.is_quoted or NUMBER.fullmatch(token.text):
        return tokens.error(f"{token.shown} cannot be a step of a path", at=token)
    return tokens.nothing_before(token)
