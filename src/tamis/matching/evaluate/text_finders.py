"""Sets of text predicates: which substrings, suffixes and patterns a text has."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from threading import Lock
from typing import Final, NamedTuple

import re2
from ahocorasick_rs import BytesAhoCorasick

from tamis.diagrams.atom_intervals import text_predicate_of
from tamis.events import Kind
from tamis.filters.atoms import Caseless, Compare, In, InNetwork, Regex, TextTest, ValueAtom
from tamis.filters.like import compile_like
from tamis.filters.limits import NANOSECONDS_PER_STEP
from tamis.filters.networks import FIRST_V4, FIRST_V6, network_of, position_of
from tamis.filters.patterns import pattern_options, pattern_steps
from tamis.filters.required_literals import RequiredLiteral, required_literal
from tamis.matching.evaluate.metering import (
    SLOW_PATTERNS,
    SLOW_SET_SECONDS,
    Meter,
    MeteredTest,
)

# Bytes of a text that go through an automaton at a time. It lists every occurrence, and those of a
# long text would fill the memory.
SCAN_BYTES: Final = 4 * 1024
# More occurrences than these in such a piece are too many; a substring may have this many of them.
MAX_LISTED_PER_PIECE: Final = 256
MAX_OCCURRENCES: Final = 32
# Adding a substring to a new automaton takes as long as listing this many occurrences.
LISTED_PER_BUILT: Final = 10
# Longer substrings are tried one by one, so that pieces need not be longer.
MAX_PART_BYTES: Final = 1024

# A pattern set extends its automaton as it meets texts, up to this many bytes; then it starts over,
# which costs time but changes no answer.
PATTERN_SET_BYTES: Final = 32 * 1024 * 1024


# A set's automaton does not give up where it does not help. A text is tried pattern by pattern if
# the set could take longer than half a second for it, at up to 40 ns for each step and character.
# All texts are, once one has taken this long.
MAX_SET_STEPS: Final = 12_000_000
SECONDS_PER_SET_STEP: Final = 40e-9
# Shorter texts take no other test long than a pattern, and any other this long for a character.
MIN_METERED_CHARACTERS: Final = 1_024
SECONDS_PER_CHARACTER: Final = 200e-9


class Placed(NamedTuple):
    """A text predicate and its index."""

    place: int
    atom: ValueAtom
    text: str
    """The substring, suffix or pattern to look for."""


class Finder:
    """A set of text predicates."""

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates that a text passes, each once."""
        raise NotImplementedError

    def find_within(self, text: str, meter: Meter) -> Iterable[int]:  # noqa: ARG002
        """Do the same within a budget; most sets take little time whatever the text."""
        return self.find(text)


class EachFinder(Finder):
    """Tries one predicate after another."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._tests: Final = [(test.place, test.atom.accepts) for test in tests]
        self._patterns: Final = {
            test.place: test.text
            for test in tests
            if isinstance(test.atom, Regex) and asked_by(test.atom)[0] == "matches"
        }

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates that a text passes."""
        return [place for place, accepts in self._tests if accepts(text)]

    def find_within(self, text: str, meter: Meter) -> Iterable[int]:
        """Measure each; only patterns can take long for a short text."""
        if len(text) < MIN_METERED_CHARACTERS and not self._patterns:
            return self.find(text)
        return [test.row for test in self._metered if meter.passes(test, text)]

    @cached_property
    def _metered(self) -> list[MeteredTest]:
        return [
            MeteredTest(place, accepts, _per_character(pattern), pattern)
            for place, accepts in self._tests
            for pattern in [self._patterns.get(place, "")]
        ]


class _Parts(NamedTuple):
    """Substrings in an automaton, and those that are tried one by one."""

    places: list[int]
    automaton: BytesAhoCorasick
    stride: int
    """A text goes through the automaton in pieces of this many bytes, which overlap."""
    overlap: int
    frequent: list[tuple[int, bytes]]

    @classmethod
    def of(
        cls, parts: Sequence[tuple[int, bytes]], frequent: Sequence[tuple[int, bytes]] = ()
    ) -> _Parts:
        """Build the automaton."""
        overlap = max((len(part) for _, part in parts), default=1) - 1
        return cls(
            [place for place, _ in parts],
            BytesAhoCorasick([part for _, part in parts]),
            max(SCAN_BYTES, overlap),
            overlap,
            [*frequent],
        )


class PartFinder(Finder):
    """Finds which substrings a text contains, with one automaton (Aho-Corasick).

    It lists every occurrence, which takes long where a substring is everywhere. Once that has taken
    as long as building an automaton without it, it is tried on its own: then it is found at once.
    """

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._all: Final = {test.place: _bytes(test.text) for test in tests}
        self._parts = _Parts.of([*self._all.items()])
        self._listed = 0
        self._noting = Lock()

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the substrings that a text contains."""
        encoded = text.encode("utf-8", "surrogatepass")
        parts = self._parts
        if len(encoded) > parts.stride or parts.frequent:
            return self._find_in_pieces(encoded)
        # Inlined, since most texts are short: it saves a call for each of them.
        matches = parts.automaton.find_matches_as_indexes(encoded, overlapping=True)
        if len(matches) > MAX_LISTED_PER_PIECE:
            self._note(parts, matches)
        return {parts.places[number] for number, _, _ in matches}

    def _find_in_pieces(self, encoded: bytes) -> set[int]:
        found: set[int] = set()
        at = 0
        while at < len(encoded):
            parts = self._parts
            piece = encoded[at : at + parts.stride + parts.overlap]
            matches = parts.automaton.find_matches_as_indexes(piece, overlapping=True)
            found.update([parts.places[number] for number, _, _ in matches])
            if len(matches) > MAX_LISTED_PER_PIECE:
                self._note(parts, matches)
            at += parts.stride
        return found.union([place for place, part in self._parts.frequent if part in encoded])

    def _note(self, parts: _Parts, matches: Sequence[tuple[int, int, int]]) -> None:
        """Note that a piece has many occurrences; from the next one on, some may be left out."""
        self._listed += len(matches)
        if self._listed < LISTED_PER_BUILT * len(parts.places):
            return
        self._listed = 0
        with self._noting:
            self._leave_out(parts, matches)

    def _leave_out(self, parts: _Parts, matches: Sequence[tuple[int, int, int]]) -> None:
        """Try frequent substrings on their own from now on: never fewer than before."""
        if self._parts is not parts:
            return
        counts = Counter(number for number, _, _ in matches)
        often = {parts.places[one] for one, count in counts.items() if count > MAX_OCCURRENCES}
        if often:
            rest = [(place, self._all[place]) for place in parts.places if place not in often]
            added = [(place, self._all[place]) for place in often]
            self._parts = _Parts.of(rest, [*parts.frequent, *added])


class LiteralFinder(Finder):
    """Finds which patterns a text fits: tries those whose literal it contains."""

    def __init__(
        self, tests: Sequence[Placed], literal_of: Callable[[str], RequiredLiteral]
    ) -> None:
        by_literal: dict[RequiredLiteral, list[Placed]] = {}
        for test in tests:
            by_literal.setdefault(literal_of(test.text), []).append(test)
        always = [test for literal, own in by_literal.items() if not literal.text for test in own]
        self._always: Final = EachFinder(always)
        self._tries: Final = [EachFinder(own) for own in by_literal.values()]
        exact, folded = list[Placed](), list[Placed]()
        for place, (literal, ignores_case) in enumerate(by_literal):
            if literal:
                contains = TextTest("", Kind.TEXT, "contains", literal)
                (folded if ignores_case else exact).append(Placed(place, contains, literal))
        self._exact: Final = part_finders(exact)
        self._folded: Final = part_finders(folded)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the patterns that a text fits."""
        found = [*self._always.find(text)]
        # Inlined, since most texts contain few of the literals.
        for finder in self._exact:
            for place in finder.find(text):
                found += self._tries[place].find(text)
        if self._folded:
            folded = text.casefold()
            for finder in self._folded:
                for place in finder.find(folded):
                    found += self._tries[place].find(text)
        return found

    def find_within(self, text: str, meter: Meter) -> Iterable[int]:
        """Measure each pattern that is tried."""
        yield from self._always.find_within(text, meter)
        places = [place for finder in self._exact for place in finder.find(text)]
        if self._folded:
            folded = text.casefold()
            places += [place for finder in self._folded for place in finder.find(folded)]
        for place in places:
            yield from self._tries[place].find_within(text, meter)


def like_literal(pattern: str) -> RequiredLiteral:
    """Return the longest literal of a LIKE pattern."""
    return RequiredLiteral(compile_like(pattern).literal, ignores_case=False)


class EndingFinder(Finder):
    """Finds which suffixes a text has, with one lookup for each of their lengths."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._places: Final = {test.text: test.place for test in tests}
        self._lengths: Final = sorted({len(test.text) for test in tests})

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the suffixes that a text has."""
        whole, places, found = len(text), self._places, list[int]()
        for length in self._lengths:
            if length > whole:
                break
            place = places.get(text[whole - length :])
            if place is not None:
                found.append(place)
        return found


class EqualFinder(Finder):
    """Finds which constants a text equals, with one lookup."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._places: Final[dict[object, list[int]]] = {}
        for test in tests:
            for value in _constants(test.atom):
                self._places.setdefault(value, []).append(test.place)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the lists that have the text."""
        return self._places.get(text, ())


def _constants(test: ValueAtom) -> Iterable[object]:
    match test.test if isinstance(test, Caseless) else test:
        case Compare(value=value):
            return (value,)
        case In(values=values):
            return values
        case _:
            return (asked_by(test)[1],)


class BeginningFinder(Finder):
    """Finds which prefixes a text has: those that share the beginning that all of them have."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._shortest: Final = min(len(test.text) for test in tests)
        self._by_beginning: Final[dict[str, list[tuple[str, int]]]] = {}
        for test in tests:
            begun = self._by_beginning.setdefault(test.text[: self._shortest], [])
            begun.append((test.text, test.place))

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the prefixes that a text has."""
        begun = self._by_beginning.get(text[: self._shortest])
        if begun is None:
            return ()
        return [place for prefix, place in begun if text.startswith(prefix)]


class PatternFinder(Finder):
    """Finds which patterns match a text, with one automaton (RE2)."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        """Combine the patterns; raise `re2.error` if they are too large together."""
        self._places: Final = [test.place for test in tests]
        self._tests: Final = tests
        options = pattern_options()
        options.max_mem = PATTERN_SET_BYTES
        self._set: Final = re2.Set.SearchSet(options)
        for test in tests:
            self._set.Add(test.text)
        # A set that ran out of memory returns the same as one in which nothing matches. This
        # pattern matches every text, so a result without it is invalid.
        self._set.Add("")
        self._set.Compile()
        self._steps: Final = sum(pattern_steps(test.text) for test in tests)
        self._max_characters = MAX_SET_STEPS // self._steps
        self._never_slow: Final = int(SLOW_SET_SECONDS / (SECONDS_PER_SET_STEP * self._steps))
        """Texts up to this length need no measuring."""

    @cached_property
    def _each(self) -> LiteralFinder:
        """What tries the patterns one by one."""
        return LiteralFinder(self._tests, required_literal)

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the patterns that match a text."""
        if len(text) > self._max_characters:
            return self._each.find(text)
        # Not the time that passes: after its search, RE2 waits for other threads of Python.
        started = 0.0 if len(text) <= self._never_slow else time.thread_time()
        found: list[int] | None = self._set.Match(text)
        if started and time.thread_time() - started > SLOW_SET_SECONDS:
            self._max_characters = 0
        if found is None:
            return self._each.find(text)
        return [self._places[number] for number in found if number < len(self._places)]

    def find_within(self, text: str, meter: Meter) -> Iterable[int]:
        """Try the patterns one by one, each measured, if the set takes too long."""
        if len(text) > self._max_characters:
            return self._each.find_within(text, meter)
        if len(text) <= self._never_slow:
            return self.find(text)
        worst = SECONDS_PER_SET_STEP * self._steps * len(text)
        found: list[int] | None = meter.run_set(self._set.Match, text, worst)
        if found is None:
            self._max_characters = 0
            return self._each.find_within(text, meter)
        return [self._places[number] for number in found if number < len(self._places)]


class NetworkFinder(Finder):
    """Finds which networks an address lies in, with one lookup for each of their sizes."""

    def __init__(self, tests: Sequence[Placed]) -> None:
        self._places: Final[dict[tuple[int, int], list[int]]] = {}
        for test in tests:
            assert isinstance(test.atom, InNetwork)  # noqa: S101 - that is what the operator says
            for network in map(network_of, test.atom.networks):
                key = (network.end - network.first, network.first)
                self._places.setdefault(key, []).append(test.place)
        self._sizes: Final = sorted({size for size, _ in self._places})

    def find(self, text: str) -> Iterable[int]:
        """Return the indexes of the predicates with a network that has the address."""
        position = position_of(text)
        if not position:
            return ()
        begin = FIRST_V4 if position < FIRST_V6 else FIRST_V6
        found = [
            place
            for size in self._sizes
            for place in self._places.get((size, position - (position - begin) % size), ())
        ]
        return dict.fromkeys(found)


def pattern_finders(tests: Sequence[Placed]) -> list[Finder]:
    """Return as few finders for patterns as the size of the patterns allows."""
    slow = [test for test in tests if test.text in SLOW_PATTERNS]
    if slow and len(slow) < len(tests):
        others = [test for test in tests if test.text not in SLOW_PATTERNS]
        return [*pattern_finders(others), LiteralFinder(slow, required_literal)]
    if len(tests) == 1 or slow:
        return [EachFinder(tests)]
    try:
        return [PatternFinder(tests)]
    except re2.error:
        half = len(tests) // 2
        return pattern_finders(tests[:half]) + pattern_finders(tests[half:])


def asked_by(atom: ValueAtom) -> tuple[str, str]:
    """Return the simplest operator and text equivalent to a text predicate."""
    return text_predicate_of(atom).key


def _per_character(pattern: str) -> float:
    if not pattern:
        return SECONDS_PER_CHARACTER
    return pattern_steps(pattern) * NANOSECONDS_PER_STEP * 1e-9


def _bytes(text: str) -> bytes:
    # A text contains another exactly if its bytes contain the bytes of the other. That is true of
    # lone surrogates too, though no event has any.
    return text.encode("utf-8", "surrogatepass")


# Trying this few substrings or suffixes is as fast as an index, and nothing has to be built.
# Patterns cost more: a set is faster from two on.
MIN_AUTOMATON_TEXTS: Final = 8

# A substring that ends with this many others is tried on its own: an automaton would list all of
# them at each of its occurrences.
MAX_NESTING: Final = 4


def part_finders(tests: Sequence[Placed]) -> list[Finder]:
    """Return finders for substrings."""
    if len(tests) < MIN_AUTOMATON_TEXTS:
        return _each(tests) if tests else []
    levels = nesting([test.text for test in tests])
    plain, others = list[Placed](), list[Placed]()
    for test, level in zip(tests, levels, strict=True):
        is_plain = test.text and level < MAX_NESTING and len(_bytes(test.text)) <= MAX_PART_BYTES
        (plain if is_plain else others).append(test)
    finders: list[Finder] = [PartFinder(plain)] if plain else []
    return [*finders, EachFinder(others)] if others else finders


def _ending_finders(tests: Sequence[Placed]) -> list[Finder]:
    return _each(tests) if len(tests) < MIN_AUTOMATON_TEXTS else [EndingFinder(tests)]


def _like_finders(tests: Sequence[Placed]) -> list[Finder]:
    return (
        _each(tests) if len(tests) < MIN_AUTOMATON_TEXTS else [LiteralFinder(tests, like_literal)]
    )


def _each(tests: Sequence[Placed]) -> list[Finder]:
    return [EachFinder(tests)]


def finders_by_op(tests: Sequence[Placed]) -> list[Finder]:
    """Return as few finders as possible for some text predicates."""
    groups: dict[str, list[Placed]] = {}
    for test in tests:
        groups.setdefault(asked_by(test.atom)[0], []).append(test)
    return [finder for op, own in groups.items() for finder in finders_of(op, own)]


def finders_of(op: str, tests: Sequence[Placed]) -> list[Finder]:
    """Return as few finders as possible for the text predicates with one operator."""
    return FINDERS.get(op, _each)(tests)


# By operator; all others, such as order and `within` a long text, are rare.
FINDERS: Final[dict[str, Callable[[Sequence[Placed]], list[Finder]]]] = {
    "=": lambda tests: [EqualFinder(tests)],
    "in": lambda tests: [EqualFinder(tests)],
    "starts with": lambda tests: [BeginningFinder(tests)],
    "contains": part_finders,
    "ends with": _ending_finders,
    "like": _like_finders,
    "matches": pattern_finders,
    "in network": lambda tests: [NetworkFinder(tests)],
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
