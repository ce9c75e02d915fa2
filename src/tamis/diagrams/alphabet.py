"""The variables of a diagram: what some filters ask of the attributes, in one order.

Of an attribute that holds one value, the cuts of its line are the variables: the attribute lies
in exactly one of the cells between them. Of an attribute that may hold several, the cells
themselves are: each is occupied or not, independently. What is no interval of the line is a free
variable per question; where questions imply each other, each is written as the disjunction of all
that imply it, so that again every assignment is possible. The diagram needs no other theory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, product
from typing import Final, NamedTuple

from tamis.diagrams.kernels import FREE
from tamis.diagrams.lines import BEGIN, END, Cut, Interval, Line
from tamis.diagrams.readings import TextQuestion, intervals_of, question_of
from tamis.events import Attribute, Bits, Kind, Schema, Type
from tamis.filters import Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom, HasBits, ValueAtom

Cells = int
"""A set of cells of a line, as a bit mask."""

# Texts read from their end: a line of its own, on which suffixes are intervals.
BACKWARD: Final = Line(Attribute(Type.STR), Mode.TOTAL)


class Scale:
    """The cells of a line between the cuts that some filters need."""

    def __init__(self, cuts: Iterable[Cut]) -> None:
        self.cuts: Final[Sequence[Cut]] = sorted(set(cuts) - {BEGIN, END})

    @property
    def size(self) -> int:
        """Return the number of cells."""
        return len(self.cuts) + 1

    @cached_property
    def bounds(self) -> Sequence[Interval]:
        """Return the two cuts of each cell."""
        return list(pairwise((BEGIN, *self.cuts, END)))

    @cached_property
    def _number(self) -> Mapping[Cut, int]:
        inner = {cut: number for number, cut in enumerate(self.cuts, 1)}
        return {BEGIN: 0, END: self.size, **inner}

    def number(self, cut: Cut) -> int:
        """Return the number of the cell that begins at a cut; the end's is one past the last."""
        return self._number[cut]

    def cells_in(self, intervals: Iterable[Interval]) -> Cells:
        """Return the cells that make up the intervals."""
        cells = 0
        for low, high in intervals:
            cells |= ((1 << self._number[high]) - 1) & -(1 << self._number[low])
        return cells


class Meaning(NamedTuple):
    """What a variable of the diagram says."""

    attribute: str
    subject: Cut | Interval | int | Bits | TextQuestion | Relation
    """Lies left of a cut; occupies a cell; has a bit, or bits; passes a test; holds; is known."""
    role: str


class Inventory:
    """What some filters ask of one attribute."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.cuts: set[Cut] = set(line.present())
        self.suffix_cuts: set[Cut] = set()
        self.questions: dict[tuple[str, str], TextQuestion] = {}
        self.masks: dict[Bits, None] = {}

    def add(self, atom: Atom) -> None:
        """Take note of what an atom asks."""
        if isinstance(atom, ValueAtom):
            self.add_kind(atom.kind)
        intervals = intervals_of(atom, self.line)
        if intervals is not None:
            self.cuts.update(cut for interval in intervals for cut in interval)
        elif isinstance(atom, HasBits):
            single = [Bits((number,)) for number in atom.bits]
            self.masks |= dict.fromkeys((atom.bits,) if atom.op == "all" else single)
        elif isinstance(atom, ValueAtom):
            self._add_question(question_of(atom))

    def add_kind(self, kind: Kind) -> None:
        """Take note that a filter asks for the kind."""
        self.cuts.update(self.line.whole(kind))

    def _add_question(self, question: TextQuestion) -> None:
        self.questions[question.key] = question
        if question.prefix:
            self.cuts.update(prefix_interval(self.line, question.prefix))
        if question.suffix:
            self.suffix_cuts.update(suffix_interval(question.suffix))


def prefix_interval(line: Line, prefix: str) -> Interval:
    """Return the texts that begin with `prefix`, as an interval of the line."""
    return line.below(Kind.TEXT, prefix), line.above_prefix(prefix)


def suffix_interval(suffix: str) -> Interval:
    """Return the texts that end with `suffix`, as an interval of the backward line."""
    return prefix_interval(BACKWARD, suffix[::-1])


class Letters(NamedTuple):
    """The variables of one attribute."""

    line: Line
    scale: Scale
    forward: Sequence[int]
    """One per cut, or, where there may be several values, one per cell."""
    suffix_scale: Scale
    backward: Sequence[int]
    questions: dict[tuple[str, str], tuple[TextQuestion, int]]
    bits: dict[Bits, int]


class Alphabet:
    """All variables that some filters need, numbered in the order of the diagram."""

    def __init__(
        self, filters: Iterable[Filter], mode: Mode, schema: Schema | None, *, many: bool
    ) -> None:
        self.meanings: list[Meaning] = []
        self.lines: list[int] = []
        self.letters: dict[str, Letters] = {}
        self.relations: dict[Relation, tuple[int, int]] = {}
        inventories, relations = _take_stock(filters, mode, schema, many=many)
        for name, inventory in inventories.items():
            self.letters[name] = self._spell(name, inventory)
        for relation in relations:
            self.relations[relation] = (
                self._free(Meaning("", relation, "holds")),
                self._free(Meaning("", relation, "is known")),
            )

    def _spell(self, name: str, inventory: Inventory) -> Letters:
        line, scale = inventory.line, Scale(inventory.cuts)
        suffix_scale = Scale(inventory.suffix_cuts)
        return Letters(
            line=line,
            scale=scale,
            forward=self._positions(name, line, scale, "forward"),
            suffix_scale=suffix_scale,
            backward=self._positions(name, line, suffix_scale, "backward"),
            questions={
                key: (question, self._free(Meaning(name, question, "passes")))
                for key, question in inventory.questions.items()
                if not question.only_suffix
            },
            bits={bits: self._free(Meaning(name, bits, "has")) for bits in _bit_sets(inventory)},
        )

    def _positions(self, name: str, line: Line, scale: Scale, role: str) -> list[int]:
        if line.many:
            return [self._free(Meaning(name, bounds, role)) for bounds in scale.bounds]
        number = len(self.lines)
        self.lines += [number] * len(scale.cuts)
        self.meanings += [Meaning(name, cut, role) for cut in scale.cuts]
        return list(range(number, len(self.lines)))

    def _free(self, meaning: Meaning) -> int:
        self.lines.append(FREE)
        self.meanings.append(meaning)
        return len(self.lines) - 1


def _bit_sets(inventory: Inventory) -> Iterable[Bits]:
    if inventory.line.many:
        return inventory.masks
    return [Bits((number,)) for number in sorted(set().union(*inventory.masks))]


def _take_stock(
    filters: Iterable[Filter], mode: Mode, schema: Schema | None, *, many: bool
) -> tuple[dict[str, Inventory], list[Relation]]:
    inventories: dict[str, Inventory] = {}
    relations: dict[Relation, None] = {}

    def inventory_of(name: str) -> Inventory:
        if name not in inventories:
            declared = schema.get(name) if schema else None
            inventories[name] = Inventory(Line(declared, mode, many=many))
        return inventories[name]

    for atom in dict.fromkeys(atom for filter_ in filters for atom in filter_.atoms()):
        if isinstance(atom, Relation):
            relations[atom] = None
            for name, kind in product(sorted(atom.attributes()), Kind):
                inventory_of(name).add_kind(kind)
        elif isinstance(atom, Atom):
            inventory_of(atom.attribute).add(atom)
    if mode is Mode.TOTAL and schema is not None:
        # A total event has them all, so a witness must too.
        for name in schema:
            inventory_of(name)
    return inventories, list(relations)
