"""Numbers and quoted texts, as several languages write them."""

from __future__ import annotations

import math
import re
from typing import Final

from tamis.languages.tokens import Tokens

# Possessive quantifiers (`++`, `*+`) never give back what they took: reading stays linear. The
# closing quote is optional, so that an open one takes the rest of the text at once.
NUMBER: Final = (
    r"0[xX][0-9a-fA-F]++|0[bB][01]++|[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
    r"|\.[0-9]++(?:[eE][+-]?[0-9]++)?"
)
QUOTED: Final = r"""\"(?:[^"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?"""

# One more than the largest integer may be read, because a minus may stand before it.
LARGEST: Final = 2**63

_BASES: Final = {"0x": 16, "0b": 2}
_LONGEST: Final = len(f"{2**64 - 1:#b}")

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"} | {
    c: c for c in "\"'\\/`"
}


def read_number(word: str, tokens: Tokens) -> int | float:
    """Return the number that the token before the current one writes."""
    at = tokens.at - 1
    if word.isdecimal() or word[:2].lower() in _BASES:
        value = _whole(word)
        if value > LARGEST:
            raise tokens.error(
                f"the integer {word[:30]} does not fit in 64 bits",
                at=at,
                hint="write it with a decimal point for a float",
            )
        return value
    number = float(word)
    if not math.isfinite(number):
        raise tokens.error(f"{word[:30]} is beyond the largest float", at=at)
    return number


def read_mask(word: str, tokens: Tokens) -> int:
    """Return the bit mask that the token before the current one writes."""
    mask = _whole(word)
    if mask >= 2 * LARGEST:
        raise tokens.error("a bit mask has 64 bits at the most", at=tokens.at - 1)
    return mask


def _whole(word: str) -> int:
    """Return a whole number; one with more digits than any mask has is only known to be large."""
    base = _BASES.get(word[:2].lower())
    if len(word) > _LONGEST:
        return 2 * LARGEST
    return int(word) if base is None else int(word[2:], base)


def read_quoted(word: str, tokens: Tokens) -> str:
    """Return the text between the quotes of the token before the current one."""
    if len(word) < 2 or word[-1] != word[0] or _is_escaped(word):
        raise tokens.error(f"this {word[0]} is never closed", at=tokens.at - 1)
    inside = word[1:-1]
    if "\\" in inside:
        inside = _unescaped(inside, tokens)
    return inside if inside.isascii() else _checked(inside, tokens)


def _is_escaped(word: str) -> bool:
    """Tell whether the last character is escaped, so that it closes nothing."""
    body = word[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 1


def _unescaped(inside: str, tokens: Tokens) -> str:
    def character(found: re.Match[str]) -> str:
        code, escaped = found.groups()
        if code is not None:
            return chr(int(code, 16))
        if escaped not in _ESCAPED:
            raise tokens.error(
                f"the text has \\{escaped}, which stands for nothing",
                at=tokens.at - 1,
                hint="write two backslashes for one",
            )
        return _ESCAPED[escaped]

    return _ESCAPE.sub(character, inside)


def _checked(inside: str, tokens: Tokens) -> str:
    try:
        # Joins a pair of surrogates, written as two escapes, to the one character they mean.
        return inside.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise tokens.error("the text has a lone surrogate", at=tokens.at - 1) from None
