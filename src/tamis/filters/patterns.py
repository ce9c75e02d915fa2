"""Text patterns in linear time: RE2, and SQL's LIKE on top of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import re2

from tamis.errors import FilterTypeError

ESCAPE: Final = "\\"

# A LIKE pattern of up to this many characters is never too large for RE2.
SAFE_PATTERN_CHARACTERS: Final = 256


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Return an object if the pattern is found in `text`, otherwise None."""


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Pattern:
    """Return the compiled RE2 pattern, or raise FilterTypeError.

    RE2 takes time linear in the text, whatever the pattern, and refuses patterns whose automaton
    would be large.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise FilterTypeError(f"the pattern {pattern[:60]!r} cannot be used: {reason}") from None
    return compiled


@lru_cache(maxsize=4096)
def compile_like(pattern: str) -> Pattern:
    """Return the RE2 pattern that a LIKE pattern stands for."""
    parts = (
        re2.escape(text) if wildcard is None else {"%": ".*", "_": "."}[wildcard]
        for text, wildcard in like_parts(pattern)
    )
    return compile_pattern(f"(?s)\\A{''.join(parts)}\\z")


def like_parts(pattern: str) -> list[tuple[str, str | None]]:
    r"""Return the literal texts (text, None) and the wildcards ("", "%" or "_") of a pattern.

    >>> like_parts(r"10\%_of%")
    [('10%', None), ('', '_'), ('of', None), ('', '%')]
    """
    parts: list[tuple[str, str | None]] = []
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            if literal:
                parts.append(("".join(literal), None))
                literal.clear()
            parts.append(("", character))
        elif character == ESCAPE:
            literal.append(_escaped(next(characters, None), pattern))
        else:
            literal.append(character)
    if literal:
        parts.append(("".join(literal), None))
    return parts


def like_text(text: str) -> str:
    r"""Return the LIKE pattern that means exactly `text`.

    >>> like_text("100%")
    '100\\%'
    """
    return "".join(ESCAPE + c if c in "%_\\" else c for c in text)


def _escaped(character: str | None, pattern: str) -> str:
    if character is None or character not in "%_\\":
        raise FilterTypeError(
            f"in the LIKE pattern {pattern[:60]!r} a backslash precedes "
            f"{'the end' if character is None else repr(character)}; it may precede "
            "%, _ or another backslash"
        )
    return character
