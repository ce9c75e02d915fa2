"""Limits of a workload file, so that reading one takes about a second at most."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from typing import Final

LIMITS: Final = {
    "characters": 256 * 1024,
    "table headers": 4_000,
    "dots in a key": 16,
    "digits in a number": 400,
    "levels of brackets": 32,
    "characters in a name": 250,
    "rules": 100,  # They lead to each other by calls, and the interpreter's stack is finite.
    "pools": 100,
    "alternatives": 10_000,
    "characters in a template": 10_000,
    "words in templates": 30_000,
    "words in a filter, on average": 20_000,
    "characters of filters to check": 1_000_000,
    "texts": 200_000,
    "characters in texts": 16_000_000,
    "weights": 12_000_000,
    "forms": 1_000,
    "attributes in forms": 50_000,
}
"""For the whole file, unless the name says otherwise."""

# Possessive quantifiers and lookbehinds: scanning is linear.
_QUOTED_OR_COMMENT: Final = re.compile(
    r'''"""(?:[^"\\]|\\.|"{1,2}(?!"))*+(?:"{3,5})? | '{3}(?:[^']|'{1,2}(?!'))*+(?:'{3,5})?
    | "(?:[^"\\\n]|\\.)*+"? | '[^'\n]*+'? | \#[^\n]*+''',
    re.VERBOSE | re.DOTALL,
)
_HEADER: Final = re.compile(r"^[ \t]*+\[", re.MULTILINE)
_DOTTED_KEY: Final = re.compile(
    rf'(?<![\w"-])(?:[\w"-]++[ \t]*+\.[ \t]*+){{{LIMITS["dots in a key"] + 1}}}'
)
_LONG_NUMBER: Final = re.compile(rf"(?<!\w)[0-9]\w{{{LIMITS['digits in a number']},}}+")
_BRACKET: Final = re.compile(r"[\[\]{}]")


class Mistake(Exception):  # noqa: N818 - it becomes a WorkloadError, which knows the file
    """A mistake in a workload file: its key, the reason, and how to fix it."""

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.key = _shortened(key, 100)
        self.reason = _shortened(reason, 600)
        self.hint = hint


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Usage:
    """How much of its limits a file uses."""

    def __init__(self) -> None:
        self._used = Counter[str]()

    def add(self, key: str, what: str, count: int) -> None:
        """Count something of which the file has a limited number in all."""
        self._used[what] += count
        check_limit(key, what, self._used[what])


def check_limit(key: str, what: str, count: float, where: str = "a workload file") -> None:
    """Refuse more of something than the limit."""
    if count > LIMITS[what]:
        raise Mistake(key, f"{where} has at most {LIMITS[what]:,} {what}")


def check_file_text(text: str) -> None:
    """Refuse a file that tomllib would read slowly or fail on."""
    check_limit("", "characters", len(text))
    bare = _QUOTED_OR_COMMENT.sub(_blank, text)
    check_limit("", "table headers", len(_HEADER.findall(bare)))
    steps = (1 if found in "[{" else -1 for found in _BRACKET.findall(bare))
    check_limit("", "levels of brackets", max(accumulate(steps), default=0))
    for what, pattern in (("dots in a key", _DOTTED_KEY), ("digits in a number", _LONG_NUMBER)):
        if found := pattern.search(bare):
            line = bare.count("\n", 0, found.start()) + 1
            raise Mistake("", f"line {line} has more than {LIMITS[what]} {what}")


def _blank(found: re.Match[str]) -> str:
    return "" if found[0][0] == "#" else '""' + "\n" * found[0].count("\n")
