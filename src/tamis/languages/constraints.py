"""Constraints as values of a message: a message that holds some is a query.

In "An Efficient Implementation of Query/Advertise" (Heimbigner 2003), a query is a message whose
attributes hold constraints, pairs of an operator and a value, and its presence in a message
switches matching from `Apply` to `Intersect`: a filter matches a notification that satisfies it,
and a query that asks for something which satisfies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from tamis import diagrams
from tamis.errors import FilterTypeError
from tamis.events import Bits, Event, Value
from tamis.events.kinds import check_value
from tamis.events.values import BITS_WIDTH, brief
from tamis.filters import TRUE, Filter, all_of
from tamis.filters.atoms import Atom, Between, Compare, HasBits, Present, TextTest
from tamis.filters.boolean import And, require_filter
from tamis.filters.build import has_bits
from tamis.languages.siena import BIT_TESTS, TEXT_TESTS, triple


class Constraint(msgspec.Struct, frozen=True):
    """An operator of Siena and its value: what is asked of an attribute.

    >>> Constraint("*", "Stein")
    Constraint(op='*', value='Stein')
    >>> Constraint("<", "abc" "d").on("author")
    <Filter author < "abcd">
    """

    op: str
    value: Value | None = None

    def __post_init__(self) -> None:
        self.on("x")

    def on(self, attribute: str) -> Filter:
        """Return the filter that asks this of an attribute."""
        if not isinstance(self.op, str):
            raise FilterTypeError(f"an operator is a text such as '<', not {brief(self.op)}")
        return triple(attribute, self.op, self.value)


def named_constraints(
    triples: Iterable[tuple[str, str, object] | tuple[str, str]],
) -> dict[str, list[Constraint]]:
    """Return Siena's triples as a message: the constraints of each attribute.

    >>> named_constraints([("edition", ">", 1), ("edition", "<", 4), ("author", "any")])
    {'edition': [Constraint(op='>', value=1), Constraint(op='<', value=4)],
     'author': [Constraint(op='any', value=None)]}
    """
    message: dict[str, list[Constraint]] = {}
    for one in triples:
        if not isinstance(one, tuple | list) or not 2 <= len(one) <= 3:
            raise FilterTypeError(
                f"a triple has an attribute, an operator and a value, unlike {brief(one)}"
            )
        attribute, op, *rest = one
        message.setdefault(attribute, []).append(Constraint(op, *rest))  # type: ignore[arg-type]
    return message


def is_query(message: Mapping[str, object]) -> bool:
    """Return whether a message holds a constraint, so that `Apply` means `Intersect`.

    >>> is_query({"edition": 1}), is_query({"edition": Constraint("<", 2)})
    (False, True)
    """
    return any(isinstance(item, Constraint) for _, item in _members(message))


def constraint_filter(message: Mapping[str, object]) -> Filter:
    """Return the filter of a query: all its constraints hold, and plain values are equal.

    >>> constraint_filter({"author": Constraint("=", "John Steinbeck"), "edition": 1})
    <Filter author = "John Steinbeck" and edition = 1>

    A plain bit set stands for exactly these bits, as the properties of a site do in Site-Select.
    """
    if not isinstance(message, Mapping):
        raise FilterTypeError(f"a query is a mapping of names to constraints, not {brief(message)}")
    return all_of(*(_required(name, item) for name, item in _members(message)))


def constraints_of(filter_: Filter) -> dict[str, list[Constraint]] | None:
    """Return a filter as a message with constraints, None if it is no conjunction of triples.

    >>> from tamis.languages import parse
    >>> constraints_of(parse("edition between 1 and 3 and author contains 'Stein'"))
    {'edition': [Constraint(op='>=', value=1), Constraint(op='<=', value=3)],
     'author': [Constraint(op='*', value='Stein')]}
    >>> constraints_of(parse("edition = 1 or edition = 3"))
    """
    message: dict[str, list[Constraint]] = {}
    for term in filter_.terms if isinstance(filter_, And) else (filter_,):
        found = _of_atom(term)
        if found is None or not isinstance(term, Atom):
            return {} if filter_ == TRUE else None
        message.setdefault(term.attribute, []).extend(found)
    return message


_TEXT_OPERATORS: Final = {word: op for op, word in TEXT_TESTS.items()}
_BIT_OPERATORS: Final = {word: op for op, word in BIT_TESTS.items()}


def _of_atom(atom: Filter) -> list[Constraint] | None:
    match atom:
        case Compare(op=op, value=value):
            return [Constraint(op, value)]
        case Between(low=low, high=high):
            return [Constraint(">=", low), Constraint("<=", high)]
        case TextTest(op=op, text=text) if op in _TEXT_OPERATORS:
            return [Constraint(_TEXT_OPERATORS[op], text)]
        case HasBits(op=op, bits=bits):
            return [Constraint(_BIT_OPERATORS[op], bits)]
        case Present():
            return [Constraint("any")]
    return None


def applies(filter_: Filter, message: Event | Mapping[str, object]) -> bool:
    """Return whether a filter matches a message: a notification satisfies it, a query meets it.

    >>> from tamis.languages import parse
    >>> advertised = parse("author contains 'Stein' and edition = 1 and copies > 1")
    >>> applies(advertised, {"author": Constraint(">*", "John"), "edition": Constraint("<", 2)})
    True
    >>> applies(advertised, {"author": "John Steinbeck", "edition": 1})
    False
    """
    checked = require_filter(filter_)
    if isinstance(message, Event) or not is_query(message):
        return checked.matches(message)
    return bool(diagrams.intersects(checked, constraint_filter(message)))


def _members(message: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield names and single items; what is nested has dotted names, as in events."""
    waiting: list[tuple[str, object]] = [("", message)]
    while waiting:
        name, item = waiting.pop()
        if isinstance(item, Mapping):
            waiting += [(f"{name}.{key}" if name else key, item[key]) for key in reversed([*item])]
        elif isinstance(item, list | tuple):
            waiting += [(name, one) for one in reversed(item)]
        else:
            yield name, item


def _required(name: str, item: object) -> Filter:
    """Return what a member asks for; a plain value asks for itself."""
    if isinstance(item, Constraint):
        return item.on(name)
    value = check_value(item, name)
    if not isinstance(value, Bits):
        return Constraint("=", value).on(name)
    others = Bits(range(BITS_WIDTH)) - value
    return all_of(has_bits(name, "all", value), ~has_bits(name, "any", Bits(others)))
