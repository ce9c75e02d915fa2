"""What a set of filters asks of events, numbered: leaves, and the variables that decide them.

A leaf is an atom under one reading of absence. It has two sides, where it is true and where it is
false; each side is some cells of its attribute's line, or a predicate that no line decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from tamis.diagrams.lines import BEGIN, END, Interval, Line
from tamis.diagrams.readings import intervals_of
from tamis.events import Event, Schema
from tamis.filters import FALSE, TRUE, Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom, ValueAtom
from tamis.filters.modes import View


class Reading(Enum):
    """How a leaf reads what is absent."""

    UNKNOWN = "sql"
    FALSE = "total"
    DEFAULT = "default"


READING_OF_MODE: Final = {
    Mode.SQL: Reading.UNKNOWN,
    Mode.STRICT: Reading.UNKNOWN,
    Mode.TOTAL: Reading.FALSE,
    Mode.DEFAULT: Reading.DEFAULT,
}


class Predicate(NamedTuple):
    """Something that no line decides, to be found out of every event."""

    atom: Filter
    truth: bool = True
    """Whether it asks where the atom is true, or where it is false."""
    completed: bool = False
    """Whether the schema's defaults stand in for what is absent."""


class Side(NamedTuple):
    """Where a leaf has one truth: in some cells, and where a predicate holds, or does not."""

    intervals: tuple[Interval, ...]
    predicate: Predicate | None = None
    negated: bool = False


class Leaf(NamedTuple):
    """An atom under one reading: its attribute, if its line matters, and its two sides."""

    attribute: str
    true: Side
    false: Side


EVERYWHERE: Final = Side(((BEGIN, END),))
NOWHERE: Final = Side(())


class Vocabulary:
    """The leaves that some filters are made of, each once."""

    def __init__(self, schema: Schema | None, *, total: bool = False) -> None:
        """Make an empty vocabulary; with `total`, no event ever lacks an attribute."""
        self.schema: Final = schema
        self._mode = Mode.TOTAL if total else Mode.DEFAULT
        self.leaves: Final[list[Leaf]] = [
            Leaf("", EVERYWHERE, NOWHERE),
            Leaf("", NOWHERE, EVERYWHERE),
        ]
        self.atoms: Final[list[Filter]] = [TRUE, FALSE]
        """For each leaf the atom, or constant, that it is of."""
        self.readings: Final[list[Reading]] = []
        """For each leaf but the two constants how it reads what is absent."""
        self._lines: dict[str, Line] = {}
        self._numbers: dict[tuple[Filter, Reading], int] = {}

    def constant(self, *, value: bool) -> int:
        """Return the leaf that is always true, or the one that is always false."""
        return 0 if value else 1

    def is_atom(self, leaf: int) -> bool:
        """Tell whether a leaf is an atom's, not a constant."""
        return leaf > 1

    def leaf(self, atom: Filter, reading: Reading) -> int:
        """Return the number of an atom's leaf."""
        number = self._numbers.get((atom, reading))
        if number is None:
            number = self._numbers[atom, reading] = len(self.leaves)
            self.leaves.append(self._make(atom, reading))
            self.atoms.append(atom)
            self.readings.append(reading)
        return number

    def line(self, name: str) -> Line:
        """Return the line of an attribute; absence lies on it unless no event lacks anything."""
        if name not in self._lines:
            declared = self.schema.get(name) if self.schema else None
            self._lines[name] = Line(declared, self._mode)
        return self._lines[name]

    def _make(self, atom: Filter, reading: Reading) -> Leaf:
        if isinstance(atom, Relation):
            return self._predicate_leaf(atom, "", (BEGIN, END), reading)
        assert isinstance(atom, Atom)  # noqa: S101 - every other filter is taken apart before
        line = self.line(atom.attribute)
        within = (BEGIN, END)
        if reading is Reading.UNKNOWN and isinstance(atom, ValueAtom):
            within = line.whole(atom.kind)
        intervals = intervals_of(atom, line)
        if intervals is None:
            return self._predicate_leaf(atom, atom.attribute, within, reading)
        if reading is Reading.DEFAULT and _default_passes(atom, line):
            intervals = (*intervals, (BEGIN, line.present()[0]))
        inside = merged(intervals)
        return Leaf(atom.attribute, Side(inside), Side(outside(inside, within)))

    @staticmethod
    def _predicate_leaf(atom: Filter, name: str, within: Interval, reading: Reading) -> Leaf:
        holds = Predicate(atom, completed=reading is Reading.DEFAULT)
        if isinstance(atom, Relation) and reading is Reading.UNKNOWN:
            # Unknown is not a matter of a line: a quotient may lack a value of attributes that
            # are all there.
            fails = Side((within,), Predicate(atom, truth=False))
        else:
            fails = Side((within,), holds, negated=True)
        return Leaf(name, Side((within,), holds), fails)


def merged(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the same positions as disjoint intervals that do not touch, ascending."""
    joined: list[Interval] = []
    for low, high in sorted(intervals):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        elif low < high:
            joined.append((low, high))
    return tuple(joined)


def outside(intervals: Iterable[Interval], within: Interval) -> tuple[Interval, ...]:
    """Return the positions of `within` that lie in none of the merged intervals."""
    gaps: list[Interval] = []
    at = within[0]
    for low, high in intervals:
        if at < min(low, within[1]):
            gaps.append((at, min(low, within[1])))
        at = max(at, high)
    if at < within[1]:
        gaps.append((at, within[1]))
    return tuple(gaps)


def _default_passes(atom: Atom, line: Line) -> bool:
    if line.default is None:
        return False
    return atom.truth(View(Event({atom.attribute: line.default}), False)) is True
