"""Tests of elements: `items[sku = "a" and quantity > 3]`.

The elements of an attribute are the objects in its list. Such a test is true if its condition is
true of some element by itself, unknown if it is unknown of some and true of none, and otherwise
false. Without elements it is like a comparison with an absent attribute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Self

from tamis.errors import FilterTypeError
from tamis.events import Schema
from tamis.events.elements import elements
from tamis.events.schema import check_schema
from tamis.filters.atoms import PLAIN_ATOMS, Atom
from tamis.filters.boolean import Connective, Filter, Not, one_deeper
from tamis.filters.modes import View
from tamis.filters.printing import ANY, show_name


class ElementTest(Filter, frozen=True):
    """Some element of an attribute satisfies a condition, in which names are those of elements."""

    attribute: str
    condition: Filter

    @classmethod
    def of(cls, attribute: str, condition: Filter) -> Self:
        """Return the test."""
        return cls(attribute, condition, depth=one_deeper((condition,)))

    def truth_in(self, view: View) -> bool | None:
        """Return whether the condition is true of some element; without one the mode decides."""
        below = None if view.schema is None else view.schema.below(self.attribute)
        truths = {
            self.condition.truth_in(View(element, view.unknown, below))
            for element in elements(view.event, self.attribute, view.schema)
        }
        if not truths:
            return view.unknown
        if True in truths:
            return True
        return None if None in truths else False

    def bind(self, schema: Schema) -> Filter:
        """Bind the condition to what the schema declares for elements."""
        check_schema(schema)
        below = schema.below(self.attribute)
        if not below:
            hint = schema.suggestion(self.attribute)
            raise FilterTypeError(
                f"the schema declares no elements of {show_name(self.attribute)}; declare their "
                f'attributes, as in "{self.attribute}.price"{"; " + hint if hint else ""}',
                attribute=self.attribute,
            )
        try:
            bound = self.condition.bind(below)
        except FilterTypeError as error:
            raise FilterTypeError(
                f"elements of {show_name(self.attribute)}: {error.reason}", attribute=self.attribute
            ) from None
        return self if bound is self.condition else ElementTest.of(self.attribute, bound)

    def atoms(self) -> Iterator[Filter]:
        """Yield the test itself."""
        yield self

    def attributes(self) -> frozenset[str]:
        """Return the names that the attributes of elements have in the event."""
        names = self.condition.attributes()
        return frozenset(ANY if name == ANY else f"{self.attribute}.{name}" for name in names)

    def __str__(self) -> str:
        return f"{show_name(self.attribute)}[{self.condition}]"

    def negated_text(self) -> str:
        """Return `not items[…]`."""
        return f"not {self}"


def has_element_tests(filter_: Filter) -> bool:
    """Return whether there is a test of elements in a filter."""
    return conditions_in(filter_).are_of_elements


def refuse_element_tests(filter_: Filter, where: str) -> None:
    """Refuse a filter with a test of elements where only flat events are known."""
    for atom in filter_.atoms():
        if isinstance(atom, ElementTest):
            raise FilterTypeError(
                f"{where} cannot test elements, as {atom!s:.60} does: which values belong together "
                "is not known there; test each attribute, as in "
                f"{show_name(min(atom.attributes(), default=atom.attribute))}",
                attribute=atom.attribute,
            )


class Conditions(NamedTuple):
    """The atoms of a filter, and in place of a test of elements those of its condition."""

    atoms: list[Filter]
    are_of_elements: bool
    """Whether some of them are conditions of elements."""


def conditions_in(filter_: Filter) -> Conditions:
    """Return the atoms of a filter, those of tests of elements among them."""
    found: list[Filter] = []
    of_elements = False
    left = [filter_]
    # No generators and patterns: this is done with every filter that is read.
    while left:
        one = left.pop()
        if isinstance(one, Connective):
            if PLAIN_ATOMS.issuperset(map(type, one.terms)):
                found += one.terms
            else:
                left += one.terms[::-1]
        elif isinstance(one, Atom):
            found.append(one)
        elif isinstance(one, Not):
            left.append(one.term)
        elif isinstance(one, ElementTest):
            of_elements = True
            left.append(one.condition)
        else:
            found += one.atoms()
    return Conditions(found, of_elements)
