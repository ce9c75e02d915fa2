"""Queries over documents: `query("//book[price > 30]").select(document)`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tamis.errors import FilterTypeError
from tamis.events.schema import did_you_mean
from tamis.filters.boolean import Filter
from tamis.filters.translations import Translation
from tamis.html_text import html_code, html_escaped, html_table
from tamis.xml.correlation import without_keys
from tamis.xml.documents import Document
from tamis.xml.logic import counts_as_true
from tamis.xml.nodes import XMLNode
from tamis.xml.paths import NodeIntersection, NodePath, NodeUnion, XMLExpression
from tamis.xml.scanning import NAME
from tamis.xml.translating import approximate
from tamis.xml.work import Evaluation, Focus, XMLQueryLimits
from tamis.xml.xpath import XPathParser
from tamis.xml.xql import XQLParser
from tamis.xml.xql_terms import NUMBER_METHODS, MethodCall, UserFunction, UserOperator
from tamis.xml.xql_words import KEYWORDS, OPERATORS, TAKEN_NAMES

LANGUAGES: Final = ("xql", "xpath")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class FoundNodes(list[XMLNode]):
    """The nodes that a query finds: a list, which notebooks show as a table."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        rows = ((html_escaped(each.kind), html_code(each.xml)) for each in self)
        return html_table(("kind", "node"), rows, len(self), "nodes")


class QuerySource(NamedTuple):
    """What a query is made of."""

    text: str
    language: str
    namespaces: Mapping[str, str] = _NOTHING
    operators: Mapping[str, UserOperator] = _NOTHING
    functions: Mapping[str, UserFunction] = _NOTHING
    limits: XMLQueryLimits = XMLQueryLimits()

    def parsed(self) -> XMLExpression:
        """Parse it."""
        text, language, namespaces, operators, functions, limits = self
        if language == "xpath":
            return XPathParser(text, limits=limits, namespaces=namespaces).parse()
        return XQLParser(
            text, limits=limits, namespaces=namespaces, operators=operators, functions=functions
        ).parse()


class XMLQuery:
    """A query; it can be evaluated on any number of documents."""

    __slots__ = ("_expression", "_source")

    def __init__(self, source: QuerySource, expression: XMLExpression | None = None) -> None:
        self._source = source
        self._expression = expression

    @property
    def text(self) -> str:
        """Return the query as it was written."""
        return self._source.text

    @property
    def language(self) -> str:
        """Return `xql` or `xpath`."""
        return self._source.language

    @property
    def expression(self) -> XMLExpression:
        """Return what it was parsed to; one that comes from a file is parsed at its first use."""
        if self._expression is None:
            self._expression = self._source.parsed()
        return self._expression

    def saved(self) -> list[Any] | None:
        """Return what it is made of, as JSON has it; None if there are functions in it."""
        text, language, namespaces, operators, functions, limits = self._source
        if operators or functions:
            return None
        return [language, text, dict(namespaces), [*limits]]

    def __repr__(self) -> str:
        return f"<{self.language} {self.text}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return f"{html_escaped(self.language)} {html_code(self.text)}"

    def select(self, document: Document) -> list[XMLNode]:
        """Return the nodes that the query finds, in document order."""
        if not isinstance(self.expression, NodePath | NodeUnion | NodeIntersection):
            raise FilterTypeError(
                f"this query finds values, or is true or false, rather than nodes: use evaluate or "
                f"matches ({self.text:.60})"
            )
        evaluation = self._evaluation(document)
        return FoundNodes(self.expression.nodes(evaluation, Focus(document.root)))

    def matches(self, document: Document) -> bool:
        """Return whether the query is true, or finds something."""
        self._require_truth()
        return counts_as_true(self.evaluate(document))

    def evaluate(self, document: Document) -> Any:
        """Return what the query gives: nodes, values, or a truth value; in XPath also a number."""
        evaluation = self._evaluation(document)
        found = self.expression.evaluate(evaluation, Focus(document.root))
        return [*found] if isinstance(found, tuple) else found

    def _require_truth(self) -> None:
        """Refuse a number of XQL, as conditions do; numbers of XPath are true or false."""
        term = self.expression
        if isinstance(term, MethodCall) and term.name in NUMBER_METHODS:
            raise FilterTypeError(
                f"{term.name}() is a number, neither true nor false: compare it, as in "
                f"{self.text:.60} > 0"
            )

    def _evaluation(self, document: Document) -> Evaluation:
        if not isinstance(document, Document):
            raise FilterTypeError(
                f"a query is evaluated on a document, not on {type(document).__name__!r}: write "
                "Document.parse(text)"
            )
        return Evaluation(document, self._source.limits.work)

    def __translation__(self) -> Translation:
        """Return a filter that holds wherever the query matches, and what is left to check."""
        return self.translation()

    def translation(self, *, correlated: bool = True) -> Translation:
        """Return a filter that holds wherever the query matches, and what is left to check.

        Without `correlated`, the filter cannot tell which values lie in one element.

        >>> print(query("order[@number > 5]/line/sku = 'chair'").translation().filter)
        `/order/@number` > 5 and `/order/line/sku` = "chair"
        """
        self._require_truth()
        found = approximate(self.expression, correlated=correlated)
        if found.is_always_exact:
            return Translation(found.filter)
        return Translation(found.filter, QueryResidual(self, found.keys if found.exact else None))


class QueryResidual(NamedTuple):
    """A query that is left to check where its translation holds."""

    query: XMLQuery
    keys: frozenset[str] | None = None
    """Keys by which the translation is exact, where a document has not too many; None: never."""

    def __str__(self) -> str:
        return f"{self.query.language} {self.query.text}"

    def holds(self, event: object) -> bool:
        """Return whether an event is a document that the query matches."""
        return isinstance(event, Document) and self.query.matches(event)

    def is_settled(self, event: object) -> bool:
        """Return whether a document that the translation lets through is surely found."""
        return self.keys is not None and isinstance(event, Document) and event.has_all_of(self.keys)

    def readable(self, filter_: Filter) -> Filter:
        """Return the translation without keys of elements."""
        return without_keys(filter_)

    def saved(self) -> list[Any] | None:
        """Return its kind and what it is made of; None if there are functions in the query."""
        query_ = self.query.saved()
        keys = None if self.keys is None else sorted(self.keys)
        return None if query_ is None else [*query_, keys]

    @classmethod
    def restored(
        cls,
        language: str,
        text: str,
        namespaces: dict[str, str],
        limits: list[int],
        keys: list[str] | None,
    ) -> QueryResidual:
        """Return what was saved; its query is parsed when a document has to be checked."""
        source = QuerySource(text, language, namespaces, limits=XMLQueryLimits(*limits))
        return cls(XMLQuery(source), None if keys is None else frozenset(keys))


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
        language: `xql` or `xpath`.
        namespaces: The namespaces that prefixes in the query stand for.
        operators: XQL's user-defined operators: `{"starts": str.startswith}` is `$starts$`.
        functions: XQL's user-defined functions.
        limits: Bounds on the text, on nesting, and on the work of one evaluation.
    """
    bounds = limits or XMLQueryLimits()
    if not isinstance(text, str):
        raise FilterTypeError(f"a query is a text, not {type(text).__name__!r}")
    if language not in LANGUAGES:
        hint = did_you_mean(str(language), LANGUAGES)
        raise FilterTypeError(
            f"{language!r:.60} is not a language of queries; they are 'xql' and 'xpath'"
            f"{'; ' + hint if hint else ''}"
        )
    if language == "xpath" and (operators or functions):
        raise FilterTypeError(
            "operators and functions of your own are a matter of XQL: XPath 1.0 has none"
        )
    _check_own("operator", operators, (name.strip("$") for name in (*OPERATORS, *KEYWORDS)))
    _check_own("function", functions, TAKEN_NAMES)
    source = QuerySource(text, language, namespaces, operators, functions, bounds)
    return XMLQuery(source, source.parsed())


def _check_own(what: str, given: Mapping[str, object], taken: Any) -> None:
    known = {*taken}
    for name, function in given.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            raise FilterTypeError(f"{name!r:.60} cannot be the name of an {what}")
        if name in known:
            raise FilterTypeError(f'XQL has "{name}" itself: give your {what} another name')
        if not callable(function):
            raise FilterTypeError(f'the {what} "{name}" is not a function: {function!r:.60}')
