"""The tests of one attribute's text, by index: which texts of a batch pass which tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.readings import question_of
from tamis.filters.atoms import ValueAtom
from tamis.matching.text_finders import (
    EachFinder,
    EndingFinder,
    Finder,
    PartFinder,
    Placed,
    pattern_finders,
)

# So few parts or endings are tried as fast as they are found, and nothing has to be built. Trying
# a pattern costs more: a set is faster from two on.
FEW: Final = 8

# A part that ends with so many other parts is tried alone: an automaton would list all of them
# wherever it finds the one.
MOST_NESTED: Final = 16

# What so many texts pass is handed on at a time, so that it never fills the memory.
TEXTS_AT_A_TIME: Final = 256

Pairs = tuple[NDArray[np.int32], NDArray[np.int32]]


class TextIndex:
    """Finds which of some tests a text passes."""

    def __init__(self, atoms: Sequence[ValueAtom]) -> None:
        """Index tests of text; no two may ask the same (see `asked_by`)."""
        groups: dict[str, list[Placed]] = {}
        for place, atom in enumerate(atoms):
            op, text = asked_by(atom)
            groups.setdefault(op, []).append(Placed(place, atom, text))
        self._finders: Final = [
            finder for op, tests in groups.items() for finder in FINDERS.get(op, _each)(tests)
        ]

    def find(self, text: str) -> list[int]:
        """Return the places of the tests that a text passes."""
        return [place for finder in self._finders for place in finder.find(text)]

    def find_pairs(self, texts: Sequence[str]) -> Iterator[Pairs]:
        """Yield tests and the texts that pass them, both by their places."""
        for first in range(0, len(texts), TEXTS_AT_A_TIME):
            found = [self.find(text) for text in texts[first : first + TEXTS_AT_A_TIME]]
            counts = [len(places) for places in found]
            tests = np.fromiter(chain.from_iterable(found), np.int32, sum(counts))
            places = np.arange(first, first + len(found), dtype=np.int32)
            yield tests, np.repeat(places, counts)


def asked_by(atom: ValueAtom) -> tuple[str, str]:
    """Return the plainest operator and text that mean the same as a test of text."""
    return question_of(atom).key


def _part_finders(tests: Sequence[Placed]) -> list[Finder]:
    if len(tests) < FEW:
        return _each(tests)
    levels = nesting([test.text for test in tests])
    plain = [test for test, level in zip(tests, levels, strict=True) if level < MOST_NESTED]
    nested = [test for test, level in zip(tests, levels, strict=True) if level >= MOST_NESTED]
    return [PartFinder(plain), EachFinder(nested)] if nested else [PartFinder(plain)]


def _ending_finders(tests: Sequence[Placed]) -> list[Finder]:
    return _each(tests) if len(tests) < FEW else [EndingFinder(tests)]


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
