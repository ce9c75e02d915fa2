"""Regular expressions: RE2, which takes time linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import re2

from tamis.errors import FilterTypeError


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
    try:
        compiled: Pattern = re2.compile(pattern, options=pattern_options())
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
        raise FilterTypeError(f"the pattern {pattern[:60]!r} cannot be used: {reason}") from None
    return compiled


def pattern_options() -> re2.Options:
    """Return the options of all patterns."""
    options = re2.Options()
    options.log_errors = False
    # Only whether it is found matters; keeping groups would cost a multiple.
    options.never_capture = True
    return options


@lru_cache(maxsize=4096)
def pattern_steps(pattern: str) -> int:
    r"""Return how many steps RE2 may take for one character: the length of the pattern's program.

    That is its worst case, for patterns such as `a.{50}b` on texts made for them, at 20 to 60 ns a
    step. Most patterns take one step for a character. Other than programs for UTF-8, those for
    bytes do not grow a hundredfold with a class such as `\pL`, and neither does the time.
    """
    options = pattern_options()
    options.encoding = re2.Options.Encoding.LATIN1
    compiled = re2.compile(pattern.encode("utf-8", "surrogatepass"), options=options)
    return int(compiled.programsize)
