"""What one evaluation of a query may cost, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tamis.errors import WorkLimitError
from tamis.xml.documents import Document
from tamis.xml.nodes import XMLNode

MAX_QUERY_DEPTH: Final = 32
"""The largest limit on depth: parsing and evaluating recurse with it."""

CHARACTERS_PER_NODE: Final = 16
"""How many characters take as long to normalise as it takes to look at a node."""


class XMLQueryLimits(NamedTuple):
    """Bounds on one query; the operator can raise text and work, and lower each."""

    text: int = 16 * 1024
    """Characters of text."""
    depth: int = MAX_QUERY_DEPTH
    """Filters, parentheses and calls inside each other."""
    work: int = 2_000_000
    """Nodes looked at in one evaluation, with those looked at again; 16 characters count as one."""


class Focus(NamedTuple):
    """The node for which an expression is evaluated, and its place among those with it."""

    node: XMLNode
    position: int = 0
    """Counted from 0."""
    size: int = 1


class Evaluation:
    """One evaluation of a query on a document.

    A condition is evaluated once for a node, however often a path comes to it: this is what keeps
    the time polynomial, and the work within its limit what keeps it short.
    """

    __slots__ = ("_known", "_left", "_limit", "document")

    def __init__(self, document: Document, work: int) -> None:
        self.document = document
        self._limit = self._left = work
        self._known: dict[tuple[int, int, int, int], object] = {}

    def spend(self, work: int) -> None:
        """Count work, and stop when there was too much."""
        self._left -= work
        if self._left < 0:
            raise WorkLimitError(
                "work of one evaluation",
                actual=None,
                limit=self._limit,
                advice="make the query simpler, or the document smaller",
            )

    def once(
        self, owner: object, focus: Focus, evaluate: Callable[[Evaluation, Focus], object]
    ) -> object:
        """Return what an expression is for a focus, evaluating it at most once."""
        key = (id(owner), id(focus.node), focus.position, focus.size)
        self.spend(1)
        if key not in self._known:
            self._known[key] = evaluate(self, focus)
        return self._known[key]

    def text_of(self, node: XMLNode) -> str:
        """Return all text of a node; looking at it is work."""
        self.spend(1 + node.last - node.number)
        text = node.value
        self.read(text)
        return text

    def read(self, text: str) -> None:
        """Count the work of going through a text."""
        self.spend(len(text) // CHARACTERS_PER_NODE)
