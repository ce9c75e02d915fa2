"""Smaller equivalent filters, by a sequence of passes that are each correct on their own.

Every pass keeps the meaning on every event, in the mode it is given. Mode `strict` requires
every attribute that is compared, so there no comparison may be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tamis.events import Kind, Value
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Compare, In
from tamis.filters.boolean import (
    FALSE,
    TRUE,
    And,
    Connective,
    Constant,
    Filter,
    Not,
    Or,
    Xor,
    require_filter,
)
from tamis.filters.modes import Mode, as_mode

Pass = Callable[[Filter, Mode], Filter]


def simplify(filter_: Filter, mode: str = Mode.SQL) -> Filter:
    """Return a filter that matches the same events in `mode`, simplified where possible.

    >>> from tamis.filters import attr, TRUE
    >>> price = attr("price")
    >>> simplify(~((price != 1) & (price != 2)) & TRUE)
    <Filter not (price != 1) or not (price != 2)>
    >>> simplify((price == 1) | (price == 2) | (price == 1))
    <Filter price in (1, 2)>
    """
    known = as_mode(mode)
    require_filter(filter_)
    for one_pass in PASSES:
        filter_ = one_pass(filter_, known)
    return filter_


def push_negations(filter_: Filter, mode: Mode) -> Filter:  # noqa: ARG001 - right in every mode
    """Move every `not` down to an atom, by De Morgan."""
    return _pushed(filter_, negate=False)


def _pushed(filter_: Filter, *, negate: bool) -> Filter:
    match filter_:
        case Not(term=term):
            return _pushed(term, negate=not negate)
        case Constant(value=value):
            return Constant(value is not negate)
        case And(terms=terms) | Or(terms=terms):
            opposite: type[Connective] = Or if isinstance(filter_, And) else And
            joined = opposite if negate else type(filter_)
            return joined.of(_pushed(term, negate=negate) for term in terms)
        case Xor(terms=(first, *rest)):
            others = [_pushed(term, negate=False) for term in rest]
            return Xor.of((_pushed(first, negate=negate), *others))
        case _:
            return Not.of(filter_) if negate else filter_


def fold_constants(filter_: Filter, mode: Mode) -> Filter:
    """Drop the constants that change nothing, and what a constant decides."""
    match filter_:
        case Not(term=Constant(value=value)):
            return Constant(not value)
        case And(terms=terms) | Or(terms=terms):
            decisive = FALSE if isinstance(filter_, And) else TRUE
            if decisive in terms and mode is not Mode.STRICT:
                return decisive
            return type(filter_).of(term for term in terms if term != filter_.neutral)
        case Xor(terms=terms):
            joined = Xor.of(term for term in terms if not isinstance(term, Constant))
            return Not.of(joined) if terms.count(TRUE) % 2 else joined
        case _:
            return filter_


def drop_repeats(filter_: Filter, mode: Mode) -> Filter:  # noqa: ARG001 - right in every mode
    """Keep one of the equal terms of an `and` or `or`."""
    match filter_:
        case And(terms=terms) | Or(terms=terms):
            kept: dict[Filter, Filter] = {}
            for term in terms:
                kept.setdefault(term.canonical() if isinstance(term, Relation) else term, term)
            return type(filter_).of(kept.values())
        case _:
            return filter_


def join_memberships(filter_: Filter, mode: Mode) -> Filter:  # noqa: ARG001 - right in every mode
    """Turn `x = 1 or x = 2` into `x in (1, 2)`."""
    if not isinstance(filter_, Or):
        return filter_
    lists: dict[tuple[str, Kind], list[Value]] = {}
    others: list[Filter] = []
    for term in filter_.terms:
        match term:
            case Compare(attribute=attribute, kind=kind, op="=", value=value):
                lists.setdefault((attribute, kind), []).append(value)
            case In(attribute=attribute, kind=kind, values=values):
                lists.setdefault((attribute, kind), []).extend(values)
            case _:
                others.append(term)
    joined = [_membership(*key, values) for key, values in lists.items()]
    return Or.of((*joined, *others))


def _membership(attribute: str, kind: Kind, values: list[Value]) -> Filter:
    distinct = tuple(dict.fromkeys(values))
    if len(distinct) == 1:
        return Compare(attribute, kind, "=", distinct[0])
    return In(attribute, kind, distinct)


def _everywhere(one_pass: Pass) -> Pass:
    """Return a pass that rewrites every node, bottom up."""

    def walk(filter_: Filter, mode: Mode) -> Filter:
        match filter_:
            case Not(term=term):
                return one_pass(Not.of(walk(term, mode)), mode)
            case Connective(terms=terms):
                return one_pass(type(filter_).of(walk(term, mode) for term in terms), mode)
            case _:
                return one_pass(filter_, mode)

    return walk


PASSES: Final[tuple[Pass, ...]] = (
    push_negations,
    _everywhere(fold_constants),
    _everywhere(drop_repeats),
    _everywhere(join_memberships),
)
