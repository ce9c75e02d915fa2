"""Filters in the Tamis language to programs, many in one call: only what is written plainly.

Plain are tests of a name: comparisons with a number or a text, `between`, `in`, and words before a
text, joined by `and`, `or`, `xor`, `not` and parentheses. Whatever else a text has, it is declined,
and the parser decides. A test is not understood here, only where it ends: the distinct ones are
numbered, and the parser reads each of them once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.jit import inlined, kernel, mixed_in
from tamis.matching.compile.program_kernels import OP_AND, OP_NOT, OP_OR, OP_XOR, code_of

# Precedences of what waits on the stack; `not` is applied as soon as its term is complete.
_OPEN, _OR, _XOR, _AND, _NOT = range(5)

# What is found where something else should be.
_NOTHING: Final = -1

_OPERATORS: Final = np.array([NONE, OP_OR, OP_XOR, OP_AND, OP_NOT], np.int64)

_IN: Final = np.frombuffer(b"in", np.uint8)
_BETWEEN: Final = np.frombuffer(b"between", np.uint8)

# A number of more characters might not fit into 64 bits.
_MAX_NUMBER_CHARACTERS: Final = 18


class TextLimits(NamedTuple):
    """Texts beyond these are declined."""

    characters: int
    atoms: int
    open: int
    """Parentheses and `not` inside each other."""


class DistinctAtoms(NamedTuple):
    """The tests in a batch of texts, each once."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    slots: NDArray[np.int32]
    """A hash table: the number of an atom, or NONE; a power of two of them."""
    size: NDArray[np.int64]
    """How many there are."""


class TextStack(NamedTuple):
    """Memory for the operators and terms of one text that wait."""

    levels: NDArray[np.int64]
    counts: NDArray[np.int64]
    """How many terms each operator has so far."""


@inlined
def _lower(byte: int) -> int:
    return int(byte) | 32


@inlined
def _is_digit(byte: int) -> bool:
    return 48 <= byte <= 57


@inlined
def _is_word(byte: int) -> bool:
    return 48 <= byte <= 57 or 97 <= (int(byte) | 32) <= 122 or byte == 95


@kernel
def _after_blanks(data: NDArray[np.uint8], at: int, end: int) -> int:
    while at < end and data[at] == 32:
        at += 1
    return at


@kernel
def _after_word(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where a name, or a keyword, ends; where it begins if there is none."""
    if at >= end or not _is_word(data[at]) or _is_digit(data[at]):
        return at
    while at < end:
        while at < end and _is_word(data[at]):
            at += 1
        if at + 1 < end and data[at] == 46 and _is_word(data[at + 1]):
            at += 1
        else:
            break
    return at


@kernel
def _connective(data: NDArray[np.uint8], at: int, after: int) -> int:
    """Return the level of the word between two positions, or _NOTHING."""
    if after - at == 2:
        return _OR if _lower(data[at]) == 111 and _lower(data[at + 1]) == 114 else _NOTHING
    if after - at != 3:
        return _NOTHING
    first, second, third = _lower(data[at]), _lower(data[at + 1]), _lower(data[at + 2])
    if first == 97 and second == 110 and third == 100:
        return _AND
    if first == 120 and second == 111 and third == 114:
        return _XOR
    return _NOT if first == 110 and second == 111 and third == 116 else _NOTHING


@kernel
def _after_comparison(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where a comparison operator ends; _NOTHING if there is none, or one of no meaning."""
    if at >= end:
        return _NOTHING
    first, second = data[at], data[at + 1] if at + 1 < end else np.uint8(32)
    third = data[at + 2] if at + 2 < end else np.uint8(32)
    if first == 61:
        if second == 61:
            return at + 2 if third != 61 else _NOTHING
        return at + 1 if second not in (60, 62, 126) else _NOTHING
    if first == 33:
        return at + 2 if second == 61 else _NOTHING
    if first == 60:
        return at + 2 if second in (61, 62) else at + 1
    if first == 62:
        return at + 2 if second == 61 else at + 1
    return _NOTHING


@kernel
def _after_number(data: NDArray[np.uint8], at: int, end: int) -> int:
    start = at
    while at < end and _is_digit(data[at]):
        at += 1
    if at + 1 < end and data[at] == 46 and _is_digit(data[at + 1]):
        at += 1
        while at < end and _is_digit(data[at]):
            at += 1
    is_whole = at == end or not (_is_word(data[at]) or data[at] == 46)
    return at if is_whole and at - start <= _MAX_NUMBER_CHARACTERS else _NOTHING


@kernel
def _after_constant(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where a constant ends; _NOTHING if it is not a plain number or text."""
    if at >= end:
        return _NOTHING
    first = data[at]
    if _is_digit(first):
        return _after_number(data, at, end)
    if first == 45 and at + 1 < end and _is_digit(data[at + 1]):
        return _after_number(data, at + 1, end)
    return _after_quoted(data, at, end)


@kernel
def _after_quoted(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where a text in quotes ends; _NOTHING if there is none, or one with escapes."""
    if at >= end or data[at] not in (34, 39):
        return _NOTHING
    first = data[at]
    at += 1
    while at < end and data[at] != first:
        if not 32 <= data[at] < 127 or data[at] == 92:
            return _NOTHING
        at += 1
    return at + 1 if at < end else _NOTHING


@kernel
def _after_list(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return where a list in parentheses ends, and how many constants it has."""
    if at >= end or data[at] != 40:
        return _NOTHING, 0
    count = 0
    while True:
        at = _after_constant(data, _after_blanks(data, at + 1, end), end)
        if at == _NOTHING:
            return _NOTHING, 0
        at, count = _after_blanks(data, at, end), count + 1
        if at < end and data[at] == 41:
            return at + 1, count
        if at >= end or data[at] != 44:
            return _NOTHING, 0


@kernel
def _after_range(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where two constants with `and` between them end."""
    at = _after_constant(data, at, end)
    if at == _NOTHING:
        return _NOTHING
    at = _after_blanks(data, at, end)
    after = _after_word(data, at, end)
    if _connective(data, at, after) != _AND:
        return _NOTHING
    return _after_constant(data, _after_blanks(data, after, end), end)


@kernel
def _is_word_at(data: NDArray[np.uint8], at: int, after: int, word: NDArray[np.uint8]) -> bool:
    if after - at != len(word):
        return False
    for place in range(len(word)):  # noqa: SIM110 - a kernel has no generators
        if data[at + place] != word[place]:
            return False
    return True


@kernel
def _after_test(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Return where the test of a name ends, and as how many atoms it counts."""
    at = _after_blanks(data, at, end)
    after = _after_comparison(data, at, end)
    if after != _NOTHING:
        return _after_constant(data, _after_blanks(data, after, end), end), 1
    after = _after_word(data, at, end)
    if after == at or _connective(data, at, after) != _NOTHING:
        return _NOTHING, 0
    value = _after_blanks(data, after, end)
    if _is_word_at(data, at, after, _IN):
        return _after_list(data, value, end)
    if _is_word_at(data, at, after, _BETWEEN):
        return _after_range(data, value, end), 1
    # One word or two before a text: `contains`, `starts with`.
    after = _after_word(data, value, end)
    if _connective(data, value, after) != _NOTHING:
        return _NOTHING, 0
    return _after_quoted(data, _after_blanks(data, after, end), end), 1


@kernel
def _number_of(data: NDArray[np.uint8], start: int, end: int, atoms: DistinctAtoms) -> int:
    """Return the number of the atom between two positions."""
    mask, mixed = len(atoms.slots) - 1, 0
    for at in range(start, end):
        mixed = mixed_in(mixed, data[at])
    slot = (mixed ^ (mixed >> 20)) & mask
    while atoms.slots[slot] != NONE:
        known = atoms.slots[slot]
        first, size = atoms.starts[known], end - start
        if atoms.ends[known] - first == size:
            same = 0
            while same < size and data[first + same] == data[start + same]:
                same += 1
            if same == size:
                return int(known)
        slot = (slot + 1) & mask
    number = int(atoms.size[0])
    atoms.slots[slot], atoms.starts[number], atoms.ends[number] = number, start, end
    atoms.size[0] += 1
    return number


@inlined
def _may_precede_number(byte: int) -> bool:
    return byte in (32, 40, 44, 60, 61, 62)


@kernel
def split_atoms(
    data: NDArray[np.uint8],
    atoms: DistinctAtoms,
    text: NDArray[np.uint8],
    shapes: DistinctAtoms,
    shape_of: NDArray[np.int32],
    starts: NDArray[np.int64],
    integers: NDArray[np.int64],
) -> None:
    """Write each atom as a shape, with 0 for its integers, and these integers.

    The shapes are numbered, and their text is written; an atom that has no integers, or a text in
    quotes, has none. What is an integer follows from what is before and after its digits.
    """
    written, count = 0, 0
    for atom in range(atoms.size[0]):
        at, end = atoms.starts[atom], atoms.ends[atom]
        begin, first = written, count
        is_plain = True
        while at < end and is_plain:
            after = at
            while after < end and _is_digit(data[after]):
                after += 1
            if after == at:
                text[written] = data[at]
                is_plain = data[at] not in (34, 39)
                written, at = written + 1, at + 1
                continue
            # No atom begins with a digit, nor with a sign.
            is_negative = data[at - 1] == 45
            before = data[at - 2] if is_negative else data[at - 1]
            is_whole = after == end or not (_is_word(data[after]) or data[after] == 46)
            if _may_precede_number(before) and is_whole and after - at <= _MAX_NUMBER_CHARACTERS:
                value = 0
                for place in range(at, after):
                    value = 10 * value + int(data[place]) - 48
                integers[count] = -value if is_negative else value
                text[written] = 48
                count, written = count + 1, written + 1
            else:
                # One by one: assigning a slice takes two seconds to compile.
                for place in range(at, after):
                    text[written] = data[place]
                    written += 1
            at = after
        known = shapes.size[0]
        shape_of[atom] = NONE
        if is_plain and count > first:
            shape_of[atom] = _number_of(text, begin, written, shapes)
        else:
            count = first
        if shapes.size[0] == known:
            written = begin
        starts[atom + 1] = count


@kernel
def _compile_text(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    limits: TextLimits,
    atoms: DistinctAtoms,
    stack: TextStack,
    codes: NDArray[np.int32],
    size: int,
) -> int:
    """Append the program of one text to the codes; return where it ends, _NOTHING if declined.

    The operator above a complete term is not written before it is known what the term becomes part
    of: nested terms of one operator are one, and `not not` is nothing.
    """
    levels, counts = stack
    depth, atom_count = 0, 0
    while True:
        # An operand: prefixes, and a test.
        at = _after_blanks(data, at, end)
        if at < end and data[at] == 40:
            if depth >= limits.open:
                return _NOTHING
            levels[depth], counts[depth] = _OPEN, 0
            depth, at = depth + 1, at + 1
            continue
        after = _after_word(data, at, end)
        if _connective(data, at, after) == _NOT:
            if depth >= limits.open:
                return _NOTHING
            levels[depth], counts[depth] = _NOT, 0
            depth, at = depth + 1, after
            continue
        if after == at:
            return _NOTHING
        start = at
        at, cost = _after_test(data, after, end)
        atom_count += cost
        if at == _NOTHING or atom_count > limits.atoms:
            return _NOTHING
        codes[size] = _number_of(data, start, at, atoms)
        size += 1
        # The term that is complete: its operator, not written yet, and whether it is negated.
        own, terms, negated = _OPEN, 1, False
        while True:
            while depth > 0 and levels[depth - 1] == _NOT:
                depth, negated = depth - 1, not negated
            at = _after_blanks(data, at, end)
            level, after = _OPEN, at
            if at < end and data[at] != 41:
                after = _after_word(data, at, end)
                level = _connective(data, at, after)
                if level in (_NOTHING, _NOT):
                    return _NOTHING
            # Join what binds more tightly than the operator that follows.
            while depth > 0 and levels[depth - 1] > level:
                size, terms = _join(codes, size, own, terms, negated, levels[depth - 1])
                depth -= 1
                own, terms, negated = levels[depth], counts[depth] + terms, False
                while depth > 0 and levels[depth - 1] == _NOT:
                    depth, negated = depth - 1, not negated
            if level != _OPEN:
                size, terms = _join(codes, size, own, terms, negated, level)
                if depth > 0 and levels[depth - 1] == level:
                    counts[depth - 1] += terms
                else:
                    levels[depth], counts[depth] = level, terms
                    depth += 1
                at = after
                break
            if at == end:
                if depth > 0:
                    return _NOTHING
                return _join(codes, size, own, terms, negated, _OPEN)[0]
            if depth == 0:
                return _NOTHING
            depth, at = depth - 1, at + 1


@inlined
def _join(
    codes: NDArray[np.int32], size: int, own: int, terms: int, negated: bool, parent: int
) -> tuple[int, int]:
    """Write the operator of a term unless its parent has the same; return the end, and terms."""
    if own == parent and own != _OPEN and not negated:
        return size, terms
    if own != _OPEN:
        codes[size] = code_of(_OPERATORS[own], terms)
        size += 1
    if negated:
        codes[size] = code_of(OP_NOT, 1)
        size += 1
    return size, 1


@kernel
def compile_texts(
    data: NDArray[np.uint8],
    text_ends: NDArray[np.int64],
    limits: TextLimits,
    atoms: DistinctAtoms,
    stack: TextStack,
    codes: NDArray[np.int32],
    ends: NDArray[np.int64],
) -> None:
    """Write the programs of texts, over the numbers of their atoms; a declined text has none."""
    size, start = 0, 0
    for text in range(len(text_ends)):
        end = text_ends[text]
        if end - start <= limits.characters:
            after = _compile_text(data, start, end, limits, atoms, stack, codes, size)
            if after != _NOTHING:
                size = after
        ends[text] = size
        start = end
