"""A grammar with probabilities: rules, their alternatives, and the parts these are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tamis.workloads.distributions import Distribution, Ranks, Window
from tamis.workloads.source import Cursor, Token

START: Final = "filter"
"""The rule that subscriptions are drawn by."""


class Literal(NamedTuple):
    """A word of the Tamis language, kept as it is."""

    word: str


class Reference(NamedTuple):
    """Whatever another rule, or a pool, makes."""

    name: str


class Constant(NamedTuple):
    """A value drawn from a distribution, or the two ends of a window."""

    source: Distribution | Window


class AnyName(NamedTuple):
    """One of some attributes, as filters write their names."""

    names: tuple[str, ...]


class Repeated(NamedTuple):
    """A part several times, with a word in between."""

    part: Reference | Constant | AnyName
    least: int
    most: int
    distinct: bool
    """No two begin with the same word: the same attribute, or the same value of a list."""
    separator: str


Part = Literal | Reference | Constant | AnyName | Repeated


class Alternative(NamedTuple):
    """One way to write a rule, its probability, and where it stands."""

    chance: float
    parts: tuple[Part, ...]
    token: Token

    def references(self) -> Iterator[str]:
        """Yield the rules and pools that it leads to, as often as it does."""
        for part in self.parts:
            inner = part.part if isinstance(part, Repeated) else part
            if isinstance(inner, Reference):
                yield inner.name


class Rule(NamedTuple):
    """Alternatives under one name."""

    token: Token
    alternatives: tuple[Alternative, ...]


class Pool(NamedTuple):
    """So many conditions made by a rule once and for all, which are drawn again and again."""

    token: Token
    rule: str
    ranks: Ranks


class Grammar(NamedTuple):
    """Everything that filters are drawn by."""

    rules: Mapping[str, Rule]
    pools: Mapping[str, Pool]
    places: Mapping[str, Cursor]
    """Where each rule and pool was read, to show an error there."""

    def targets(self, name: str) -> list[str]:
        """Return the rules and pools that one leads to."""
        if name in self.pools:
            return [self.pools[name].rule]
        return [found for way in self.rules[name].alternatives for found in way.references()]
