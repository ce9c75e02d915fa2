"""A filter as a short program in postfix: all that the engine keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.filters import Filter, Mode
from tamis.filters.atoms import PLAIN_ATOMS
from tamis.filters.boolean import And, Connective, Constant, Not, Or, Xor
from tamis.matching.compile.leaves import ABSENCE_RULE_OF_MODE, AbsenceRule
from tamis.matching.compile.program_kernels import (
    OP_AND,
    OP_NOT,
    OP_OR,
    OP_XOR,
    gather_parts,
    operator_code,
    operator_in,
    terms_in,
)
from tamis.matching.compile.vocabulary import Vocabulary

_OPERATORS: Final[dict[type[Connective], int]] = {And: OP_AND, Or: OP_OR, Xor: OP_XOR}
_CONNECTIVES: Final = {op: connective for connective, op in _OPERATORS.items()}
_NOT: Final = operator_code(OP_NOT, 1)
_EITHER: Final = operator_code(OP_OR, 2)


def compile_filter(filter_: Filter, mode: Mode, vocabulary: Vocabulary) -> list[int]:
    """Return the codes of a filter, its atoms as leaves of the vocabulary."""
    codes: list[int] = []
    _emit(filter_, ABSENCE_RULE_OF_MODE[mode], vocabulary, codes)
    if mode is Mode.STRICT:
        _emit_adequacy(filter_, vocabulary, codes)
    return codes


def decompile(codes: Sequence[int], mode: Mode, vocabulary: Vocabulary) -> Filter:
    """Return the filter of a program."""
    stack: list[Filter] = []
    has_atoms = any(code >= 0 and vocabulary.is_atom(code) for code in codes)
    adequacy = len(codes) - 1 if mode is Mode.STRICT and has_atoms else None
    for place, code in enumerate(codes):
        if code >= 0:
            stack.append(vocabulary.atom_of(code))
            continue
        op, terms = operator_in(code), terms_in(code)
        if place == adequacy:
            # The filter itself comes first; the other terms require that its atoms are known.
            return stack[0]
        joined = stack[-terms:]
        del stack[-terms:]
        stack.append(Not.of(joined[0]) if op == OP_NOT else _CONNECTIVES[op].of(joined))
    return stack[0]


def _emit(filter_: Filter, rule: AbsenceRule, vocabulary: Vocabulary, codes: list[int]) -> None:
    if isinstance(filter_, Connective):
        terms = filter_.terms
        for term in terms:
            # Most terms are atoms, and every filter comes through here.
            if type(term) in PLAIN_ATOMS:
                codes.append(vocabulary.leaf(term, rule))
            else:
                _emit(term, rule, vocabulary, codes)
        codes.append(operator_code(_OPERATORS[type(filter_)], len(terms)))
    elif isinstance(filter_, Not):
        _emit(filter_.term, rule, vocabulary, codes)
        codes.append(_NOT)
    elif isinstance(filter_, Constant):
        codes.append(vocabulary.constant(value=filter_.value))
    else:
        codes.append(vocabulary.leaf(filter_, rule))


def _emit_adequacy(filter_: Filter, vocabulary: Vocabulary, codes: list[int]) -> None:
    """Require every atom to be known: in three-valued logic, `a or not a` is true if a is known."""
    atoms = dict.fromkeys(filter_.atoms())
    for atom in atoms:
        leaf = vocabulary.leaf(atom, AbsenceRule.UNKNOWN)
        codes += (leaf, leaf, _NOT, _EITHER)
    if atoms:
        codes.append(operator_code(OP_AND, len(atoms) + 1))


class Programs(NamedTuple):
    """Filters in postfix, consecutive, over the leaves of one vocabulary."""

    codes: NDArray[np.int32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, programs: Sequence[NDArray[np.int32]]) -> Programs:
        """Concatenate programs."""
        starts = np.zeros(len(programs) + 1, np.int64)
        np.cumsum([len(program) for program in programs], out=starts[1:])
        return cls(np.concatenate([np.empty(0, np.int32), *programs]), starts)

    @classmethod
    def joined(cls, parts: Sequence[Programs]) -> Programs:
        """Concatenate programs that are consecutive already."""
        lengths = [np.diff(part.starts) for part in parts]
        starts = np.zeros(sum(map(len, lengths)) + 1, np.int64)
        np.cumsum(np.concatenate(lengths), out=starts[1:])
        return cls(np.concatenate([part.codes for part in parts]), starts)

    def renumbered(self) -> tuple[NDArray[np.int32], Programs]:
        """Return the leaves in use, and the programs with these leaves renumbered."""
        is_leaf = self.codes >= 0
        is_used = np.zeros(int(self.codes.max(initial=NONE)) + 1, np.bool_)
        is_used[self.codes[is_leaf]] = True
        used = np.flatnonzero(is_used).astype(np.int32)
        numbers = np.cumsum(is_used, dtype=np.int32) - 1
        codes = self.codes.copy()
        codes[is_leaf] = numbers[codes[is_leaf]]
        return used, Programs(codes, self.starts)

    def some(self, numbers: NDArray[np.int32]) -> Programs:
        """Return the programs with these numbers."""
        if len(numbers) == len(self.starts) - 1:
            return self
        starts, taken = gather_parts(self.starts, numbers)
        return Programs(self.codes[taken], starts)

    def part(self, first: int, last: int) -> Programs:
        """Return some of the programs."""
        starts = self.starts[first : last + 1]
        return Programs(self.codes[starts[0] : starts[-1]], starts - starts[0])

    def program(self, number: int) -> NDArray[np.int32]:
        """Return the codes of one filter."""
        return self.codes[self.starts[number] : self.starts[number + 1]]

    @property
    def longest(self) -> int:
        """Return the length of the longest program, at least 1."""
        return int(np.diff(self.starts).max(initial=1))
