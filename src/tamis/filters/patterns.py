"""Regular expressions: RE2, which takes time linear in the text."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Protocol

import re2

from tamis.errors import FilterTypeError

# RE2 extends an automaton as it meets texts, up to this many bytes; then it goes on without one.
# Where an automaton does not help, more memory only delays that, and takes twice the time.
AUTOMATON_BYTES: Final = 1024 * 1024


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
        # What fits the memory of RE2's default is accepted, and gets less if it needs less.
        compiled: Pattern = _compiled(pattern, AUTOMATON_BYTES) or re2.compile(
            pattern, options=pattern_options()
        )
    except re2.error as error:
        raise FilterTypeError(f"the pattern {pattern[:60]!r} {_in_words(error)}") from None
    return compiled


# What RE2 calls the mistakes that people make.
_MISTAKES: Final = {
    "missing )": "has a ( that nothing closes",
    "unexpected )": "has a ) that nothing opened",
    "missing ]": "has a [ that nothing closes",
    "no argument for repetition operator": "has a {} with nothing before it to repeat",
    "bad repetition operator": "repeats a repetition: {}; write ( and ) around the inner one",
    "invalid repetition size": "repeats too often: {}; the most is 1000",
    "invalid escape sequence": "has {}, which RE2 does not know; write two backslashes for one",
    "invalid character class range": "has {}, which is not a range of characters",
    "invalid perl operator": "has {}, which RE2 does not know; it cannot look ahead or behind",
    "trailing \\": "ends with a single backslash",
}


def _in_words(error: re2.error) -> str:
    r"""Return what is wrong with a pattern, as the rest of a sentence.

    >>> _in_words(re2.error(b"missing ): (a"))
    'has a ( that nothing closes'
    """
    given = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error)
    for known, words in _MISTAKES.items():
        if given.startswith(known):
            return words.format(given.removeprefix(f"{known}: ")[:60])
    return f"cannot be used: {given}"


def _compiled(pattern: str, memory: int) -> Pattern | None:
    options = pattern_options()
    options.max_mem = memory
    try:
        compiled: Pattern = re2.compile(pattern, options=options)
    except re2.error:
        return None
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

    That is its worst case, for patterns such as `a.{50}b` on texts made for them, at up to 20 ns a
    step. Most patterns take one step for a character. Other than programs for UTF-8, those for
    bytes do not grow a hundredfold with a class such as `\pL`, and neither does the time.
    """
    options = pattern_options()
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        compiled = re2.compile(pattern.encode("utf-8", "surrogatepass"), options=options)
    except re2.error:
        # It names characters beyond those of a byte, such as \x{1F600}.
        compiled = compile_pattern(pattern)
    return int(compiled.programsize)
