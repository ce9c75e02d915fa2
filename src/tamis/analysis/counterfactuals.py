"""Counterfactuals: the nearest change of an event that reverses a filter's answer.

The search changes one attribute, then two, trying a value of every cell that the filter
distinguishes. If that fails, it takes any event from the filter's diagram and moves it as close as
possible. The reference semantics confirms the result, and the work is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, islice
from typing import Final, Literal, NamedTuple

from tamis.analysis.candidates import candidates, distance, solutions
from tamis.diagrams.diagram import BudgetExceededError
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import FALSE
from tamis.diagrams.variable_order import VariableOrder
from tamis.diagrams.witness import ABSENT, Values, find_witness
from tamis.events import Event, Kind, Schema, Value
from tamis.filters import Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Present
from tamis.filters.modes import View
from tamis.filters.printing import ANY

# Atoms to evaluate with one attribute, with two, and with any: some tenths of a second.
MAX_EVALUATIONS: Final = 200_000
# Values of one attribute that take as long as one evaluation.
VALUES_PER_EVALUATION: Final = 16
# Steps for one diagram, some milliseconds.
BUDGET_STEPS: Final = 20_000
# Attributes to change for a test of any attribute.
MAX_TEXTS_CHANGED: Final = 8
# Contents of each attribute to try when changing two.
MAX_CONTENTS_PER_ATTRIBUTE: Final = 24

Changes = dict[str, Values]
Distance = tuple[int, tuple[int, float]]


Lateness = Callable[[], bool]
"""Tells whether a search has to end with what it has found."""


class Counterfactual(NamedTuple):
    """New values by attribute, None for one to remove, and the resulting event."""

    values: dict[str, object]
    event: Event


def nearest_counterfactual(
    filter_: Filter,
    mode: Mode,
    event: Event,
    schema: Schema | None,
    *,
    matched: bool,
    total: bool,
    is_late: Lateness,
) -> Counterfactual | Literal[False] | None:
    """Return the nearest counterfactual found in time; False if there is none, None if unsure."""
    if is_late():
        return None
    search = _CounterfactualSearch(
        filter_, mode, event, schema, matched=matched, total=total, is_late=is_late
    )
    found = search.of_one() or search.of_two() or search.of_any()
    if found is None or found is False:
        return found
    changed = search.apply(found)
    if filter_.matches(changed, mode, schema) is search.matched:
        return None
    return Counterfactual({name: _plain(values) for name, values in found.items()}, changed)


def near_misses(
    filter_: Filter, mode: Mode, event: Event, schema: Schema | None
) -> list[tuple[str, Values]]:
    """Return for each attribute the contents that alone would reverse the answer, if any do."""
    matched = satisfies(filter_, mode, event, schema)
    search = _CounterfactualSearch(
        filter_, mode, event, schema, matched=matched, total=mode is Mode.TOTAL
    )
    return [(name, values) for changes in search.each_of_one() for name, values in changes.items()]


def _plain(values: Values) -> object:
    if len(values) > 1:
        return list(values)
    return values[0] if values else None


class _CounterfactualSearch:
    def __init__(
        self,
        filter_: Filter,
        mode: Mode,
        event: Event,
        schema: Schema | None,
        *,
        matched: bool,
        total: bool,
        is_late: Lateness = lambda: False,
    ) -> None:
        self._is_late = is_late
        self._filter = filter_
        self._mode = mode
        self._event = event
        self._schema = schema
        self._total = total
        names = {*filter_.attributes()}
        if ANY in names:
            names = {*names, *islice(_with_texts(event, schema), MAX_TEXTS_CHANGED)} - {ANY}
        self._names = sorted(names)
        tested = [filter_, *map(Present, self._names)]
        self._variables = VariableOrder(tested, mode, schema, many=False).by_attribute
        self._atoms = list(dict.fromkeys(filter_.atoms()))
        self._relations = [atom for atom in self._atoms if isinstance(atom, Relation)]
        self._work = 0
        self.matched = matched

    def apply(self, changes: Changes, to: Event | None = None) -> Event:
        """Return the event with changes applied."""
        held = {**(self._event if to is None else to), **changes}
        return Event.of_checked({name: values for name, values in held.items() if values})

    # --- one attribute or two ----------------------------------------------------------------

    def of_one(self) -> Changes | None:
        """Return the nearest change of one attribute that suffices."""
        return min(self.each_of_one(), key=self._distance, default=None)

    def each_of_one(self) -> Iterator[Changes]:
        """Yield for each attribute the nearest change that suffices, if there is one."""
        self._work = MAX_EVALUATIONS
        for name in self._names:
            if self._is_spent():
                return
            for values in self._first_to_flip(name, self._event, {}):
                yield {name: values}

    def of_two(self) -> Changes | None:
        """Return the nearest change of two attributes that suffices, of those tried."""
        self._work = MAX_EVALUATIONS
        found: list[Changes] = []
        for first, second in combinations(self._names, 2):
            if self._is_spent():
                break
            for values in islice(
                self._distinct_contents(first, self._event), MAX_CONTENTS_PER_ATTRIBUTE
            ):
                changes = {first: values}
                changed = self.apply(changes)
                others = self._first_to_flip(second, changed, changes)
                found += ({**changes, second: other} for other in others)
        return min(found, key=self._distance, default=None)

    def _first_to_flip(self, name: str, event: Event, before: Changes) -> Iterator[Values]:
        """Yield the nearest contents of an attribute that reverse the answer, if any do."""
        for values in islice(
            self._distinct_contents(name, event), MAX_CONTENTS_PER_ATTRIBUTE if before else None
        ):
            if self._matches(self.apply({name: values}, event)) is not self.matched:
                yield values
                return

    def _distinct_contents(self, name: str, event: Event) -> Iterator[Values]:
        """Yield the nearest contents for each combination of truths of an attribute's atoms."""
        atoms = [atom for atom in self._atoms if not atom.attributes().isdisjoint((name, ANY))]
        known: set[tuple[bool | None, ...]] = set()
        for values in self._candidates(name, event):
            if self._is_spent():
                return
            self._work -= (len(atoms) + 1) * (1 + len(values) // VALUES_PER_EVALUATION)
            view = seen_as(self.apply({name: values}, event), self._mode, self._schema)
            truths = tuple(atom.truth_in(view) for atom in atoms)
            if truths not in known:
                known.add(truths)
                yield values

    def _candidates(self, name: str, event: Event) -> list[Values]:
        guesses: Iterable[Value] = (
            value
            for relation in self._relations
            if name in relation.attributes()
            for value in solutions(relation, name, event)
        )
        held = event.get(name, ABSENT)
        if name not in self._variables:
            # A witness has it for a test of any attribute; there is nothing nearer.
            return []
        return candidates(self._variables[name], held, guesses, may_go=self._may_go(name))

    def _distance(self, changes: Changes) -> Distance:
        each = [distance(self._event.get(name, ABSENT), v) for name, v in changes.items()]
        return len(changes), (max(sort for sort, _ in each), sum(far for _, far in each))

    # --- any event ---------------------------------------------------------------------------

    def of_any(self) -> Changes | Literal[False] | None:
        """Return changes that lead to an event from the diagram; False if there is none."""
        self._work = MAX_EVALUATIONS
        none = False
        if self._is_spent():
            return None
        for many in (False, True) if self._schema is None else (False,):
            encoding = Encoding(
                [self._filter], self._mode, self._schema, many=many, budget=BUDGET_STEPS
            )
            try:
                root = encoding.matching_just([(self._filter, not self.matched)])
            except BudgetExceededError:
                return None
            none = root == FALSE
            witness = find_witness(encoding, root, self._is_other)
            if witness is not None:
                return None if self._is_spent() else self._brought_back(witness)
        return False if none else None

    def _is_other(self, event: Event) -> bool:
        # When the budget is spent, accepting any event ends the search.
        return self._is_spent() or self._flips(self._changes_to(event))

    def _brought_back(self, witness: Event) -> Changes:
        """Return the changes that lead to a witness, without superfluous ones, each minimised."""
        changes = self._changes_to(witness)
        for name in list(changes):
            if self._is_spent():
                return changes
            fewer = {other: values for other, values in changes.items() if other != name}
            if self._flips(fewer):
                changes = fewer
        for name in () if self._is_spent() else list(changes):
            rest = self.apply({other: v for other, v in changes.items() if other != name})
            for values in self._first_to_flip(name, rest, changes):
                nearer = {**changes, name: values}
                changes = min(changes, nearer, key=self._distance)
        return changes

    def _changes_to(self, event: Event) -> Changes:
        """Return the changes of all relevant attributes to those of another event."""
        names = dict.fromkeys((*self._names, *event))
        return {
            name: event.get(name, ABSENT) for name in names if name in event or self._may_go(name)
        }

    def _flips(self, changes: Changes) -> bool:
        return self._matches(self.apply(changes)) is not self.matched

    def _may_go(self, name: str) -> bool:
        return not (self._total and self._schema is not None and name in self._schema)

    # --- the answer --------------------------------------------------------------------------

    def _is_spent(self) -> bool:
        """Return whether the search is to end: one evaluation may be long, so time counts too."""
        if self._is_late():
            self._work = -1
        return self._work < 0

    def _matches(self, event: Event) -> bool:
        self._work -= len(self._atoms)
        return satisfies(self._filter, self._mode, event, self._schema)


def _with_texts(event: Event, schema: Schema | None) -> Iterator[str]:
    """Yield the attributes of an event whose texts a test of any attribute sees."""
    for name in event:
        if event.of_kind(name, Kind.TEXT) and (schema is None or name in schema):
            yield name


def satisfies(filter_: Filter, mode: Mode, event: Event, schema: Schema | None) -> bool:
    """Return whether a conforming event satisfies a filter that is bound to the schema.

    This is `Filter.matches` without its checks, for thousands of calls.
    """
    view = seen_as(event, mode, schema)
    if mode is Mode.STRICT and not filter_.is_adequate(view):
        return False
    return filter_.truth_in(view) is True


def seen_as(event: Event, mode: Mode, schema: Schema | None) -> View:
    """Return the view of a conforming event."""
    if mode is Mode.DEFAULT and schema is not None:
        event = schema.with_defaults(event)
    return View(event, None if mode.is_three_valued else False, schema)
