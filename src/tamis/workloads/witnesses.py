"""A filter for every alternative, so that one that makes no filter is found before any is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tamis.errors import FilterSyntaxError, TamisError
from tamis.events import Schema
from tamis.languages import parse
from tamis.workloads.checks import Heights
from tamis.workloads.distributions import Window
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
from tamis.workloads.layout import TIGHTEST, Drawn, lay_out, separated


def check_filters(grammar: Grammar, schema: Schema) -> None:
    """Refuse an alternative whose shortest filter cannot be read, or contradicts the schema."""
    for witness in Witnesses(grammar).all():
        try:
            parse(witness.text).bind(schema)
        except TamisError as error:
            reason = error.reason if isinstance(error, FilterSyntaxError) else str(error)
            raise grammar.places[witness.rule].error(
                f"this makes filters such as {witness.text:.120}, which cannot be used: {reason}",
                witness.way.token,
            ) from None


class Witness(NamedTuple):
    """A filter that one alternative has a part in."""

    rule: str
    way: Alternative
    text: str


class Witnesses:
    """The shortest filters of a grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._heights = Heights.of(grammar)
        self._callers = self._first_callers()

    def all(self) -> Iterator[Witness]:
        """Yield one filter for each alternative."""
        for name, rule in self._grammar.rules.items():
            for way in rule.alternatives:
                yield Witness(name, way, self._inside(name, self._shortest_of(way)))

    def _inside(self, name: str, drawn: Drawn) -> str:
        """Return a filter in which a rule makes what was drawn."""
        while name != START:
            caller, way = self._callers[name]
            drawn = drawn if way is None else self._shortest_of(way, {name: drawn})
            name = caller
        return drawn[0]

    def _first_callers(self) -> dict[str, tuple[str, Alternative | None]]:
        callers: dict[str, tuple[str, Alternative | None]] = {}
        waiting = [START]
        for caller in waiting:
            for name, way in self._calls(caller):
                if name != START and name not in callers:
                    callers[name] = caller, way
                    waiting.append(name)
        return callers

    def _calls(self, caller: str) -> Iterator[tuple[str, Alternative | None]]:
        if caller in self._grammar.pools:
            yield self._grammar.pools[caller].rule, None
            return
        for way in self._grammar.rules[caller].alternatives:
            for name in way.references():
                yield name, way

    def _shortest_of(self, way: Alternative, given: dict[str, Drawn] | None = None) -> Drawn:
        holes = [part for part in way.parts if not isinstance(part, Literal)]
        drawn = [self._part(part, given or {}) for part in holes]
        return drawn[0] if len(way.parts) == 1 and drawn else lay_out(way.parts).join(drawn)

    def _part(self, part: Part, given: dict[str, Drawn]) -> Drawn:
        match part:
            case Reference(name):
                return given.get(name) or self._rule(name)
            case Constant(source):
                middle = (0.5, 0.5) if isinstance(source, Window) else (0.5,)
                return source.text(*middle), TIGHTEST
            case AnyName(names):
                return names[0], TIGHTEST
            case Repeated():
                return self._repeated(part, given)
            case Literal():
                raise AssertionError(f"{part} is no hole")

    def _rule(self, name: str) -> Drawn:
        if name in self._grammar.pools:
            return self._rule(self._grammar.pools[name].rule)
        ways = self._grammar.rules[name].alternatives
        return self._shortest_of(ways[self._heights.shortest(name)])

    def _repeated(self, part: Repeated, given: dict[str, Drawn]) -> Drawn:
        text, bound = self._part(part.part, given)
        if part.most == 1:
            return text, bound
        between, needed = separated(part.separator)
        one = f"({text})" if bound < needed else text
        return between.join([one] * part.most), needed or TIGHTEST
