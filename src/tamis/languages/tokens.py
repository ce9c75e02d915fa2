"""Text to tokens, and a token back to its place in the text."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
