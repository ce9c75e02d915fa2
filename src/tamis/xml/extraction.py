"""Documents as events: the attributes that are wanted, found in one walk over a document.

The patterns of all names are followed together: an element leads from one set of partly matched
patterns to another, and the sets that occur are few, so that each is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from lxml import etree

from tamis.events.kinds import Value
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.xml.key_texts import TOO_MANY, keys_of, part_of_key
from tamis.xml.node_patterns import (
    MAX_NAME,
    ElementKey,
    KeyColumn,
    NodePattern,
    PatternStep,
    ValueReading,
    document_attribute,
)
from tamis.xml.values import date_in, number_in, without_extra_space

MAX_CHARACTERS: Final = 1_024
"""Of longer texts only the beginning is an event's; the texts that queries compare are shorter."""
MAX_CACHED: Final = 32
"""Characters of texts whose values are kept from document to document."""
MAX_TRANSITIONS: Final = 65_536
"""Kept from document to document; documents with ever new names cost time, not memory."""

# A text that was cut off may have had more digits.
_DIGITS: Final = re.compile(r"-?[0-9]*+\.?[0-9]*+")

_all_text: Final = etree.XPath("string()")

_Progress = frozenset[tuple[int, int]]
"""Patterns and how many steps of each are done."""


class _PatternState:
    """What is known of an element: what its value is wanted for, and where its children lead."""

    __slots__ = ("attributes", "columns", "is_last", "keys", "names", "next", "progress")

    def __init__(self, progress: _Progress, patterns: Sequence[_WantedAttribute]) -> None:
        self.progress = progress
        self.next: dict[str, _PatternState] = {}
        done = [patterns[p] for p, count in progress if count == len(patterns[p].steps)]
        self.names: Sequence[str] = [each.name for each in done if each.key is None]
        keys = [(each.name, each.key.columns) for each in done if each.key is not None]
        self.columns = list(dict.fromkeys(column for _, columns in keys for column in columns))
        """Columns of keys, each once: many keys have the same."""
        self.keys = [
            (name, [self.columns.index(column) for column in columns]) for name, columns in keys
        ]
        coming = [
            (patterns[p].steps[count], patterns[p])
            for p, count in progress
            if count < len(patterns[p].steps)
        ]
        self.attributes = [
            (step, target.name) for step, target in coming if step.is_attribute and not target.key
        ]
        self.is_last = not any(not step.is_attribute or step.is_deep for step, _ in coming)


class _WantedAttribute:
    """An attribute that is wanted."""

    __slots__ = ("key", "name", "steps")

    def __init__(self, name: str, found: NodePattern | ElementKey) -> None:
        self.name = name
        self.key = found if isinstance(found, ElementKey) else None
        self.steps = found.steps if isinstance(found, NodePattern) else found.pattern.steps


class DocumentExtraction:
    """Finds attributes with some names in documents."""

    def __init__(self, names: Iterable[str]) -> None:
        known = [(name, document_attribute(name)) for name in names]
        self._targets = [
            _WantedAttribute(name, found) for name, found in known if found is not None
        ]
        self._wants_document = any(not each.steps for each in self._targets)
        self._transitions = 0
        self._places: dict[_Progress, _PatternState] = {}
        self._start = self._place(
            frozenset((p, 0) for p, each in enumerate(self._targets) if each.steps)
        )

    def attributes(self, root: Any) -> dict[str, tuple[Value, ...]]:
        """Return the values of each attribute that a document has, given its outermost element."""
        if self._transitions > MAX_TRANSITIONS:
            self._places, self._transitions = {}, 0
            self._start = self._place(self._start.progress)
        found: dict[str, list[Value]] = {}
        if self._wants_document:
            found["/"] = [True]
        # A document decides how deep it is, so there is no recursion.
        opened = [(iter((root,)), self._start)]
        while opened:
            elements, above = opened[-1]
            for element in elements:
                tag = element.tag
                if type(tag) is not str:
                    continue
                place = above.next.get(tag) or self._entered(above, tag)
                _note(element, place, found)
                if not place.is_last:
                    opened.append((iter(element), place))
                    break
            else:
                opened.pop()
        return {name: _distinct(values) for name, values in found.items()}

    def _entered(self, above: _PatternState, tag: str) -> _PatternState:
        progress: set[tuple[int, int]] = set()
        for pattern, count in above.progress:
            steps = self._targets[pattern].steps
            if count == len(steps):
                continue
            step = steps[count]
            if step.is_deep:
                progress.add((pattern, count))
            if not step.is_attribute and step.passes(tag):
                progress.add((pattern, count + 1))
        self._transitions += 1
        found = above.next[tag] = self._place(frozenset(progress))
        return found

    def _place(self, progress: _Progress) -> _PatternState:
        known = self._places.get(progress)
        if known is None:
            known = self._places[progress] = _PatternState(progress, self._targets)
        return known


def all_attributes(root: Any) -> dict[str, tuple[Value, ...]]:
    """Return every element and attribute of a document under its full path.

    An element with others in it only has the value true: what it holds is under its own paths.
    """
    found: dict[str, list[Value]] = {"/": [True]}
    opened = [(iter((root,)), "")]
    while opened:
        elements, above = opened[-1]
        for element in elements:
            if type(element.tag) is not str:
                continue
            path = f"{above}/{element.tag}"
            if len(path) > MAX_NAME:
                continue
            is_leaf = next(element.iterchildren("*"), None) is None
            found.setdefault(path, []).extend(values_of(_text(element)) if is_leaf else (True,))
            for tag, value in element.attrib.items():
                name = f"{path}/@{tag}"
                if len(name) <= MAX_NAME:
                    found.setdefault(name, []).extend(values_of(_normalised(value)))
            opened.append((iter(element), path))
            break
        else:
            opened.pop()
    return {name: _distinct(values) for name, values in found.items()}


def values_of(text: str) -> list[Value]:
    """Return the values of a node, given its normalised text: that, and what else it stands for.

    >>> values_of("007"), values_of("Wien")
    (['007', 7], ['Wien'])
    """
    # The same short texts come again and again.
    return [*_short_values(text)] if len(text) <= MAX_CACHED else _values(text)


def _values(text: str) -> list[Value]:
    number = number_in(text)
    if number is not None:
        # Numbers of queries are small, or compared less sharply: the nearest float will do.
        is_small = type(number) is not int or INT64_MIN <= number <= INT64_MAX
        return [text, number if is_small else float(number)]
    if is_huge(text):
        return [text, b""]
    found = date_in(text)
    return [text] if found is None else [text, found]


_short_values = lru_cache(maxsize=65_536)(_values)


def is_huge(text: str) -> bool:
    """Return whether only XPath takes a text for a number: it is infinite, or has many digits."""
    return len(text) > 300 and _DIGITS.fullmatch(text) is not None and number_in(text) is None


def _note(element: Any, place: _PatternState, found: dict[str, list[Value]]) -> None:
    if place.names:
        values = values_of(_text(element))
        for name in place.names:
            known = found.get(name)
            if known is None:
                found[name] = [*values]
            else:
                known += values
    if place.attributes and element.attrib:
        for step, name in place.attributes:
            for value in _attribute_texts(element, step):
                found.setdefault(name, []).extend(values_of(value))
    if place.keys:
        parts = [_parts(element, column) for column in place.columns]
        for name, columns in place.keys:
            keys = _keys([parts[column] for column in columns])
            if keys:
                found.setdefault(name, []).extend(keys)


def _parts(element: Any, column: KeyColumn) -> list[str] | None:
    """Return what an element has in a column of keys; None if that is not known."""
    found = _texts_in(element, column.steps)
    if column.reading is ValueReading.NUMBER and any(map(is_huge, found)):
        return None
    texts = [part_of_key(text, column.reading) for text in found]
    return list(dict.fromkeys(text for text in texts if text is not None))


def _keys(parts: Sequence[list[str] | None]) -> list[str]:
    known = [part for part in parts if part is not None]
    return keys_of(known) if len(known) == len(parts) else [TOO_MANY]


def _texts_in(element: Any, steps: Sequence[PatternStep]) -> list[str]:
    elements = [element]
    for step in steps:
        if step.is_attribute:
            return [text for each in elements for text in _attribute_texts(each, step)]
        elements = [child for each in elements for child in each.iterchildren(step.shown_name)]
    return [_text(each) for each in elements]


def _attribute_texts(element: Any, step: PatternStep) -> list[str]:
    if step.name is not None:
        value = element.get(step.shown_name)
        return [] if value is None else [_normalised(value)]
    return [_normalised(value) for tag, value in element.attrib.items() if step.passes(tag)]


def _text(element: Any) -> str:
    text = str(_all_text(element)) if len(element) else element.text
    return _normalised(text) if text else ""


def _normalised(text: str) -> str:
    if len(text) <= MAX_CHARACTERS:
        return without_extra_space(text)
    return without_extra_space(text)[:MAX_CHARACTERS]


def _distinct(values: list[Value]) -> tuple[Value, ...]:
    if len(values) < 3:
        return tuple(values)
    # The number 1 is not the boolean true, although Python has them equal.
    return tuple({(type(value), value): value for value in values}.values())
