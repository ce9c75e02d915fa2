"""What every text that a regular expression matches contains.

Only the top level of the expression is looked at, and anything unusual ends the search: to find
nothing is always right, and only costs the time of trying the expression.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

# Punctuation after a backslash stands for itself. These stand for a class, a position or a control
# character; what other letters and digits stand for may be longer than one character.
_SHORT_ESCAPES: Final = frozenset("dDwWsSbBAztnrfva")

_REPETITION: Final = re.compile(r"(?:[*+?]|\{(?P<least>\d+)(?:,\d*)?\})\??")
_FLAGS: Final = re.compile(r"\(\?([imsU]+)\)")
_CLASS: Final = re.compile(
    r"\[\^?\]?(?:\[:\^?\w+:\]|\\(?:[^\w\s]|[dDwWsSpP]|[tnrfva])|[^\]\\])*\]", re.ASCII
)


class RequiredLiteral(NamedTuple):
    """A text that is in every text that a regular expression matches; empty if none is known."""

    text: str
    ignores_case: bool
    """Whether it is in the text without regard to case, as `str.casefold` sees it."""


NO_LITERAL: Final = RequiredLiteral("", ignores_case=False)


@lru_cache(maxsize=4096)
def required_literal(pattern: str) -> RequiredLiteral:
    r"""Return the longest literal that a pattern of RE2 surely requires.

    >>> required_literal(r"^order \d+ (shipped|lost) today")
    RequiredLiteral(text='order ', ignores_case=False)
    >>> required_literal("(?i)Trading in .* suspended")
    RequiredLiteral(text='trading in ', ignores_case=True)
    >>> required_literal("error|warning").text
    ''
    """
    flags, at = "", 0
    while leading := _FLAGS.match(pattern, at):
        flags, at = flags + leading[1], leading.end()
    runs = _runs(pattern, at)
    longest = max(runs or [""], key=len)
    if "i" not in flags:
        return RequiredLiteral(longest, ignores_case=False)
    # What folds to characters outside of ASCII is left to RE2.
    return RequiredLiteral(longest.lower(), ignores_case=True) if longest.isascii() else NO_LITERAL


def _runs(pattern: str, at: int) -> list[str] | None:
    """Return the literals in a row at the top level; None if there may be others instead."""
    runs = [""]
    while at < len(pattern):
        literal, end = _atom(pattern, at)
        if end < 0:
            return None
        repetition = _REPETITION.match(pattern, end)
        if repetition is None:
            if literal:
                runs[-1] += literal
            else:
                runs.append("")
            at = end
            continue
        least = repetition["least"]
        is_optional = repetition[0][0] in "*?" if least is None else int(least) == 0
        if literal and not is_optional:
            runs[-1] += literal
        runs.append("")
        at = repetition.end()
    return runs


def _atom(pattern: str, at: int) -> tuple[str, int]:
    """Return the literal that stands at a place, or "", and where it ends; -1: who knows."""
    character = pattern[at]
    match character:
        case "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped in _SHORT_ESCAPES:
                return "", at + 2
            is_itself = escaped.isascii() and escaped.isprintable() and not escaped.isalnum()
            return (escaped, at + 2) if escaped and is_itself else ("", -1)
        case "[":
            class_ = _CLASS.match(pattern, at)
            return "", class_.end() if class_ else -1
        case "(":
            return "", _end_of_group(pattern, at)
        case "." | "^" | "$":
            return "", at + 1
        case "|" | ")" | "*" | "+" | "?" | "{":
            return "", -1
        case _:
            return character, at + 1


def _end_of_group(pattern: str, at: int) -> int:
    """Return where a group ends; -1 if it has flags for all that follows, or who knows."""
    if _FLAGS.match(pattern, at) or pattern.startswith("(?-", at):
        return -1
    inside = re.match(r"\(\?(?:P?<\w+>|[imsU]*(?:-[imsU]+)?:)|\((?!\?)", pattern[at:])
    if inside is None:
        return -1
    at += inside.end()
    while at < len(pattern):
        if pattern[at] == ")":
            return at + 1
        if pattern[at] in "|*+?":
            at += 1
            continue
        repetition = _REPETITION.match(pattern, at)
        at = repetition.end() if repetition else _atom(pattern, at)[1]
        if at < 0:
            return -1
    return -1
