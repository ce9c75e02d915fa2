"""Filters that say more than an engine of flat events can find: what it gets, and the exact answer.

A test of elements and a query over documents are given to an engine as a filter that holds wherever
they do. What it finds is then checked exactly, on the event as it was published.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Final

from tamis.errors import FilterError, FilterTypeError
from tamis.events import Event, Schema
from tamis.events.gathering import HoldsAttributes
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.element_bounds import bound_mode, upper_bound
from tamis.filters.element_test import has_element_tests, refuse_element_tests
from tamis.filters.limits import NO_LIMITS
from tamis.filters.modes import View
from tamis.filters.printing import ANY
from tamis.filters.translations import Translation
from tamis.languages.registry import QUERY_LANGUAGES, parse

# Each takes some kilobytes.
MAX_TRANSLATIONS: Final = 4_096
MAX_WORK: Final = 500_000
"""Of one evaluation where others wait, as at a broker: up to half a second."""


class QueryTest(Filter, frozen=True):
    """A query over documents, as a filter by itself; no event but a document satisfies it.

    It may ask for anything in a document, so it mentions every attribute there is.
    """

    text: str
    language: str

    @property
    def translation(self) -> Translation:
        """Return the filter that it is over attributes, and what is left to check."""
        return _translation(self.text, self.language)

    def bind(self, schema: Schema) -> Filter:  # noqa: ARG002 - as every filter
        """Refuse a schema."""
        raise FilterTypeError(
            "a query over documents asks for places in them, which no schema declares; ask a "
            "broker without a schema"
        )

    def truth_in(self, view: View) -> bool | None:  # noqa: ARG002 - as every filter
        """Return False: a flat event is no document."""
        return False

    def atoms(self) -> Iterator[Filter]:
        """Yield the query itself."""
        yield self

    def attributes(self) -> frozenset[str]:
        """Return that any attribute may be meant."""
        return frozenset({ANY})

    def __str__(self) -> str:
        return f"{self.language} {self.text}"


def read_filter(text: str, language: str, limits: FilterLimits | None = None) -> Filter:
    """Parse a filter; a query over documents becomes a `QueryTest`.

    >>> read_filter("//book[price > 30]", "xql").translation.filter
    <Filter `//book/price` > 30>
    """
    if language not in QUERY_LANGUAGES:
        return parse(text, language, limits=limits)
    bounds = limits or FilterLimits()
    if not isinstance(text, str):
        raise FilterError(f"a query is a text, not {text!r:.60}")
    bounds.check_text(text)
    bounds.check(_translation(text, language).filter)
    return QueryTest(text, language)


def is_approximated(filter_: Filter) -> bool:
    """Return whether an engine of flat events may find more than satisfies a filter."""
    return isinstance(filter_, QueryTest) or has_element_tests(filter_)


def refuse_approximated(filter_: Filter, where: str) -> None:
    """Refuse a query, or tests of elements, where only flat events are known."""
    if isinstance(filter_, QueryTest):
        raise FilterTypeError(
            f"{where} has rows, not documents: use a language of filters over attributes"
        )
    refuse_element_tests(filter_, where)


def over_attributes(filter_: Filter, mode: Mode) -> tuple[Filter, Mode]:
    """Return a filter for flat events that holds wherever another does, and its mode."""
    if isinstance(filter_, QueryTest):
        return filter_.translation.filter, Mode.SQL
    if has_element_tests(filter_):
        return upper_bound(filter_, mode), bound_mode(mode)
    return filter_, mode


def satisfies_exactly(
    filter_: Filter, mode: str, given: Event | HoldsAttributes, schema: Schema | None = None
) -> bool:
    """Return whether an event with its nested data, or a document, satisfies a filter exactly."""
    if not isinstance(filter_, QueryTest):
        event = given if isinstance(given, Event) else event_of(given, filter_.attributes())
        return filter_.matches(event, mode, schema)
    if isinstance(given, Event):
        return False
    found, residual, _ = filter_.translation
    if residual is not None:
        return residual.holds(given)
    return found.matches(event_of(given, found.attributes()))


def event_of(document: HoldsAttributes, names: Collection[str]) -> Event:
    """Return what a document holds under some names; under all, if any may be meant."""
    held = document.__attributes__({*names} - {ANY})
    if ANY in names:
        held = {**document.__attributes__(None), **held}
    return Event.of_checked(held)


@lru_cache(maxsize=MAX_TRANSLATIONS)
def _translation(text: str, language: str) -> Translation:
    from tamis.xml import XMLQueryLimits, query  # noqa: PLC0415 - needs the extra `xml`

    limits = XMLQueryLimits(text=NO_LIMITS.text, work=MAX_WORK)
    return query(text, language=language, limits=limits).__translation__()
