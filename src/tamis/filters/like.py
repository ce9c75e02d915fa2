"""SQL's LIKE in time linear in the text: the pieces between % are found one after the other.

The leftmost place of each piece is always right, so no place is tried twice. A piece with _ between
its characters is the exception: it is looked for at all places at once, as bits of large integers,
once for each of these characters. That is why a pattern may have only so many of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Final, NamedTuple

from tamis.errors import FilterTypeError, LimitError

ESCAPE: Final = "\\"

# On a text of a mebibyte each of them takes up to some tenths of a millisecond.
MAX_GAPPED_CHARACTERS: Final = 64
# Up to this many places times pieces are tried one by one, which is faster for short texts.
MAX_TRIED_ONE_BY_ONE: Final = 4_096


class LikePattern:
    """A compiled LIKE pattern."""

    def __init__(self, pattern: str) -> None:
        """Compile a pattern, or raise FilterTypeError, or LimitError if it has too many gaps."""
        parts = like_parts(pattern)
        groups = groupby(parts, lambda part: part[1] == "%")
        pieces = [_Piece.of(group) for is_any, group in groups if not is_any]
        self._is_fixed = all(wildcard != "%" for _, wildcard in parts)
        self._first = self._last = _NOTHING
        if pieces and parts[0][1] != "%":
            self._first = pieces.pop(0)
        if pieces and parts[-1][1] != "%":
            self._last = pieces.pop()
        self._middle: Final = pieces
        gapped = sum(piece.characters for piece in pieces if len(piece.runs) > 1)
        if gapped > MAX_GAPPED_CHARACTERS:
            raise LimitError(
                f"characters with _ between them in the LIKE pattern {pattern[:60]!r}",
                actual=gapped,
                limit=MAX_GAPPED_CHARACTERS,
            )

    def fits(self, text: str) -> bool:
        """Return whether the whole text fits the pattern."""
        place, end = self._first.length, len(text) - self._last.length
        if place > end or (self._is_fixed and place < end):
            return False
        if self._first.runs and not self._first.stands_at(0, text):
            return False
        if self._last.runs and not self._last.stands_at(end, text):
            return False
        bits: TextBits = {}
        for piece in self._middle:
            # Most pieces are plain texts, and most patterns are tried on many texts.
            plain = piece.plain
            place = text.find(plain, place, end) if plain else piece.find(text, place, end, bits)
            if place < 0:
                return False
            place += piece.length
        return True

    @property
    def literal(self) -> str:
        """Return the longest text that every text which fits contains; it may be empty."""
        pieces = (self._first, *self._middle, self._last)
        return max((run for piece in pieces for _, run in piece.runs), key=len, default="")


TextBits = dict[str, int]
"""For some characters, integers whose bit n is set if the character stands at n in a text."""


def _bits_of(character: str, text: str, known: TextBits) -> int:
    if character not in known:
        import numpy as np  # noqa: PLC0415 - a costly import, for long texts only

        # A byte for each character, if that is enough: it is four times as fast.
        encoding, code = ("ascii", "u1") if text.isascii() else ("utf-32-le", "<u4")
        codes = np.frombuffer(text.encode(encoding, "surrogatepass"), code)
        packed = np.packbits(codes == ord(character), bitorder="little")
        known[character] = int.from_bytes(packed.tobytes(), "little")
    return known[character]


class _Piece(NamedTuple):
    """A part of a pattern without %: texts at their offsets, and anything between them."""

    length: int
    runs: tuple[tuple[int, str], ...]
    plain: str
    """The piece itself if it has no _; otherwise empty."""

    @classmethod
    def of(cls, parts: Iterable[tuple[str, str | None]]) -> _Piece:
        """Return the piece of some literal texts and _."""
        length, runs = 0, list[tuple[int, str]]()
        for text, wildcard in parts:
            if wildcard is None:
                runs.append((length, text))
            length += len(text) if wildcard is None else 1
        is_plain = len(runs) == 1 and len(runs[0][1]) == length
        return cls(length, tuple(runs), runs[0][1] if is_plain else "")

    @property
    def characters(self) -> int:
        """Return how many characters are given."""
        return sum(len(run) for _, run in self.runs)

    def stands_at(self, place: int, text: str) -> bool:
        """Return whether the piece stands at a place where the text is long enough for it."""
        return all(text.startswith(run, place + offset) for offset, run in self.runs)

    def find(self, text: str, first: int, end: int, bits: TextBits) -> int:
        """Return the leftmost place from `first` on, such that it ends by `end`; otherwise -1."""
        if end - first < self.length:
            return -1
        if not self.runs:
            return first
        if len(self.runs) > 1 and (end - first) * len(self.runs) > MAX_TRIED_ONE_BY_ONE:
            return self._find_at_once(text, first, end, bits)
        offset, run = self.runs[0]
        last = end - self.length + offset + len(run)
        found = text.find(run, first + offset, last)
        while found >= 0 and not self.stands_at(found - offset, text):
            found = text.find(run, found + 1, last)
        return found - offset if found >= 0 else -1

    def _find_at_once(self, text: str, first: int, end: int, bits: TextBits) -> int:
        places = (1 << (end - first - self.length + 1)) - 1
        for offset, run in self.runs:
            for at, character in enumerate(run, first + offset):
                places &= _bits_of(character, text, bits) >> at
            if not places:
                return -1
        return first + (places & -places).bit_length() - 1


_NOTHING: Final = _Piece(0, (), "")


@lru_cache(maxsize=4096)
def compile_like(pattern: str) -> LikePattern:
    """Return the compiled pattern."""
    return LikePattern(pattern)


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
