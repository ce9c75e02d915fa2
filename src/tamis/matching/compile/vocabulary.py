"""The leaves of a set of filters, numbered, and the variables that decide them.

A leaf is an atom under one rule of absence. It has two sides, where it is true and where it is
false; each side is a set of cells in its attribute's value order, or a predicate outside that
order.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.diagrams.atom_intervals import intervals_of
from tamis.diagrams.value_order import BEGIN, END, Interval, ValueOrder, merged, outside
from tamis.events import Schema
from tamis.filters import FALSE, TRUE, Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom
from tamis.filters.limits import NO_LIMITS
from tamis.languages import parse


class AbsenceRule(Enum):
    """How a leaf treats absence."""

    UNKNOWN = "sql"
    FALSE = "total"
    DEFAULT = "default"


ABSENCE_RULE_OF_MODE: Final = {
    Mode.SQL: AbsenceRule.UNKNOWN,
    Mode.STRICT: AbsenceRule.UNKNOWN,
    Mode.TOTAL: AbsenceRule.FALSE,
    Mode.DEFAULT: AbsenceRule.DEFAULT,
}


class Predicate(NamedTuple):
    """A test that the value order cannot decide, evaluated for every event."""

    atom: Filter
    truth: bool = True
    """Whether it tests that the atom is true, or that it is false."""
    completed: bool = False
    """Whether the schema's defaults replace absent values."""


class Side(NamedTuple):
    """One side of a leaf: some cells, and a predicate that holds or does not hold."""

    intervals: tuple[Interval, ...]
    predicate: Predicate | None = None
    negated: bool = False


class Leaf(NamedTuple):
    """An atom under one rule: its attribute, if its value order matters, and its two sides."""

    attribute: str
    true: Side
    false: Side


EVERYWHERE: Final = Side(((BEGIN, END),))
NOWHERE: Final = Side(())
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
        self._atoms: list[Filter] = []
        self._absence_rules: list[AbsenceRule] = []
        self._leaves: list[Leaf] = []
        self._value_orders: dict[str, ValueOrder] = {}
        self._numbers: dict[tuple[Filter, AbsenceRule], int] = {}

    def __len__(self) -> int:
        """Return the number of leaves, constants included."""
        return self._first + len(self._leaves)

    @property
    def size(self) -> int:
        """Return how much it holds: leaves, or the atoms that led to them if those are more."""
        return self._first + max(len(self._leaves), len(self._numbers))

    def some(self, numbers: NDArray[np.integer]) -> Vocabulary:
        """Return a vocabulary of some of the atoms' leaves, ascending, numbered from 2 on.

        This one stays as it is, for those who still read programs in its terms.
        """
        saved = self._saved.some(numbers[numbers < self._first] - 2)
        kept = Vocabulary(self.schema, total=self._total, saved=saved)
        for place in (numbers[numbers >= self._first] - self._first).tolist():
            atom, rule = self._atoms[place], self._absence_rules[place]
            kept._numbers[atom, rule] = len(kept)
            kept._atoms.append(atom)
            kept._absence_rules.append(rule)
            kept._leaves.append(self._leaves[place])
        return kept

    def constant(self, *, value: bool) -> int:
        """Return the leaf that is always true or always false."""
        return 0 if value else 1

    def is_atom(self, leaf: int) -> bool:
        """Return whether a leaf is an atom, not a constant."""
        return leaf > 1

    def leaf(self, atom: Filter, rule: AbsenceRule) -> int:
        """Return the number of an atom's leaf; check an atom against the schema only once."""
        number = self._numbers.get((atom, rule))
        if number is None:
            bound = atom if self.schema is None else atom.bind(self.schema)
            number = self._numbers.get((bound, rule))
            if number is None:
                number = self._new_leaf(bound, rule)
            self._numbers[atom, rule] = self._numbers[bound, rule] = number
        return number

    def _new_leaf(self, atom: Filter, rule: AbsenceRule) -> int:
        self._leaves.append(self._make(atom, rule))
        self._atoms.append(atom)
        self._absence_rules.append(rule)
        return self._first + len(self._leaves) - 1

    def leaf_of(self, number: int) -> Leaf:
        """Return a leaf by its number."""
        if number >= self._first:
            return self._leaves[number - self._first]
        return self._make(*self._saved.read(number - 2)) if number > 1 else _CONSTANTS[number][1]

    def atom_of(self, number: int) -> Filter:
        """Return the atom or constant of a leaf."""
        if number >= self._first:
            return self._atoms[number - self._first]
        return self._saved.read(number - 2)[0] if number > 1 else _CONSTANTS[number][0]

    def saved(self) -> SavedLeaves:
        """Return all leaves except the constants, ready to be saved."""
        return self._saved.more(self._atoms, self._absence_rules)

    def value_order(self, name: str) -> ValueOrder:
        """Return an attribute's value order, with absence unless no event lacks anything."""
        if name not in self._value_orders:
            declared = self.schema.get(name) if self.schema else None
            self._value_orders[name] = ValueOrder(declared, self._mode)
        return self._value_orders[name]

    def _make(self, atom: Filter, rule: AbsenceRule) -> Leaf:
        if isinstance(atom, Relation):
            return self._predicate_leaf(atom, "", (BEGIN, END), rule)
        assert isinstance(atom, Atom)  # noqa: S101 - all other filters are already decomposed
        value_order = self.value_order(atom.attribute)
        within = (BEGIN, END)
        known = atom.known() if rule is AbsenceRule.UNKNOWN else None
        if known is not None:
            (within,) = intervals_of(known, value_order) or (within,)
        intervals = intervals_of(atom, value_order)
        if intervals is None:
            return self._predicate_leaf(atom, atom.attribute, within, rule)
        if rule is AbsenceRule.DEFAULT and atom.passes(value_order.default):
            intervals = (*intervals, (BEGIN, value_order.present()[0]))
        inside = merged(intervals)
        return Leaf(atom.attribute, Side(inside), Side(outside(inside, within)))

    @staticmethod
    def _predicate_leaf(atom: Filter, name: str, within: Interval, rule: AbsenceRule) -> Leaf:
        holds = Predicate(atom, completed=rule is AbsenceRule.DEFAULT)
        if isinstance(atom, Relation) and rule is AbsenceRule.UNKNOWN:
            # The value order cannot show where it is unknown: a quotient may have no value although
            # all its attributes are present.
            fails = Side((within,), Predicate(atom, truth=False))
        else:
            fails = Side((within,), holds, negated=True)
        return Leaf(name, Side((within,), holds), fails)
