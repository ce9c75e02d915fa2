"""Texts that a regular expression matches, by a walk over the expression.

The walk knows the usual syntax. What it does not know, it skips or gives up on, so an example is a
guess, which RE2 has to confirm.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

# Longer patterns and examples are not worth the time.
MAX_PATTERN_CHARACTERS: Final = 1_024
MAX_EXAMPLE_CHARACTERS: Final = 1_024
# Each example takes other alternatives, members of classes and counts of repetitions.
MAX_EXAMPLES: Final = 6

_REPETITION: Final = re.compile(r"(?:([*+?])|\{([0-9]{1,4})(,?)([0-9]{0,4})\})[?+]?")
_GROUP: Final = re.compile(r"\((?:\?(?:P?<\w{1,64}>|[imsU-]{0,8}:))?")
_FLAGS: Final = re.compile(r"\(\?[imsU-]{1,8}\)")
_CLASS_MEMBER: Final = re.compile(r"\[:(\^?)(\w{1,8}):\]|\\(.)|(.)", re.DOTALL)

_OF_ESCAPE: Final = {
    "d": "07", "D": "a!", "w": "a0", "W": "! ", "s": " \t", "S": "a0",
    "t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a",
}  # fmt: skip
_POSITIONS: Final = "bBAzQE"
_OF_NAMED_CLASS: Final = {
    "alpha": "ab", "digit": "07", "alnum": "a0", "upper": "AB", "lower": "ab", "space": " \t",
    "punct": "!.", "xdigit": "0a", "word": "a0",
}  # fmt: skip
# Members of the class of all characters, for `.` and for classes that exclude some.
_ANY: Final = "x0 _-.AZ\u00e9"


class PatternExample(NamedTuple):
    """A text in which a pattern is probably found, and where in a longer text it may stand."""

    text: str
    at_start: bool
    """Whether nothing may stand before it."""
    at_end: bool


class _OpenGroup:
    """A group that is still open: its finished alternatives, and the pieces of the current one."""

    def __init__(self) -> None:
        self.alternatives: list[str] = []
        self.pieces: list[str] = []

    def close(self, variant: int) -> str:
        self.alternatives.append("".join(self.pieces))
        return self.alternatives[variant % len(self.alternatives)]


@lru_cache(maxsize=4096)
def pattern_examples(pattern: str) -> tuple[PatternExample, ...]:
    r"""Return a few texts that a pattern probably matches.

    >>> [example.text for example in pattern_examples("(a|b)c[0-9]{3}")]
    ['ac000', 'bc111', 'ac222', 'bc333', 'ac444', 'bc555']
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        return ()
    found = (_PatternWalk(pattern, variant).example() for variant in range(MAX_EXAMPLES))
    return tuple(dict.fromkeys(example for example in found if example is not None))


class _PatternWalk:
    """One walk over a pattern; its variant decides wherever there is a choice."""

    def __init__(self, pattern: str, variant: int) -> None:
        self._pattern = pattern
        self._variant = variant
        self._at = 0
        self._at_start = self._at_end = False

    def example(self) -> PatternExample | None:
        groups = [_OpenGroup()]
        while self._at < len(self._pattern):
            if not self._step(groups):
                return None
        if len(groups) > 1:
            return None
        text = groups[0].close(self._variant)
        return PatternExample(text, self._at_start, self._at_end)

    def _step(self, groups: list[_OpenGroup]) -> bool:
        """Read one item of the pattern; return whether it was understood."""
        character = self._pattern[self._at]
        if character == "(":
            return self._open(groups)
        if character == "|":
            groups[-1].alternatives.append("".join(groups[-1].pieces))
            groups[-1].pieces = []
            self._at += 1
            return True
        if character == ")":
            if len(groups) == 1:
                return False
            self._at += 1
            piece = groups.pop().close(self._variant)
            return self._add(piece, groups[-1])
        choices = self._choices(character)
        if choices is None:
            return False
        return self._add(choices and choices[self._variant % len(choices)], groups[-1])

    def _open(self, groups: list[_OpenGroup]) -> bool:
        flags = _FLAGS.match(self._pattern, self._at)
        if flags:
            self._at = flags.end()
            return True
        group = _GROUP.match(self._pattern, self._at)
        if group is None or self._pattern.startswith("?", group.end()):
            return False
        self._at = group.end()
        groups.append(_OpenGroup())
        return True

    def _add(self, piece: str, group: _OpenGroup) -> bool:
        """Add a piece as often as the repetition after it wants."""
        times = 1
        repetition = _REPETITION.match(self._pattern, self._at)
        if repetition:
            self._at = repetition.end()
            times = self._times(repetition)
        if len(piece) * times > MAX_EXAMPLE_CHARACTERS or len(group.pieces) > len(self._pattern):
            return False
        group.pieces.append(piece * times)
        return True

    def _times(self, repetition: re.Match[str]) -> int:
        sign, least, _, most = repetition.groups()
        if sign:
            return {"*": 0, "+": 1, "?": 0}[sign] + self._variant % 2
        return min(int(least) + self._variant % 2, int(most)) if most else int(least)

    def _choices(self, character: str) -> str | None:
        """Return the characters that may stand here, none for a position; None is not known."""
        self._at += 1
        match character:
            case "^":
                self._at_start = True
                return ""
            case "$":
                self._at_end = True
                return ""
            case ".":
                return _ANY
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                return None
            case _:
                return character

    def _escape(self) -> str | None:
        escaped = self._pattern[self._at : self._at + 1]
        self._at += 1
        if escaped in _OF_ESCAPE:
            return _OF_ESCAPE[escaped]
        if escaped and escaped in _POSITIONS:
            self._at_start |= escaped == "A"
            self._at_end |= escaped == "z"
            return "" if escaped not in "QE" else None
        return escaped if escaped and not escaped.isalnum() else None

    def _class(self) -> str | None:
        """Read a class; return some of its members."""
        negated = self._pattern.startswith("^", self._at)
        self._at += negated
        members: list[str] = []
        first = True
        while first or not self._pattern.startswith("]", self._at):
            found = _CLASS_MEMBER.match(self._pattern, self._at)
            if found is None:
                return None
            self._at = found.end()
            first = False
            if not self._add_member(found, members):
                return None
        self._at += 1
        inside = "".join(members)
        if not negated:
            return inside or None
        return "".join(c for c in _ANY if c not in inside) or None

    def _add_member(self, found: re.Match[str], members: list[str]) -> bool:
        inverted, named, escaped, plain = found.groups()
        if named:
            members.append(_OF_NAMED_CLASS.get(named, "") if not inverted else "")
            return named in _OF_NAMED_CLASS
        if escaped:
            if escaped.isalnum() and escaped not in _OF_ESCAPE:
                return False
            members.append(_OF_ESCAPE.get(escaped, escaped))
            return True
        range_ = re.compile(r"-([^\]\\])").match(self._pattern, self._at)
        if range_:
            self._at = range_.end()
            members.append(_some_between(plain, range_[1]))
        else:
            members.append(plain)
        return True


def _some_between(first: str, last: str) -> str:
    """Return some characters of a range: the first few, and the last."""
    codes = [*range(ord(first), min(ord(first) + MAX_EXAMPLES, ord(last) + 1)), ord(last)]
    return "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
