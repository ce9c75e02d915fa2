"""The text of a workload file: tokens that know their place, and definitions made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Final, NamedTuple

from tamis.errors import WorkloadError
from tamis.events.schema import did_you_mean
from tamis.languages.tokens import NUMBER

LONGEST: Final = 1024 * 1024
"""Characters of one workload file."""

# Possessive quantifiers, as in the languages: reading is linear. Texts end with their line, so that
# a quote that is never closed is shown where it stands.
_TOKEN: Final = re.compile(
    rf"""(?P<comment>\#[^\n]*+) | \.\. | [^\W\d]\w*+(?:\.\w++)*+ | {NUMBER}
    | "(?:[^"\\\n]|\\.)*+"? | '(?:[^'\\\n]|\\.)*+'? | `(?:[^`\n]|``)*+`?
    | <= | >= | != | <> | == | \S""",
    re.VERBOSE,
)
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)")
_MOST_NAMES: Final = 10_000
_MOST_DIGITS: Final = 30


class Token(NamedTuple):
    """A word of the file and where it begins."""

    word: str
    offset: int

    @property
    def is_name(self) -> bool:
        """Tell whether it may name something."""
        return self.word[:1] in ("`", "_") or self.word[:1].isalpha()

    @property
    def is_text(self) -> bool:
        """Tell whether it is a text in quotes."""
        return self.word[:1] in ('"', "'")

    @property
    def is_number(self) -> bool:
        """Tell whether it is a number."""
        return self.word[:1].isdigit() or (self.word[:1] == "." and self.word[1:2].isdigit())

    @property
    def name(self) -> str:
        """Return the name without its backticks."""
        return self.word[1:-1].replace("``", "`") if self.word[:1] == "`" else self.word


class Cursor:
    """The tokens of one definition, read from left to right; an empty one stands at the end."""

    def __init__(self, source: str, text: str, tokens: list[Token]) -> None:
        self.source = source
        self.text = text
        self.start: Final = tokens[0].offset
        last = tokens[-1]
        self._tokens = [*tokens, Token("", last.offset + len(last.word))]
        self.at = 0

    @property
    def line(self) -> int:
        """Return the line in which the definition begins."""
        return self.text.count("\n", 0, self.start) + 1

    @property
    def current(self) -> Token:
        """Return the token that is next to be read."""
        return self._tokens[self.at]

    def take(self) -> Token:
        """Return the current token and step over it."""
        token = self.current
        if token.word:
            self.at += 1
        return token

    def skip(self, word: str) -> bool:
        """Step over a word if it comes next."""
        found = self.current.word == word
        self.at += found
        return found

    def follows(self, word: str) -> bool:
        """Tell whether a word stands behind the current token."""
        return bool(self.current.word) and self._tokens[self.at + 1].word == word

    def expect(self, word: str, where: str) -> None:
        """Step over a word that must come next."""
        if not self.skip(word):
            raise self.error(f'"{word}" is missing {where}')

    def end(self) -> None:
        """Refuse anything more."""
        if self.current.word:
            raise self.error(f'nothing more can stand here, but "{self.current.word}" does')

    def error(
        self, reason: str, at: Token | None = None, *, hint: str = "", known: Iterable[str] = ()
    ) -> WorkloadError:
        """Return an error at a token, by default the current one."""
        token = at or self.current
        return WorkloadError(
            reason,
            source=self.source,
            text=self.text,
            offset=token.offset,
            hint=hint or did_you_mean(token.word, known),
        )

    # --- small things that stand in many places -------------------------------------------------

    def name(self, what: str) -> Token:
        """Read a name."""
        token = self.take()
        if not token.is_name:
            raise self.error(f"{what} should stand here, not {shown(token)}", token)
        if token.word[:1] == "`" and (len(token.word) < 3 or token.word[-1] != "`"):
            raise self.error("this ` is never closed, or has nothing in it", token)
        return token

    def names(self, what: str) -> list[tuple[str, Token]]:
        """Read one name, or `f0..f9` for all from the first to the last."""
        first = self.name(what)
        if not self.skip(".."):
            return [(first.name, first)]
        last = self.name(f'{what} to end the range after ".."')
        return [(name, first) for name in self._between(first, last)]

    def _between(self, first: Token, last: Token) -> list[str]:
        ends = [_NUMBERED.fullmatch(token.name) for token in (first, last)]
        if ends[0] is None or ends[1] is None or ends[0][1] != ends[1][1]:
            raise self.error(
                f"{first.word}..{last.word} is no range of names", first, hint="write it as f0..f9"
            )
        low, high = int(ends[0][2]), int(ends[1][2])
        if not low <= high < low + _MOST_NAMES:
            raise self.error(
                f"{first.word}..{last.word} should be 1 to {_MOST_NAMES:,} names", first
            )
        return [f"{ends[0][1]}{number}" for number in range(low, high + 1)]

    def number(self, what: str) -> Decimal:
        """Read a number, with its sign."""
        negative = self.skip("-")
        token = self.take()
        if not token.is_number or token.word[:2].lower() in ("0x", "0b"):
            raise self.error(f"{what} should stand here, not {shown(token)}", token)
        try:
            value = Decimal(token.word)
        except InvalidOperation:
            value = Decimal("Infinity")
        # What follows may write a number out in full.
        if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
            raise self.error("the number is beyond what 64 bits can hold", token)
        return -value if negative else value

    def whole(self, what: str, least: int, most: int) -> int:
        """Read a whole number within bounds."""
        at = self.current
        value = self.number(what)
        if value != int(value) or not least <= value <= most:
            raise self.error(f"{what} is a whole number from {least:,} to {most:,}", at)
        return int(value)

    def percentage(self) -> float | None:
        """Read `40%` if one comes next."""
        if not (self.current.is_number and self.follows("%")):
            return None
        at = self.current
        value = self.number("a percentage")
        self.take()
        if not 0 < value <= 100:
            raise self.error("a percentage is more than 0 and at most 100", at)
        return float(value) / 100


def shown(token: Token) -> str:
    """Return a token as a sentence names it."""
    return f'"{token.word[:30]}"' if token.word else "the end of the definition"


def definitions(source: str, text: str) -> Iterator[Cursor]:
    """Yield the definitions: each begins at the margin, and indented lines continue it."""
    if len(text) > LONGEST:
        raise WorkloadError(
            f"the file has {len(text):,} characters, and the limit is {LONGEST:,}", source=source
        )
    gathered: list[Token] = []
    for found in _TOKEN.finditer(text):
        if found["comment"] is not None:
            continue
        at_margin = found.start() == 0 or text[found.start() - 1] == "\n"
        if at_margin and gathered:
            yield Cursor(source, text, gathered)
            gathered = []
        token = Token(found.group(), found.start())
        if not gathered and not at_margin:
            raise Cursor(source, text, [token]).error(
                "an indented line continues a definition, and there is none above", token
            )
        gathered.append(token)
    if gathered:
        yield Cursor(source, text, gathered)


def evened(cursor: Cursor, weights: list[float | None], start: Token) -> list[float]:
    """Return probabilities that sum to 1: all given, or none, which makes all equally likely."""
    given = [weight for weight in weights if weight is not None]
    if not given:
        return [1 / len(weights)] * len(weights)
    if len(given) < len(weights):
        raise cursor.error(
            "some of the alternatives have a percentage and some have none",
            start,
            hint="give one to all of them, or to none",
        )
    total = sum(given)
    # Thirds and the like cannot be written in full.
    if abs(total - 1) > 0.001:
        raise cursor.error(
            f"the percentages of the alternatives sum to {100 * total:.6g}%, not to 100%", start
        )
    return [weight / total for weight in given]
