"""Lists of texts, written out or multiplied: `"{company} {rises} by {1..9} %"`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.errors import FilterSyntaxError
from tamis.filters import FilterLimits
from tamis.languages.tokens import Tokens, read_quoted
from tamis.workloads.distributions import Distribution, EvenRanks, Listed, WeightedRanks, Window
from tamis.workloads.source import Cursor, Token, evened, shown

MOST_TEXTS: Final = 200_000
_HOLE: Final = re.compile(r"\{(\w{1,60})(?:\.\.([0-9]{1,9}))?\}")
_WHOLE_TEXT: Final = re.compile(r"\S.*", re.DOTALL)


class _Choice(NamedTuple):
    texts: list[str]
    weights: list[float]


def read_texts(
    cursor: Cursor, known: Mapping[str, Distribution | Window]
) -> tuple[list[str], NDArray[np.float64]]:
    """Read texts with or without percentages; a hole makes one of each text that can fill it."""
    start = cursor.current
    given: list[float | None] = []
    choices: list[_Choice] = []
    while not choices or cursor.skip("|"):
        given.append(cursor.percentage())
        token = cursor.current
        choices.append(_filled(cursor, token, unquoted(cursor, "a text in quotes"), known))
        if sum(len(choice.texts) for choice in choices) > MOST_TEXTS:
            raise cursor.error(f"these are more than {MOST_TEXTS:,} texts", token)
    chances = evened(cursor, given, start)
    texts = [text for choice in choices for text in choice.texts]
    weights = [
        chance * weight
        for chance, choice in zip(chances, choices, strict=True)
        for weight in choice.weights
    ]
    return texts, np.array(weights)


def unquoted(cursor: Cursor, what: str) -> str:
    """Read a text in quotes."""
    token = cursor.take()
    if not token.is_text:
        raise cursor.error(f"{what} should stand here, not {shown(token)}", token)
    tokens = Tokens(token.word, _WHOLE_TEXT, FilterLimits(text=len(token.word)))
    try:
        return read_quoted(tokens.take(), tokens)
    except FilterSyntaxError as error:
        raise cursor.error(error.reason, token, hint=error.hint) from None


def _filled(
    cursor: Cursor, token: Token, text: str, known: Mapping[str, Distribution | Window]
) -> _Choice:
    between = _HOLE.split(text)
    fillings = [
        _filling(cursor, token, name, last, known)
        for name, last in zip(between[1::3], between[2::3], strict=True)
    ]
    if prod(len(filling.texts) for filling in fillings) > MOST_TEXTS:
        raise cursor.error(f"the holes make more than {MOST_TEXTS:,} texts of this one", token)
    texts = [
        "".join(part for pair in zip(between[::3], (*chosen, ""), strict=True) for part in pair)
        for chosen in product(*(filling.texts for filling in fillings))
    ]
    return _Choice(texts, [prod(w) for w in product(*(filling.weights for filling in fillings))])


def _filling(
    cursor: Cursor,
    token: Token,
    name: str,
    last: str | None,
    known: Mapping[str, Distribution | Window],
) -> _Choice:
    if name.isdecimal() and last is not None:
        numbers = range(int(name), min(int(last), int(name) + MOST_TEXTS) + 1)
        if not numbers:
            raise cursor.error(f"the range in {{{name}..{last}}} is empty", token)
        return _Choice([str(n) for n in numbers], [1 / len(numbers)] * len(numbers))
    filling = known.get(name)
    if not isinstance(filling, Distribution) or not isinstance(filling.values, Listed):
        raise cursor.error(
            f"{{{name}}} should name texts that are defined above",
            token,
            hint=f'define them: value {name} : str "…" | "…"',
        )
    return _Choice([str(text) for text in filling.values.values], _weights(filling.ranks))


def _weights(ranks: object) -> list[float]:
    if isinstance(ranks, WeightedRanks):
        return [float(weight) for weight in ranks.weights / ranks.weights.sum()]
    count = ranks.size if isinstance(ranks, EvenRanks) else 1
    return [1 / count] * count
