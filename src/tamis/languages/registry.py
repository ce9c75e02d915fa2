"""The languages by name, and `parse`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tamis.errors import FilterError
from tamis.events.schema import did_you_mean
from tamis.filters import Filter, FilterLimits
from tamis.filters.translations import Translation
from tamis.languages.jms import JMSParser
from tamis.languages.siena import parse_siena
from tamis.languages.tamis import TamisParser

LANGUAGES: Final[Mapping[str, Callable[[str, FilterLimits], Filter]]] = {
    "tamis": lambda text, limits: TamisParser(text, limits).parse(),
    "jms": lambda text, limits: JMSParser(text, limits).parse(),
    "siena": parse_siena,
}

QUERY_LANGUAGES: Final = ("xql", "xpath")
"""Languages of queries over XML documents: `translate` makes filters of them."""

ALL_LANGUAGES: Final = (*LANGUAGES, *QUERY_LANGUAGES)
"""What subscriptions are written in."""


def parse(text: str, language: str = "tamis", *, limits: FilterLimits | None = None) -> Filter:
    """Parse a filter in one of the languages.

    >>> parse('company in ("IBM", "Dell") and price <= 1000')
    <Filter company in ("IBM", "Dell") and price <= 1000>
    """
    if language in QUERY_LANGUAGES:
        raise FilterError(
            f"{language!r} is a language of queries over XML documents, and no filter says all "
            "that they do: add it to an Engine, or use tamis.xml.query"
        )
    read = LANGUAGES.get(language)
    if read is None:
        raise unknown_language(language)
    if not isinstance(text, str):
        raise FilterError(f"a filter is a text, not {text!r:.60}{_advice(text)}")
    return read(text, limits or FilterLimits())


def translate(
    text: str, language: str = "tamis", *, limits: FilterLimits | None = None
) -> Translation:
    """Return the filter that a text stands for, and what is left to check where it holds."""
    if language not in QUERY_LANGUAGES:
        return Translation(parse(text, language, limits=limits))
    if not isinstance(text, str):
        raise FilterError(f"a query is a text, not {text!r:.60}{_advice(text)}")
    from tamis.xml import XMLQueryLimits, query  # noqa: PLC0415 - needs the extra `xml`

    bounds = limits or FilterLimits()
    found = query(text, language=language, limits=XMLQueryLimits(text=bounds.text))
    translation = found.__translation__()
    bounds.check(translation.filter)
    return translation


def unknown_language(name: object) -> FilterError:
    """Return the error for a language that is not in the table."""
    known = ", ".join(map(repr, ALL_LANGUAGES))
    hint = did_you_mean(str(name), ALL_LANGUAGES)
    return FilterError(
        f"{name!r} is not a language that Tamis reads; it reads {known}"
        f"{'; ' + hint if hint else ''}"
    )


def _advice(given: object) -> str:
    if isinstance(given, Filter):
        return ", which is parsed already"
    return "; decode it first" if isinstance(given, bytes) else ""
