"""Templates of filters: `symbol = {symbol} and {and 1..3 distinct test}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from tamis.events import Type
from tamis.events.schema import did_you_mean
from tamis.filters.printing import show_name
from tamis.languages.tokens import NUMBER
from tamis.workloads.declarations import names_in
from tamis.workloads.distributions import RESOLUTION, Distribution, EvenRanks, Grid, Window
from tamis.workloads.grammar import AnyName, DrawnValue, Nonterminal, Part, Repeated, Terminal
from tamis.workloads.layout import BINDING
from tamis.workloads.limits import Mistake, check_limit

MAX_REPETITIONS: Final = 100
_JOINTS: Final = (Terminal("and"), Terminal("or"), Terminal("xor"))

# Possessive quantifiers, as in the languages: reading is linear.
_TOKEN: Final = re.compile(
    rf"""\{{[^{{}}]*+\}} | [^\W\d]\w*+(?:\.\w++)*+ | {NUMBER}
    | "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? | `(?:[^`]|``)*+`?
    | <= | >= | != | <> | == | \S""",
    re.VERBOSE | re.DOTALL,
)
_REPEATED: Final = re.compile(
    r"(and|or|xor|list)\s+([0-9]{1,6})(?:\.\.([0-9]{1,6}))?(\s+distinct)?\s+(.+)", re.DOTALL
)
_NUMBERS: Final = re.compile(r"([0-9]{1,15})\.\.([0-9]{1,15})")


class Names(NamedTuple):
    """What a template may refer to in braces."""

    attributes: Mapping[str, Distribution]
    values: Mapping[str, Distribution | Window]
    rules: AbstractSet[str]
    """With pools."""

    def parts(self, key: str, template: str) -> tuple[Part, ...]:
        """Return the parts of a template."""
        check_limit(key, "characters in a template", len(template), f"{template:.40}…")
        parts = tuple(
            self._hole(key, word[1:-1].strip()) if word[0] == "{" and len(word) > 1 else _word(word)
            for word in _TOKEN.findall(template)
        )
        if not parts:
            raise Mistake(key, "the text is empty", "write a condition, such as price < {price}")
        if parts[0] in _JOINTS or parts == (Terminal("not"),):
            raise Mistake(
                key,
                f'"{template}" cannot be drawn on its own, because what it joins would be unclear',
                'write out both: "{a} and {b}" and "{a} or {b}"',
            )
        return parts

    def _hole(self, key: str, inside: str) -> Part:
        found = _REPEATED.fullmatch(inside)
        if found is None:
            return self._drawn(key, inside)
        separator, least, most, distinct, name = found.groups()
        low, high = int(least), int(most or least)
        if not 1 <= low <= high <= MAX_REPETITIONS:
            raise Mistake(
                key,
                f"{{{inside}}} should repeat 1 to {MAX_REPETITIONS} times, the lower number first",
            )
        part = self._drawn(key, name)
        return Repeated(part, low, high, bool(distinct), "," if separator == "list" else separator)

    def _drawn(self, key: str, name: str) -> Nonterminal | DrawnValue | AnyName:
        if name in self.rules:
            return Nonterminal(name)
        source = self.values.get(name) or self.attributes.get(name)
        if source is not None:
            return DrawnValue(source)
        numbers = _NUMBERS.fullmatch(name)
        if numbers is not None:
            return DrawnValue(_whole_numbers(key, *map(int, numbers.groups())))
        return AnyName(tuple(self._attribute(key, each) for each in names_in(key, name)))

    def _attribute(self, key: str, name: str) -> str:
        if name not in self.attributes:
            known = {*self.attributes, *self.values, *self.rules}
            raise Mistake(
                key,
                f"{{{name}}} names no rule, pool, value or attribute",
                did_you_mean(name, known) or "define it, or write names of attributes without {}",
            )
        return show_name(name)


def _word(word: str) -> Terminal:
    return Terminal(word.lower() if word.lower() in BINDING else word)


def _whole_numbers(key: str, low: int, high: int) -> Distribution:
    if not low <= high < RESOLUTION:
        raise Mistake(key, f"the range {{{low}..{high}}} is empty", "put the low end first")
    return Distribution(Type.INT, EvenRanks(high - low + 1), Grid(Type.INT, low, 1))
