"""Names of the attributes that a document has as an event: where in it their values are.

`/order/line/sku` has the texts of all such elements, `//sku` those of all elements called sku,
`/order/@number` those of attributes. A namespace stands in braces: `/{urn:item}item`. And
`/order/line[sku,number(quantity)]` has, for each line, its sku and quantity as one text, so that
what belongs to one element is not lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple, Self

MAX_PATTERN_STEPS: Final = 64
"""Steps of one pattern; a document is not deeper unless the operator allows it."""
MAX_VAGUE: Final = 3
"""How often a pattern may say "at any depth" or "of any name".

An element may lie at as many patterns as there are ways to be vague about its path, and is looked
at for each.
"""
MAX_NAME: Final = 512
"""Characters of the name of a pattern."""

_STEP: Final = re.compile(r"(//?)(@?)(?:\{([^{}]*)\})?(\*|[^/@{}\[\],()*]+)")
_COLUMN: Final = re.compile(r"(?:(number|fold|other)\()?([^,()]+?)\)?(?:,|$)")


class PatternStep(NamedTuple):
    """A step downward, to elements or attributes with a name; None: with any."""

    name: str | None
    namespace: str | None
    is_attribute: bool = False
    is_deep: bool = False
    """Whether any number of elements may lie between."""

    def __str__(self) -> str:
        return f"{'//' if self.is_deep else '/'}{'@' if self.is_attribute else ''}{self.shown_name}"

    @property
    def shown_name(self) -> str:
        """Return the name with its namespace, as lxml writes it."""
        space = f"{{{self.namespace}}}" if self.namespace else ""
        return f"{space}{self.name or '*'}"

    def passes(self, tag: str) -> bool:
        """Return whether an element or attribute has the name, given it as lxml writes it."""
        namespace, name = tag[1:].rsplit("}", 1) if tag[0] == "{" else ("", tag)
        return (self.name is None or name == self.name) and (
            self.namespace is None or namespace == self.namespace
        )


class NodePattern(NamedTuple):
    """Where nodes lie in a document: the steps that lead to them from the document itself."""

    steps: tuple[PatternStep, ...] = ()

    def __str__(self) -> str:
        return "".join(map(str, self.steps)) or "/"

    @property
    def is_document(self) -> bool:
        """Return whether it is the document itself."""
        return not self.steps

    @property
    def is_single(self) -> bool:
        """Return whether no document has more than one such node: there is one outermost element.

        >>> [NodePattern.read(name).is_single for name in ("/", "/a", "/a/@b", "/a/b", "//a")]
        [True, True, True, False, False]
        """
        elements = [step for step in self.steps if not step.is_attribute]
        is_plain = not any(step.is_deep for step in self.steps)
        last = self.steps[-1] if self.steps else None
        is_any = last is not None and last.is_attribute and last.name is None
        return len(elements) <= 1 and is_plain and not is_any

    def then(self, step: PatternStep) -> Self | None:
        """Return the pattern with one more step; None if there is no such node or name."""
        if self.steps and self.steps[-1].is_attribute:
            return None
        if step.namespace and not {"{", "}"}.isdisjoint(step.namespace):
            return None
        longer = self._replace(steps=(*self.steps, step))
        is_short = len(longer.steps) <= MAX_PATTERN_STEPS and len(str(longer)) <= MAX_NAME
        return longer if is_short and not _is_vague(longer.steps) else None

    def parent(self) -> Self | None:
        """Return the pattern of the parents; None if it is not known."""
        if not self.steps or self.steps[-1].is_deep:
            return None
        return self._replace(steps=self.steps[:-1])

    @classmethod
    def read(cls, name: str) -> Self | None:
        """Return the pattern that has a name; None if none has."""
        if name == "/":
            return cls()
        steps = _steps(name) if name.startswith("/") else None
        return cls(steps) if steps else None


class ValueReading(StrEnum):
    """How texts of nodes are read for a key."""

    TEXT = "text"
    NUMBER = "number"
    FOLDED = "fold"
    """Without regard to case."""
    NO_NUMBER = "other"
    """Whether it is none: something if so, nothing if it is a number."""


class KeyColumn(NamedTuple):
    """A part of a key: where its values lie in an element, and how they are read."""

    steps: tuple[PatternStep, ...]
    """None of them deep; empty: the element itself."""
    reading: ValueReading

    def __str__(self) -> str:
        path = "".join(map(str, self.steps))[1:] or "."
        return path if self.reading is ValueReading.TEXT else f"{self.reading}({path})"


class ElementKey(NamedTuple):
    """Several values of one element as one text, so that it is known that they lie together."""

    pattern: NodePattern
    columns: tuple[KeyColumn, ...]

    def __str__(self) -> str:
        return f"{self.pattern}[{','.join(map(str, self.columns))}]"

    @classmethod
    def read(cls, name: str) -> Self | None:
        """Return the key that has a name; None if none has."""
        head, bracket, tail = name.partition("[")
        pattern = NodePattern.read(head)
        if pattern is None or not bracket or not tail.endswith("]"):
            return None
        columns = [_column(*found.groups()) for found in _COLUMN.finditer(tail[:-1])]
        known = tuple(column for column in columns if column is not None)
        found = cls(pattern, known)
        is_read = bool(known) and len(known) == len(columns) and str(found) == name
        return found if is_read else None


DocumentAttribute = NodePattern | ElementKey


@lru_cache(maxsize=4096)
def document_attribute(name: str) -> DocumentAttribute | None:
    """Return what an attribute of documents is, given its name; None if documents have none such.

    >>> str(document_attribute("/order/line[sku,number(@quantity)]"))
    '/order/line[sku,number(@quantity)]'
    >>> document_attribute("price")
    """
    return NodePattern.read(name) or ElementKey.read(name)


def _column(reading: str | None, path: str) -> KeyColumn | None:
    steps = () if path == "." else _steps(f"/{path}")
    return None if steps is None else KeyColumn(steps, ValueReading(reading or "text"))


def _steps(text: str) -> tuple[PatternStep, ...] | None:
    found: list[PatternStep] = []
    place = 0
    while place < len(text):
        step = _STEP.match(text, place)
        if step is None or (found and found[-1].is_attribute):
            return None
        is_any = step[4] == "*"
        namespace = step[3] or (None if is_any else "")
        found.append(
            PatternStep(None if is_any else step[4], namespace, bool(step[2]), step[1] == "//")
        )
        place = step.end()
    return tuple(found) if len(found) <= MAX_PATTERN_STEPS and not _is_vague(found) else None


def _is_vague(steps: Sequence[PatternStep]) -> bool:
    return sum(step.is_deep + (step.name is None) for step in steps) > MAX_VAGUE
