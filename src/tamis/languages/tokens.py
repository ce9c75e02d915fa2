"""Tokens and literals: what the text languages share below their grammars."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

from tamis.errors import FilterSyntaxError
from tamis.events.schema import did_you_mean
from tamis.filters import FilterLimits


class Tokens:
    """The tokens of a text as plain strings, with empty ones at the end.

    Places are not kept: they are found again for the one token that an error is about, so that
    right filters do not pay for wrong ones.
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
        """Return the token that is next to be read; empty at the end."""
        return self.words[self.at]

    def take(self) -> str:
        """Return the current token and step over it."""
        word = self.words[self.at]
        self.at += 1
        return word

    def skip(self, first: str, *more: str) -> bool:
        """Step over these words, whatever their case, if they come next."""
        if self.words[self.at].lower() != first:
            return False
        rest = self.words[self.at + 1 : self.at + 1 + len(more)]
        if [word.lower() for word in rest] != list(more):
            return False
        self.at += 1 + len(more)
        return True

    def expect(self, word: str, after: str) -> None:
        """Step over a word that must come next."""
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
            if number == index:
                return found.start()
        return len(self.text.rstrip())


def describe(word: str) -> str:
    """Return a token as a sentence names it."""
    if not word:
        return "the end of the text"
    return f'"{word if len(word) <= 30 else word[:29] + "…"}"'


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
    """Return whether the last character is escaped, so that it closes nothing."""
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
