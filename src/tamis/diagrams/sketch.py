"""A diagram reduced to what is drawn: boxes with a question each, and where yes and no lead.

A chain of breakpoints of one attribute that leads to m places is m - 1 boxes. Each asks for a whole
region of the value order (`price < 1000`, `company = "IBM"`), just as the engine evaluates it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.diagram import Node
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import FREE, TRUE
from tamis.diagrams.value_order import (
    ABSENT,
    BEGIN,
    END,
    KIND_OF_BRACKET,
    NUMBERS,
    OTHER,
    TEXTS,
    Bracket,
    Breakpoint,
    Interval,
    ValueOrder,
    after_prefix,
    clipped,
    lowest_of,
    merged,
    outside,
)
from tamis.diagrams.variable_order import (
    ADDRESS,
    BACKWARD,
    FOLDED,
    AttributeVariables,
    ComparedPair,
    Variable,
)
from tamis.events import Bits, Kind, Value
from tamis.events.values import MICROSECOND
from tamis.filters.arithmetic import Relation
from tamis.filters.folding import CASELESS_FLAG
from tamis.filters.networks import AFTER_LAST, text_at
from tamis.filters.printing import ANY, show_name, show_value

# --- regions in words ----------------------------------------------------------------------


_WORDS_OF_BRACKET: Final = {
    ABSENT: "is absent",
    OTHER: "is NaN",
    **{bracket: f"is {kind.value}" for bracket, kind in KIND_OF_BRACKET.items()},
}


def free_words(variable: Variable) -> str:
    """Return the words for a variable that is neither a breakpoint nor a cell."""
    name = "" if isinstance(variable.subject, ComparedPair) else _subject_name(variable)
    match variable.subject:
        case Bits() as bits:
            return f"{name} has all bits {_show(bits)}"
        case TextPredicate(key=(op, text)):
            mark = "~" if variable.role.startswith(FOLDED) else ""
            return f"{name} {mark}{op} {_show(text.removeprefix(CASELESS_FLAG) if mark else text)}"
        case Relation() as relation:
            return str(relation) if variable.role == "holds" else f"{relation} is known"
        case other:
            return f"{name} {other}"


def _subject_name(variable: Variable) -> str:
    """Return the name of what a variable is about; it may be an attribute that no filter names."""
    return "some other text" if variable.attribute == ANY else show_name(variable.attribute)


def region_words(name: str, value_order: ValueOrder, intervals: Iterable[Interval]) -> str:
    """Return the words for an attribute in some intervals of its value order."""
    inside = list(intervals)
    parts = {bracket: clipped(inside, _whole(bracket)) for bracket in value_order.brackets}
    held = {bracket: part for bracket, part in parts.items() if part}
    if all(part == (_whole(bracket),) for bracket, part in parts.items()):
        return "true"
    present = [bracket for bracket in value_order.brackets if bracket != ABSENT]
    if list(held) == present and all(part == (_whole(s),) for s, part in held.items()):
        return f"{name} is present"
    return " or ".join(
        words
        for bracket, part in held.items()
        for words in _bracket_words(name, value_order, bracket, part)
    )


def _whole(bracket: Bracket) -> Interval:
    return (bracket,), (bracket + 1,)


def _bracket_words(
    name: str, value_order: ValueOrder, bracket: Bracket, part: Sequence[Interval]
) -> Iterator[str]:
    if tuple(part) == (_whole(bracket),):
        yield f"{name} {_WORDS_OF_BRACKET[bracket]}"
        return
    gaps = outside(part, _whole(bracket))
    if len(part) > 1 and len(gaps) == 1 and _is_point(value_order, bracket, gaps[0]):
        yield f"{name} != {_show(_value(bracket, gaps[0][0]))}"
        return
    points = [_value(bracket, each[0]) for each in part if _is_point(value_order, bracket, each)]
    if len(points) == 1:
        yield f"{name} = {_show(points[0])}"
    elif points:
        yield f"{name} in ({', '.join(map(_show, points))})"
    for each in part:
        if not _is_point(value_order, bracket, each):
            yield _range_words(name, bracket, each)


def _value(bracket: Bracket, point: Breakpoint) -> Any:
    return point[1] if len(point) == 2 else lowest_of(bracket)


def _is_point(value_order: ValueOrder, bracket: Bracket, interval: Interval) -> bool:
    """Return whether an interval of a bracket holds a single value."""
    low, high = interval
    value = _value(bracket, low)
    if value is None or (bracket == NUMBERS and not math.isfinite(value)):
        return False
    above = value_order.above(KIND_OF_BRACKET[bracket], value)
    return above == high or (above == value_order.end(bracket) and high == _whole(bracket)[1])


def _range_words(name: str, bracket: Bracket, interval: Interval) -> str:
    low, high = interval
    if len(low) == 1:
        value, included = _edge(high)
        return f"{name} {'<=' if included else '<'} {_show(value)}"
    if bracket == TEXTS and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
        return f"{name} starts with {_show(low[1])}"
    first, above = _edge(low)
    if len(high) == 1:
        return f"{name} {'>' if above else '>='} {_show(first)}"
    last, included = _edge(high)
    if included and not above:
        return f"{name} between {_show(first)} and {_show(last)}"
    left, right = "<" if above else "<=", "<=" if included else "<"
    return f"{_show(first)} {left} {name} {right} {_show(last)}"


def _edge(point: Breakpoint) -> tuple[Any, bool]:
    """Return the value to show for a breakpoint, and whether it lies left of it.

    The breakpoint just above 1000 is at the next float, but `<= 1000` reads better.
    """
    bracket, value = point
    match KIND_OF_BRACKET[bracket]:
        case Kind.TEXT if value.endswith("\0"):
            return value[:-1], True
        case Kind.TIMESTAMP if value.microsecond % 1000 == 1:
            return value - MICROSECOND, True
        case Kind.NUMBER if isinstance(value, float) and math.isfinite(value):
            before = math.nextafter(value, -math.inf)
            if len(repr(before)) < len(repr(value)):
                return before, True
    return value, False


def _show(value: Value) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return show_value(int(value) if whole else value)  # type: ignore[arg-type]


def suffix_words(name: str, value_order: ValueOrder, intervals: Iterable[Interval]) -> str:
    """Return the words for a text that, read backwards, lies in some intervals."""
    inside = list(intervals)
    if len(inside) == 1:
        low, high = inside[0]
        if len(low) == 2 and after_prefix(low[1]) == (high[1] if len(high) == 2 else None):
            return f"{name} ends with {_show(low[1][::-1])}"
    cropped = [(max(low, (TEXTS,)), high) for low, high in inside]
    return region_words(f"{name} backwards", value_order, cropped)


def network_words(name: str, intervals: Iterable[Interval]) -> str:
    """Return the words for an address in some intervals of positions."""
    words = []
    for low, high in intervals:
        first, end = _position(low, 0), _position(high, AFTER_LAST)
        begin = text_at(first) or "no address"
        words.append(f"{name} from {begin} to {text_at(end - 1) or 'no address'}")
    return " or ".join(words)


def _position(point: Breakpoint, otherwise: int) -> int:
    return int(point[1], 16) if len(point) == 2 else otherwise


# --- boxes ---------------------------------------------------------------------------------


NO: Final = 0
YES: Final = 1


class Box(NamedTuple):
    """One question."""

    band: str
    """The attribute that it is about, empty if there are several."""
    question: str
    no: int
    yes: int


class Sketch(NamedTuple):
    """Boxes by number, parents before children; 0 and 1 are the ends, no match and match."""

    boxes: Mapping[int, Box]
    roots: Mapping[int, Sequence[str]]
    """For each root the names of its filters."""
    bands: Sequence[str]


def sketch(encoding: Encoding, roots: Mapping[str, Node], *, breakpoints: bool = False) -> Sketch:
    """Make a sketch of some filters' nodes; with `breakpoints`, a box for every node."""
    return _Sketcher(encoding, breakpoints=breakpoints).sketch(roots)


class _Sketcher:
    def __init__(self, encoding: Encoding, *, breakpoints: bool) -> None:
        self._variable_order = encoding.variable_order
        self._diagram = encoding.diagram
        self._breakpoints = breakpoints
        self._boxes: dict[Box, int] = {}
        self._box_of: dict[Node, int] = {0: NO, 1: YES}
        self._variables, self._low, self._high = self._diagram.nodes()
        self._passed: dict[Node, Breakpoint] = {}

    def sketch(self, roots: Mapping[str, Node]) -> Sketch:
        nodes = self._diagram.reachable(*roots.values())
        heads = self._heads(nodes, roots.values())
        self._passed = self._breakpoints_passed(nodes, roots.values())
        for node in reversed(nodes):
            if node in heads:
                self._box_of[node] = self._draw(node)
        named: dict[int, list[str]] = {}
        for name, node in roots.items():
            named.setdefault(self._box_of[node], []).append(name)
        boxes = {number: box for box, number in reversed(self._boxes.items())}
        asked = {box.band for box in boxes.values()}
        bands = dict.fromkeys((*self._variable_order.by_attribute, ""))
        return Sketch(boxes, named, [name for name in bands if name in asked])

    def _heads(self, nodes: Iterable[Node], roots: Iterable[Node]) -> set[Node]:
        """Return the nodes at which a box begins: all but those inside a chain."""
        heads = set(roots)
        for node in nodes:
            heads.add(self._high[node])
            if not self._goes_on(node):
                heads.add(self._low[node])
        return heads

    def _goes_on(self, node: Node) -> bool:
        """Return whether a node's chain continues with its low child."""
        chain = self._variable_order.chains[self._variables[node]]
        low = self._low[node]
        if self._breakpoints or chain == FREE or low <= TRUE:
            return False
        return self._variable_order.chains[self._variables[low]] == chain

    # --- boxes -------------------------------------------------------------------------------

    def _draw(self, head: Node) -> int:
        variable = self._variable_of(head)
        if self._variable_order.chains[self._variables[head]] == FREE:
            return self._draw_free(head, variable)
        if self._breakpoints:
            words = self._breakpoint_words(head, variable)
            return self._box(variable, words, self._box_of[self._low[head]], self._yes(head))
        return self._draw_chain(head, variable)

    def _draw_free(self, head: Node, variable: Variable) -> int:
        if isinstance(variable.subject, tuple) and variable.role.endswith(("forward", "backward")):
            # One cell of an attribute that may hold several values.
            words = self._region_words(variable, [variable.subject])
            words = words if variable.attribute == ANY else f"some {words}"
        else:
            words = free_words(variable)
        return self._box(variable, words, self._box_of[self._low[head]], self._yes(head))

    def _draw_chain(self, head: Node, variable: Variable) -> int:
        places = self._places(head)
        *tested, rest = places
        earlier: list[Interval] = []
        asked = []
        for place in tested:
            asked.append((*self._question(variable, places[place], earlier), place))
            earlier += places[place]
        below = rest
        for words, swapped, place in reversed(asked):
            no, yes = (place, below) if swapped else (below, place)
            below = self._box(variable, words, no, yes)
        return below

    def _places(self, head: Node) -> dict[int, Sequence[Interval]]:
        """Return where the cells of a chain lead, with the target of the last cell last."""
        places: dict[int, Sequence[Interval]] = {}
        at, node = BEGIN, head
        while True:
            point = self._breakpoint(self._variable_of(node))
            _put_last(places, self._yes(node), (at, point))
            at = point
            if not self._goes_on(node):
                break
            node = self._low[node]
        _put_last(places, self._box_of[self._low[node]], (at, END))
        return places

    def _question(
        self, variable: Variable, inside: Sequence[Interval], earlier: Sequence[Interval]
    ) -> tuple[str, bool]:
        """Return the shortest words for a region or its complement, and whether yes and no swap.

        Positions that earlier boxes have ruled out may count to either side.
        """
        wider = merged([*inside, *earlier])
        forms = [
            (self._region_words(variable, region), swapped)
            for region, swapped in (
                (inside, False),
                (wider, False),
                (outside(inside), True),
                (outside(wider), True),
            )
        ]
        return min(forms, key=lambda form: (len(form[0]) + 4 * form[0].count(" or "), form[1]))

    def _box(self, variable: Variable, words: str, no: int, yes: int) -> int:
        return self._boxes.setdefault(Box(variable.attribute, words, no, yes), len(self._boxes) + 2)

    # --- what nodes mean ---------------------------------------------------------------------

    def _yes(self, node: Node) -> int:
        return self._box_of[self._high[node]]

    def _variable_of(self, node: Node) -> Variable:
        return self._variable_order.variables[self._variables[node]]

    @staticmethod
    def _breakpoint(variable: Variable) -> Breakpoint:
        assert isinstance(variable.subject, tuple)  # noqa: S101 - in a chain
        return variable.subject

    def _attribute(self, variable: Variable) -> AttributeVariables:
        return self._variable_order.by_attribute[variable.attribute]

    def _region_words(self, variable: Variable, region: Sequence[Interval]) -> str:
        name, attribute = _subject_name(variable), self._attribute(variable)
        if variable.role.startswith(ADDRESS):
            return network_words(name, region)
        if variable.role.startswith(FOLDED):
            name = f"{name} in lower case"
            attribute = attribute.folded or attribute
        if variable.role.endswith("backward"):
            return suffix_words(name, BACKWARD, region)
        return region_words(name, attribute.value_order, region)

    def _breakpoint_words(self, node: Node, variable: Variable) -> str:
        """Return the words for a value left of a breakpoint and right of those already tested."""
        passed, point = self._passed[node], self._breakpoint(variable)
        bracket = point[:1]
        begins = [bracket] if len(point) == 2 and bracket <= passed else [passed, BEGIN]
        return min((self._region_words(variable, [(begin, point)]) for begin in begins), key=len)

    def _breakpoints_passed(
        self, nodes: Iterable[Node], roots: Iterable[Node]
    ) -> dict[Node, Breakpoint]:
        """Return for each node the last breakpoint of its attribute that every path has passed."""
        passed: dict[Node, Breakpoint] = dict.fromkeys(roots, BEGIN)
        chains = self._variable_order.chains
        for node in nodes:
            for child, is_low in ((self._low[node], True), (self._high[node], False)):
                chain = chains[self._variables[node]]
                goes_on = (
                    is_low and child > TRUE and chains[self._variables[child]] == chain != FREE
                )
                point = self._breakpoint(self._variable_of(node)) if goes_on else BEGIN
                passed[child] = min(passed.get(child, point), point)
        return passed


def _put_last(places: dict[int, Sequence[Interval]], place: int, interval: Interval) -> None:
    places[place] = merged([*places.pop(place, ()), interval])
