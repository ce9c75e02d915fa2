"""The variables of a diagram: all that some filters test, in a fixed order.

For an attribute that holds one value, the variables are the breakpoints of its value order: the
value lies in exactly one of the cells between them. For an attribute that may hold several values,
the variables are the cells themselves, each occupied or not, independently of the others. A test
that is not an interval of the value order is a free variable. Where such tests imply each other,
each is written as the disjunction of all that imply it, so that again every assignment is possible.
The diagram needs no other theory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import chain, count, product
from typing import Final, NamedTuple

from tamis.diagrams.atom_intervals import (
    TextPredicate,
    address_intervals,
    exact_form,
    folded_test,
    intervals_of,
    text_predicate_of,
)
from tamis.diagrams.kernels import FREE
from tamis.diagrams.value_order import Breakpoint, Interval, Partition, ValueOrder
from tamis.events import Attribute, Bits, Kind, Schema, Type, Value
from tamis.filters import Filter, Mode
from tamis.filters.any_text import AnyText, text_attributes
from tamis.filters.arithmetic import Expression, Relation
from tamis.filters.atoms import Atom, Caseless, HasBits, InNetwork, ValueAtom
from tamis.filters.printing import ANY

# The value order of reversed texts, in which suffixes are intervals.
BACKWARD: Final = ValueOrder(Attribute(Type.STR), Mode.TOTAL)


# If a schema declares no more texts than these, a test of any attribute asks each of them.
MAX_NAMED_TEXTS: Final = 8


class ComparedPair(NamedTuple):
    """Two expressions that filters compare, in canonical order."""

    left: Expression
    right: Expression


def compared_pair(relation: Relation) -> ComparedPair:
    """Return what a comparison compares; `a < b`, `b > a` and `a = b` share one pair."""
    canonical = relation.canonical()
    return ComparedPair(canonical.left, canonical.right)


class PairVariables(NamedTuple):
    """How the values of a pair compare: with one value each, at most one of the first three."""

    less: int
    equal: int
    greater: int
    """Of kinds that have an order."""
    same: int
    different: int
    """Of kinds that have only equality."""
    known: int


class Variable(NamedTuple):
    """What a variable of the diagram means."""

    attribute: str
    subject: Breakpoint | Interval | int | Bits | TextPredicate | ComparedPair
    """A breakpoint to the left of which the value lies, a cell that is occupied, a test passed…"""
    role: str


class AttributeUsage:
    """All that some filters test of one attribute."""

    def __init__(self, value_order: ValueOrder) -> None:
        self.value_order = value_order
        self.breakpoints: set[Breakpoint] = set(value_order.present())
        self.suffix_breakpoints: set[Breakpoint] = set()
        self.text_predicates: dict[tuple[str, str], TextPredicate] = {}
        self.masks: dict[Bits, None] = {}
        self.folded: AttributeUsage | None = None
        """What is tested of the folded texts."""
        self.addresses: AttributeUsage | None = None
        """What is tested of the addresses that texts are."""

    def add(self, atom: Atom) -> None:
        """Add the breakpoints and predicates of an atom."""
        if isinstance(atom, ValueAtom):
            self.add_kind(atom.kind)
        intervals = intervals_of(atom, self.value_order)
        if intervals is not None:
            self.breakpoints.update(point for interval in intervals for point in interval)
        elif isinstance(atom, HasBits):
            single = [Bits((number,)) for number in atom.bits]
            self.masks |= dict.fromkeys((atom.bits,) if atom.op == "all" else single)
        elif isinstance(atom, InNetwork):
            self.addresses = self.addresses or self._of_texts()
            points = chain.from_iterable(address_intervals(atom, self.addresses.value_order))
            self.addresses.breakpoints.update(points)
        elif isinstance(exact := exact_form(atom), Caseless):
            self.folded = self.folded or self._of_texts()
            self.folded.add(folded_test(exact))
        elif isinstance(exact, ValueAtom):
            self._add_text_predicate(text_predicate_of(exact))

    def _of_texts(self) -> AttributeUsage:
        """Return the usage of something that every text has."""
        texts = Attribute(Type.STR, many=self.value_order.many)
        return AttributeUsage(ValueOrder(texts, Mode.TOTAL))

    def add_kind(self, kind: Kind) -> None:
        """Add the breakpoints of a kind."""
        self.breakpoints.update(self.value_order.whole(kind))

    def _add_text_predicate(self, predicate: TextPredicate) -> None:
        self.text_predicates[predicate.key] = predicate
        if predicate.prefix:
            self.breakpoints.update(prefix_interval(self.value_order, predicate.prefix))
        if predicate.suffix:
            self.suffix_breakpoints.update(suffix_interval(predicate.suffix))


def prefix_interval(value_order: ValueOrder, prefix: str) -> Interval:
    """Return the texts that begin with `prefix`, as an interval of the value order."""
    return value_order.below(Kind.TEXT, prefix), value_order.above_prefix(prefix)


def suffix_interval(suffix: str) -> Interval:
    """Return the texts that end with `suffix`, as an interval of the order of reversed texts."""
    return prefix_interval(BACKWARD, suffix[::-1])


class AttributeVariables(NamedTuple):
    """The variables of one attribute."""

    value_order: ValueOrder
    partition: Partition
    forward: Sequence[int]
    """One per breakpoint or, where an attribute may hold several values, one per cell."""
    suffix_partition: Partition
    backward: Sequence[int]
    text_predicates: dict[tuple[str, str], tuple[TextPredicate, int]]
    bits: dict[Bits, int]
    folded: AttributeVariables | None = None
    """The variables of the folded texts, as if they were the values of another attribute."""
    addresses: AttributeVariables | None = None
    """The variables of the positions of addresses, likewise."""


FOLDED: Final = "folded "
ADDRESS: Final = "address "
"""What the roles of these variables begin with."""


class VariableOrder:
    """All variables that some filters need, numbered in the order of the diagram."""

    def __init__(
        self, filters: Iterable[Filter], mode: Mode, schema: Schema | None, *, many: bool
    ) -> None:
        self.variables: list[Variable] = []
        self.chains: list[int] = []
        self.by_attribute: dict[str, AttributeVariables] = {}
        self.pairs: dict[ComparedPair, PairVariables] = {}
        self._schema = schema
        usages, pairs = _usages(filters, mode, schema, many=many)
        for name, usage in usages.items():
            self.by_attribute[name] = self._attribute_variables(name, usage)
        for pair in pairs:
            self.pairs[pair] = PairVariables(
                *(self._free(Variable("", pair, role)) for role in PairVariables._fields)
            )

    def tests_of(self, atom: AnyText) -> list[ValueAtom]:
        """Return the same test of every attribute that filters mention, and of all others."""
        return _tests_of(atom, self.by_attribute, self._schema)

    def spread(self, texts: Sequence[Value]) -> dict[str, tuple[Value, ...]]:
        """Return texts as the values of attributes that no filter mentions, one each."""
        if self._schema is None:
            names = (
                name for name in map("text{}".format, count(1)) if name not in self.by_attribute
            )
            return {name: (text,) for name, text in zip(names, texts, strict=False)}
        free = [name for name in text_attributes(self._schema) if name not in self.by_attribute]
        found: dict[str, tuple[Value, ...]] = {
            name: (text,) for name, text in zip(free, texts, strict=False)
        }
        if len(texts) > len(free) and self._schema[free[-1]].many:
            found[free[-1]] = tuple(texts[len(free) - 1 :])
        return found

    def _attribute_variables(
        self, name: str, usage: AttributeUsage, kind: str = ""
    ) -> AttributeVariables:
        value_order, partition = usage.value_order, Partition(usage.breakpoints)
        folded, addresses = usage.folded, usage.addresses
        suffix_partition = Partition(usage.suffix_breakpoints)
        return AttributeVariables(
            value_order=value_order,
            partition=partition,
            forward=self._position_variables(name, value_order, partition, f"{kind}forward"),
            suffix_partition=suffix_partition,
            backward=self._position_variables(
                name, value_order, suffix_partition, f"{kind}backward"
            ),
            text_predicates={
                key: (predicate, self._free(Variable(name, predicate, f"{kind}passes")))
                for key, predicate in usage.text_predicates.items()
                if not predicate.only_suffix
            },
            bits={bits: self._free(Variable(name, bits, "has")) for bits in _bit_sets(usage)},
            folded=None if folded is None else self._attribute_variables(name, folded, FOLDED),
            addresses=(
                None if addresses is None else self._attribute_variables(name, addresses, ADDRESS)
            ),
        )

    def _position_variables(
        self, name: str, value_order: ValueOrder, partition: Partition, role: str
    ) -> list[int]:
        if value_order.many:
            return [self._free(Variable(name, bounds, role)) for bounds in partition.bounds]
        number = len(self.chains)
        self.chains += [number] * len(partition.breakpoints)
        self.variables += [Variable(name, point, role) for point in partition.breakpoints]
        return list(range(number, len(self.chains)))

    def _free(self, variable: Variable) -> int:
        self.chains.append(FREE)
        self.variables.append(variable)
        return len(self.chains) - 1


def _bit_sets(usage: AttributeUsage) -> Iterable[Bits]:
    if usage.value_order.many:
        return usage.masks
    return [Bits((number,)) for number in sorted(set().union(*usage.masks))]


def _usages(
    filters: Iterable[Filter], mode: Mode, schema: Schema | None, *, many: bool
) -> tuple[dict[str, AttributeUsage], list[ComparedPair]]:
    usages: dict[str, AttributeUsage] = {}
    pairs: dict[ComparedPair, None] = {}

    def usage_of(name: str) -> AttributeUsage:
        if name not in usages:
            declared = schema.get(name) if schema else None
            usages[name] = AttributeUsage(ValueOrder(declared, mode, many=many))
        return usages[name]

    atoms = dict.fromkeys(atom for filter_ in filters for atom in filter_.atoms())
    for atom in atoms:
        if isinstance(atom, Relation):
            pairs[compared_pair(atom)] = None
            for name, kind in product(sorted(atom.attributes()), Kind):
                usage_of(name).add_kind(kind)
        elif isinstance(atom, Atom):
            usage_of(atom.attribute).add(atom)
    if mode is Mode.TOTAL and schema is not None:
        # A total event has every attribute, so a witness needs them too.
        for name in schema:
            usage_of(name)
    any_texts = [atom for atom in atoms if isinstance(atom, AnyText)]
    if any_texts and schema is not None:
        texts = text_attributes(schema)
        for name in texts:
            # One that ignores case is tested otherwise than all others.
            if schema[name].caseless or len(texts) <= MAX_NAMED_TEXTS:
                usage_of(name)
    if any_texts and _are_others(usages, schema):
        # The texts of all other attributes, as if they were the values of one.
        others = Attribute(Type.STR, many=True)
        usages[ANY] = AttributeUsage(ValueOrder(others, Mode.SQL, many=True))
    for any_text in any_texts:
        for test in _tests_of(any_text, usages, schema):
            usages[test.attribute].add(test)
    return usages, list(pairs)


def _are_others(names: Container[str], schema: Schema | None) -> bool:
    """Return whether attributes may have texts beside those that filters mention."""
    return schema is None or not all(name in names for name in text_attributes(schema))


def _tests_of(atom: AnyText, names: Iterable[str], schema: Schema | None) -> list[ValueAtom]:
    tests = (atom.test if name == ANY else atom.of(name, schema) for name in names)
    return [test for test in tests if test is not None]
