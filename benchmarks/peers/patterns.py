"""Conjunctions as the patterns of event-ruler and quamina."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tamis.filters import Filter
from tamis.filters.atoms import Between, Compare, TextTest
from tamis.filters.boolean import And


def pattern_of(filter_: Filter) -> str | None:
    """Return a filter as a pattern, or None if it has no such form."""
    terms = filter_.terms if isinstance(filter_, And) else (filter_,)
    pattern: dict[str, object] = {}
    for term in terms:
        match term:
            case Compare(attribute=name, op="=", value=int() | str() as value):
                pattern[name] = [value]
            case Between(attribute=name, low=low, high=high):
                pattern[name] = [{"numeric": [">=", low, "<=", high]}]
            case TextTest(attribute=name, op="starts with", text=text):
                pattern[name] = [{"prefix": text}]
            case _:
                return None
    return json.dumps(pattern) if len(pattern) == len(terms) else None


def patterns_of(filters: Iterable[Filter]) -> list[str] | None:
    """Return filters as patterns, or None if one has no such form."""
    patterns = []
    for filter_ in filters:
        pattern = pattern_of(filter_)
        if pattern is None:
            return None
        patterns.append(pattern)
    return patterns
