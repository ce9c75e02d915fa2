"""The variables of a diagram: what some filters ask of the attributes, in one order.

For an attribute that holds one value, the variables are the breakpoints of its value order: the
value lies in exactly one of the cells between them. For an attribute that may hold several values,
the variables are the cells themselves, each occupied or not, independently of the others. A test
that is not an interval of the value order is a free variable. Where such tests imply each other,
each is written as the disjunction of all that imply it, so that again every assignment is possible.
The diagram needs no other theory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final, NamedTuple

from tamis.diagrams.kernels import FREE
from tamis.diagrams.readings import TextQuestion, intervals_of, question_of
from tamis.diagrams.value_order import Breakpoint, Interval, Partition, ValueOrder
from tamis.events import Attribute, Bits, Kind, Schema, Type
from tamis.filters import Filter, Mode
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom, HasBits, ValueAtom

# Texts read from their end: a value order of its own, on which suffixes are intervals.
BACKWARD: Final = ValueOrder(Attribute(Type.STR), Mode.TOTAL)


class Meaning(NamedTuple):
    """What a variable of the diagram says."""

    attribute: str
    subject: Breakpoint | Interval | int | Bits | TextQuestion | Relation
    """A breakpoint to the left of which the value lies, a cell that is occupied, a test passed…"""
    role: str


class Inventory:
    """What some filters ask of one attribute."""

    def __init__(self, value_order: ValueOrder) -> None:
        self.value_order = value_order
        self.breakpoints: set[Breakpoint] = set(value_order.present())
        self.suffix_breakpoints: set[Breakpoint] = set()
        self.questions: dict[tuple[str, str], TextQuestion] = {}
        self.masks: dict[Bits, None] = {}

    def add(self, atom: Atom) -> None:
        """Take note of what an atom asks."""
        if isinstance(atom, ValueAtom):
            self.add_kind(atom.kind)
        intervals = intervals_of(atom, self.value_order)
        if intervals is not None:
            self.breakpoints.update(point for interval in intervals for point in interval)
        elif isinstance(atom, HasBits):
            single = [Bits((number,)) for number in atom.bits]
            self.masks |= dict.fromkeys((atom.bits,) if atom.op == "all" else single)
        elif isinstance(atom, ValueAtom):
            self._add_question(question_of(atom))

    def add_kind(self, kind: Kind) -> None:
        """Take note that a filter asks for the kind."""
        self.breakpoints.update(self.value_order.whole(kind))

    def _add_question(self, question: TextQuestion) -> None:
        self.questions[question.key] = question
        if question.prefix:
            self.breakpoints.update(prefix_interval(self.value_order, question.prefix))
        if question.suffix:
            self.suffix_breakpoints.update(suffix_interval(question.suffix))


def prefix_interval(value_order: ValueOrder, prefix: str) -> Interval:
    """Return the texts that begin with `prefix`, as an interval of the value order."""
    return value_order.below(Kind.TEXT, prefix), value_order.above_prefix(prefix)


def suffix_interval(suffix: str) -> Interval:
    """Return the texts that end with `suffix`, as an interval of the backward value order."""
    return prefix_interval(BACKWARD, suffix[::-1])


class Letters(NamedTuple):
    """The variables of one attribute."""

    value_order: ValueOrder
    partition: Partition
    forward: Sequence[int]
    """One per breakpoint, or, where there may be several values, one per cell."""
    suffix_partition: Partition
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
        value_order, partition = inventory.value_order, Partition(inventory.breakpoints)
        suffix_partition = Partition(inventory.suffix_breakpoints)
        return Letters(
            value_order=value_order,
            partition=partition,
            forward=self._positions(name, value_order, partition, "forward"),
            suffix_partition=suffix_partition,
            backward=self._positions(name, value_order, suffix_partition, "backward"),
            questions={
                key: (question, self._free(Meaning(name, question, "passes")))
                for key, question in inventory.questions.items()
                if not question.only_suffix
            },
            bits={bits: self._free(Meaning(name, bits, "has")) for bits in _bit_sets(inventory)},
        )

    def _positions(
        self, name: str, value_order: ValueOrder, partition: Partition, role: str
    ) -> list[int]:
        if value_order.many:
            return [self._free(Meaning(name, bounds, role)) for bounds in partition.bounds]
        number = len(self.lines)
        self.lines += [number] * len(partition.breakpoints)
        self.meanings += [Meaning(name, point, role) for point in partition.breakpoints]
        return list(range(number, len(self.lines)))

    def _free(self, meaning: Meaning) -> int:
        self.lines.append(FREE)
        self.meanings.append(meaning)
        return len(self.lines) - 1


def _bit_sets(inventory: Inventory) -> Iterable[Bits]:
    if inventory.value_order.many:
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
            inventories[name] = Inventory(ValueOrder(declared, mode, many=many))
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
