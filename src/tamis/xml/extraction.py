"""Documents as events: the attributes that are wanted, found in one walk over a document.

The patterns of all names are followed together: an element leads from one set of partly matched
patterns to another, and the sets that occur are few, so that each is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from lxml import etree

from tamis.events.columns import Column, entries_of
from tamis.events.kinds import Kind, Value
from tamis.xml.extracted import MAX_CACHED, ExtractedTexts, is_huge, normalised, values_of
from tamis.xml.key_texts import SEPARATOR, TOO_MANY, keys_of, part_of_key
from tamis.xml.node_patterns import (
    MAX_NAME,
    ElementKey,
    KeyColumn,
    NodePattern,
    PatternStep,
    ValueReading,
    document_attribute,
)

MAX_KNOWN_PARTS: Final = 4_096
"""Parts of keys that are kept from document to document, for each column."""
MAX_TRANSITIONS: Final = 65_536
"""Kept from document to document; documents with ever new names cost time, not memory."""

_all_text: Final = etree.XPath("string()")

_Progress = frozenset[tuple[int, int]]
"""Patterns and how many steps of each are done."""


_Opened = tuple[Any, "_PatternState", Any, dict[str, list[str | None]] | None]
"""The children of an element that are left, what is known of it, the element, and parts of keys."""


class _WantedAttribute:
    """An attribute that is wanted."""

    __slots__ = ("key", "name", "number", "steps")

    def __init__(self, number: int, name: str, found: NodePattern | ElementKey) -> None:
        self.number = number
        self.name = name
        self.key = found if isinstance(found, ElementKey) else None
        self.steps = found.steps if isinstance(found, NodePattern) else found.pattern.steps


class _PatternState:
    """What is known of an element: what its value is wanted for, and where its children lead."""

    __slots__ = ("attributes", "columns", "is_last", "keys", "next", "progress", "tags", "targets")

    def __init__(self, progress: _Progress, patterns: Sequence[_WantedAttribute]) -> None:
        self.progress = progress
        self.next: dict[str, _PatternState] = {}
        done = [patterns[p] for p, count in progress if count == len(patterns[p].steps)]
        self.targets = [each.number for each in done if each.key is None]
        """The attributes that its text is wanted for."""
        keys = [(each.number, each.key.columns) for each in done if each.key is not None]
        columns = list(dict.fromkeys(column for _, columns in keys for column in columns))
        self.columns = [_KeyPartFinder(column) for column in columns]
        """Columns of keys, each once: many keys have the same."""
        self.tags = {column.tag for column in self.columns if column.tag is not None}
        """The names of children whose texts are parts of keys."""
        self.keys = [(number, [columns.index(column) for column in own]) for number, own in keys]
        coming = [
            (patterns[p].steps[count], patterns[p])
            for p, count in progress
            if count < len(patterns[p].steps)
        ]
        self.attributes = [
            (step, target.number) for step, target in coming if step.is_attribute and not target.key
        ]
        self.is_last = not any(not step.is_attribute or step.is_deep for step, _ in coming)

    def new_parts(self) -> dict[str, list[str | None]] | None:
        """Return where texts of children are gathered; None if no key asks for them."""
        return {tag: [] for tag in self.tags} if self.tags else None


class DocumentExtraction:
    """Finds attributes with some names in documents."""

    def __init__(self, names: Iterable[str]) -> None:
        known = [(name, document_attribute(name)) for name in names]
        found = [(name, target) for name, target in known if target is not None]
        self._targets = [
            _WantedAttribute(number, name, target) for number, (name, target) in enumerate(found)
        ]
        self._wants_document = any(not each.steps for each in self._targets)
        self._transitions = 0
        self._places: dict[_Progress, _PatternState] = {}
        self._start = self._place(
            frozenset((p, 0) for p, each in enumerate(self._targets) if each.steps)
        )

    def attributes(self, root: Any) -> tuple[dict[str, tuple[Value, ...]], bool]:
        """Return the values of each attribute that a document has, given its outermost element.

        And whether some element has too many keys.
        """
        found = self._new_texts()
        self._walk(root, 0, found)
        values: dict[str, tuple[Value, ...]] = {"/": (True,)} if self._wants_document else {}
        for target, texts in zip(self._targets, found, strict=True):
            if texts.events:
                values[target.name] = _distinct(texts.values())
        return values, any(texts.crowded for texts in found)

    def columns(
        self, roots: Sequence[Any], numbers: Sequence[int]
    ) -> tuple[dict[str, Column], set[int]]:
        """Return the attributes of some documents in columns, given the number of each.

        And the numbers of those in which some element has too many keys.
        """
        found = self._new_texts()
        for number, root in zip(numbers, roots, strict=True):
            if self._transitions > MAX_TRANSITIONS:
                self._forget()
            self._walk(root, number, found)
        columns: dict[str, Column] = {}
        if self._wants_document and numbers:
            events = np.array(numbers, np.int32)
            is_there = entries_of(Kind.BOOLEAN, events, [True] * len(numbers))
            columns["/"] = Column({Kind.BOOLEAN: is_there})
        for target, texts in zip(self._targets, found, strict=True):
            if texts.events:
                columns[target.name] = texts.column()
        return columns, set[int]().union(*(texts.crowded for texts in found))

    def _new_texts(self) -> list[ExtractedTexts]:
        if self._transitions > MAX_TRANSITIONS:
            self._forget()
        return [ExtractedTexts(is_key=each.key is not None) for each in self._targets]

    def _forget(self) -> None:
        self._places, self._transitions = {}, 0
        self._start = self._place(self._start.progress)

    def _walk(self, root: Any, event: int, found: Sequence[ExtractedTexts]) -> None:
        # A document decides how deep it is, so there is no recursion.
        opened: list[_Opened] = [(iter((root,)), self._start, root, None)]
        while opened:
            elements, above, parent, gathered = opened[-1]
            known, leads = above.next, None
            for element in elements:
                tag = element.tag
                place = known.get(tag)
                if place is None:
                    if type(tag) is not str:
                        continue
                    place = self._entered(above, tag)
                own = None if gathered is None else gathered.get(tag)
                if place.targets or own is not None:
                    text = str(_all_text(element)) if len(element) else element.text
                    for target in place.targets:
                        one = found[target]
                        one.events.append(event)
                        one.texts.append(text)
                    if own is not None:
                        own.append(text)
                if place.attributes and element.attrib:
                    _note_attributes(element, place, event, found)
                if not place.is_last:
                    leads = place
                    break
                if place.keys:
                    _note_keys(element, place, None, event, found)
            if leads is not None:
                opened.append((iter(element), leads, element, leads.new_parts()))
                continue
            opened.pop()
            if above.keys:
                # All children have been seen, and the texts that keys are made of.
                _note_keys(parent, above, gathered, event, found)

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


def _note_attributes(
    element: Any, place: _PatternState, event: int, found: Sequence[ExtractedTexts]
) -> None:
    for step, target in place.attributes:
        one = found[target]
        for value in _attribute_texts(element, step):
            one.events.append(event)
            one.texts.append(value)


def _note_keys(
    element: Any,
    place: _PatternState,
    gathered: dict[str, list[str | None]] | None,
    event: int,
    found: Sequence[ExtractedTexts],
) -> None:
    # Mostly an element has one of each.
    ones = [column.one(gathered) for column in place.columns]
    several: list[list[str] | None] | None = None
    for target, columns in place.keys:
        one = found[target]
        parts = [part for column in columns if (part := ones[column]) is not None]
        if TOO_MANY in parts:
            if several is None:
                several = [column.parts(element, gathered) for column in place.columns]
            _note_several([several[column] for column in columns], event, one)
        elif len(parts) == len(columns):
            one.events.append(event)
            one.texts.append(SEPARATOR.join(parts))


def _note_several(parts: list[list[str] | None], event: int, one: ExtractedTexts) -> None:
    known = [part for part in parts if part is not None]
    keys = keys_of(known) if len(known) == len(parts) else [TOO_MANY]
    for key in keys:
        one.events.append(event)
        one.texts.append(key)
    if keys and keys[0] is TOO_MANY:
        one.crowded.add(event)


class _KeyPartFinder:
    """Finds the parts of keys that lie in one column."""

    __slots__ = ("_known", "_reading", "_steps", "tag")

    def __init__(self, column: KeyColumn) -> None:
        self._steps = column.steps
        self._reading = column.reading
        step = column.steps[0] if len(column.steps) == 1 else None
        is_plain = step is not None and step.name is not None and not step.is_attribute
        self.tag = step.shown_name if step is not None and is_plain else None
        """The name of children that have the texts, in the simplest case."""
        self._known: dict[str | None, str | None] = {}

    def one(self, gathered: dict[str, list[str | None]] | None) -> str | None:
        """Return what an element has in the column, None if nothing; TOO_MANY: look for parts."""
        if gathered is None or self.tag is None:
            return TOO_MANY
        texts = gathered[self.tag]
        if len(texts) != 1:
            return TOO_MANY if texts else None
        text = texts[0]
        return self._known[text] if text in self._known else self._learnt(text)

    def parts(self, element: Any, gathered: dict[str, list[str | None]] | None) -> list[str] | None:
        """Return what an element has in the column; None if that is not known.

        What was gathered has the texts of its children by name.
        """
        texts: Sequence[str | None]
        if gathered is None or self.tag is None:
            texts = _texts_in(element, self._steps)
        else:
            texts = gathered[self.tag]
        known = self._known
        found: list[str] = []
        for text in texts:
            part = known[text] if text in known else self._learnt(text)
            if part is TOO_MANY:
                return None
            if part is not None and part not in found:
                found.append(part)
        return found

    def _learnt(self, text: str | None) -> str | None:
        plain = normalised(text)
        if self._reading is ValueReading.NUMBER and is_huge(plain):
            return TOO_MANY
        part = part_of_key(plain, self._reading)
        if text is None or len(text) <= MAX_CACHED:
            if len(self._known) >= MAX_KNOWN_PARTS:
                self._known.clear()
            self._known[text] = part
        return part


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
            found.setdefault(path, []).extend(
                values_of(normalised(_text(element))) if is_leaf else (True,)
            )
            for tag, value in element.attrib.items():
                name = f"{path}/@{tag}"
                if len(name) <= MAX_NAME:
                    found.setdefault(name, []).extend(values_of(normalised(value)))
            opened.append((iter(element), path))
            break
        else:
            opened.pop()
    return {name: _distinct(values) for name, values in found.items()}


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
        return [] if value is None else [value]
    return [value for tag, value in element.attrib.items() if step.passes(tag)]


def _text(element: Any) -> str:
    return str(_all_text(element)) if len(element) else element.text or ""


def _distinct(values: list[Value]) -> tuple[Value, ...]:
    if len(values) < 3:
        return tuple(values)
    # The number 1 is not the boolean true, although Python has them equal.
    return tuple({(type(value), value): value for value in values}.values())
