"""Filters as nodes of a diagram, with the meaning of absent attributes in each mode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from tamis.diagrams.atom_intervals import (
    TextPredicate,
    address_intervals,
    exact_form,
    folded_test,
    intervals_of,
    text_predicate_of,
)
from tamis.diagrams.diagram import Diagram, Node
from tamis.diagrams.folded_tests import FoldedTest
from tamis.diagrams.kernels import FALSE, TRUE
from tamis.diagrams.pairs import PairOutcomes, computes, outcomes_of
from tamis.diagrams.value_order import BEGIN, CellSet, Interval, common_prefix, text_ends
from tamis.diagrams.variable_order import (
    AttributeVariables,
    ComparedPair,
    VariableOrder,
    compared_pair,
    suffix_interval,
)
from tamis.events import Bits, Kind, Schema
from tamis.filters import Filter, Mode
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.atoms import Atom, Caseless, HasBits, HasKind, InNetwork, ValueAtom, can_compare
from tamis.filters.boolean import TruthSets
from tamis.filters.element_test import refuse_element_tests
from tamis.filters.printing import ANY


class DecidedTest(Protocol):
    """A test of text that the value order may decide."""

    def holds_under(self, low: str, high: str | None) -> bool | None:
        """Return True if all texts from low to below high pass, False if none do, else None."""


class SingleTexts(NamedTuple):
    """A test that the value order decides only where it leads to a single text."""

    atom: ValueAtom

    def holds_under(self, low: str, high: str | None) -> bool | None:
        """Return whether the only text passes; None if there are several."""
        return self.atom.accepts(low) if high == low + "\0" else None


class Encoding(TruthSets[Node]):
    """A diagram for some filters under one mode, and the node of each filter in it."""

    def __init__(
        self,
        filters: Sequence[Filter],
        mode: Mode,
        schema: Schema | None,
        *,
        many: bool,
        budget: int,
    ) -> None:
        for filter_ in filters:
            refuse_element_tests(filter_, "a diagram")
        self.mode: Final = mode
        self.variable_order: Final = VariableOrder(filters, mode, schema, many=many)
        self.diagram: Final = Diagram(self.variable_order.chains, budget)
        self._holds: dict[Filter, Node] = {}
        self._pairs: dict[ComparedPair, PairOutcomes] = {}

    def matches(self, filter_: Filter) -> Node:
        """Return the events that match a filter."""
        node = self.where(filter_, truth=True)
        if self.mode is not Mode.STRICT:
            return node
        atoms = dict.fromkeys(filter_.atoms())
        return self.diagram.both(node, self.diagram.all([self.known(atom) for atom in atoms]))

    def matching_just(self, wanted: Iterable[tuple[Filter, bool]]) -> Node:
        """Return the possible events that match exactly the wanted ones of these filters."""
        nodes = [
            self.matches(filter_) if matching else self.diagram.negate(self.matches(filter_))
            for filter_, matching in wanted
        ]
        return self.diagram.all([self.possible(), *nodes])

    def possible(self) -> Node:
        """Return the assignments of possible events; only mode `total` excludes any."""
        if self.mode is not Mode.TOTAL:
            return TRUE
        return self.diagram.all(
            [
                self._any_of(attribute.forward)
                for name, attribute in self.variable_order.by_attribute.items()
                if attribute.value_order.many and name != ANY
            ]
        )

    def _constant(self, value: bool) -> Node:
        return TRUE if value else FALSE

    def _all(self, parts: Sequence[Node]) -> Node:
        return self.diagram.all(parts)

    def _any(self, parts: Sequence[Node]) -> Node:
        return self.diagram.any(parts)

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> Node:
        diagram = self.diagram
        odds, evens = FALSE, TRUE
        for term in terms:
            true, false = self.where(term, truth=True), self.where(term, truth=False)
            odds, evens = (
                diagram.either(diagram.both(odds, false), diagram.both(evens, true)),
                diagram.either(diagram.both(odds, true), diagram.both(evens, false)),
            )
        return odds if odd else evens

    def _atom(self, atom: Filter, *, truth: bool) -> Node:
        if truth:
            return self.holds(atom)
        return self.diagram.both(self.known(atom), self.diagram.negate(self.holds(atom)))

    # --- atoms -------------------------------------------------------------------------------

    def known(self, atom: Filter) -> Node:
        """Return the events on which an atom is true or false, not unknown."""
        if not self.mode.is_three_valued:
            return TRUE
        if isinstance(atom, Relation):
            return self._known_relation(atom)
        known = atom.known() if isinstance(atom, Atom | AnyText) else None
        return TRUE if known is None else self.holds(known)

    def holds(self, atom: Filter) -> Node:
        """Return the events on which an atom is true."""
        if atom not in self._holds:
            self._holds[atom] = self._encode(atom)
        return self._holds[atom]

    def _encode(self, atom: Filter) -> Node:
        if isinstance(atom, Relation):
            holds = self._outcomes(atom).satisfying(atom.canonical().op)
            return self.diagram.both(self._comparable(atom), self.diagram.any(holds))
        if isinstance(atom, AnyText):
            return self.diagram.any(list(map(self.holds, self.variable_order.tests_of(atom))))
        assert isinstance(atom, Atom)  # noqa: S101 - `where` decomposes all other filters
        attribute = self.variable_order.by_attribute[atom.attribute]
        node = self._with_a_value(atom, attribute)
        if atom.passes(attribute.value_order.default):
            node = self.diagram.either(node, self._absent(attribute))
        return node

    def _with_a_value(self, atom: Atom, attribute: AttributeVariables) -> Node:
        """Return where an atom holds for a value that is present."""
        intervals = intervals_of(atom, attribute.value_order)
        if intervals is not None:
            return self._in(attribute, intervals)
        if isinstance(atom, HasBits):
            return self._bits(atom, attribute)
        if isinstance(atom, InNetwork):
            return self._in_network(atom, attribute)
        exact = exact_form(atom)
        if isinstance(exact, Caseless):
            return self._caseless(exact, attribute)
        assert isinstance(exact, ValueAtom)  # noqa: S101 - the only atoms without intervals
        return self._text(text_predicate_of(exact), attribute)

    def _known_relation(self, relation: Relation) -> Node:
        known = self.diagram.any(self._outcomes(relation).knowing(relation.op))
        return self.diagram.both(self._comparable(relation), known)

    def _outcomes(self, relation: Relation) -> PairOutcomes:
        pair = compared_pair(relation)
        if pair not in self._pairs:
            order = self.variable_order
            many = any(order.by_attribute[n].value_order.many for n in relation.attributes())
            self._pairs[pair] = outcomes_of(pair, order.pairs[pair], self.diagram, many=many)
        return self._pairs[pair]

    def _comparable(self, relation: Relation) -> Node:
        """Return where the attributes have values of kinds that can be compared."""
        names = sorted(relation.attributes())
        kinds = [Kind.NUMBER]
        if not computes(compared_pair(relation)):
            kinds = [kind for kind in Kind if can_compare(relation.op, kind)]
        return self.diagram.any(
            [
                self.diagram.all([self.holds(HasKind(name, kind)) for name in names])
                for kind in kinds
            ]
        )

    # --- one attribute -----------------------------------------------------------------------

    def _absent(self, attribute: AttributeVariables) -> Node:
        if attribute.value_order.many:
            return self.diagram.negate(self._in(attribute, (attribute.value_order.present(),)))
        return self._in(attribute, ((BEGIN, attribute.value_order.present()[0]),))

    def _in(self, attribute: AttributeVariables, intervals: Iterable[Interval]) -> Node:
        return self._cells(attribute, attribute.forward, attribute.partition.cells_in(intervals))

    def _in_suffix(self, attribute: AttributeVariables, intervals: Iterable[Interval]) -> Node:
        return self._cells(
            attribute, attribute.backward, attribute.suffix_partition.cells_in(intervals)
        )

    def _cells(
        self, attribute: AttributeVariables, variables: Sequence[int], cells: CellSet
    ) -> Node:
        """Return where the attribute lies in, or has a value in, some of the cells."""
        if attribute.value_order.many:
            return self._any_of(v for number, v in enumerate(variables) if cells >> number & 1)
        return self.diagram.cells(variables, cells)

    def _any_of(self, variables: Iterable[int]) -> Node:
        return self.diagram.any([self.diagram.literal(v) for v in variables])

    def _bits(self, atom: HasBits, attribute: AttributeVariables) -> Node:
        singles = [self._has_bits(Bits((number,)), attribute) for number in sorted(atom.bits)]
        if atom.op == "any":
            has = self.diagram.any(singles)
        elif attribute.value_order.many:
            has = self._has_bits(atom.bits, attribute)
        else:
            has = self.diagram.all(singles)
        return self.diagram.both(
            self._in(attribute, (attribute.value_order.whole(Kind.BITS),)), has
        )

    def _has_bits(self, bits: Bits, attribute: AttributeVariables) -> Node:
        """Return where a value has all these bits: where it has a tested set that includes them."""
        return self._any_of(variable for mask, variable in attribute.bits.items() if bits <= mask)

    def _text(self, predicate: TextPredicate, attribute: AttributeVariables) -> Node:
        passing, open_ = _answered(predicate, attribute)
        passes = self._cells(attribute, attribute.forward, passing)
        undecided = self._cells(attribute, attribute.forward, open_)
        return self.diagram.either(
            passes, self.diagram.both(undecided, self._undecided(predicate, attribute))
        )

    def _in_network(self, atom: InNetwork, attribute: AttributeVariables) -> Node:
        """Return where a text is an address of a network; a single text decides it itself."""
        addresses = attribute.addresses
        assert addresses is not None  # noqa: S101 - a test of addresses made it
        passing, open_ = _answered(SingleTexts(atom), attribute)
        inside = self._in(addresses, address_intervals(atom, addresses.value_order))
        return self.diagram.either(
            self._cells(attribute, attribute.forward, passing),
            self.diagram.both(self._cells(attribute, attribute.forward, open_), inside),
        )

    def _caseless(self, atom: Caseless, attribute: AttributeVariables) -> Node:
        """Return where the folded text passes, as far as the text itself does not decide it."""
        assert attribute.folded is not None  # noqa: S101 - an atom that ignores case made it
        decided = FoldedTest.of(atom, attribute.folded.value_order)
        passing, open_ = _answered(decided, attribute)
        folded = self._with_a_value(folded_test(atom), attribute.folded)
        reasons = [
            self._asked(other, variable, attribute)
            for other, variable in attribute.text_predicates.values()
            if decided.follows_from(other)
        ]
        endings = [
            bounds
            for bounds in attribute.suffix_partition.bounds
            if decided.holds_with_suffix(common_prefix(*text_ends(bounds))[::-1])
        ]
        undecided = self.diagram.any([folded, *reasons, self._in_suffix(attribute, endings)])
        return self.diagram.either(
            self._cells(attribute, attribute.forward, passing),
            self.diagram.both(self._cells(attribute, attribute.forward, open_), undecided),
        )

    def _undecided(self, predicate: TextPredicate, attribute: AttributeVariables) -> Node:
        """Return where a predicate holds for a text that the value order does not decide."""
        if predicate.only_suffix:
            return self._in_suffix(attribute, (suffix_interval(predicate.suffix),))
        reasons = [
            self._asked(other, variable, attribute)
            for other, variable in attribute.text_predicates.values()
            if predicate.follows_from(other)
        ]
        return self.diagram.any([*reasons, self._suffix_suffices(predicate, attribute)])

    def _asked(
        self, predicate: TextPredicate, variable: int, attribute: AttributeVariables
    ) -> Node:
        node = self.diagram.literal(variable)
        if predicate.suffix:
            ends = self._in_suffix(attribute, (suffix_interval(predicate.suffix),))
            node = self.diagram.both(ends, node)
        return node

    def _suffix_suffices(self, predicate: TextPredicate, attribute: AttributeVariables) -> Node:
        sufficient = [
            bounds
            for bounds in attribute.suffix_partition.bounds
            if predicate.holds_with_suffix(common_prefix(*text_ends(bounds))[::-1])
        ]
        return self._in_suffix(attribute, sufficient)


def _answered(predicate: DecidedTest, attribute: AttributeVariables) -> tuple[CellSet, CellSet]:
    """Return the cells in which every text passes, and those in which some may."""
    passing = open_ = 0
    begin, end = attribute.value_order.whole(Kind.TEXT)
    for number, bounds in enumerate(attribute.partition.bounds):
        if begin <= bounds[0] < end:
            answer = predicate.holds_under(*text_ends(bounds))
            passing |= (answer is True) << number
            open_ |= (answer is None) << number
    return passing, open_
