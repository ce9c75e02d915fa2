"""From a path through the diagram back to an event that takes it, confirmed by the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, Final, NamedTuple

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.diagram import Node
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.text_candidates import Demands, text_candidates
from tamis.diagrams.value_order import (
    ABSENT as ABSENT_BRACKET,
)
from tamis.diagrams.value_order import (
    BEGIN,
    END,
    KIND_OF_BRACKET,
    OTHER,
    Bracket,
    Interval,
    Partition,
    ValueOrder,
    common_prefix,
    text_ends,
)
from tamis.diagrams.variable_order import AttributeVariables, ComparedPair
from tamis.events import Bits, Event, Kind, Type, Value
from tamis.events.kinds import KINDS
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.arithmetic import Reference
from tamis.filters.networks import AFTER_LAST
from tamis.filters.printing import ANY

# Besides the ends of a cell, some numbers for arithmetic.
_NUMBERS: Final = (1, -1, 2, 10, 100, 10_000)

Values = tuple[Value, ...]
ABSENT: Final[Values] = ()


def cell_values(
    value_order: ValueOrder, cell: Interval, *, bits: Bits, texts: Sequence[str]
) -> Iterator[Values]:
    """Yield contents of an attribute that lie in a cell; absence is an empty tuple."""
    # NaN comes last, as the least instructive.
    for bracket in sorted(value_order.brackets, key=OTHER.__eq__):
        low, high = max(cell[0], (bracket,)), min(cell[1], (bracket + 1,))
        if low < high:
            for value in _bracket_values(value_order, bracket, (low, high), bits, texts):
                yield ABSENT if value is None else (value,)


def _bracket_values(
    value_order: ValueOrder, bracket: Bracket, cell: Interval, bits: Bits, texts: Sequence[str]
) -> Iterable[Value | None]:
    match KIND_OF_BRACKET.get(bracket):
        case None:
            return (None,) if bracket == ABSENT_BRACKET else (math.nan,)
        case Kind.BITS:
            return (bits,)
        case Kind.NUMBER:
            return _within(bracket, cell, _numbers(value_order, cell))
        case Kind.TEXT as kind:
            return _within(bracket, cell, (*texts, *_samples(kind, cell)))
        case kind:
            return _within(bracket, cell, _samples(kind, cell))


def _within(bracket: Bracket, cell: Interval, values: Iterable[Value]) -> list[Value]:
    low, high = cell
    return list(dict.fromkeys(v for v in values if low <= (bracket, v) < high))


def _end(point: tuple[Any, ...], otherwise: Any) -> Any:
    return point[1] if len(point) == 2 else otherwise


def _numbers(value_order: ValueOrder, cell: Interval) -> Iterator[int | float]:
    whole = value_order.number_type is Type.INT
    low = _end(cell[0], INT64_MIN if whole else -math.inf)
    high = _end(cell[1], math.inf)
    found: list[int | float] = [0]
    if math.isfinite(low):
        found += (math.ceil(low), math.floor(low) + 1)
    found.append(low)
    if math.isfinite(high):
        found += (math.ceil(high) - 1, math.nextafter(high, -math.inf))
    found += _NUMBERS
    for value in found:
        if value_order.number_type is Type.FLOAT:
            yield float(value)
        elif isinstance(value, float) or INT64_MIN <= value <= INT64_MAX:
            yield value if not (whole and isinstance(value, float)) else low


def _samples(kind: Kind, cell: Interval) -> Iterator[Value]:
    traits = KINDS[kind]
    yield from traits.examples
    yield _end(cell[0], traits.lowest)
    high = _end(cell[1], None)
    last = None if high is None else traits.predecessor(high)
    if last is not None:
        yield last


# With intervals alone the first try succeeds. Text predicates and arithmetic may take a few; past
# these bounds the answer stays open.
MAX_PATHS: Final = 64
MAX_EVENTS_PER_PATH: Final = 128
# If an attribute has no content that fits a path, few others are worth a try.
MAX_UNFIT_EVENTS: Final = 4
# The oracle is in Python: so many steps of the budget are done while it looks at an event.
STEPS_PER_TRY: Final = 20
# Contents of one attribute to combine with those of others.
MAX_CHOICES: Final = 24
# Texts that meet all demands of a path; the others are as good.
MAX_FITTING_TEXTS: Final = 4

Path = Mapping[int, bool]


def find_witness(
    encoding: Encoding, root: Node, is_witness: Callable[[Event], bool]
) -> Event | None:
    """Return an event that leads to true under `root` and that the oracle confirms, or None."""
    paths = islice(encoding.diagram.paths(root), MAX_PATHS)
    candidates = (event for path in paths for event in _events(encoding, path))
    tries = max(1, encoding.diagram.budget // STEPS_PER_TRY)
    return next(filter(is_witness, islice(candidates, tries)), None)


def cells_of_a_path(encoding: Encoding, root: Node) -> dict[str, Interval | None]:
    """Return by attribute the cell that a path to true leads to.

    None where the cell does not say all that the path asks of the attribute.
    """
    path = next(encoding.diagram.paths(root))
    order = encoding.variable_order
    compared = {name for pair in order.pairs for name in _names_in(pair)}
    return {
        name: _cell(attribute.partition, attribute.forward, path)
        if name not in compared and _is_decided_by_cells(attribute)
        else None
        for name, attribute in order.by_attribute.items()
    }


def _names_in(pair: ComparedPair) -> Iterator[str]:
    for operand in chain(pair.left.operands(), pair.right.operands()):
        if isinstance(operand, Reference):
            yield operand.name


def _is_decided_by_cells(attribute: AttributeVariables) -> bool:
    tested = attribute.text_predicates or attribute.bits or attribute.backward
    others = attribute.folded or attribute.addresses
    return not (attribute.value_order.many or tested or others)


def _events(encoding: Encoding, path: Path) -> Iterator[Event]:
    """Yield events that may take a path, every attribute's best value first."""
    names = list(encoding.variable_order.by_attribute)
    choices = [
        _choices(attribute, path) for attribute in encoding.variable_order.by_attribute.values()
    ]
    fit = all(each.fit for each in choices)
    combined = product(*(each.contents for each in choices))
    for values in islice(combined, MAX_EVENTS_PER_PATH if fit else MAX_UNFIT_EVENTS):
        held = {name: v for name, v in zip(names, values, strict=True) if v != ABSENT}
        others = held.pop(ANY, ())
        yield Event({}).with_values({**held, **encoding.variable_order.spread(others)})


class _AttributeChoices(NamedTuple):
    """Contents of one attribute to try, and whether they are known to fit a path."""

    contents: list[Values]
    fit: bool = True


def _choices(attribute: AttributeVariables, path: Path) -> _AttributeChoices:
    if attribute.value_order.many:
        found = _choices_of_many(attribute, path)
        return _AttributeChoices(list(dict.fromkeys(islice(found, MAX_CHOICES))))
    return _choices_of_one(attribute, path)


def _choices_of_one(attribute: AttributeVariables, path: Path) -> _AttributeChoices:
    cell = _cell(attribute.partition, attribute.forward, path)
    bits = Bits(Bits().union(*(mask for mask, v in attribute.bits.items() if path.get(v))))
    demands = _demands_on_one(attribute, cell, path)
    texts = () if demands is None else tuple(text_candidates(demands))
    found = list(cell_values(attribute.value_order, cell, bits=bits, texts=texts))
    if demands is None:
        return _AttributeChoices(found[:MAX_CHOICES])
    fitting = [*islice(_fitting(found, demands), MAX_CHOICES)]
    return _AttributeChoices(fitting or found[:MAX_CHOICES], fit=bool(fitting))


def _fitting(found: Iterable[Values], demands: Demands) -> Iterator[Values]:
    """Yield the contents that are no texts, and some of the texts that meet the demands."""
    texts = 0
    for values in found:
        if not values or not isinstance(values[0], str):
            yield values
        elif texts < MAX_FITTING_TEXTS and demands.are_met_by(values[0]):
            texts += 1
            yield values


def _demands_on_one(attribute: AttributeVariables, cell: Interval, path: Path) -> Demands | None:
    """Return what a path asks of a text in a cell; None if the cell has no texts."""
    begin, end = attribute.value_order.whole(Kind.TEXT)
    low, high = max(cell[0], begin), min(cell[1], end)
    if low >= high:
        return None
    suffix_cell = _cell(attribute.suffix_partition, attribute.backward, path)
    texts, backward = text_ends((low, high)), text_ends(suffix_cell)
    ending = common_prefix(*backward)[::-1]
    passing, failing = list[TextPredicate](), list[TextPredicate]()
    asked = [(q, a) for q, a in _asked(attribute, path) if q.holds_under(*texts) is None]
    for predicate, answer in asked:
        if answer:
            passing.append(predicate)
        elif not predicate.holds_with_suffix(ending) and not any(
            a and predicate.follows_from(q) for q, a in asked
        ):
            failing.append(predicate)
    folded = attribute.folded and _demands_on_folded(attribute.folded, path)
    addresses = attribute.addresses
    positions = None
    if addresses is not None:
        positions = _positions(_cell(addresses.partition, addresses.forward, path))
    return Demands(texts, backward, passing, failing, folded, positions)


def _positions(cell: Interval) -> tuple[int, int]:
    """Return the positions of addresses in a cell of their order; 0 is a text that is none."""
    low, high = cell
    first = int(low[1], 16) if len(low) == 2 else 0
    return first, int(high[1], 16) if len(high) == 2 else AFTER_LAST


def _demands_on_folded(folded: AttributeVariables, path: Path) -> Demands | None:
    return _demands_on_one(folded, _cell(folded.partition, folded.forward, path), path)


def _cell(partition: Partition, variables: Sequence[int], path: Path) -> Interval:
    """Return the cell that a path leads to: between the last breakpoint it passed and the next."""
    low, high = BEGIN, END
    for point, variable in zip(partition.breakpoints, variables, strict=True):
        if path.get(variable) is False:
            low = point
        elif path.get(variable) is True:
            return low, point
    return low, high


def _asked(attribute: AttributeVariables, path: Path) -> list[tuple[TextPredicate, bool]]:
    return [(q, path[v]) for q, v in attribute.text_predicates.values() if v in path]


def _choices_of_many(attribute: AttributeVariables, path: Path) -> Iterator[Values]:
    occupied = [
        bounds
        for bounds, variable in zip(attribute.partition.bounds, attribute.forward, strict=True)
        if path.get(variable)
    ]
    choices = [list(islice(_values_in_cell(attribute, cell, path), 4)) for cell in occupied]
    for chosen in product(*choices):
        yield tuple(chain.from_iterable(chosen))


def _values_in_cell(attribute: AttributeVariables, cell: Interval, path: Path) -> Iterator[Values]:
    """Yield contents that occupy a cell: one value, or one for each demand on some value."""
    masks = tuple(mask for mask, v in attribute.bits.items() if path.get(v))
    if masks and cell == attribute.value_order.whole(Kind.BITS):
        yield masks
        return
    begin, end = attribute.value_order.whole(Kind.TEXT)
    is_text = begin <= cell[0] and cell[1] <= end
    demands = [
        _texts_on_demand(attribute, cell, demand)
        for demand in _demands_on_some(attribute, cell, path)
        if is_text
    ]
    together = tuple(chain.from_iterable(found[:1] for found in demands))
    if together:
        yield together
    texts = list(chain.from_iterable(demands))
    yield from cell_values(attribute.value_order, cell, bits=Bits(), texts=texts)


Demand = tuple[Interval, list[tuple[TextPredicate, bool]]]


def _demands(attribute: AttributeVariables, path: Path) -> Iterator[Demand]:
    """Yield the demands on some text: to lie in a cell of reversed texts, or to pass a test."""
    for bounds, variable in zip(attribute.suffix_partition.bounds, attribute.backward, strict=True):
        if path.get(variable):
            yield bounds, []
    for asked in _asked(attribute, path):
        yield (BEGIN, END), [asked]


def _demands_on_some(
    attribute: AttributeVariables, cell: Interval, path: Path
) -> Iterator[Demands]:
    """Yield the demands on some text of a cell."""
    texts = text_ends(cell)
    for backward, asked in _demands(attribute, path):
        yield Demands(texts, text_ends(backward), [test for test, answer in asked if answer])
    if attribute.folded is not None:
        for folded in _demands_on_some_folded(attribute.folded, path):
            yield Demands(texts, text_ends((BEGIN, END)), (), folded=folded)
    if attribute.addresses is not None:
        addresses = attribute.addresses
        for bounds, variable in zip(addresses.partition.bounds, addresses.forward, strict=True):
            if path.get(variable):
                positions = _positions(bounds)
                yield Demands(texts, text_ends((BEGIN, END)), (), addresses=positions)


def _demands_on_some_folded(folded: AttributeVariables, path: Path) -> Iterator[Demands]:
    """Yield the demands on some folded text."""
    anywhere = text_ends((BEGIN, END))
    for bounds, variable in zip(folded.partition.bounds, folded.forward, strict=True):
        if path.get(variable):
            yield Demands(text_ends(bounds), anywhere, ())
    for backward, asked in _demands(folded, path):
        yield Demands(anywhere, text_ends(backward), [test for test, answer in asked if answer])


def _texts_on_demand(attribute: AttributeVariables, cell: Interval, demands: Demands) -> list[str]:
    """Return texts of a cell that meet demands, or otherwise some that may do so."""
    texts = tuple(text_candidates(demands))
    found = cell_values(attribute.value_order, cell, bits=Bits(), texts=texts)
    all_ = [value for values in found for value in values if isinstance(value, str)]
    return [*islice(filter(demands.are_met_by, all_), MAX_FITTING_TEXTS)] or all_
