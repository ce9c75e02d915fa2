"""Tests of any attribute from Python: `any_attr.contains("mimikatz")`."""

from __future__ import annotations

from typing import Final

from tamis.errors import FilterTypeError
from tamis.filters.any_text import any_text
from tamis.filters.boolean import Filter
from tamis.filters.build import Attr, CaselessAttr
from tamis.filters.printing import ANY


class AnyAttr:
    """Any attribute of the event, whose texts are tested; there is one, `any_attr`."""

    __slots__ = ("_attribute",)

    def __init__(self, attribute: Attr | CaselessAttr) -> None:
        self._attribute = attribute

    @property
    def caseless(self) -> AnyAttr:
        """Any attribute, to be tested without regard to case.

        >>> any_attr.caseless.contains("Mimikatz")
        <Filter any ~contains "mimikatz">
        """
        if isinstance(self._attribute, CaselessAttr):
            return self
        return AnyAttr(self._attribute.caseless)

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return any_text(self._attribute == other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return any_text(self._attribute != other)

    def __lt__(self, other: object) -> Filter:
        return any_text(self._attribute < other)

    def __le__(self, other: object) -> Filter:
        return any_text(self._attribute <= other)

    def __gt__(self, other: object) -> Filter:
        return any_text(self._attribute > other)

    def __ge__(self, other: object) -> Filter:
        return any_text(self._attribute >= other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return "<any attribute>"

    def between(self, low: str, high: str) -> Filter:
        """Some text lies from `low` to `high`, both included."""
        return any_text(self._attribute.between(low, high))

    def in_(self, *values: object) -> Filter:
        """Some text equals one of `values`."""
        return any_text(self._attribute.in_(*values))

    def in_network(self, *networks: str) -> Filter:
        """Some text is an IP address in one of `networks`."""
        if isinstance(self._attribute, CaselessAttr):
            raise FilterTypeError("in_network does not look at case; leave .caseless out")
        return any_text(self._attribute.in_network(*networks))

    def contains(self, text: str) -> Filter:
        """Some text has `text` somewhere in it."""
        return any_text(self._attribute.contains(text))

    def within(self, text: str) -> Filter:
        """Some text stands somewhere in `text`."""
        return any_text(self._attribute.within(text))

    def starts_with(self, text: str) -> Filter:
        """Some text begins with `text`."""
        return any_text(self._attribute.starts_with(text))

    def ends_with(self, text: str) -> Filter:
        """Some text ends with `text`."""
        return any_text(self._attribute.ends_with(text))

    def like(self, pattern: str) -> Filter:
        """Some text, as a whole, fits an SQL pattern: % any text, _ one character."""
        return any_text(self._attribute.like(pattern))

    def matches(self, pattern: str) -> Filter:
        """A regular expression (RE2) is found in some text."""
        return any_text(self._attribute.matches(pattern))


any_attr: Final = AnyAttr(Attr(ANY))
"""Any attribute of the event.

>>> any_attr.contains("mimikatz") & ~any_attr.starts_with("C:")
<Filter any contains "mimikatz" and not (any starts with "C:")>
"""
