"""A grammar with probabilities: rules with alternatives, pools, and the analysis of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from tamis.workloads.distributions import Distribution, Ranks, Window

START: Final = "filter"
"""The rule that makes subscriptions."""
MAX_DRAWS: Final = 5000
"""Random numbers that one filter takes on average."""
_ROUNDS: Final = 200


class Terminal(NamedTuple):
    """A word of the Tamis language."""

    word: str


class Nonterminal(NamedTuple):
    """The text that another rule, or a pool, makes."""

    name: str


class DrawnValue(NamedTuple):
    """A value drawn from a distribution, or the two ends of a window."""

    source: Distribution | Window


class AnyName(NamedTuple):
    """One of some attributes, as filters write their names."""

    names: tuple[str, ...]


class Repeated(NamedTuple):
    """A part several times, with a word in between."""

    part: Nonterminal | DrawnValue | AnyName
    least: int
    most: int
    distinct: bool
    """No two begin with the same word: the same attribute, or the same value of a list."""
    separator: str


Part = Terminal | Nonterminal | DrawnValue | AnyName | Repeated


class Alternative(NamedTuple):
    """One way to write a rule, and its probability."""

    template: str
    chance: float
    parts: tuple[Part, ...]

    def references(self) -> Iterator[str]:
        """Yield the rules and pools that it refers to, with repetitions."""
        for part in self.parts:
            inner = part.part if isinstance(part, Repeated) else part
            if isinstance(inner, Nonterminal):
                yield inner.name


class Pool(NamedTuple):
    """Conditions that a rule makes once, to be drawn repeatedly."""

    rule: str
    ranks: Ranks


class Grammar(NamedTuple):
    """Rules and pools by name."""

    rules: Mapping[str, tuple[Alternative, ...]]
    pools: Mapping[str, Pool]

    def names(self) -> tuple[str, ...]:
        """Return the rules and pools."""
        return *self.rules, *self.pools

    def targets(self, name: str) -> list[str]:
        """Return the rules and pools that one leads to."""
        if name in self.pools:
            return [self.pools[name].rule]
        return [*dict.fromkeys(found for way in self.rules[name] for found in way.references())]

    def reachable(self, *names: str) -> set[str]:
        """Return all names that some names lead to, including themselves."""
        return _reachable(names, self.targets)

    def recursive_rules(self) -> set[str]:
        """Return the rules that lead back to themselves."""
        targets = {name: self.targets(name) for name in self.names()}
        return {
            name for name in self.rules if name in _reachable(targets[name], targets.__getitem__)
        }

    def heights(self) -> dict[str, float]:
        """Return how many levels the shortest derivation of each name has, or infinity."""
        heights = dict.fromkeys(self.names(), inf)
        for _ in [*heights]:
            before = [*heights.values()]
            for name in heights:
                if name in self.pools:
                    heights[name] = 1 + heights[self.pools[name].rule]
                else:
                    heights[name] = 1 + min(_height(way, heights) for way in self.rules[name])
            if before == [*heights.values()]:
                break
        return heights

    def shortest_ways(self) -> dict[str, int]:
        """Return the number of the alternative of each rule that ends the soonest."""
        heights = self.heights()
        found = {}
        for name, ways in self.rules.items():
            of_ways = [_height(way, heights) for way in ways]
            found[name] = of_ways.index(min(of_ways))
        return found

    def expected_draws(self) -> dict[str, float]:
        """Return how many random numbers each name takes on average, up to about MAX_DRAWS."""
        return self._expected(dict.fromkeys(self.names(), 1.0), word=0, most=MAX_DRAWS)

    def expected_words(self) -> dict[str, float]:
        """Return how many words and values each name makes on average, up to about 1e9."""
        expected = self._expected(dict.fromkeys(self.names(), 1.0), word=1, most=1e9)
        return {name: expected[name] for name in self.rules}

    def _expected(self, expected: dict[str, float], word: int, most: float) -> dict[str, float]:
        holes = {
            name: [(way.chance, *_counted(way.parts, word)) for way in ways]
            for name, ways in self.rules.items()
        }
        for _ in range(_ROUNDS):
            before = [*expected.values()]
            for name, ways in holes.items():
                expected[name] = (len(ways) > 1) + sum(
                    chance * (words + sum(_draws(part, expected) for part in parts))
                    for chance, words, parts in ways
                )
            if word:
                expected |= {name: expected[pool.rule] for name, pool in self.pools.items()}
            if max(expected.values()) > most or before == [*expected.values()]:
                break
        return expected


def _reachable(names: Iterable[str], targets: Callable[[str], list[str]]) -> set[str]:
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += targets(name)
    return found


def _counted(parts: Sequence[Part], word: int) -> tuple[int, Sequence[Part]]:
    """Return the words that count, and the other parts."""
    holes = [part for part in parts if not isinstance(part, Terminal)]
    return word * (len(parts) - len(holes)), holes


def _height(way: Alternative, heights: Mapping[str, float]) -> float:
    return max((heights[name] for name in way.references()), default=0)


def _draws(part: Part, expected: Mapping[str, float]) -> float:
    match part:
        case Nonterminal(name):
            return expected[name]
        case Repeated():
            return 1 + (part.least + part.most) / 2 * _draws(part.part, expected)
        case DrawnValue(source):
            return 2 if isinstance(source, Window) else 1
        case AnyName():
            return 1
        case Terminal():
            return 0
