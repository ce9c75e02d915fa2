"""XML text to a document, safely: no DTD, no entities, no network, within limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from lxml import etree

from tamis.errors import EventError, LimitError, XMLError
from tamis.events.columns import Column
from tamis.events.kinds import Value
from tamis.html_text import html_code
from tamis.xml.decoding import decode_document
from tamis.xml.extraction import DocumentExtraction, all_attributes
from tamis.xml.nodes import XMLNode, add_tree
from tamis.xml.well_formed import sentence_of

MAX_DEPTH: Final = 200
"""The largest limit on depth: libxml2 itself stops at 256 levels."""

# What may precede the outermost element, except a document type declaration.
_PROLOG: Final = re.compile(
    r"\ufeff?(?:[ \t\r\n]++|<\?(?:(?!\?>).)*+\?>|<!--(?:(?!-->).)*+-->)*+", re.DOTALL
)
_CHUNK_BYTES: Final = 64 * 1024
_OPTIONS: Final = {
    "resolve_entities": False,
    "no_network": True,
    "load_dtd": False,
    "dtd_validation": False,
    "attribute_defaults": False,
    "huge_tree": False,
}
_PARSER: Final = etree.XMLParser(encoding="utf-8", **_OPTIONS)


class XMLLimits(NamedTuple):
    """Bounds on one document; the operator can raise each, depth up to 200."""

    size: int = 1024 * 1024
    """Bytes of text, in UTF-8."""
    depth: int = 64
    """Elements inside each other."""
    nodes: int = 100_000
    """Elements, texts, comments, processing instructions and attributes together."""
    attributes: int = 256
    """Attributes of one element, with declarations of namespaces."""
    value: int = 256 * 1024
    """Characters of one attribute."""


class Document:
    """A parsed document: its text as it was given, and its nodes in document order."""

    __slots__ = ("_examined", "_nodes", "_top", "text")

    def __init__(self, text: str, top: Any, nodes: list[XMLNode] | None = None) -> None:
        self.text = text
        self._top = top
        """The outermost element, as lxml has it."""
        self._nodes = nodes
        self._examined: frozenset[str] = frozenset()
        """Attributes that were looked for; empty if an element had too many keys."""

    @classmethod
    def parse(cls, text: str | bytes, *, limits: XMLLimits | None = None) -> Self:
        """Parse XML text; bytes are decoded as their declaration says, without one as UTF-8.

        >>> Document.parse("<a><b>5</b></a>").root.value
        '5'
        """
        bounds = limits or XMLLimits()
        if bounds.depth > MAX_DEPTH:
            raise ValueError(
                f"the limit on depth can be {MAX_DEPTH} at the most, not {bounds.depth}"
            )
        if not isinstance(text, str | bytes):
            raise XMLError(f"XML is a text or bytes, not {type(text).__name__!r}")
        if len(text) > 4 * bounds.size:
            raise LimitError("bytes of XML", actual=len(text), limit=bounds.size)
        decoded = decode_document(text) if isinstance(text, bytes) else text
        encoded = _encoded(decoded)
        if len(encoded) > bounds.size:
            raise LimitError("bytes of XML", actual=len(encoded), limit=bounds.size)
        if not decoded.strip("\ufeff \t\r\n"):
            raise XMLError("there is no element in it: it is empty")
        _refuse_document_type(decoded)
        top = _parsed_at_once(encoded, bounds)
        if top is not None:
            return cls(decoded, top)
        top = _without_document_type(_Parsing(bounds).parse(encoded))
        nodes = add_tree(top)
        # The parser has not counted texts: there are at most two for each of the others.
        if len(nodes) - 1 > bounds.nodes:
            raise LimitError("nodes of the document", actual=len(nodes) - 1, limit=bounds.nodes)
        return cls(decoded, top, nodes)

    @property
    def nodes(self) -> list[XMLNode]:
        """Return all nodes, in document order."""
        # Most documents are only looked at by the engine, which does not need them.
        if self._nodes is None:
            self._nodes = add_tree(self._top)
        return self._nodes

    @property
    def root(self) -> XMLNode:
        """Return the node of the document itself, which holds the outermost element."""
        return self.nodes[0]

    def __repr__(self) -> str:
        return f"<Document of {len(self.nodes):,} nodes>"

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return f"{html_code(self.text)}<p>{len(self.nodes):,} nodes</p>"

    def __attributes__(self, wanted: Collection[str] | None) -> dict[str, tuple[Value, ...]]:
        """Return the document as an event: the wanted attributes, or all."""
        if wanted is None:
            return all_attributes(self._top)
        names = frozenset(wanted)
        found, is_crowded = _extraction(names).attributes(self._top)
        self._examined = frozenset() if is_crowded else names
        return found

    def has_all_of(self, keys: frozenset[str]) -> bool:
        """Return whether keys were looked for, and no element had too many of any."""
        return keys <= self._examined


def columns_of(
    documents: Sequence[Document], numbers: Sequence[int], wanted: frozenset[str]
) -> dict[str, Column]:
    """Return the wanted attributes of documents in columns, given the number of each."""
    tops = [document._top for document in documents]  # noqa: SLF001 - of this module
    found, crowded = _extraction(wanted).columns(tops, numbers)
    for number, document in zip(numbers, documents, strict=True):
        document._examined = frozenset() if number in crowded else wanted  # noqa: SLF001
    return found


@lru_cache(maxsize=64)
def _extraction(wanted: frozenset[str]) -> DocumentExtraction:
    return DocumentExtraction(wanted)


def _parsed_at_once(encoded: bytes, limits: XMLLimits) -> Any:
    """Return the outermost element of a document that is small, and certainly within limits.

    Counting while parsing takes several times as long; a mistake is explained there, too.
    """
    # A node takes two bytes at the least. Namespaces are counted by their declarations: XPath would
    # look for those of each element in all around it, which takes quadratic time.
    if len(encoded) > min(_CHUNK_BYTES, 2 * limits.nodes, limits.value):
        return None
    if encoded.count(b"xmlns") > limits.attributes // 2:
        return None
    try:
        top = etree.fromstring(encoded, _PARSER)
    except etree.XMLSyntaxError:
        return None
    _without_document_type(top)
    # So many attributes take five bytes each, and so many elements inside each other seven.
    if len(encoded) > 5 * limits.attributes and _more_attributes_than(limits.attributes // 2)(top):
        return None
    if len(encoded) > 7 * limits.depth and _deeper_than(limits.depth)(top):
        return None
    return top


@lru_cache(maxsize=16)
def _more_attributes_than(limit: int) -> Any:
    """Return what finds out whether an element has more attributes."""
    return etree.XPath(f"boolean(//*[count(@*) > {limit}])")


@lru_cache(maxsize=16)
def _deeper_than(depth: int) -> Any:
    """Return what finds out whether more elements lie inside each other."""
    return etree.XPath("boolean(" + "/*" * (depth + 1) + ")")


def _encoded(text: str) -> bytes:
    bare = text.removeprefix("\ufeff")
    if bare.startswith("\ufeff"):
        # The parser would skip it, and then see what `_refuse_document_type` has not.
        raise XMLError("it begins with two byte order marks; leave one out")
    try:
        return bare.encode()
    except UnicodeEncodeError as error:
        place = f"character {error.start + 1:,}"
        raise XMLError("a lone surrogate is not a character of XML", place=place) from None


_NO_DOCUMENT_TYPE: Final = (
    "a document type declaration (<!DOCTYPE …>) is not accepted, because entities can make a "
    "document huge or read files; leave it out, and write characters as &#…;"
)


def _refuse_document_type(text: str) -> None:
    """Refuse a DTD before the parser sees it: nobody can then declare an entity."""
    prolog = _PROLOG.match(text)
    end = prolog.end() if prolog else 0
    if text.startswith("<!DOCTYPE", end):
        line = text.count("\n", 0, end) + 1
        column = end - (text.rfind("\n", 0, end) + 1) + 1
        raise XMLError(_NO_DOCUMENT_TYPE, place=f"line {line}, column {column}")


def _without_document_type(top: Any) -> Any:
    """Return the outermost element; refuse a DTD that the parser has seen, and we have not."""
    if top.getroottree().docinfo.internalDTD is not None:
        raise XMLError(_NO_DOCUMENT_TYPE)
    return top


class _Parsing:
    """One run of the parser, which stops at the first limit that is exceeded."""

    def __init__(self, limits: XMLLimits) -> None:
        self._limits = limits
        self._depth = 0
        self._nodes = 0
        self._declarations = 0
        self._parser = etree.XMLPullParser(
            events=("start-ns", "start", "end", "comment", "pi"),
            encoding="utf-8",
            **_OPTIONS,
        )

    def parse(self, encoded: bytes) -> Any:
        """Return the outermost element."""
        try:
            for start in range(0, len(encoded), _CHUNK_BYTES):
                self._parser.feed(encoded[start : start + _CHUNK_BYTES])
                self._count()
            root = self._parser.close()
        except etree.XMLSyntaxError as error:
            # What came before the mistake may be the reason: libxml2 has limits of its own.
            self._count()
            raise self._explained(error) from None
        self._count()
        return root

    def _count(self) -> None:
        for event, element in self._parser.read_events():
            if event == "start-ns":
                self._declarations += 1
                continue
            if event == "end":
                self._depth -= 1
                continue
            if event == "start":
                self._depth += 1
                self._check("elements inside each other", self._depth, self._limits.depth)
                self._count_attributes(element)
            self._nodes += 1
            if self._nodes > self._limits.nodes:
                raise LimitError("nodes of the document", actual=None, limit=self._limits.nodes)

    def _count_attributes(self, element: Any) -> None:
        count = len(element.attrib)
        declared, self._declarations = count + self._declarations, 0
        self._check("attributes of one element", declared, self._limits.attributes)
        if count:
            longest = max(map(len, element.attrib.values()))
            self._check("characters of one attribute", longest, self._limits.value)
            self._nodes += count

    def _check(self, what: str, actual: int, limit: int) -> None:
        if actual > limit:
            raise LimitError(what, actual=actual, limit=limit)

    def _explained(self, error: Any) -> EventError:
        # The log has the cause where the exception has only its consequence.
        mistakes = (e for e in self._parser.feed_error_log if e.level >= etree.ErrorLevels.ERROR)
        first = next(mistakes, None)
        if first is None:
            line, column = error.position
            return XMLError(
                f"this is not well-formed XML: {sentence_of('', '')}",
                place=f"line {line}, column {column}",
            )
        said = sentence_of(first.type_name, first.message)
        place = f"line {first.line}, column {first.column}"
        return XMLError(f"this is not well-formed XML: {said}", place=place)
