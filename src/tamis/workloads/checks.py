"""What can be wrong with a grammar as a whole: rules that end nowhere, lead nowhere, or grow."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from tamis.errors import WorkloadError
from tamis.workloads.distributions import Window
from tamis.workloads.first_words import check_distinct
from tamis.workloads.grammar import (
    START,
    Alternative,
    AnyName,
    Constant,
    Grammar,
    Literal,
    Part,
    Reference,
    Repeated,
)

MOST_RULES: Final = 100
"""Rules lead to each other by calls, and the interpreter's stack is finite."""
MOST_DRAWS: Final = 5000
"""Random numbers that one filter takes on average."""
_ROUNDS: Final = 200


class Heights(NamedTuple):
    """How many levels of rules the shortest derivation of each rule and pool has."""

    of_name: dict[str, float]
    grammar: Grammar

    @classmethod
    def of(cls, grammar: Grammar) -> Heights:
        """Find them from the rules that end at once upwards."""
        found = cls(dict.fromkeys((*grammar.rules, *grammar.pools), inf), grammar)
        for _ in found.of_name:
            for name in found.of_name:
                found.of_name[name] = min(found.of_name[name], 1 + found._lowest(name))
        return found

    def of_way(self, way: Alternative) -> float:
        """Return how high the shortest derivation of an alternative is."""
        return max((self.of_name[name] for name in way.references()), default=0)

    def shortest(self, rule: str) -> int:
        """Return the number of the alternative that ends the soonest."""
        heights = [self.of_way(way) for way in self.grammar.rules[rule].alternatives]
        return heights.index(min(heights))

    def _lowest(self, name: str) -> float:
        if name in self.grammar.pools:
            return self.of_name[self.grammar.pools[name].rule]
        return min(map(self.of_way, self.grammar.rules[name].alternatives))


def recursive_rules(grammar: Grammar) -> set[str]:
    """Return the rules that lead back to themselves."""
    return {name for name in grammar.rules if name in reachable(grammar, *grammar.targets(name))}


def reachable(grammar: Grammar, *names: str) -> set[str]:
    """Return all that some names lead to, with themselves."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += grammar.targets(name)
    return found


def check_grammar(grammar: Grammar) -> None:
    """Refuse a grammar by which filters could not be drawn."""
    if len(grammar.rules) > MOST_RULES:
        last = list(grammar.rules)[MOST_RULES]
        raise _error(grammar, last, f"a workload has {MOST_RULES} rules at the most")
    _check_reached(grammar)
    _check_ends(grammar)
    _check_pools(grammar)
    _check_growth(grammar)
    check_distinct(grammar)


def _check_reached(grammar: Grammar) -> None:
    reached = reachable(grammar, START)
    for name in (*grammar.rules, *grammar.pools):
        if name not in reached:
            raise _error(
                grammar, name, f'nothing leads from "{START}" to {name}', hint="use it or remove it"
            )


def _check_ends(grammar: Grammar) -> None:
    for name, height in Heights.of(grammar).of_name.items():
        if height == inf:
            raise _error(
                grammar,
                name,
                f"{name} never ends: every way through its alternatives leads back to a rule",
                hint="add an alternative that leads to no rule",
            )


def _check_pools(grammar: Grammar) -> None:
    for name, pool in grammar.pools.items():
        if name in reachable(grammar, pool.rule):
            raise _error(grammar, name, f"the pool {name} is made of its own conditions")


def _check_growth(grammar: Grammar) -> None:
    """Refuse rules that lead on average to more of themselves than they end."""
    for name, draws in expected_draws(grammar).items():
        if draws > MOST_DRAWS:
            raise _error(
                grammar,
                name,
                f"{name} grows without end: on average, one of it takes more than {MOST_DRAWS:,} "
                "choices",
                hint="make alternatives that end more likely",
            )


def expected_draws(grammar: Grammar) -> dict[str, float]:
    """Return how many random numbers each rule and pool takes on average; too many are cut off."""
    expected = dict.fromkeys((*grammar.rules, *grammar.pools), 1.0)
    for _ in range(_ROUNDS):
        for name, rule in grammar.rules.items():
            expected[name] = (len(rule.alternatives) > 1) + sum(
                way.chance * sum(_draws(part, expected) for part in way.parts)
                for way in rule.alternatives
            )
        if max(expected.values()) > MOST_DRAWS:
            break
    return expected


def _draws(part: Part, expected: dict[str, float]) -> float:
    match part:
        case Reference(name):
            return expected[name]
        case Repeated():
            return 1 + (part.least + part.most) / 2 * _draws(part.part, expected)
        case Constant(source):
            return 2 if isinstance(source, Window) else 1
        case AnyName():
            return 1
        case Literal():
            return 0


def _error(grammar: Grammar, name: str, reason: str, hint: str = "") -> WorkloadError:
    token = (grammar.rules.get(name) or grammar.pools[name]).token
    return grammar.places[name].error(reason, token, hint=hint)
