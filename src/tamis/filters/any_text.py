"""Tests of all attributes at once: `any contains "mimikatz"`.

The texts of an event are all texts that its attributes hold. Such a test is true if one of them
passes, false if none does, and like a comparison with an absent attribute if there are none. A
schema decides which attributes have texts, and which of them ignore case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import msgspec

from tamis.errors import FilterTypeError
from tamis.events import Kind, Schema
from tamis.events.schema import check_schema
from tamis.filters.atoms import Caseless, InNetwork, TextTest, ValueAtom, caseless
from tamis.filters.boolean import Filter, Not
from tamis.filters.modes import View
from tamis.filters.printing import ANY


class AnyText(Filter, frozen=True):
    """Some text of some attribute passes a test."""

    test: ValueAtom
    """The test, of an attribute that no event has."""

    def truth_in(self, view: View) -> bool | None:
        """Return whether some text passes; without one the mode decides."""
        truth = view.unknown
        for name, held in view.event.held.items():
            test = self._test_of(name, view.schema)
            if test is None:
                continue
            for value in held:
                if type(value) is str:
                    if test.accepts(value):
                        return True
                    truth = False
        return truth

    def of(self, name: str, schema: Schema | None) -> ValueAtom | None:
        """Return the test of one attribute, as that is declared; None if it has no texts."""
        test = self._test_of(name, schema)
        return None if test is None else _renamed(test, name)

    def _test_of(self, name: str, schema: Schema | None) -> ValueAtom | None:
        if schema is None:
            return self.test
        declared = schema.get(name)
        if declared is None or declared.kind is not Kind.TEXT:
            return None
        return self.caseless_test if declared.caseless else self.test

    @property
    def caseless_test(self) -> ValueAtom:
        """Return the test as it is made of attributes that the schema declares as caseless."""
        return self.test if isinstance(self.test, Caseless | InNetwork) else caseless(self.test)

    def known(self) -> AnyText:
        """Return where the test is true or false, not unknown: where there is any text."""
        return AnyText(TextTest(ANY, Kind.TEXT, "contains", ""))

    def bind(self, schema: Schema) -> Self:
        """Check that the schema declares a text, and that its declarations allow the test."""
        check_schema(schema)
        if not text_attributes(schema):
            raise FilterTypeError(f"{self} tests texts, and the schema declares none")
        return self

    def atoms(self) -> Iterator[Filter]:
        """Yield the test itself."""
        yield self

    def attributes(self) -> frozenset[str]:
        """Return the name that stands for any attribute."""
        return frozenset((ANY,))

    def __str__(self) -> str:
        return str(self.test)


def any_text(filter_: Filter) -> Filter:
    """Return the test of any attribute that was written for one called `ANY`.

    Raises:
        FilterTypeError: It is not a test of text.
    """
    if isinstance(filter_, Not):
        return Not.of(any_text(filter_.term))
    if isinstance(filter_, ValueAtom) and filter_.kind is Kind.TEXT:
        return AnyText(filter_)
    raise FilterTypeError(
        f"{filter_}: any attribute can only be tested for a text in quotes; an attribute that is "
        "called any stands in backticks"
    )


def text_attributes(schema: Schema) -> list[str]:
    """Return the attributes that a schema declares as texts."""
    return [name for name, declared in schema.items() if declared.kind is Kind.TEXT]


def bare_test(atom: Filter) -> Filter:
    """Return the test that is made of a value or, to ignore case, of the folded value."""
    if isinstance(atom, AnyText):
        atom = atom.test
    return atom.test if isinstance(atom, Caseless) else atom


def _renamed(test: ValueAtom, name: str) -> ValueAtom:
    if isinstance(test, Caseless):
        return Caseless(name, test.kind, _renamed(test.test, name))
    return msgspec.structs.replace(test, attribute=name)
