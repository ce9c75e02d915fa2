"""Correlation: tests that one element has to pass together, as one test of its key.

The values of `line[sku = 'chair' $and$ quantity > 5]` are known to lie in one line if lines have a
key of both: `chair`, then the quantity, written so that it sorts as the number does. One range can
be tested so, together with any equalities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tamis.events import Kind
from tamis.filters.atoms import Atom, Between, In, Present
from tamis.filters.boolean import TRUE, And, Filter, Not, Or
from tamis.filters.folding import fold
from tamis.xml.key_texts import AFTER_SEPARATOR, SEPARATOR, TOO_MANY, number_key
from tamis.xml.node_patterns import (
    ElementKey,
    KeyColumn,
    NodePattern,
    PatternStep,
    ValueReading,
    document_attribute,
)
from tamis.xml.value_tests import (
    MAX_EXACT_NUMBER,
    MAX_FOLDED_LITERAL,
    MAX_LITERAL,
    Approximation,
    ValueTest,
)

MAX_COLUMNS: Final = 4


class InnerTest(NamedTuple):
    """A test of a value that lies at some place in an element."""

    steps: tuple[PatternStep, ...]
    test: ValueTest


def key_test(pattern: NodePattern, tests: Sequence[InnerTest]) -> Approximation | None:
    """Return where one element at a place may pass all tests; None if no key tells it.

    It is exact, where there are not too many keys, if the key has a column for each test.
    """
    columns = _columns(tests)
    # Only elements have keys.
    if len(columns) < 2 or pattern.steps[-1].is_attribute:
        return None
    key = ElementKey(pattern, tuple(column for column, _ in columns))
    name = str(key)
    if document_attribute(name) != key:
        return None
    exact = len(columns) == len(tests) and all(_is_exact(test) for _, test in columns)
    return Approximation(_key_filter(name, columns), exact, frozenset({name}))


def other_than_number(pattern: NodePattern, steps: tuple[PatternStep, ...]) -> Approximation | None:
    """Return where steps lead from some element at a place to a text that is no number."""
    # As near as can be: texts of children are at hand, where an element is looked at.
    for step in steps[:-1]:
        below = pattern.then(step)
        if below is None:
            return None
        pattern = below
    if pattern.is_document or pattern.steps[-1].is_attribute:
        return None
    key = ElementKey(pattern, (KeyColumn(steps[-1:], ValueReading.NO_NUMBER),))
    name = str(key)
    return Approximation(Present(name), exact=True) if document_attribute(name) == key else None


def _is_exact(test: ValueTest) -> bool:
    """Return whether a test says the same of a key as of a value."""
    if isinstance(test.literal, str):
        return not test.is_xpath and test.op != "<"
    assert isinstance(test.literal, int | float)  # noqa: S101 - as `_column` has it
    return not test.is_xpath and abs(test.literal) < MAX_EXACT_NUMBER


def _key_filter(name: str, columns: Sequence[tuple[KeyColumn, ValueTest]]) -> Filter:
    constants = [_constant(test, column.reading) for column, test in columns]
    op = columns[-1][1].op
    if op == "=":
        return In(name, Kind.TEXT, (SEPARATOR.join(constants), TOO_MANY))
    start = SEPARATOR.join(constants[:-1]) + SEPARATOR
    end = start + _end_of_range(columns[-1][1], constants[-1])
    if op in {">", ">="}:
        held = Between(name, Kind.TEXT, end, start[:-1] + AFTER_SEPARATOR)
    else:
        held = Between(name, Kind.TEXT, start, end)
    return Or.of((held, In(name, Kind.TEXT, (TOO_MANY,))))


def without_keys(filter_: Filter) -> Filter:
    """Return a filter without its tests of keys."""
    match filter_:
        case And(terms=terms):
            return And.of(kept for term in terms if (kept := without_keys(term)) != TRUE)
        case Or(terms=terms):
            found = [without_keys(term) for term in terms]
            return TRUE if TRUE in found else Or.of(found)
        case Atom(attribute=name) | Not(term=Atom(attribute=name)):
            return TRUE if isinstance(document_attribute(name), ElementKey) else filter_
        case _:
            return filter_


def _end_of_range(test: ValueTest, constant: str) -> str:
    """Return the first or last constant of a range; it may hold one that is too many."""
    if isinstance(test.literal, str):
        return constant + "\0" if test.op == ">" else constant
    assert isinstance(test.literal, int | float)  # noqa: S101 - as `_column` has it
    # Numbers of keys are rounded from here on.
    if abs(test.literal) >= MAX_EXACT_NUMBER or test.op not in {"<", ">"}:
        return constant
    return number_key(math.nextafter(test.literal, math.inf if test.op == ">" else -math.inf))


def _columns(tests: Iterable[InnerTest]) -> Sequence[tuple[KeyColumn, ValueTest]]:
    """Return the columns of a key: those that have to be equal to something, then one range."""
    equal: dict[KeyColumn, ValueTest] = {}
    ranges: dict[KeyColumn, ValueTest] = {}
    for steps, test in tests:
        column = _column(steps, test)
        if column is None:
            continue
        if test.op == "=":
            equal.setdefault(column, test)
        elif test.op != "!=" and column.reading is not ValueReading.FOLDED:
            ranges.setdefault(column, test)
    if not equal:
        return ()
    # In one order for all subscriptions, so that they share keys.
    found = sorted(equal.items(), key=lambda item: str(item[0]))[:MAX_COLUMNS]
    others = {column: test for column, test in ranges.items() if column not in equal}
    if others and len(found) < MAX_COLUMNS:
        found.append(min(others.items(), key=lambda item: str(item[0])))
    return found


def _column(steps: tuple[PatternStep, ...], test: ValueTest) -> KeyColumn | None:
    if any(step.is_deep for step in steps):
        return None
    if isinstance(test.literal, str):
        if len(test.literal) > (MAX_FOLDED_LITERAL if test.is_caseless else MAX_LITERAL):
            return None
        return KeyColumn(steps, ValueReading.FOLDED if test.is_caseless else ValueReading.TEXT)
    if isinstance(test.literal, int | float):
        return KeyColumn(steps, ValueReading.NUMBER)
    return None


def _constant(test: ValueTest, reading: ValueReading) -> str:
    if reading is ValueReading.NUMBER:
        assert isinstance(test.literal, int | float)  # noqa: S101 - as `_column` has it
        return number_key(test.literal)
    text = str(test.literal)
    return fold(text) if reading is ValueReading.FOLDED else text
