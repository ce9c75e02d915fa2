"""Reasons: a few atoms whose truths alone determine the truth of a filter.

A goal is a set of truths, as a bit mask: those a part of the filter may have without changing the
outcome. An `and` that must be true needs all its terms; one that must not be true needs only one
that is not. So the walk passes the goal down and, wherever one term is enough, takes the cheapest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from tamis.filters import Filter, Mode
from tamis.filters.boolean import And, Connective, Constant, Not, Or, Xor

Truth = bool | None

Goal = int
IS_FALSE, IS_UNKNOWN, IS_TRUE = 1, 2, 4
ANY_TRUTH: Final[Goal] = IS_FALSE | IS_UNKNOWN | IS_TRUE
NOT_TRUE: Final[Goal] = IS_FALSE | IS_UNKNOWN
NOT_FALSE: Final[Goal] = IS_TRUE | IS_UNKNOWN

AtomSet = int
"""Some of a filter's atoms, as a bit mask."""

# Past this many steps, superfluous atoms may stay among the reasons.
MAX_REASON_STEPS: Final = 400_000
# The number of repeated atoms to try with all their truths.
MAX_REPEATED_ATOMS: Final = 4


def deciding_atoms(filter_: Filter, mode: Mode, truths: Mapping[Filter, Truth]) -> list[Filter]:
    """Return atoms whose truths alone determine whether the event matches."""
    atoms = list(truths)
    if mode is Mode.STRICT:
        unknown = [atom for atom in atoms if truths[atom] is None]
        if unknown:
            return _without_superfluous(filter_, NOT_TRUE, unknown[:1], truths)
    truth = evaluate(filter_, truths)
    if mode is Mode.STRICT and truth is True:
        # In mode strict each must be known, needed or not.
        return atoms
    goal = IS_TRUE if truth is True else NOT_TRUE
    found = _Walk(atoms, truths).reasons(filter_, goal)
    reasons = [atom for number, atom in enumerate(atoms) if found >> number & 1]
    return _without_superfluous(filter_, goal, reasons, truths)


def truth_of(filter_: Filter, mode: Mode, truths: Mapping[Filter, Truth]) -> Truth:
    """Return the truth of a filter in a mode, given those of its atoms."""
    if mode is Mode.STRICT and None in truths.values():
        return None
    return evaluate(filter_, truths)


def evaluate(filter_: Filter, truths: Mapping[Filter, Truth]) -> Truth:
    """Return the truth of a filter, given those of its atoms."""
    possible = possible_truths(filter_, {atom: _goal(truth) for atom, truth in truths.items()})
    return {IS_TRUE: True, IS_FALSE: False}.get(possible)


def possible_truths(filter_: Filter, known: Mapping[Filter, Goal]) -> Goal:
    """Return all truths that a filter may have, if unlisted atoms may have any.

    It may return more where such an atom is repeated.
    """
    match filter_:
        case Constant(value=value):
            return _goal(value)
        case Not(term=term):
            return _NEGATED[possible_truths(term, known)]
        case Connective(terms=terms):
            table = _JOINED[type(filter_)]
            result = possible_truths(terms[0], known)
            for term in terms[1:]:
                result = table[result, possible_truths(term, known)]
            return result
        case _:
            return known.get(filter_, ANY_TRUTH)


class _Walk:
    """A search for the cheapest reasons, memoised by part of the filter and goal."""

    def __init__(self, atoms: Sequence[Filter], truths: Mapping[Filter, Truth]) -> None:
        self._numbers = {atom: number for number, atom in enumerate(atoms)}
        self._truths = truths
        self._known = {atom: _goal(truth) for atom, truth in truths.items()}
        self._found: dict[tuple[int, Goal], AtomSet] = {}
        self._truth_of: dict[int, Goal] = {}

    def reasons(self, filter_: Filter, goal: Goal) -> AtomSet:
        """Return atoms whose truths alone put the filter's truth into the goal."""
        # By identity, because hashing a filter walks over all of it.
        key = id(filter_), goal
        if key not in self._found:
            self._found[key] = self._find(filter_, goal)
        return self._found[key]

    def _find(self, filter_: Filter, goal: Goal) -> AtomSet:
        match filter_:
            case Constant():
                return 0
            case Not(term=term):
                return self.reasons(term, _NEGATED[goal])
            case And(terms=terms) | Or(terms=terms):
                if goal == IS_UNKNOWN:
                    return self.reasons(filter_, NOT_TRUE) | self.reasons(filter_, NOT_FALSE)
                if isinstance(filter_, And) == bool(goal & IS_TRUE):
                    return self._all(terms, goal)
                return self._cheapest(terms, goal)
            case Xor(terms=terms):
                if any(self._truth(term) == IS_UNKNOWN for term in terms):
                    return self._cheapest(terms, IS_UNKNOWN)
                return self._exactly(terms)
            case _:
                return 1 << self._numbers[filter_]

    def _all(self, terms: Sequence[Filter], goal: Goal) -> AtomSet:
        found = 0
        for term in terms:
            found |= self.reasons(term, goal)
        return found

    def _exactly(self, terms: Sequence[Filter]) -> AtomSet:
        found = 0
        for term in terms:
            found |= self.reasons(term, self._truth(term))
        return found

    def _cheapest(self, terms: Sequence[Filter], goal: Goal) -> AtomSet:
        choices = [self.reasons(term, goal) for term in terms if self._truth(term) & goal]
        return min(choices, key=int.bit_count)

    def _truth(self, filter_: Filter) -> Goal:
        key = id(filter_)
        if key not in self._truth_of:
            match filter_:
                case Not(term=term):
                    truth = _NEGATED[self._truth(term)]
                case Connective(terms=terms):
                    truth = self._truth(terms[0])
                    for term in terms[1:]:
                        truth = _JOINED[type(filter_)][truth, self._truth(term)]
                case _:
                    truth = possible_truths(filter_, self._known)
            self._truth_of[key] = truth
        return self._truth_of[key]


def _without_superfluous(
    filter_: Filter, goal: Goal, reasons: list[Filter], truths: Mapping[Filter, Truth]
) -> list[Filter]:
    """Drop atoms that the others imply, since an atom may be repeated."""
    known = {atom: _goal(truths[atom]) for atom in reasons}
    counts = Counter(filter_.atoms())
    repeated = [atom for atom, count in counts.items() if count > 1][:MAX_REPEATED_ATOMS]
    steps = max(1, counts.total()) * 3 ** len(repeated)
    for atom in reversed(reasons[: MAX_REASON_STEPS // steps]):
        kept = known.pop(atom)
        if _possible_in_every_case(filter_, known, repeated) & ~goal:
            known[atom] = kept
    return [atom for atom in reasons if atom in known]


def _possible_in_every_case(
    filter_: Filter, known: Mapping[Filter, Goal], repeated: Sequence[Filter]
) -> Goal:
    """Return all truths that a filter may have, if a repeated atom has one truth."""
    free = [atom for atom in repeated if atom not in known]
    possible = 0
    for case in product(_members(ANY_TRUTH), repeat=len(free)):
        possible |= possible_truths(filter_, {**known, **dict(zip(free, case, strict=True))})
    return possible


def _goal(truth: Truth) -> Goal:
    return IS_UNKNOWN if truth is None else IS_TRUE if truth else IS_FALSE


# --- three-valued logic on sets of truths ----------------------------------------------------


def _odd(one: Goal, other: Goal) -> Goal:
    if IS_UNKNOWN in (one, other):
        return IS_UNKNOWN
    return IS_FALSE if one == other else IS_TRUE


def _members(goal: Goal) -> list[Goal]:
    return [truth for truth in (IS_FALSE, IS_UNKNOWN, IS_TRUE) if goal & truth]


def _negated(goal: Goal) -> Goal:
    return goal & IS_UNKNOWN | (goal & IS_FALSE) << 2 | (goal & IS_TRUE) >> 2


_GOALS: Final = range(ANY_TRUTH + 1)
_NEGATED: Final = {goal: _negated(goal) for goal in _GOALS}
# False, unknown, true are in ascending order, so `and` is the least and `or` the greatest.
_JOINED: Final[dict[type[Connective], dict[tuple[Goal, Goal], Goal]]] = {
    connective: {
        (one, other): sum({joined(a, b) for a, b in product(_members(one), _members(other))})
        for one, other in product(_GOALS, _GOALS)
    }
    for connective, joined in ((And, min), (Or, max), (Xor, _odd))
}
