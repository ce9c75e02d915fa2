"""Drawing filters: a grammar compiled to functions that turn random numbers into text."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain
from math import ceil
from typing import Final

from tamis.workloads.distributions import Distribution, RandomStream, Window
from tamis.workloads.grammar import (
    START,
    Alternative,
    AnyName,
    DrawnValue,
    Grammar,
    Nonterminal,
    Part,
    Pool,
    Repeated,
    Terminal,
)
from tamis.workloads.layout import TIGHTEST, Drawn, lay_out, separated
from tamis.workloads.limits import Usage

FILTERS_PER_DRAW: Final = 128
"""Filters whose random numbers are drawn at once; beyond the cache, more are slower."""
MAX_EXPANSIONS: Final = 200
"""How often one filter follows recursive rules before it takes the shortest way out."""
MAX_RECURSION_DEPTH: Final = 12
"""How deep recursive rules go, so that filters stay within the default limits."""
MAX_DRAWS_PER_REPETITION: Final = 1000
"""How often to try for distinct repetitions."""
MAX_KEPT_CONDITIONS: Final = 200_000
"""Conditions of a pool to keep."""


class Draws:
    """The random numbers of one filter."""

    __slots__ = ("depth", "expansions", "forced", "next")

    def __init__(self, numbers: Iterator[float], forced: dict[str, int] | None = None) -> None:
        self.next: Final = numbers.__next__
        self.expansions = 0
        self.depth = 0
        self.forced = forced or {}
        """The alternatives that some rules take the first time, to check a grammar."""


Draw = Callable[[Draws], Drawn]


class Drawer:
    """Draws the filters of one grammar and one seed, each by its number."""

    def __init__(self, grammar: Grammar, seed: int, *, checking: Usage | None = None) -> None:
        self._grammar = grammar
        self._seed = seed
        self._checking = checking
        self._shortest = grammar.shortest_ways()
        self._recursive = grammar.recursive_rules()
        self._expected = grammar.expected_draws()
        self._draws: dict[str, Draw] = {}
        self._started: set[str] = set()
        self._start = self._reference(START)
        self._stream = RandomStream(seed, "filters", width=self._width(START))

    def texts(self, first: int, last: int) -> Iterator[str]:
        """Yield the filters from `first` to `last`, exclusive, as text."""
        draw = self._start
        for start in range(first, last, FILTERS_PER_DRAW):
            rows = self._stream.rows(start, min(start + FILTERS_PER_DRAW, last)).tolist()
            for number, row in enumerate(rows, start):
                yield draw(Draws(chain(row, self._stream.beyond(number))))[0]

    def forced(self, ways: dict[str, int]) -> str:
        """Return a filter in which some rules take given alternatives the first time."""
        return self._start(Draws(self._stream.beyond(0), ways))[0]

    def _width(self, rule: str) -> int:
        """Return how many numbers to prepare for a rule; drawing further ones is slower."""
        return min(256, 8 * ceil((1 + 1.5 * self._expected[rule]) / 8))

    def _rule(self, name: str, alternatives: Sequence[Alternative]) -> Draw:
        words = None if self._checking is not None else _words(alternatives)
        if words is not None:
            return _weighted_words(*words)
        ways = [self._alternative(way) for way in alternatives]
        if len(ways) == 1:
            return ways[0]
        choose = _weighted(ways, [way.chance for way in alternatives])
        if self._checking is not None:
            choose = _forcible(name, ways, choose)
        if name not in self._recursive:
            return choose
        shortest = ways[self._shortest[name]]

        def draw(draws: Draws) -> Drawn:
            draws.expansions += 1
            draws.depth += 1
            goes_on = draws.expansions < MAX_EXPANSIONS and draws.depth < MAX_RECURSION_DEPTH
            drawn = (choose if goes_on else shortest)(draws)
            draws.depth -= 1
            return drawn

        return draw

    def _alternative(self, way: Alternative) -> Draw:
        layout = lay_out(way.parts)
        holes = [self._part(part) for part in way.parts if not isinstance(part, Terminal)]
        if len(way.parts) == 1 and holes:
            return holes[0]
        join = layout.join
        return lambda draws: join([hole(draws) for hole in holes])

    def _part(self, part: Part) -> Draw:
        draw = self._unlimited_part(part)
        return draw if self._checking is None else _limited(draw, self._checking)

    def _unlimited_part(self, part: Part) -> Draw:
        match part:
            case Nonterminal(name):
                return self._reference(name)
            case DrawnValue(source):
                return _constant(source)
            case AnyName(names):
                drawn = [(name, TIGHTEST) for name in names]
                return lambda draws: drawn[int(draws.next() * len(drawn))]
            case Repeated():
                return self._repeated(part)
            case Terminal():
                raise AssertionError(f"{part} is not a hole")

    def _reference(self, name: str) -> Draw:
        if name not in self._started:
            self._started.add(name)
            pool = self._grammar.pools.get(name)
            self._draws[name] = (
                self._pool(name, pool) if pool else self._rule(name, self._grammar.rules[name])
            )
        if name in self._draws:
            return self._draws[name]
        # A recursive rule is not compiled yet.
        return lambda draws: self._draws[name](draws)  # noqa: PLW0108 - looked up when drawn

    def _repeated(self, part: Repeated) -> Draw:
        draw_one = self._part(part.part)
        between, needed = separated(part.separator)
        least = part.most if self._checking is not None else part.least
        choices = part.most - least + 1
        draw_some = _distinct if part.distinct else _independent

        def draw(draws: Draws) -> Drawn:
            count = least + (int(draws.next() * choices) if choices > 1 else 0)
            drawn = draw_some(draw_one, draws, count)
            if self._checking is not None and len(drawn) < count:
                raise ValueError(f"only {len(drawn)} of {count} begin with different words")
            if len(drawn) == 1:
                return drawn[0]
            texts = [f"({text})" if bound < needed else text for text, bound in drawn]
            return between.join(texts), needed or TIGHTEST

        return draw

    def _pool(self, name: str, pool: Pool) -> Draw:
        if self._checking is not None:
            return self._reference(pool.rule)
        stream = RandomStream(self._seed, "pool", name, width=self._width(pool.rule))
        make, rank_of = self._reference(pool.rule), pool.ranks.one
        kept: dict[int, Drawn] = {}

        def draw(draws: Draws) -> Drawn:
            rank = rank_of(draws.next())
            found = kept.get(rank)
            if found is None:
                row = stream.rows(rank, rank + 1)[0].tolist()
                found = make(Draws(chain(row, stream.beyond(rank))))
                if len(kept) < MAX_KEPT_CONDITIONS:
                    kept[rank] = found
            return found

        return draw


def _limited(unlimited: Draw, usage: Usage) -> Draw:
    def draw(draws: Draws) -> Drawn:
        drawn = unlimited(draws)
        usage.add("rules", "characters of filters to check", 1 + len(drawn[0]))
        return drawn

    return draw


def _forcible(name: str, ways: Sequence[Draw], choose: Draw) -> Draw:
    def draw(draws: Draws) -> Drawn:
        way = draws.forced.pop(name, None)
        return choose(draws) if way is None else ways[way](draws)

    return draw


def _words(alternatives: Sequence[Alternative]) -> tuple[list[Drawn], list[float]] | None:
    """Return what a rule makes if it makes only fixed texts and names, with the probabilities."""
    words: list[Drawn] = []
    chances: list[float] = []
    for way in alternatives:
        match way.parts:
            case (AnyName(names),):
                found = [(name, TIGHTEST) for name in names]
            case parts if all(isinstance(part, Terminal) for part in parts):
                found = [lay_out(parts).join(())]
            case _:
                return None
        words += found
        chances += [way.chance / len(found)] * len(found)
    return words, chances


def _weighted_words(words: Sequence[Drawn], chances: Sequence[float]) -> Draw:
    count = len(words)
    if count == 1:
        return lambda draws: words[0]  # noqa: ARG005
    if max(chances) - min(chances) < 1e-12:
        return lambda draws: words[int(draws.next() * count)]
    edges = list(accumulate(chances))[:-1]
    return lambda draws: words[bisect(edges, draws.next())]


def _weighted(ways: Sequence[Draw], chances: Sequence[float]) -> Draw:
    if len(set(chances)) == 1:
        return lambda draws: ways[int(draws.next() * len(ways))](draws)
    edges = list(accumulate(chances))[:-1]
    return lambda draws: ways[bisect(edges, draws.next())](draws)


def _constant(source: Distribution | Window) -> Draw:
    if isinstance(source, Window):
        window = source.text
        return lambda draws: (window(draws.next(), draws.next()), TIGHTEST)
    text = source.text
    return lambda draws: (text(draws.next()), TIGHTEST)


def _independent(draw_one: Draw, draws: Draws, count: int) -> list[Drawn]:
    return [draw_one(draws) for _ in range(count)]


def _distinct(draw_one: Draw, draws: Draws, count: int) -> list[Drawn]:
    """Return parts that begin with different words, fewer if these cannot be found."""
    found: dict[str, Drawn] = {}
    for _ in range(MAX_DRAWS_PER_REPETITION):
        drawn = draw_one(draws)
        found.setdefault(drawn[0].partition(" ")[0], drawn)
        if len(found) == count:
            break
    return list(found.values())
