"""Rights hold for every value: an event with several values of an attribute is each of its choices.

A user's filter asks whether some value passes, because the user looks for something. A right says
what may pass, so it has to hold whichever value somebody looks at: a publisher that may send
`source = "roof"` must not send `["roof", "cellar"]`, which reaches those who ask for the cellar. So
a right holds for an event if it holds for every *choice* of one value of each attribute.

The engine evaluates atoms one by one and cannot follow a choice from one to the next. It gets a
filter that holds wherever the right does, and is the same on events with single values; what it
finds among the others is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from tamis.access.joining import FilterInMode, opposite
from tamis.events import Event, Kind, Schema, Value
from tamis.events.kinds import kind_of
from tamis.filters import FALSE, TRUE, Filter, Mode, all_of, any_of
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import COMPLEMENTS, Between, Compare, HasKind, In, Present, ValueAtom
from tamis.filters.boolean import And, Constant, Not, Or, TruthSets
from tamis.filters.modes import UNKNOWN, View, view_of
from tamis.filters.printing import ANY

# An event with more choices than these for one part of a right does not satisfy it.
MAX_CHOICES: Final = 1_000


def holds_for_every_value(right: FilterInMode, event: Event, schema: Schema | None) -> bool:
    """Return whether a right holds for each choice of one value of each attribute.

    >>> from tamis.filters import attr
    >>> roof = FilterInMode(attr("source") == "roof", Mode.SQL)
    >>> [holds_for_every_value(roof, Event({"source": s}), None) for s in ("roof", ["roof", "x"])]
    [True, False]
    """
    filter_, mode = right
    if has_single_values(event, filter_.attributes()):
        return filter_.matches(event, mode, schema)
    view = view_of(event, mode, schema)
    single = {name: [(value,) for value in values] for name, values in view.event.items()}
    return holds_for_every_choice(right, single, schema)


ValueAlternatives = Mapping[str, Sequence[tuple[Value, ...]]]
"""The values of each attribute, of which somebody looks at one; what stands together is one."""


def holds_for_every_choice(
    right: FilterInMode, choices: ValueAlternatives, schema: Schema | None
) -> bool:
    """Return whether a right holds for each choice; what is absent is that by its mode already."""
    filter_, mode = right
    bound = filter_ if schema is None else filter_.bind(schema)
    chosen = _ValueChoices(choices, UNKNOWN[mode], schema)
    if mode is Mode.STRICT and not all(map(chosen.always_know, bound.atoms())):
        return False
    return chosen.are_always(bound, truth=True)


def has_single_values(event: Event, names: Iterable[str]) -> bool:
    """Return whether none of these attributes of an event has several values."""
    named = frozenset(names)
    return all(len(event.get(name, ())) < 2 for name in (event if ANY in named else named))


class _ValueChoices:
    """The choices of one value of each attribute of an event."""

    def __init__(
        self, choices: ValueAlternatives, unknown: bool | None, schema: Schema | None
    ) -> None:
        self._choices = choices
        self._unknown = unknown
        self._schema = schema

    def are_always(self, filter_: Filter, *, truth: bool) -> bool:
        """Return whether a filter has a truth for every choice."""
        match filter_:
            case Constant(value=value):
                return value is truth
            case Not(term=term):
                return self.are_always(term, truth=not truth)
            case And(terms=terms) | Or(terms=terms):
                if isinstance(filter_, And) is truth:
                    return all(self.are_always(term, truth=truth) for term in terms)
                # Parts without a common attribute are chosen independently of each other: if each
                # of them can fail, all can fail together.
                return any(
                    self.are_always(part[0], truth=truth)
                    if len(part) == 1
                    else self._has_only(type(filter_).of(part), {truth})
                    for part in _independent(terms)
                )
            case _:
                return self._has_only(filter_, {truth})

    def always_know(self, atom: Filter) -> bool:
        """Return whether an atom is true or false for every choice."""
        return self._has_only(atom, {True, False})

    def _has_only(self, filter_: Filter, truths: set[bool]) -> bool:
        return all(truth in truths for truth in self._truths(filter_))

    def _truths(self, filter_: Filter) -> Iterator[bool | None]:
        names = filter_.attributes()
        if isinstance(filter_, ValueAtom):
            values = self._choices.get(filter_.attribute, ())
            yield from (self._truth(filter_, value) for value in values)
            if values:
                return
        there = {n: values for n, values in self._choices.items() if n in names or ANY in names}
        if math.prod(map(len, there.values())) > MAX_CHOICES:
            yield None
            return
        for chosen in product(*there.values()):
            chosen_event = Event.of_checked(dict(zip(there, chosen, strict=True)))
            yield filter_.truth_in(View(chosen_event, self._unknown, self._schema))

    def _truth(self, atom: ValueAtom, chosen: tuple[Value, ...]) -> bool | None:
        tested = [value for value in chosen if kind_of(value) is atom.kind]
        return any(map(atom.accepts, tested)) if tested else self._unknown


def _independent(terms: Sequence[Filter]) -> list[list[Filter]]:
    """Return the terms in groups, so that no attribute occurs in two of them."""
    if any(ANY in term.attributes() for term in terms):
        return [[*terms]]
    groups: list[tuple[set[str], list[Filter]]] = []
    for term in terms:
        names, together = {*term.attributes()}, [term]
        for group in [one for one in groups if one[0] & names]:
            groups.remove(group)
            names |= group[0]
            together = [*group[1], *together]
        groups.append((names, together))
    return [together for _, together in groups]


class _FromAbove(TruthSets[Filter]):
    """A filter that holds, value by value, wherever another does for every choice.

    On events with single values it is the same, unless `is_exact` turns false.
    """

    def __init__(self, mode: Mode) -> None:
        self._is_three_valued = mode.is_three_valued
        self.is_exact = True

    def _constant(self, value: bool) -> Filter:
        return TRUE if value else FALSE

    def _all(self, parts: Sequence[Filter]) -> Filter:
        return And.of(parts)

    def _any(self, parts: Sequence[Filter]) -> Filter:
        return Or.of(parts)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Filter:  # noqa: ARG002
        return self._anything()

    def _atom(self, atom: Filter, *, truth: bool) -> Filter:
        return atom if truth else any_of(Not.of(atom), self._fails(atom))

    def _fails(self, atom: Filter) -> Filter:
        """Return where some value does not pass an atom, though others may."""
        match atom:
            case Present() | AnyText():
                # A test of any attribute fails for every choice just if no value passes.
                return FALSE
            case HasKind():
                return self._other_kinds(atom)
            case Compare(attribute=name, kind=kind, op=op, value=value):
                fails: Filter = Compare(name, kind, COMPLEMENTS[op], value)
            case Between(attribute=name, kind=kind, low=low, high=high):
                fails = any_of(Compare(name, kind, "<", low), Compare(name, kind, ">", high))
            case In(attribute=name, kind=kind, values=values):
                fails = all_of(*(Compare(name, kind, "!=", value) for value in values))
            case Relation() if self._is_three_valued:
                return opposite(atom)
            case _:
                return self._anything()
        return fails if self._is_three_valued else any_of(fails, self._other_kinds(atom))

    def _other_kinds(self, atom: HasKind | ValueAtom) -> Filter:
        return any_of(*(HasKind(atom.attribute, kind) for kind in Kind if kind is not atom.kind))

    def _anything(self) -> Filter:
        self.is_exact = False
        return TRUE


def from_above(right: FilterInMode) -> tuple[FilterInMode, bool]:
    """Return a right for the engine, and whether it is exact on events with single values.

    >>> from tamis.filters import attr
    >>> from_above(FilterInMode(~(attr("level") == 3), Mode.SQL))[0].filter
    <Filter not (level = 3) or level != 3>
    """
    above = _FromAbove(right.mode)
    filter_ = above.where(right.filter, truth=True)
    return FilterInMode(filter_, right.mode), above.is_exact
