"""Queries over documents: `query("//book[price > 30]").select(document)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tamis.errors import FilterTypeError
from tamis.events.schema import did_you_mean
from tamis.xml.documents import Document
from tamis.xml.logic import truth_of
from tamis.xml.nodes import XMLNode
from tamis.xml.paths import NodeIntersection, NodePath, NodeUnion, XMLExpression
from tamis.xml.scanning import NAME
from tamis.xml.work import Evaluation, Focus, XMLQueryLimits
from tamis.xml.xql import XQLParser
from tamis.xml.xql_terms import UserFunction, UserOperator
from tamis.xml.xql_words import KEYWORDS, OPERATORS, TAKEN_NAMES

LANGUAGES: Final = ("xql",)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class XMLQuery:
    """A query that was parsed; it can be evaluated on any number of documents."""

    __slots__ = ("_work", "expression", "language", "text")

    def __init__(self, text: str, language: str, expression: XMLExpression, work: int) -> None:
        self.text = text
        self.language = language
        self.expression = expression
        self._work = work

    def __repr__(self) -> str:
        return f"<{self.language} {self.text}>"

    def select(self, document: Document) -> list[XMLNode]:
        """Return the nodes that the query finds, in document order."""
        if not isinstance(self.expression, NodePath | NodeUnion | NodeIntersection):
            raise FilterTypeError(
                f"this query finds values, or is true or false, rather than nodes: use evaluate or "
                f"matches ({self.text:.60})"
            )
        return [*self.expression.nodes(self._evaluation(document), Focus(document.root))]

    def matches(self, document: Document) -> bool:
        """Return whether the query is true, or finds something."""
        return truth_of(self.evaluate(document))

    def evaluate(self, document: Document) -> Any:
        """Return what the query gives: nodes, values, or a truth value."""
        return self.expression.evaluate(self._evaluation(document), Focus(document.root))

    def _evaluation(self, document: Document) -> Evaluation:
        return Evaluation(document, self._work)


def query(
    text: str,
    *,
    language: str = "xql",
    namespaces: Mapping[str, str] = _NOTHING,
    operators: Mapping[str, UserOperator] = _NOTHING,
    functions: Mapping[str, UserFunction] = _NOTHING,
    limits: XMLQueryLimits | None = None,
) -> XMLQuery:
    """Parse a query.

    >>> document = Document.parse("<shop><book>A</book><book>B</book></shop>")
    >>> query("shop/book[1]").select(document)
    [<element <book>B</book>>]

    Args:
        text: The query.
        language: `xql`.
        namespaces: The namespaces that prefixes in the query stand for.
        operators: XQL's user-defined operators: `{"starts": str.startswith}` is `$starts$`.
        functions: XQL's user-defined functions.
        limits: Bounds on the text, on nesting, and on the work of one evaluation.
    """
    bounds = limits or XMLQueryLimits()
    if language != "xql":
        hint = did_you_mean(language, LANGUAGES) or f"the languages are {', '.join(LANGUAGES)}"
        raise FilterTypeError(f'there is no query language "{language}"; {hint}')
    _check_own("operator", operators, (name.strip("$") for name in (*OPERATORS, *KEYWORDS)))
    _check_own("function", functions, TAKEN_NAMES)
    parser = XQLParser(
        text, limits=bounds, namespaces=namespaces, operators=operators, functions=functions
    )
    return XMLQuery(text, language, parser.parse(), bounds.work)


def _check_own(what: str, given: Mapping[str, object], taken: Any) -> None:
    known = {*taken}
    for name, function in given.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise FilterTypeError(f"{name!r:.60} cannot be the name of an {what}")
        if name in known:
            raise FilterTypeError(f'XQL has "{name}" itself: give your {what} another name')
        if not callable(function):
            raise FilterTypeError(f'the {what} "{name}" is not a function: {function!r:.60}')
