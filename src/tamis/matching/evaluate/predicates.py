"""Tests that the value order cannot decide: text, bits, and comparisons of attributes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from itertools import chain, takewhile
from typing import Final, NamedTuple, Protocol

import numpy as np
import re2
from ahocorasick_rs import BytesAhoCorasick
from numpy.typing import NDArray

from tamis.diagrams.atom_intervals import text_predicate_of
from tamis.events import Kind, Schema
from tamis.events.batch import NO_COLUMN, EventBatch
from tamis.events.columns import Entries
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import HasBits, TextTest, ValueAtom
from tamis.filters.like import compile_like
from tamis.filters.patterns import pattern_options, pattern_steps
from tamis.matching.compile.vocabulary import Predicate
from tamis.matching.evaluate.batch_kernels import gather_holders, mark_holders
from tamis.matching.evaluate.relations import Operands, find_related

# --- sets of text predicates ----------------------------------------------------------------------


# Bytes of a text that go through an automaton at a time. It lists every occurrence, and those of a
# long text would fill the memory.
SCAN_BYTES: Final = 16 * 1024

# A pattern set extends its automaton as it meets texts, up to this many bytes; then it starts over,
# which costs time but changes no answer.
PATTERN_SET_BYTES: Final = 32 * 1024 * 1024


# A set's automaton does not give up where it does not help. A text is tried pattern by pattern if
# the set could take longer than half a second for it, at up to 40 ns for each step and character.
# All texts are, once one has taken this long.
MAX_SET_STEPS: Final = 12_000_000
SLOW_SET_SECONDS: Final = 0.02


class Placed(NamedTuple):
    """A text predicate and its index."""

    place: int
    atom: ValueAtom
    text: str
    """The substring, suffix or pattern to look for."""


class Finder(Protocol):
    """A set of text predicates."""

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates that a text passes, each once."""


class EachFinder:
    """Tries one predicate after another."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._region_nodes: Final = [(test.place, test.atom.accepts) for test in tests]

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates that a text passes."""
        return [place for place, accepts in self._region_nodes if accepts(text)]


class PartFinder:
    """Finds which substrings a text contains, with one automaton (Aho-Corasick)."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        parts = [_bytes(test.text) for test in tests]
        self._places: Final = [test.place for test in tests]
        self._automaton: Final = BytesAhoCorasick(parts)
        self._overlap: Final = max(map(len, parts)) - 1
        self._stride: Final = max(SCAN_BYTES, self._overlap)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the substrings that a text contains."""
        encoded = text.encode("utf-8", "surrogatepass")
        if len(encoded) <= self._stride:
            # Inlined, since most texts are short: it saves a call for each of them.
            matches = self._automaton.find_matches_as_indexes(encoded, overlapping=True)
            return {self._places[number] for number, _, _ in matches}
        pieces = range(0, len(encoded), self._stride)
        length = self._stride + self._overlap
        return set[int]().union(*(self._find(encoded[at : at + length]) for at in pieces))

    def _find(self, piece: bytes) -> set[int]:
        matches = self._automaton.find_matches_as_indexes(piece, overlapping=True)
        return {self._places[number] for number, _, _ in matches}


class LikeFinder:
    """Finds which LIKE patterns a text fits: tries those whose longest literal it contains."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        by_literal: dict[str, list[Placed]] = {}
        for test in tests:
            by_literal.setdefault(compile_like(test.text).literal, []).append(test)
        self._always: Final = EachFinder(by_literal.pop("", []))
        self._tries: Final = [EachFinder(own) for own in by_literal.values()]
        literals = [
            Placed(place, TextTest("", Kind.TEXT, "contains", literal), literal)
            for place, literal in enumerate(by_literal)
        ]
        self._literals: Final = _part_finders(literals)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the patterns that a text fits."""
        yield from self._always.find(text)
        for finder in self._literals:
            for place in finder.find(text):
                yield from self._tries[place].find(text)


class EndingFinder:
    """Finds which suffixes a text has, with one lookup for each of their lengths."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._places: Final = {test.text: test.place for test in tests}
        self._lengths: Final = sorted({len(test.text) for test in tests})

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the suffixes that a text has."""
        whole = len(text)
        endings = (text[whole - length :] for length in takewhile(whole.__ge__, self._lengths))
        return [self._places[ending] for ending in endings if ending in self._places]


class PatternFinder:
    """Finds which patterns match a text, with one automaton (RE2)."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        """Combine the patterns; raise `re2.error` if they are too large together."""
        self._places: Final = [test.place for test in tests]
        self._each: Final = EachFinder(tests)
        options = pattern_options()
        options.max_mem = PATTERN_SET_BYTES
        self._set: Final = re2.Set.SearchSet(options)
        for test in tests:
            self._set.Add(test.text)
        # A set that ran out of memory returns the same as one in which nothing matches. This
        # pattern matches every text, so a result without it is invalid.
        self._set.Add("")
        self._set.Compile()
        self._max_characters = MAX_SET_STEPS // sum(pattern_steps(test.text) for test in tests)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the patterns that match a text."""
        if len(text) > self._max_characters:
            return self._each.find(text)
        started = time.perf_counter()
        found: list[int] | None = self._set.Match(text)
        if time.perf_counter() - started > SLOW_SET_SECONDS:
            self._max_characters = 0
        if found is None:
            return self._each.find(text)
        return [self._places[number] for number in found if number < len(self._places)]


def pattern_finders(tests: Sequence[Placed]) -> list[Finder]:
    """Return as few finders for patterns as the size of the patterns allows."""
    if len(tests) == 1:
        return [EachFinder(tests)]
    try:
        return [PatternFinder(tests)]
    except re2.error:
        half = len(tests) // 2
        return pattern_finders(tests[:half]) + pattern_finders(tests[half:])


def _bytes(text: str) -> bytes:
    # A text contains another exactly if its bytes contain the bytes of the other. That is true of
    # lone surrogates too, though no event has any.
    return text.encode("utf-8", "surrogatepass")


# Trying this few substrings or suffixes is as fast as an index, and nothing has to be built.
# Patterns cost more: a set is faster from two on.
MIN_AUTOMATON_TEXTS: Final = 8

# A substring that ends with this many others is tried on its own: an automaton would list all of
# them at each of its occurrences.
MAX_NESTING: Final = 16

# Results are passed on for this many texts at a time, or once they are this many, so that they
# never fill the memory.
TEXTS_PER_PASS: Final = 256
MAX_PASSED_PER_PASS: Final = 1_000_000


# --- the text predicates of an attribute ----------------------------------------------------------


class TextIndex:
    """The text predicates of one attribute, each with the row that its results go to."""

    def __init__(self) -> None:
        self._atoms: list[ValueAtom] = []
        self._rows: list[int] = []
        self._row_asking: dict[tuple[str, str], int] = {}
        self._copies: dict[int, int] = {}

    def add(self, row: int, atom: ValueAtom) -> None:
        """Add a predicate; its results go to this row."""
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

    @cached_property
    def _twins(self) -> dict[int, list[int]]:
        """The rows that ask the same as a row."""
        twins: dict[int, list[int]] = {}
        for row, original in self._copies.items():
            twins.setdefault(original, []).append(row)
        return twins

    def rows_passed(self, text: str) -> list[int]:
        """Return the rows of the predicates that a text passes."""
        rows = [row for finder in self._finders for row in finder.find(text)]
        if self._copies:
            rows += [twin for row in rows for twin in self._twins.get(row, ())]
        return rows

    def set_rows(self, entries: Entries, rows: NDArray[np.bool_]) -> None:
        """Mark the events that pass each predicate in its row."""
        starts = np.zeros(len(entries.texts) + 1, np.int64)
        holders = np.empty(len(entries.events), np.int32)
        gather_holders(entries.values, entries.events, starts, holders)
        first, texts, finders = 0, entries.texts, self._finders
        while first < len(texts):
            # The rows of the predicates that each text passes.
            found: list[list[int]] = []
            total, last = 0, min(first + TEXTS_PER_PASS, len(texts))
            while first + len(found) < last and total < MAX_PASSED_PER_PASS:
                text = texts[first + len(found)]
                found.append([row for finder in finders for row in finder.find(text)])
                total += len(found[-1])
            passed = np.fromiter(chain.from_iterable(found), np.int32, total)
            places = np.arange(first, first + len(found), dtype=np.int32)
            mark_holders(passed, np.repeat(places, list(map(len, found))), starts, holders, rows)
            first += len(found)
        if self._copies:
            rows[[*self._copies]] = rows[[*self._copies.values()]]


def asked_by(atom: ValueAtom) -> tuple[str, str]:
    """Return the simplest operator and text equivalent to a text predicate."""
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


def _like_finders(tests: Sequence[Placed]) -> list[Finder]:
    return _each(tests) if len(tests) < MIN_AUTOMATON_TEXTS else [LikeFinder(tests)]


def _each(tests: Sequence[Placed]) -> list[Finder]:
    return [EachFinder(tests)]


# By operator; all others, such as `within` a long text, are rare.
FINDERS: Final[dict[str, Callable[[Sequence[Placed]], list[Finder]]]] = {
    "contains": _part_finders,
    "ends with": _ending_finders,
    "like": _like_finders,
    "matches": pattern_finders,
}


def nesting(parts: Sequence[str]) -> list[int]:
    """Return, for each of some distinct texts, how many of the others it ends with.

    >>> nesting(["and", "hand", "d", "or"])
    [1, 2, 0, 0]
    """
    backward = [part[::-1] for part in parts]
    levels = [0] * len(parts)
    around: list[str] = []
    # Reversed, a suffix is a prefix, so it precedes the text in this order.
    for place in sorted(range(len(parts)), key=backward.__getitem__):
        while around and not backward[place].startswith(around[-1]):
            around.pop()
        levels[place] = len(around)
        around.append(backward[place])
    return levels


# --- all predicates -------------------------------------------------------------------------------


Rows = NDArray[np.bool_]


class PredicateIndex:
    """All predicates of a compiled set; made once, used for any number of batches."""

    def __init__(self, predicates: Collection[Predicate], schema: Schema | None) -> None:
        self._count: Final = len(predicates)
        self._schema: Final = schema
        self.texts: Final[dict[str, TextIndex]] = {}
        """The text predicates of each attribute."""
        self._bits: Final[list[tuple[int, HasBits]]] = []
        self._relations: Final[list[tuple[int, Relation, Predicate]]] = []
        self._by_default: Final[dict[str, list[int]]] = {}
        for row, predicate in enumerate(predicates):
            self._add(row, predicate)

    @property
    def is_only_texts(self) -> bool:
        """Return whether all test texts, and none holds for an absent one."""
        return not (self._bits or self._relations or self._by_default)

    def find(self, batch: EventBatch) -> Rows:
        """Return whether each predicate, in the given order, holds for each event.

        There are columns up to a multiple of 64, so that the rows can be packed into words.
        """
        rows = np.zeros((self._count, -(-batch.length // 64) * 64), np.bool_)
        for name, tests in self.texts.items():
            column = batch.columns.get(name, NO_COLUMN)
            if Kind.TEXT in column.entries:
                tests.set_rows(column.entries[Kind.TEXT], rows)
        for row, atom in self._bits:
            column = batch.columns.get(atom.attribute, NO_COLUMN)
            if Kind.BITS in column.entries:
                events, masks = column.entries[Kind.BITS][:2]
                rows[row, events[_has_bits(atom, masks)]] = True
        for name, by_default in self._by_default.items():
            rows[np.ix_(np.array(by_default), _absent(name, batch))] = True
        if self._relations:
            self._set_relations(batch, rows)
        return rows

    def _add(self, row: int, predicate: Predicate) -> None:
        atom = predicate.atom
        if isinstance(atom, Relation):
            self._relations.append((row, atom, predicate))
            return
        assert isinstance(atom, ValueAtom)  # noqa: S101 - the only other atoms without intervals
        if isinstance(atom, HasBits):
            self._bits.append((row, atom))
        else:
            self.texts.setdefault(atom.attribute, TextIndex()).add(row, atom)
        declared = self._schema.get(atom.attribute) if self._schema else None
        if predicate.completed and declared is not None and atom.passes(declared.default):
            self._by_default.setdefault(atom.attribute, []).append(row)

    def _set_relations(self, batch: EventBatch, rows: Rows) -> None:
        operands = {False: Operands(batch, None), True: Operands(batch, self._schema)}
        for row, relation, predicate in self._relations:
            seen = operands[predicate.completed]
            rows[row, : batch.length] = find_related(relation, seen, truth=predicate.truth)


def _has_bits(atom: HasBits, masks: NDArray[np.uint64]) -> Rows:
    wanted = np.uint64(atom.bits.mask)
    found = masks & wanted
    passing: Rows = found == wanted if atom.op == "all" else found != 0
    return passing


def _absent(name: str, batch: EventBatch) -> NDArray[np.intp]:
    counts = batch.columns.get(name, NO_COLUMN).counts(len(batch))
    return np.flatnonzero(counts == 0)
