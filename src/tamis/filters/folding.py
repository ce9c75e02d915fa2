"""Case folding: texts that differ only in case are equal once folded.

Unicode's full case folding maps each character on its own, so it keeps the order of parts: the
folded text begins with, ends with and contains what the folded parts are. `ß` folds to `ss`.
"""

from __future__ import annotations

import re
from typing import Final

# A class, or an escaped character: what is folded by RE2 alone.
_UNFOLDED: Final = re.compile(r"\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*+\]", re.DOTALL)


def fold(text: str) -> str:
    """Return a text without differences in case.

    >>> fold("Straße") == fold("STRASSE")
    True
    """
    return text.casefold()


def is_caseless(text: str) -> bool:
    """Return whether no other text folds to this one, or to a part of it; no may be wrong.

    Of the characters in ASCII, only the letters from a to z are what others fold to.

    >>> is_caseless("4688: /?"), is_caseless("a1"), is_caseless("€")
    (True, False, False)
    """
    return text.isascii() and not any(map(str.isalpha, text))


def fold_pattern(pattern: str) -> str:
    r"""Return a pattern of RE2 that finds in folded texts what the pattern means in any case.

    RE2 folds one character to one other. What folds to several becomes a group, except in classes.

    >>> fold_pattern("Stra\u00dfe [A-Z]+")
    '(?i)Stra(?:ss)e [A-Z]+'
    """
    if pattern.isascii() or r"\Q" in pattern:
        return CASELESS_FLAG + pattern
    folded, at = list[str](), 0
    for kept in _UNFOLDED.finditer(pattern):
        folded += (*map(_folded_literal, pattern[at : kept.start()]), kept[0])
        at = kept.end()
    return CASELESS_FLAG + "".join((*folded, *map(_folded_literal, pattern[at:])))


CASELESS_FLAG: Final = "(?i)"


def _folded_literal(character: str) -> str:
    folded = character.casefold()
    if folded == character or character.isascii():
        return character
    return folded if len(folded) == 1 else f"(?:{folded})"
