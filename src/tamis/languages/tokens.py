"""Tokens and literals: what the text languages share below their grammars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from tamis.errors import FilterSyntaxError
from tamis.events.schema import did_you_mean
from tamis.filters import FilterLimits


def token_pattern(tokens: str, *, blank: str = r"\s") -> re.Pattern[str]:
    """Return a verbose pattern that finds the tokens of a language, which end before blanks.

    It takes the blanks before a token along, which is a third faster than trying all tokens at each
    of them. At the end of the text it finds an empty token, so that blanks there are scanned once.
    """
    return re.compile(rf"{blank}*+({tokens}|\Z)", re.VERBOSE | re.DOTALL)


class Tokens:
    """The tokens of a text as plain strings, with empty ones at the end.

    Positions are not kept, so that valid filters do not pay for them. An error finds the position
    of its token again.
    """

    __slots__ = ("_pattern", "at", "text", "words")

    def __init__(self, text: str, pattern: re.Pattern[str], limits: FilterLimits) -> None:
        limits.check_text(text)
        self.text = text
        self._pattern = pattern
        self.words: list[str] = pattern.findall(text)
        self.words += ("", "", "")
        self.at = 0

    @property
    def current(self) -> str:
        """Return the next token, empty at the end."""
        return self.words[self.at]

    def take(self) -> str:
        """Return the current token and advance."""
        word = self.words[self.at]
        self.at += 1
        return word

    def skip(self, first: str, *more: str) -> bool:
        """Skip these words, in any case, if they come next."""
        if self.words[self.at].lower() != first:
            return False
        rest = self.words[self.at + 1 : self.at + 1 + len(more)]
        if [word.lower() for word in rest] != list(more):
            return False
        self.at += 1 + len(more)
        return True

    def expect(self, word: str, after: str) -> None:
        """Skip a word that must come next."""
        if not self.skip(word):
            raise self.error(f'"{word}" is missing {after}')

    def error(
        self, reason: str, *, at: int | None = None, hint: str = "", known: Iterable[str] = ()
    ) -> FilterSyntaxError:
        """Return an error at a token, by default the current one."""
        index = self.at if at is None else at
        hint = hint or did_you_mean(self.words[index].lower(), known)
        return FilterSyntaxError(reason, text=self.text, offset=self._offset(index), hint=hint)

    def _offset(self, index: int) -> int:
        for number, found in enumerate(self._pattern.finditer(self.text)):
            if number == index and found[1]:
                return found.start(1)
        return len(self.text.rstrip())


def describe_token(word: str) -> str:
    """Return a token as an error message shows it."""
    if not word:
        return "the end of the text"
    if len(word) == 1 and not word.isprintable():
        return f"U+{ord(word):04X}"
    if word[0] in "\"'" and len(word) > 1:
        return f"the text {word if len(word) <= 30 else word[:29] + '…'}"
    return f'"{word if len(word) <= 30 else word[:29] + "…"}"'


# Possessive quantifiers (`++`, `*+`) never backtrack: scanning stays linear. The
# closing quote is optional, so that an open one takes the rest of the text at once.
NUMBER: Final = (
    r"0[xX][0-9a-fA-F]++|0[bB][01]++|[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
    r"|\.[0-9]++(?:[eE][+-]?[0-9]++)?"
)
QUOTED: Final = r"""\"(?:[^"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?"""

# The largest integer plus one is accepted, because a minus may precede it.
LARGEST_BEFORE_SIGN: Final = 2**63

_BASES: Final = {"0x": 16, "0b": 2}
_MAX_MASK_CHARACTERS: Final = len(f"{2**64 - 1:#b}")

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"} | {
    c: c for c in "\"'\\/`"
}


def read_number(word: str, tokens: Tokens) -> int | float:
    """Return the number in the token before the current one."""
    at = tokens.at - 1
    if word.isdecimal() or word[:2].lower() in _BASES:
        value = _whole(word)
        if value > LARGEST_BEFORE_SIGN:
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
    """Return the bit mask in the token before the current one."""
    mask = _whole(word)
    if mask >= 2 * LARGEST_BEFORE_SIGN:
        raise tokens.error("a bit mask has 64 bits at the most", at=tokens.at - 1)
    return mask


def _whole(word: str) -> int:
    """Return an integer; one with more digits than any mask becomes some large number."""
    base = _BASES.get(word[:2].lower())
    if len(word) > _MAX_MASK_CHARACTERS:
        return 2 * LARGEST_BEFORE_SIGN
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
    """Return whether the last character is escaped, and so does not close the text."""
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
        # Joins a surrogate pair, written as two escapes, to its character.
        return inside.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise tokens.error("the text has a lone surrogate", at=tokens.at - 1) from None
