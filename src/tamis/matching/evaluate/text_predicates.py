"""The tests of one attribute's text, by index: which texts of a batch pass which tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple, Protocol, cast

import numpy as np
import re2
from ahocorasick_rs import BytesAhoCorasick
from numpy.typing import NDArray

from tamis.diagrams.atom_intervals import text_predicate_of
from tamis.events.columns import Entries
from tamis.filters.atoms import Like, ValueAtom
from tamis.filters.patterns import compile_like
from tamis.matching.evaluate.batch_kernels import gather_holders, mark_holders

# Bytes of a text that go through an automaton at a time. It lists every single occurrence, and
# those of a long text would fill the memory.
SCAN_BYTES: Final = 16 * 1024

# A set of patterns grows its automaton as it meets texts, up to so many bytes; then it begins
# again from nothing, which costs time but changes no answer.
PATTERN_SET_BYTES: Final = 32 * 1024 * 1024


class Placed(NamedTuple):
    """A test of text, and its place among all tests."""

    place: int
    atom: ValueAtom
    text: str
    """The part, ending or pattern that it asks for."""


class Finder(Protocol):
    """Some tests of text."""

    def find(self, text: str) -> Iterable[int]:
        """Return the places of the tests that a text passes, each once."""


class EachFinder:
    """Tries one test after the other."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._region_nodes: Final = [(test.place, test.atom.accepts) for test in tests]

    def find(self, text: str) -> Iterable[int]:
        """Return the places of the tests that a text passes."""
        return [place for place, accepts in self._region_nodes if accepts(text)]


class PartFinder:
    """Finds which of some different parts a text contains, by one automaton (Aho-Corasick)."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        parts = [_bytes(test.text) for test in tests]
        self._places: Final = [test.place for test in tests]
        self._automaton: Final = BytesAhoCorasick(parts)
        self._overlap: Final = max(map(len, parts)) - 1
        self._stride: Final = max(SCAN_BYTES, self._overlap)

    def find(self, text: str) -> Iterable[int]:
        """Return the places of the parts that a text contains."""
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) <= self._stride:
            # Written out here, since most texts are short: it saves a call for each of them.
            matches = self._automaton.find_matches_as_indexes(encoded, overlapping=True)
            return {self._places[number] for number, _, _ in matches}
        pieces = range(0, len(encoded), self._stride)
        length = self._stride + self._overlap
        return set[int]().union(*(self._find(encoded[at : at + length]) for at in pieces))

    def _find(self, piece: bytes) -> set[int]:
        matches = self._automaton.find_matches_as_indexes(piece, overlapping=True)
        return {self._places[number] for number, _, _ in matches}


class EndingFinder:
    """Finds which of some different endings a text has: one look-up for each of their lengths."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._places: Final = {test.text: test.place for test in tests}
        self._lengths: Final = sorted({len(test.text) for test in tests})

    def find(self, text: str) -> Iterable[int]:
        """Return the places of the endings that a text has."""
        whole = len(text)
        endings = (text[whole - length :] for length in takewhile(whole.__ge__, self._lengths))
        return [self._places[ending] for ending in endings if ending in self._places]


class PatternFinder:
    """Finds which of some patterns fit a text, by one automaton (RE2)."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        """Join the patterns, or raise `re2.error` where they are too large together."""
        self._places: Final = [test.place for test in tests]
        self._each: Final = EachFinder(tests)
        options = re2.Options()
        options.log_errors = False
        options.max_mem = PATTERN_SET_BYTES
        self._set: Final = re2.Set.SearchSet(options)
        for test in tests:
            self._set.Add(_expression(test.atom))
        # A set that ran out of memory says the same as one in which nothing fits. This fits
        # every text, so an answer without it is none.
        self._set.Add("")
        self._set.Compile()

    def find(self, text: str) -> Iterable[int]:
        """Return the places of the patterns that fit a text."""
        found: list[int] | None = self._set.Match(text)
        if found is None:
            return self._each.find(text)
        return [self._places[number] for number in found if number < len(self._places)]


def pattern_finders(tests: Sequence[Placed]) -> list[Finder]:
    """Return as few finders for patterns as the patterns' size allows."""
    if len(tests) == 1:
        return [EachFinder(tests)]
    try:
        return [PatternFinder(tests)]
    except re2.error:
        half = len(tests) // 2
        return pattern_finders(tests[:half]) + pattern_finders(tests[half:])


def _expression(atom: ValueAtom) -> str:
    """Return what `accepts` looks for, as RE2 reads it."""
    compiled: Any = compile_like(atom.pattern) if isinstance(atom, Like) else atom
    return cast("str", compiled.pattern)


def _bytes(text: str) -> bytes:
    # One text is a part of another exactly where its bytes are a part of the other's. That holds
    # of lone surrogates too, though no event has any.
    return text.encode("utf-8", "surrogatepass")


# So few parts or endings are tried as fast as they are found, and nothing has to be built. Trying
# a pattern costs more: a set is faster from two on.
MIN_AUTOMATON_TEXTS: Final = 8

# A part that ends with so many other parts is tried alone: an automaton would list all of them
# wherever it finds the one.
MAX_NESTING: Final = 16

# What so many texts pass is handed on at a time, so that it never fills the memory.
TEXTS_PER_PASS: Final = 256


class TextIndex:
    """The tests of one attribute's text, and the row of each that says which events pass it."""

    def __init__(self) -> None:
        self._atoms: list[ValueAtom] = []
        self._rows: list[int] = []
        self._row_asking: dict[tuple[str, str], int] = {}
        self._copies: dict[int, int] = {}

    def add(self, row: int, atom: ValueAtom) -> None:
        """Add a test; its results go to this row."""
        asked = asked_by(atom)
        if asked in self._row_asking:
            self._copies[row] = self._row_asking[asked]
            return
        self._row_asking[asked] = row
        self._rows.append(row)
        self._atoms.append(atom)

    @cached_property
    def _finders(self) -> list[Finder]:
        groups: dict[str, list[Placed]] = {}
        for row, atom in zip(self._rows, self._atoms, strict=True):
            op, text = asked_by(atom)
            groups.setdefault(op, []).append(Placed(row, atom, text))
        return [finder for op, tests in groups.items() for finder in FINDERS.get(op, _each)(tests)]

    def set_rows(self, entries: Entries, rows: NDArray[np.bool_]) -> None:
        """Mark in the row of each test the events that pass it."""
        starts = np.zeros(len(entries.texts) + 1, np.int64)
        holders = np.empty(len(entries.events), np.int32)
        gather_holders(entries.values, entries.events, starts, holders)
        for first in range(0, len(entries.texts), TEXTS_PER_PASS):
            texts = entries.texts[first : first + TEXTS_PER_PASS]
            # For each text the rows of the tests that it passes.
            found = [
                [row for finder in self._finders for row in finder.find(text)] for text in texts
            ]
            counts = [len(passed) for passed in found]
            passed = np.fromiter(chain.from_iterable(found), np.int32, sum(counts))
            places = np.arange(first, first + len(found), dtype=np.int32)
            mark_holders(passed, np.repeat(places, counts), starts, holders, rows)
        if self._copies:
            rows[[*self._copies]] = rows[[*self._copies.values()]]


def asked_by(atom: ValueAtom) -> tuple[str, str]:
    """Return the plainest operator and text that mean the same as a test of text."""
    return text_predicate_of(atom).key


def _part_finders(tests: Sequence[Placed]) -> list[Finder]:
    if len(tests) < MIN_AUTOMATON_TEXTS:
        return _each(tests)
    levels = nesting([test.text for test in tests])
    plain = [test for test, level in zip(tests, levels, strict=True) if level < MAX_NESTING]
    nested = [test for test, level in zip(tests, levels, strict=True) if level >= MAX_NESTING]
    return [PartFinder(plain), EachFinder(nested)] if nested else [PartFinder(plain)]


def _ending_finders(tests: Sequence[Placed]) -> list[Finder]:
    return _each(tests) if len(tests) < MIN_AUTOMATON_TEXTS else [EndingFinder(tests)]


def _each(tests: Sequence[Placed]) -> list[Finder]:
    return [EachFinder(tests)]


# By operator; every other one, such as `within` a long text, is rare.
FINDERS: Final[dict[str, Callable[[Sequence[Placed]], list[Finder]]]] = {
    "contains": _part_finders,
    "ends with": _ending_finders,
    "like": pattern_finders,
    "matches": pattern_finders,
}


def nesting(parts: Sequence[str]) -> list[int]:
    """Return for each of different texts how many of the others it ends with.

    >>> nesting(["and", "hand", "d", "or"])
    [1, 2, 0, 0]
    """
    backward = [part[::-1] for part in parts]
    levels = [0] * len(parts)
    around: list[str] = []
    # What a text ends with it begins with backward, so it comes before it in this order.
    for place in sorted(range(len(parts)), key=backward.__getitem__):
        while around and not backward[place].startswith(around[-1]):
            around.pop()
        levels[place] = len(around)
        around.append(backward[place])
    return levels
