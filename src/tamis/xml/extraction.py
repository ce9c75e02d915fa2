"""Documents as events: the attributes that are wanted, found in one walk over a document.

The patterns of all names are followed together: an element leads from one set of branches of their
tree to another, and the sets that occur are few, so that each is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

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
from tamis.xml.pattern_tree import PatternBranch, PatternTree

MAX_KNOWN_PARTS: Final = 4_096
"""Parts of keys that are kept from document to document, for each column."""
MAX_TRANSITIONS: Final = 65_536
"""Kept from element to element, each counted with the branches that it leads to.

Documents with ever new names cost time, not memory.
"""

_all_text: Final = etree.XPath("string()")

_ChildTexts = dict[str, list[str | None]]
"""The texts of an element's children that are parts of keys, by name."""

_Opened = tuple[Any, "_PatternState", Any, _ChildTexts | None]
"""The children of an element that are left, what is known of it, the element, and parts of keys."""


class _WantedAttribute:
    """An attribute that is wanted."""

    __slots__ = ("key", "name", "steps")

    def __init__(self, name: str, found: NodePattern | ElementKey) -> None:
        self.name = name
        self.key = found if isinstance(found, ElementKey) else None
        self.steps = found.steps if isinstance(found, NodePattern) else found.pattern.steps


class _PatternState:
    """What is known of an element: what its value is wanted for, and where its children lead."""

    __slots__ = (
        "attributes",
        "branches",
        "indexes",
        "is_last",
        "keys",
        "next",
        "other",
        "tags",
        "targets",
    )

    def __init__(
        self,
        numbers: frozenset[int],
        branches: Sequence[PatternBranch],
        key_finders: Mapping[int, _KeyFinder],
    ) -> None:
        self.branches = numbers
        self.next: dict[str, _PatternState] = {}
        self.other: _PatternState | None = None
        """Where children lead whose names no pattern mentions."""
        ends = [number for branch in branches for number in branch.ends]
        self.targets = [number for number in ends if number not in key_finders]
        """The attributes that its text is wanted for."""
        keys = [key_finders[number] for number in ends if number in key_finders]
        self.keys = _StateKeys(keys) if keys else None
        self.tags = frozenset(self.keys.tags) if self.keys is not None and self.keys.tags else None
        """The names of children whose texts are parts of keys."""
        self.indexes = [branch.attributes for branch in branches if branch.attributes]
        self.attributes: dict[str, list[int]] = {}
        """What its own attributes are wanted for, by their names, as far as any had them."""
        self.is_last = not any(branch.is_deep or branch.branches for branch in branches)


class DocumentExtraction:
    """Finds attributes with some names in documents."""

    def __init__(self, names: Iterable[str]) -> None:
        known = [(name, document_attribute(name)) for name in names]
        self._wanted = [
            _WantedAttribute(name, target) for name, target in known if target is not None
        ]
        self._wants_document = any(not each.steps for each in self._wanted)
        self._tree = PatternTree(
            [(number, each.steps) for number, each in enumerate(self._wanted) if each.steps]
        )
        self._key_finders = _key_finders(self._wanted)
        self._transitions = 0
        self._states: dict[frozenset[int], _PatternState] = {}
        self._start = self._state(self._tree.start())

    def attributes(self, root: Any) -> tuple[dict[str, tuple[Value, ...]], bool]:
        """Return the values of each attribute that a document has, given its outermost element.

        And whether some element has too many keys.
        """
        found = _FoundTexts(self._key_finders)
        self._walk(root, 0, found)
        values: dict[str, tuple[Value, ...]] = {"/": (True,)} if self._wants_document else {}
        for texts, numbers in found.shared():
            held = _distinct(texts.values())
            values.update((self._wanted[number].name, held) for number in numbers)
        return values, any(texts.crowded for texts in found.values())

    def columns(
        self, roots: Sequence[Any], numbers: Sequence[int]
    ) -> tuple[dict[str, Column], set[int]]:
        """Return the attributes of some documents in columns, given the number of each.

        And the numbers of those in which some element has too many keys.
        """
        found = _FoundTexts(self._key_finders)
        for number, root in zip(numbers, roots, strict=True):
            self._walk(root, number, found)
        columns: dict[str, Column] = {}
        if self._wants_document and numbers:
            events = np.array(numbers, np.int32)
            is_there = entries_of(Kind.BOOLEAN, events, [True] * len(numbers))
            columns["/"] = Column({Kind.BOOLEAN: is_there})
        for texts, wanted in found.shared():
            column = texts.column()
            columns.update((self._wanted[one].name, column) for one in wanted)
        return columns, set[int]().union(*(texts.crowded for texts in found.values()))

    def _walk(  # noqa: PLR0912 - in one piece, as the way of every element
        self, root: Any, event: int, found: _FoundTexts
    ) -> None:
        # A document decides how deep it is, so there is no recursion.
        opened: list[_Opened] = [(iter((root,)), self._start, root, None)]
        of_states = found.of_states
        while opened:
            elements, above, parent, gathered = opened[-1]
            known, tags, leads = above.next, above.tags, None
            for element in elements:
                tag = element.tag
                state = known.get(tag)
                if state is None:
                    if type(tag) is not str:
                        continue
                    state = self._entered(above, tag)
                is_part = tags is not None and tag in tags
                if state.targets or is_part:
                    text = str(_all_text(element)) if len(element) else element.text
                    if state.targets:
                        one = of_states.get(state)
                        if one is None:
                            one = of_states[state] = ExtractedTexts(is_key=False)
                        # No call for each of them: this is done for every element.
                        one.events.append(event)
                        one.texts.append(text)
                    if is_part and gathered is not None:
                        gathered.setdefault(tag, []).append(text)
                if state.indexes and element.attrib:
                    self._note_attributes(element, state, event, found)
                if not state.is_last:
                    leads = state
                    break
                if state.keys is not None:
                    state.keys.note(element, None, event, found)
            if leads is not None:
                texts: _ChildTexts | None = None if leads.tags is None else {}
                opened.append((iter(element), leads, element, texts))
                continue
            opened.pop()
            if above.keys is not None:
                # All children have been seen, and the texts that keys are made of.
                above.keys.note(parent, gathered, event, found)

    def _note_attributes(
        self, element: Any, state: _PatternState, event: int, found: _FoundTexts
    ) -> None:
        for tag, value in element.attrib.items():
            targets = state.attributes.get(tag)
            if targets is None:
                wanted = (numbers for index in state.indexes for numbers in index.of(tag))
                targets = state.attributes[tag] = [one for numbers in wanted for one in numbers]
                self._count(1 + len(targets))
            if targets:
                found.of_attributes(state, tag, targets).note(event, value)

    def _entered(self, above: _PatternState, tag: str) -> _PatternState:
        is_known = self._tree.knows(tag)
        if not is_known and above.other is not None:
            state = above.other
        else:
            state = self._state(self._tree.entered(above.branches, tag))
        # Before it is kept: what is forgotten must not come back with it.
        self._count(1)
        above.next[tag] = state
        if not is_known:
            above.other = state
        return state

    def _state(self, numbers: frozenset[int]) -> _PatternState:
        known = self._states.get(numbers)
        if known is None:
            branches = [self._tree.branches[number] for number in sorted(numbers)]
            known = self._states[numbers] = _PatternState(numbers, branches, self._key_finders)
            self._count(len(numbers))
        return known

    def _count(self, transitions: int) -> None:
        """Count what is kept; forget it all if it is too much, in the middle of a document too."""
        self._transitions += transitions
        if self._transitions > MAX_TRANSITIONS:
            for state in self._states.values():
                state.next.clear()
                state.attributes.clear()
                state.other = None
            self._states = {self._start.branches: self._start}
            self._transitions = 0


class _FoundTexts(dict[int, ExtractedTexts]):
    """The texts that were found for attributes, by their numbers.

    Those of elements are kept by what is known of the element: they may be wanted for many
    attributes, and are then the same for all of these.
    """

    def __init__(self, keys: Mapping[int, object]) -> None:
        super().__init__()
        self._keys = keys
        self.of_states: dict[_PatternState, ExtractedTexts] = {}
        """The texts of the elements of which the same is known."""
        self._of_attributes: dict[
            tuple[_PatternState, str], tuple[ExtractedTexts, Sequence[int]]
        ] = {}
        """Those of their attributes, by name, and what they are wanted for."""

    def __missing__(self, number: int) -> ExtractedTexts:
        texts = self[number] = ExtractedTexts(is_key=number in self._keys)
        return texts

    def of_attributes(
        self, state: _PatternState, tag: str, targets: Sequence[int]
    ) -> ExtractedTexts:
        """Return the texts of attributes with a name, of elements of which the same is known."""
        known = self._of_attributes.get((state, tag))
        if known is None:
            known = self._of_attributes[state, tag] = ExtractedTexts(is_key=False), targets
        return known[0]

    def shared(self) -> Iterator[tuple[ExtractedTexts, Sequence[int]]]:
        """Yield all texts, each with the attributes that have just these."""
        parts: dict[int, tuple[ExtractedTexts, ...]] = {}
        of_elements = [(texts, state.targets) for state, texts in self.of_states.items()]
        for texts, targets in (*of_elements, *self._of_attributes.values()):
            for number in targets:
                parts[number] = (*parts.get(number, ()), texts)
        numbers: dict[tuple[ExtractedTexts, ...], list[int]] = {}
        for number, own in parts.items():
            numbers.setdefault(own, []).append(number)
        for own, wanted in numbers.items():
            yield ExtractedTexts.joined(own), wanted
        yield from ((texts, [number]) for number, texts in self.items())


class _KeyFinder(NamedTuple):
    """The columns of a key, and the number of the attribute that it is."""

    number: int
    columns: tuple[_KeyPartFinder, ...]


def _key_finders(wanted: Iterable[_WantedAttribute]) -> dict[int, _KeyFinder]:
    """Return what finds keys, by their numbers; many keys have the same columns."""
    columns: dict[KeyColumn, _KeyPartFinder] = {}
    found = {}
    for number, each in enumerate(wanted):
        if each.key is not None:
            own = [columns.setdefault(one, _KeyPartFinder(one)) for one in each.key.columns]
            found[number] = _KeyFinder(number, tuple(own))
    return found


class _StateKeys:
    """The keys of an element, found by what it has: most have nothing of most keys."""

    __slots__ = ("_by_attribute", "_by_child", "_by_tag", "_others", "tags")

    def __init__(self, keys: Iterable[_KeyFinder]) -> None:
        self._by_tag: dict[str, list[_KeyFinder]] = {}
        """Those with the text of a child, by its name."""
        self._by_child: dict[str, list[_KeyFinder]] = {}
        """Others with something in a child, by its name."""
        self._by_attribute: dict[str, list[_KeyFinder]] = {}
        self._others: list[_KeyFinder] = []
        self.tags: set[str] = set()
        """The names of children whose texts are parts of keys."""
        for key in keys:
            tags = [one.tag for one in key.columns if one.tag is not None]
            children = [one.child for one in key.columns if one.child is not None]
            attributes = [one.attribute for one in key.columns if one.attribute is not None]
            self.tags.update(tags)
            if tags:
                self._by_tag.setdefault(tags[0], []).append(key)
            elif children:
                self._by_child.setdefault(children[0], []).append(key)
            elif attributes:
                self._by_attribute.setdefault(attributes[0], []).append(key)
            else:
                self._others.append(key)

    def note(
        self, element: Any, gathered: _ChildTexts | None, event: int, found: _FoundTexts
    ) -> None:
        """Note the keys that an element has; `gathered` are texts of its children, if known."""
        ones: dict[_KeyPartFinder, str | None] = {}
        for number, columns in self._of(element, gathered):
            parts: list[str] = []
            for column in columns:
                part = ones[column] if column in ones else column.one(gathered)
                ones[column] = part
                if part is None:
                    break
                parts.append(part)
            else:
                if TOO_MANY in parts:
                    several = [column.parts(element, gathered) for column in columns]
                    _note_several(several, event, found, number)
                else:
                    found[number].note(event, SEPARATOR.join(parts))

    def _of(self, element: Any, gathered: _ChildTexts | None) -> Iterable[_KeyFinder]:
        """Return the keys that an element may have."""
        found = self._others
        if self._by_tag:
            tags = {child.tag for child in element} if gathered is None else gathered
            found = [key for tag in tags for key in self._by_tag.get(tag, ())] + found
        if self._by_child:
            children = {child.tag for child in element}
            found = [key for tag in children for key in self._by_child.get(tag, ())] + found
        if self._by_attribute:
            found = [
                key for tag in element.attrib for key in self._by_attribute.get(tag, ())
            ] + found
        return found


def _note_several(
    parts: list[list[str] | None], event: int, found: _FoundTexts, number: int
) -> None:
    known = [part for part in parts if part is not None]
    keys = keys_of(known) if len(known) == len(parts) else [TOO_MANY]
    if not keys:
        return
    one = found[number]
    for key in keys:
        one.note(event, key)
    if keys[0] is TOO_MANY:
        one.crowded.add(event)


class _KeyPartFinder:
    """Finds the parts of keys that lie in one column."""

    __slots__ = ("_known", "_reading", "_steps", "attribute", "child", "tag")

    def __init__(self, column: KeyColumn) -> None:
        self._steps = column.steps
        self._reading = column.reading
        first = column.steps[0] if column.steps else None
        named = first if first is not None and first.name is not None else None
        is_child = named is not None and not named.is_attribute
        self.child = named.shown_name if named is not None and is_child else None
        """The name of the children that it begins with, if they have one."""
        self.attribute = named.shown_name if named is not None and not is_child else None
        """The name of the attributes that it consists of, if they have one."""
        self.tag = self.child if len(column.steps) == 1 else None
        """The name of children that have the texts, in the simplest case."""
        self._known: dict[str | None, str | None] = {}

    def one(self, gathered: _ChildTexts | None) -> str | None:
        """Return what an element has in the column, None if nothing; TOO_MANY: look for parts."""
        if gathered is None or self.tag is None:
            return TOO_MANY
        texts = gathered.get(self.tag, ())
        if len(texts) != 1:
            return TOO_MANY if texts else None
        text = texts[0]
        return self._known[text] if text in self._known else self._learnt(text)

    def parts(self, element: Any, gathered: _ChildTexts | None) -> list[str] | None:
        """Return what an element has in the column; None if that is not known.

        What was gathered has the texts of its children by name.
        """
        texts: Sequence[str | None]
        if gathered is None or self.tag is None:
            texts = _texts_in(element, self._steps)
        else:
            texts = gathered.get(self.tag, ())
        known = self._known
        found: dict[str, None] = {}
        for text in texts:
            part = known[text] if text in known else self._learnt(text)
            if part is TOO_MANY:
                return None
            if part is not None:
                found[part] = None
        return [*found]

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
