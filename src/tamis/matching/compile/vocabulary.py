"""The leaves of a set of filters, numbered, and the shapes that many of them share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.kernels import NONE
from tamis.diagrams.value_order import ValueOrder
from tamis.events import Schema
from tamis.filters import FALSE, TRUE, Filter, Mode
from tamis.filters.atoms import Atom
from tamis.filters.limits import NO_LIMITS
from tamis.languages import parse
from tamis.matching.compile.leaf_kernels import (
    MAX_EXACT,
    MAX_INTEGERS,
    enter_leaves,
    new_leaf_table,
    number_leaves,
)
from tamis.matching.compile.leaves import (
    EVERYWHERE,
    NOWHERE,
    AbsenceRule,
    Leaf,
    LeafSet,
    LeafShape,
    integers_of,
    make_leaf,
    sample_integers,
    shape_of,
    with_integers,
)
from tamis.matching.compile.program_kernels import gather_parts

_CONSTANTS: Final = (
    (TRUE, Leaf("", EVERYWHERE, NOWHERE)),
    (FALSE, Leaf("", NOWHERE, EVERYWHERE)),
)
_ABSENCE_RULES: Final = tuple(AbsenceRule)


class SavedLeaves(NamedTuple):
    """The leaves of a snapshot as texts, decoded on demand."""

    text: NDArray[np.uint8]
    ends: NDArray[np.int64]
    absence_rules: NDArray[np.int8]

    @classmethod
    def nothing(cls) -> SavedLeaves:
        """Return no leaves."""
        return cls(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int8))

    def more(self, atoms: Iterable[Filter], rules: Iterable[AbsenceRule]) -> SavedLeaves:
        """Return a copy with more leaves."""
        texts = [str(atom).encode("utf-8", "surrogatepass") for atom in atoms]
        ends = len(self.text) + np.cumsum([len(text) for text in texts], dtype=np.int64)
        numbers = [_ABSENCE_RULES.index(rule) for rule in rules]
        return SavedLeaves(
            np.concatenate((self.text, np.frombuffer(b"".join(texts), np.uint8))),
            np.concatenate((self.ends, ends)),
            np.concatenate((self.absence_rules, np.array(numbers, np.int8))),
        )

    def some(self, numbers: NDArray[np.integer]) -> SavedLeaves:
        """Return some of the leaves."""
        lengths = np.diff(self.ends, prepend=0)[numbers]
        ends = np.cumsum(lengths)
        taken = np.repeat(self.ends[numbers] - ends, lengths) + np.arange(lengths.sum())
        return SavedLeaves(self.text[taken], ends, self.absence_rules[numbers])

    def read(self, number: int) -> tuple[Filter, AbsenceRule]:
        """Return one atom and its rule of absence."""
        start = self.ends[number - 1] if number else 0
        text = self.text[start : self.ends[number]].tobytes().decode("utf-8", "surrogatepass")
        return parse(text, limits=NO_LIMITS), _ABSENCE_RULES[self.absence_rules[number]]


class Vocabulary:
    """The leaves of some filters, each once: first two constants, then atoms."""

    def __init__(
        self, schema: Schema | None, *, total: bool = False, saved: SavedLeaves | None = None
    ) -> None:
        """Create a vocabulary of saved leaves; with `total`, no event lacks an attribute."""
        self.schema: Final = schema
        self._total = total
        self._mode = Mode.TOTAL if total else Mode.DEFAULT
        self._saved = saved or SavedLeaves.nothing()
        # New atoms are looked up only among new ones; looking among the saved would decode all of
        # them.
        self._first = 2 + len(self._saved.ends)
        self._leaves = _GrowingLeaves()
        self._value_orders: dict[str, ValueOrder] = {}
        self._numbers: dict[tuple[Filter, AbsenceRule], int] = {}
        """Of atoms that are no integers' shape."""
        self._numbers_of_integers: dict[tuple[Filter, AbsenceRule], int] = {}
        """Of other atoms, as far as they were asked for one by one."""
        self._shapes: dict[tuple[Filter, AbsenceRule], int] = {}

    def __len__(self) -> int:
        """Return the number of leaves, constants included."""
        return self._first + len(self._leaves)

    @property
    def size(self) -> int:
        """Return how much it holds: leaves, or the atoms that led to them if those are more."""
        asked = len(self._numbers) + len(self._numbers_of_integers)
        return self._first + max(len(self._leaves), asked)

    def some(self, numbers: NDArray[np.integer]) -> Vocabulary:
        """Return a vocabulary of some of the atoms' leaves, ascending, numbered from 2 on.

        This one stays as it is, for those who still read programs in its terms.
        """
        saved = self._saved.some(numbers[numbers < self._first] - 2)
        kept = Vocabulary(self.schema, total=self._total, saved=saved)
        found = self._leaves.some(numbers[numbers >= self._first] - self._first)
        places = np.unique(found.shape, return_index=True)[1].tolist()
        for shape, place in zip(found.shapes, places, strict=True):
            number = kept._leaves.add_shape(shape)
            if shape.integers:
                kept._shapes[shape.atom, shape.rule] = number
            else:
                kept._numbers[shape.atom, shape.rule] = kept._first + place
        kept._leaves.find(*found[1:])
        return kept

    def constant(self, *, value: bool) -> int:
        """Return the leaf that is always true or always false."""
        return 0 if value else 1

    def is_atom(self, leaf: int) -> bool:
        """Return whether a leaf is an atom, not a constant."""
        return leaf > 1

    def leaf(self, atom: Filter, rule: AbsenceRule) -> int:
        """Return the number of an atom's leaf; check an atom against the schema only once."""
        integers = integers_of(atom)
        known = self._numbers_of_integers if integers else self._numbers
        number = known.get((atom, rule))
        if number is None:
            number = known[atom, rule] = self._find(atom, rule, integers)
        return number

    def _find(self, atom: Filter, rule: AbsenceRule, integers: Sequence[int]) -> int:
        bound = self._bound(atom)
        if bound != atom:
            return self.leaf(bound, rule)
        if integers and max(map(abs, integers)) <= MAX_EXACT:
            shape = self.shape(with_integers(atom, sample_integers(len(integers))), rule)
            found = self.find(
                np.array([shape], np.int32),
                np.array([0, len(integers)], np.int64),
                np.array(integers, np.int64),
            )[0]
            if found != NONE:
                return int(found)
        return self._find_alone(atom, rule)

    def _bound(self, atom: Filter) -> Filter:
        return atom if self.schema is None else atom.bind(self.schema)

    def _find_alone(self, atom: Filter, rule: AbsenceRule) -> int:
        number = self._numbers.get((atom, rule))
        if number is None:
            leaf = make_leaf(atom, rule, self._value_order_of(atom))
            shape = self._leaves.add_shape(LeafShape(atom, rule, leaf))
            none = np.empty(0, np.int64)
            found = self.find(np.array([shape], np.int32), np.zeros(2, np.int64), none)
            number = self._numbers[atom, rule] = int(found[0])
        return number

    def shape(self, atom: Filter, rule: AbsenceRule) -> int:
        """Return the number of the shape of an atom with sample integers.

        It is NONE if leaves with other integers may be of another shape.
        """
        number = self._shapes.get((atom, rule))
        if number is None:
            self._bound(atom)
            value_order = self._value_order_of(atom)
            assert isinstance(atom, Atom)  # noqa: S101
            assert value_order is not None  # noqa: S101
            shape = shape_of(atom, rule, value_order)
            number = NONE if shape is None else self._leaves.add_shape(shape)
            self._shapes[atom, rule] = number
        return number

    def find(
        self,
        shapes: NDArray[np.int32],
        starts: NDArray[np.int64],
        integers: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Return the numbers of leaves of some shapes; NONE where a leaf is not like its shape."""
        numbers = self._leaves.find(shapes, starts, integers)
        return np.where(numbers == NONE, numbers, numbers + np.int32(self._first))

    def leaf_set(self, numbers: NDArray[np.int32]) -> LeafSet:
        """Return some leaves, ascending, in columns."""
        is_new = numbers >= self._first
        special = [self._special_shape(number) for number in numbers[~is_new].tolist()]
        found = self._leaves.some(numbers[is_new] - self._first)
        count = len(special)
        return LeafSet(
            [*special, *found.shapes],
            np.concatenate((np.arange(count, dtype=np.int32), found.shape + np.int32(count))),
            np.concatenate((np.zeros(count, np.int64), found.starts)),
            found.integers,
        )

    def _special_shape(self, number: int) -> LeafShape:
        """Return a constant or a saved leaf as a shape of its own."""
        if number < 2:
            return LeafShape(_CONSTANTS[number][0], AbsenceRule.FALSE, _CONSTANTS[number][1])
        atom, rule = self._saved.read(number - 2)
        return LeafShape(atom, rule, make_leaf(atom, rule, self._value_order_of(atom)))

    def atom_of(self, number: int) -> Filter:
        """Return the atom or constant of a leaf."""
        if number >= self._first:
            return self._leaves.atom(number - self._first)[0]
        return self._saved.read(number - 2)[0] if number > 1 else _CONSTANTS[number][0]

    def saved(self) -> SavedLeaves:
        """Return all leaves except the constants, ready to be saved."""
        leaves = [self._leaves.atom(number) for number in range(len(self._leaves))]
        return self._saved.more([atom for atom, _ in leaves], [rule for _, rule in leaves])

    def value_order(self, name: str) -> ValueOrder:
        """Return an attribute's value order, with absence unless no event lacks anything."""
        if name not in self._value_orders:
            declared = self.schema.get(name) if self.schema else None
            self._value_orders[name] = ValueOrder(declared, self._mode)
        return self._value_orders[name]

    def _value_order_of(self, atom: Filter) -> ValueOrder | None:
        return self.value_order(atom.attribute) if isinstance(atom, Atom) else None


class _GrowingLeaves:
    """Leaves in columns that grow: all that a reader has seen stays in its place."""

    def __init__(self) -> None:
        self._table = new_leaf_table(16, 16)
        self._shapes: list[LeafShape] = []
        self._gaps = np.zeros(16, np.int8)

    def __len__(self) -> int:
        return int(self._table.size[0])

    def add_shape(self, shape: LeafShape) -> int:
        """Add a shape; return its number."""
        number = len(self._shapes)
        if number == len(self._gaps):
            self._gaps = np.append(self._gaps, np.zeros_like(self._gaps))
        self._gaps[number] = shape.gap
        self._shapes.append(shape)
        return number

    def find(
        self,
        shapes: NDArray[np.int32],
        starts: NDArray[np.int64],
        integers: NDArray[np.int64],
    ) -> NDArray[np.int32]:
        """Return the numbers of leaves, which are added if they are new."""
        self._reserve(len(shapes), len(integers))
        numbers = np.empty(len(shapes), np.int32)
        number_leaves(self._table, self._gaps, shapes, starts, integers, numbers)
        return numbers

    def _reserve(self, leaves: int, integers: int) -> None:
        """Make space for this many more leaves and integers, and the integers of one to look up."""
        old = self._table
        size = len(self)
        used = int(old.starts[size])
        # One more leaf is written before it is found to be known.
        if size + leaves < len(old.shape) and used + integers + MAX_INTEGERS < len(old.integers):
            return
        larger = new_leaf_table(2 * (size + leaves), 2 * (used + integers + MAX_INTEGERS))
        larger.shape[:size] = old.shape[:size]
        larger.starts[: size + 1] = old.starts[: size + 1]
        larger.integers[:used] = old.integers[:used]
        larger.size[0] = size
        enter_leaves(larger)
        self._table = larger

    def some(self, numbers: NDArray[np.integer]) -> LeafSet:
        """Return some of the leaves."""
        table = self._table
        shapes, shape = np.unique(table.shape[numbers], return_inverse=True)
        starts, taken = gather_parts(table.starts, numbers)
        own = self._shapes
        return LeafSet(
            [own[number] for number in shapes.tolist()],
            shape.astype(np.int32),
            starts,
            table.integers[taken],
        )

    def atom(self, number: int) -> tuple[Filter, AbsenceRule]:
        """Return the atom of a leaf, and its rule."""
        table = self._table
        shape = self._shapes[table.shape[number]]
        if not shape.integers:
            return shape.atom, shape.rule
        integers = table.integers[table.starts[number] : table.starts[number + 1]]
        return with_integers(shape.atom, integers.tolist()), shape.rule
