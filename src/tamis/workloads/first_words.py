"""Which words the conditions of a rule may begin with, and whether these are enough to differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tamis.workloads.distributions import Window
from tamis.workloads.grammar import (
    Alternative,
    AnyName,
    Constant,
    Grammar,
    Literal,
    Part,
    Reference,
    Repeated,
)
from tamis.workloads.grammar_syntax import MOST_REPEATED


def check_distinct(grammar: Grammar) -> None:
    """Refuse a repetition that asks for more different parts than there are."""
    firsts = first_words(grammar)
    for name, way, part in _distinct_parts(grammar):
        count = len(_firsts_of(part.part, firsts))
        if count < part.most:
            raise grammar.places[name].error(
                f"{part.most} should be distinct, but only {count} different words can stand first",
                way.token,
            )


def first_words(grammar: Grammar) -> dict[str, frozenset[str]]:
    """Return for each rule and pool the words that its texts may begin with."""
    firsts = dict.fromkeys((*grammar.rules, *grammar.pools), frozenset[str]())
    for _, name in product(range(len(firsts)), firsts):
        found = (_firsts_of(part, firsts) for part in _first_parts(grammar, name))
        firsts[name] = frozenset[str]().union(*found)
    return firsts


def _distinct_parts(grammar: Grammar) -> Iterator[tuple[str, Alternative, Repeated]]:
    for name, rule in grammar.rules.items():
        for way in rule.alternatives:
            for part in way.parts:
                if isinstance(part, Repeated) and part.distinct:
                    yield name, way, part


def _first_parts(grammar: Grammar, name: str) -> Iterator[Part]:
    if name in grammar.pools:
        yield Reference(grammar.pools[name].rule)
        return
    for way in grammar.rules[name].alternatives:
        yield way.parts[0]


def _firsts_of(part: Part, firsts: dict[str, frozenset[str]]) -> frozenset[str]:
    match part:
        case Literal(word):
            return frozenset((word,))
        case AnyName(names):
            return frozenset(names)
        case Reference(name):
            return firsts[name]
        case Repeated():
            return _firsts_of(part.part, firsts)
        case Constant(source):
            drawn = source.starts if isinstance(source, Window) else source
            # More of them than can be asked for make no difference.
            ranks = range(min(drawn.ranks.size, MOST_REPEATED))
            return frozenset(drawn.values.text(rank) for rank in ranks)
