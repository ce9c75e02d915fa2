"""Compiles filters in the Tamis language many at a time: the parser reads every atom only once.

Filters of a set mostly differ in a few constants. Kernels divide their texts into atoms and
operators; what is not plain, and every error, is left to the parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.errors import FilterError
from tamis.filters import Filter, FilterLimits, Mode
from tamis.filters.atoms import Between, Compare, In, Like, TextTest
from tamis.filters.boolean import MAX_DEPTH
from tamis.filters.limits import NO_LIMITS
from tamis.languages import parse
from tamis.matching.compile.leaf_kernels import MAX_INTEGERS
from tamis.matching.compile.leaves import (
    ABSENCE_RULE_OF_MODE,
    AbsenceRule,
    sample_integers,
    with_integers,
)
from tamis.matching.compile.text_kernels import (
    DistinctAtoms,
    TextLimits,
    TextStack,
    compile_texts,
    split_atoms,
)
from tamis.matching.compile.vocabulary import Vocabulary

LANGUAGE: Final = "tamis"
"""The language of the texts."""
MAX_TEXT_CHARACTERS: Final = 2_048
"""Longer texts are not compiled together with others."""

# Not patterns, whose steps are counted for the whole filter.
_PLAIN: Final = (Compare, Between, In, TextTest, Like)
# The integers of a shape: not part of a name or a float.
_INTEGER: Final = re.compile(r"(?<=[ (,=<>])-?0(?![\w.])")
# The shortest atom with an operator after it.
_MIN_ATOM_CHARACTERS: Final = 4
# The three connectives and what is around them.
_LEVELS_OF_CONNECTIVES: Final = 3
_SPARE_LEVELS: Final = 5
# Atoms that are kept while texts come; those of the next texts are mostly the same.
_MAX_KEPT_ATOMS: Final = 1 << 20


class TextCompiler:
    """Compiles texts of filters; remembers the atoms that it has seen."""

    def __init__(self, limits: FilterLimits) -> None:
        self._limits = _text_limits(limits)
        depth = self._limits.open + _SPARE_LEVELS
        self._stack = TextStack(np.empty(depth, np.int64), np.empty(depth, np.int64))
        self._atoms: dict[str, Filter | None] = {}
        self._templates: dict[str, Filter | None] = {}
        self._leaves: dict[str, int] = {}
        self._shapes: dict[str, int] = {}
        self._leaves_of: tuple[Vocabulary, AbsenceRule] | None = None

    def compile(
        self, texts: Sequence[str], mode: Mode, vocabulary: Vocabulary
    ) -> list[NDArray[np.int32] | None]:
        """Return the program of each text; None where the parser has to decide."""
        # In strict mode a program says more than its text.
        if self._limits.open < 0 or mode is Mode.STRICT:
            return [None] * len(texts)
        joined = "".join(texts)
        if not joined.isascii():
            texts = [text if text.isascii() else "" for text in texts]
            joined = "".join(texts)
        text_ends = np.fromiter(accumulate(map(len, texts)), np.int64, len(texts))
        most = len(joined) // _MIN_ATOM_CHARACTERS + len(texts) + 1
        atoms = _no_atoms(most)
        codes, ends = np.empty(len(joined) + 1, np.int32), np.empty(len(texts), np.int64)
        data = np.frombuffer(joined.encode("ascii") + b" ", np.uint8)
        compile_texts(data, text_ends, self._limits, atoms, self._stack, codes, ends)
        codes = codes[: ends[-1]] if len(ends) else codes[:0]
        self._forget(vocabulary, ABSENCE_RULE_OF_MODE[mode])
        return _programs(codes, ends, self._leaves_in(joined, data, atoms))

    def _leaves_in(
        self, joined: str, data: NDArray[np.uint8], atoms: DistinctAtoms
    ) -> NDArray[np.int32]:
        """Return the leaf of each atom; NONE if it is not plain, or is refused."""
        assert self._leaves_of is not None  # noqa: S101
        vocabulary, _ = self._leaves_of
        count = int(atoms.size[0])
        shapes, text = _no_atoms(count), np.empty(len(data), np.uint8)
        shape_of, starts = np.empty(count, np.int32), np.zeros(count + 1, np.int64)
        integers = np.empty(len(data), np.int64)
        split_atoms(data, atoms, text, shapes, shape_of, starts, integers)
        spans = _spans(shapes)
        written = text[: spans[-1][1] if spans else 0].tobytes().decode("ascii")
        # The last is for atoms of no shape.
        numbers = [*(self._shape(written[start:end]) for start, end in spans), NONE]
        leaves = vocabulary.find(
            np.array(numbers, np.int32)[shape_of], starts, integers[: starts[-1]]
        )
        left = np.flatnonzero(leaves == NONE)
        spans = _spans(atoms)
        for atom in left.tolist():
            start, end = spans[atom]
            leaves[atom] = self._leaf(joined[start:end])
        return leaves

    def _shape(self, text: str) -> int:
        """Return the number of the shape that is written with 0 for integers, or NONE."""
        shape = self._shapes.get(text)
        if shape is None:
            shape = self._shapes[text] = self._new_shape(text)
        return shape

    def _new_shape(self, text: str) -> int:
        if text not in self._templates:
            self._templates[text] = _template(text)
        template = self._templates[text]
        if template is None or self._leaves_of is None:
            return NONE
        vocabulary, rule = self._leaves_of
        try:
            return vocabulary.shape(template, rule)
        except FilterError:
            return NONE

    def _forget(self, vocabulary: Vocabulary, rule: AbsenceRule) -> None:
        """Forget leaves if they have other numbers now, and atoms if they are many."""
        are_many = len(self._atoms) + len(self._templates) > _MAX_KEPT_ATOMS
        known_vocabulary, known_rule = self._leaves_of or (None, None)
        if are_many or known_vocabulary is not vocabulary or known_rule is not rule:
            self._leaves.clear()
            self._shapes.clear()
        if are_many:
            self._atoms.clear()
            self._templates.clear()
        self._leaves_of = vocabulary, rule

    def _leaf(self, text: str) -> int:
        """Return the leaf of an atom; NONE if it is not plain, or is refused."""
        leaf = self._leaves.get(text)
        if leaf is None:
            leaf = self._leaves[text] = self._new_leaf(text)
        return leaf

    def _new_leaf(self, text: str) -> int:
        if text not in self._atoms:
            self._atoms[text] = _plain_atom(text)
        atom = self._atoms[text]
        if atom is None or self._leaves_of is None:
            return NONE
        vocabulary, rule = self._leaves_of
        try:
            return vocabulary.leaf(atom, rule)
        except FilterError:
            return NONE


def _text_limits(limits: FilterLimits) -> TextLimits:
    depth = min(limits.depth, MAX_DEPTH)
    # As deep as a filter can be with so many parentheses, it is still within the limit.
    return TextLimits(
        characters=limits.text,
        atoms=limits.atoms,
        open=depth // _LEVELS_OF_CONNECTIVES - _SPARE_LEVELS,
    )


def _no_atoms(most: int) -> DistinctAtoms:
    """Return space for atoms."""
    return DistinctAtoms(
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.full(1 << (2 * most).bit_length(), NONE, np.int32),
        np.zeros(1, np.int64),
    )


def _spans(atoms: DistinctAtoms) -> list[tuple[int, int]]:
    """Return where each atom starts and ends."""
    count = int(atoms.size[0])
    return list(zip(atoms.starts[:count].tolist(), atoms.ends[:count].tolist(), strict=True))


def _plain_atom(text: str) -> Filter | None:
    """Return what the parser makes of an atom; None if it is not plain, or is refused."""
    try:
        atom = parse(text, LANGUAGE, limits=NO_LIMITS)
    except FilterError:
        return None
    return atom if isinstance(atom, _PLAIN) else None


def _template(text: str) -> Filter | None:
    """Return an atom with sample integers from one with 0 for each; None if it has others too."""
    count = len(_INTEGER.findall(text))
    samples = sample_integers(count)
    match _plain_atom(text):
        case Compare(value=0) as atom if count == 1:
            pass
        case Between(low=0, high=0) as atom if count == 2:
            pass
        case In(values=(0,)) as atom if count == text.count(",") + 1 <= MAX_INTEGERS:
            pass
        case _:
            return None
    return with_integers(atom, samples)


def _programs(
    codes: NDArray[np.int32], ends: NDArray[np.int64], leaves: NDArray[np.int32]
) -> list[NDArray[np.int32] | None]:
    """Return programs over leaves, without those that have none for some atom."""
    is_atom = codes >= 0
    codes[is_atom] = leaves[codes[is_atom]]
    declined = np.diff(ends, prepend=0) == 0
    places = np.flatnonzero(is_atom)
    refused = places[codes[places] == NONE]
    declined[np.searchsorted(ends, refused, side="right")] = True
    whole, start = codes.copy(), 0
    programs: list[NDArray[np.int32] | None] = []
    for end, is_declined in zip(ends.tolist(), declined.tolist(), strict=True):
        programs.append(None if is_declined else whole[start:end])
        start = end
    return programs
