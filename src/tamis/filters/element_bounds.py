"""What tests of elements say about flat events: a filter that holds wherever the exact one does.

If an element satisfies `sku = "a" and quantity > 3`, then some value of `items.sku` is "a" and some
value of `items.quantity` is above 3, though perhaps of another element. Under `not` it is the
other way round: an atom that is false of an element had a value there that did not pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tamis.errors import EventError, WorkLimitError
from tamis.events import Event, EventLimits, Schema
from tamis.events.elements import elements
from tamis.events.values import brief
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import COMPLEMENTS, Atom, Caseless, Compare, Present, ValueAtom
from tamis.filters.boolean import FALSE, TRUE, And, Constant, Filter, Not, Or, Xor
from tamis.filters.element_test import ElementTest, has_element_tests
from tamis.filters.modes import Mode, view_of
from tamis.filters.translations import Translation

ELEMENTS: Final = "elements"
"""How a snapshot calls such residuals."""
MAX_ELEMENT_WORK: Final = 500_000
"""How many tests of elements one filter may take on one event: a fraction of a second."""


class ElementResidual(NamedTuple):
    """What is left to check of a filter with tests of elements: all of it."""

    filter: Filter
    mode: Mode
    schema: Schema | None = None

    def event_of(self, given: object) -> Event:
        """Return an event as it was given, with its nested data."""
        if isinstance(given, Event):
            return given
        if not isinstance(given, Mapping):
            raise EventError(
                f"{self.filter!s:.60} tests elements of nested data, such as mappings or JSON, and "
                f"this is {brief(given)}"
            )
        return Event.of_data(given, EventLimits(), masks=self.schema.masks if self.schema else ())

    def holds(self, event: object) -> bool:
        """Return whether an event that has its nested data satisfies the filter."""
        view = view_of(self.event_of(event), self.mode, self.schema)
        if element_work(self.filter, view.event, view.schema) > MAX_ELEMENT_WORK:
            raise WorkLimitError(
                "tests of the elements of one event",
                actual=None,
                limit=MAX_ELEMENT_WORK,
                advice="make the condition shorter, or the lists",
            )
        if self.mode is Mode.STRICT and not self.filter.is_adequate(view):
            return False
        return self.filter.truth_in(view) is True

    def saved(self) -> list[Any]:
        """Return its kind and what it is made of."""
        return [ELEMENTS, str(self.filter), self.mode.value]

    def __str__(self) -> str:
        return str(self.filter)


def element_work(filter_: Filter, event: Event, schema: Schema | None) -> int:
    """Return how many tests of elements a filter takes on an event, or some more than it may.

    >>> from tamis.filters import Attr
    >>> test = ElementTest.of("items", (Attr("a") == 1) & (Attr("b") == 2))
    >>> element_work(test, Event({"items": [{"a": 1}, {"a": 2}, {"a": 3}]}), None)
    6
    """
    work = 0
    for test in filter_.atoms():
        if isinstance(test, ElementTest):
            found = elements(event, test.attribute, schema)
            work += len(found) * sum(1 for _ in test.condition.atoms())
            if has_element_tests(test.condition):
                below = None if schema is None else schema.below(test.attribute)
                for element in found:
                    if work > MAX_ELEMENT_WORK:
                        break
                    work += element_work(test.condition, element, below)
    return work


def element_translation(filter_: Filter, mode: Mode, schema: Schema | None) -> Translation:
    """Return a filter with tests of elements as one without, and what is left to check.

    The filter is for `bound_mode`.
    """
    bound = filter_ if schema is None else filter_.bind(schema)
    residual = ElementResidual(bound, mode, schema)
    return Translation(upper_bound(filter_, mode), residual)


def bound_mode(mode: Mode) -> Mode:
    """Return the mode of the bound: what `strict` asks for is left to check."""
    return Mode.SQL if mode is Mode.STRICT else mode


def upper_bound(filter_: Filter, mode: Mode = Mode.SQL) -> Filter:
    """Return a filter without tests of elements that holds wherever this one does.

    >>> from tamis.filters import attr
    >>> upper_bound(~attr("items").some((attr("sku") == "a") | (attr("price") < 5)))
    <Filter items.sku != "a" and items.price >= 5>
    """
    return _ElementBounds(is_three_valued=mode.is_three_valued).of(filter_, truth=True)


class _ElementBounds(NamedTuple):
    is_three_valued: bool

    def of(self, filter_: Filter, *, truth: bool) -> Filter:
        """Return where a filter may be true, or may be false."""
        if not has_element_tests(filter_):
            return filter_ if truth else Not.of(filter_)
        match filter_:
            case Not(term=term):
                return self.of(term, truth=not truth)
            case And(terms=terms) | Or(terms=terms):
                parts = [self.of(term, truth=truth) for term in terms]
                return _all(parts) if isinstance(filter_, And) is truth else _any(parts)
            case ElementTest(attribute=name, condition=condition):
                # If it is false, and not for want of elements, the condition is false of some.
                return (
                    self.lifted(condition, f"{name}.", truth=truth) if self._says(truth) else TRUE
                )
            case _:
                return TRUE

    def lifted(self, filter_: Filter, prefix: str, *, truth: bool) -> Filter:
        """Return what is so of the event if a condition is true, or false, of one element."""
        match filter_:
            case Constant(value=value):
                return TRUE if value is truth else FALSE
            case Not(term=term):
                return self.lifted(term, prefix, truth=not truth)
            case And(terms=terms) | Or(terms=terms):
                parts = [self.lifted(term, prefix, truth=truth) for term in terms]
                return _all(parts) if isinstance(filter_, And) is truth else _any(parts)
            case Xor(terms=terms):
                # Some are true, some are false, and all are known.
                return _all(
                    [
                        _any([self.lifted(term, prefix, truth=each) for each in (True, False)])
                        for term in terms
                    ]
                )
            case ElementTest(attribute=name, condition=condition):
                below = f"{prefix}{name}."
                return self.lifted(condition, below, truth=truth) if self._says(truth) else TRUE
            case AnyText():
                return filter_ if truth else TRUE
            case Relation():
                names = sorted(filter_.attributes())
                known = [Present(f"{prefix}{name}") for name in names]
                return _all(known) if self._says(truth) else TRUE
            case Atom():
                if truth:
                    return _renamed(filter_, prefix)
                return self._false_atom(filter_, prefix)
            case _:
                return TRUE

    def _says(self, truth: bool) -> bool:
        """Return whether that an atom is true, or false, says that there are values."""
        return truth or self.is_three_valued

    def _false_atom(self, atom: Atom, prefix: str) -> Filter:
        known = atom.known()
        if known is None or not self.is_three_valued:
            return TRUE
        if isinstance(atom, Compare):
            known = msgspec.structs.replace(atom, op=COMPLEMENTS[atom.op])
        return _renamed(known, prefix)


def _renamed(atom: Atom, prefix: str) -> Atom:
    name = f"{prefix}{atom.attribute}"
    if isinstance(atom, Caseless):
        test = _renamed(atom.test, prefix)
        assert isinstance(test, ValueAtom)  # noqa: S101 - as it was
        return Caseless(name, atom.kind, test)
    return msgspec.structs.replace(atom, attribute=name)


def _all(parts: Sequence[Filter]) -> Filter:
    if FALSE in parts:
        return FALSE
    return And.of(dict.fromkeys(part for part in parts if part != TRUE))


def _any(parts: Sequence[Filter]) -> Filter:
    if TRUE in parts:
        return TRUE
    return Or.of(dict.fromkeys(part for part in parts if part != FALSE))
