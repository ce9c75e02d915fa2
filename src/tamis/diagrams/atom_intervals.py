"""Atoms as intervals of their attribute's value order, or as text predicates.

Everything but `contains`, `ends with`, long `within`, patterns and arithmetic is a union of
intervals of the value order, and so exact. A text predicate stays a predicate; what the value order
already decides about it (at a single text, under a prefix) and what other predicates imply is
worked out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tamis.diagrams.value_order import Breakpoint, Interval, ValueOrder, common_prefix
from tamis.events import Kind
from tamis.filters import Filter
from tamis.filters.atoms import (
    Between,
    Caseless,
    Compare,
    HasBits,
    HasKind,
    In,
    InNetwork,
    Like,
    Present,
    Regex,
    TextTest,
    ValueAtom,
)
from tamis.filters.folding import CASELESS_FLAG, fold, is_caseless
from tamis.filters.like import like_parts
from tamis.filters.networks import AFTER_LAST, network_of
from tamis.filters.printing import show_value
from tamis.filters.required_literals import required_literal

# `within` a text this short is membership in the set of its substrings.
MAX_ENUMERATED_CHARACTERS: Final = 12

_PATTERN_CHARACTERS: Final = frozenset("\\.+*?()|[]{}^$")


class TextPredicate(NamedTuple):
    """A test of text that is not a union of intervals, with what is known to follow from it."""

    accepts: Callable[[str], bool]
    key: tuple[str, str]
    prefix: str = ""
    """Every text that passes begins with this."""
    suffix: str = ""
    """Every text that passes ends with this; with `only_suffix`, and conversely."""
    parts: tuple[str, ...] = ()
    """Every text that passes contains these."""
    only_suffix: bool = False
    whole: str | None = None
    """Every text that passes is a substring of this."""

    def holds_under(self, low: str, high: str | None) -> bool | None:
        """Return True if all texts from low to below high pass, False if none do, else None."""
        if high == low + "\0":
            return self.accepts(low)
        # The prefix has breakpoints of its own, so a cell lies inside or outside of it.
        if not low.startswith(self.prefix):
            return False
        known = common_prefix(low, high)
        if self.key[0] == "contains" and self.key[1] in known:
            return True
        if self.whole is not None and known not in self.whole:
            return False
        return None

    def holds_with_suffix(self, suffix: str) -> bool:
        """Return whether every text that ends with `suffix` passes."""
        return self.key[0] == "contains" and self.key[1] in suffix

    def follows_from(self, other: TextPredicate) -> bool:
        """Return whether a text that passes the other test always passes this one."""
        op, text = self.key
        if op == "contains":
            return any(text in part for part in (*other.parts, other.prefix, other.suffix))
        if op == "within":
            return other.whole is not None and other.whole in text
        return self.key == other.key


def intervals_of(atom: Filter, value_order: ValueOrder) -> tuple[Interval, ...] | None:
    """Return the intervals in which an atom holds, or None if it is not a union of intervals."""
    match atom:
        case Present():
            return (value_order.present(),)
        case HasKind(kind=kind):
            return (value_order.whole(kind),)
        case Compare(kind=kind, op=op, value=value):
            return _comparison(value_order, kind, op, value)
        case Between(kind=kind, low=low, high=high):
            return ((value_order.below(kind, low), value_order.above(kind, high)),)
        case In(kind=kind, values=values):
            return tuple((value_order.below(kind, v), value_order.above(kind, v)) for v in values)
        case HasBits(op=op, bits=bits) if not bits:
            return (value_order.whole(Kind.BITS),) if op == "all" else ()
        case TextTest() | Like() | Regex():
            return _text_intervals(atom, value_order)
        case Caseless():
            test = exact_form(atom)
            return None if test is atom else intervals_of(test, value_order)
        case _:
            return None


def _comparison(
    value_order: ValueOrder, kind: Kind, op: str, value: object
) -> tuple[Interval, ...]:
    begin, end = value_order.whole(kind)
    below, above = value_order.below(kind, value), value_order.above(kind, value)
    return {
        "=": ((below, above),),
        "!=": ((begin, below), (above, end)),
        "<": ((begin, below),),
        "<=": ((begin, above),),
        ">": ((above, end),),
        ">=": ((below, end),),
    }[op]


def _text_intervals(atom: ValueAtom, value_order: ValueOrder) -> tuple[Interval, ...] | None:
    op, text = _plain(atom)
    match op:
        case "=":
            return ((value_order.below(Kind.TEXT, text), value_order.above(Kind.TEXT, text)),)
        case "starts with":
            return ((value_order.below(Kind.TEXT, text), value_order.above_prefix(text)),)
        case "contains" | "ends with" if not text:
            return (value_order.whole(Kind.TEXT),)
        case "within" if len(text) <= MAX_ENUMERATED_CHARACTERS:
            points = {text[i:j] for i in range(len(text) + 1) for j in range(i, len(text) + 1)}
            return tuple(
                (value_order.below(Kind.TEXT, p), value_order.above(Kind.TEXT, p)) for p in points
            )
        case _:
            return None


def folded_test(atom: Caseless) -> ValueAtom:
    """Return the simplest test of the folded text that is equivalent to an atom.

    A pattern that is a plain text needs no pattern: whatever folds to the text is folded.
    """
    test = atom.test
    if not isinstance(test, Regex):
        return test
    op, text = _plain_pattern(test.pattern.removeprefix(CASELESS_FLAG))
    if op == "matches":
        return test
    if op == "=":
        return Compare(test.attribute, test.kind, op, fold(text))
    return TextTest(test.attribute, test.kind, op, fold(text))


def exact_form(atom: Filter) -> Filter:
    """Return an atom without `ignoring case` if case makes no difference to it."""
    if isinstance(atom, Caseless) and _is_the_same_unfolded(test := folded_test(atom)):
        return test
    return atom


def _is_the_same_unfolded(test: ValueAtom) -> bool:
    """Return whether a value passes a test just if it does once folded."""
    match test:
        case Compare(op="=" | "!=", value=str() as text) | TextTest(text=text):
            return is_caseless(text)
        case In(values=values):
            return all(is_caseless(str(value)) for value in values)
        case _:
            return False


def text_predicate_of(atom: ValueAtom) -> TextPredicate:
    """Return the predicate of a text atom that is not a union of intervals."""
    if isinstance(atom, Caseless):
        return _caseless_predicate(atom)
    if isinstance(atom, InNetwork):
        return TextPredicate(atom.accepts, ("in network", ", ".join(atom.networks)))
    op, text = _plain(atom)
    accepts = atom.accepts
    match op:
        case "contains":
            return TextPredicate(accepts, (op, text), parts=(text,))
        case "ends with":
            return TextPredicate(accepts, (op, text), suffix=text, only_suffix=True)
        case "starts with":
            return TextPredicate(accepts, (op, text), prefix=text)
        case "within":
            return TextPredicate(accepts, (op, text), whole=text)
        case "like":
            literals = [part for part, _ in like_parts(text)]
            parts = tuple(part for part in literals if part)
            return TextPredicate(accepts, (op, text), literals[0], literals[-1], parts)
        case "matches":
            literal = required_literal(text)
            known = literal.text and not literal.ignores_case
            return TextPredicate(accepts, (op, text), parts=(literal.text,) if known else ())
        case _:
            return TextPredicate(accepts, (op, text))


def _caseless_predicate(atom: Caseless) -> TextPredicate:
    test = folded_test(atom)
    if _is_the_same_unfolded(test):
        return text_predicate_of(test)
    if isinstance(test, TextTest | Like | Regex):
        op, text = _plain(test)
        return TextPredicate(atom.accepts, (f"~{op}", text))
    return TextPredicate(atom.accepts, ("~", str(test)))


def address_key(position: int) -> str:
    """Return a position among addresses as a text; the order of texts is that of positions."""
    return f"{position:033x}"


def address_intervals(atom: InNetwork, value_order: ValueOrder) -> tuple[Interval, ...]:
    """Return the intervals of networks in the value order of positions."""
    networks = map(network_of, atom.networks)
    return tuple(
        (_address_point(n.first, value_order), _address_point(n.end, value_order)) for n in networks
    )


def _address_point(position: int, value_order: ValueOrder) -> Breakpoint:
    # Not `above` the last address of a network: the next network begins at the same point.
    if position == AFTER_LAST:
        return value_order.whole(Kind.TEXT)[1]
    return value_order.below(Kind.TEXT, address_key(position))


def _plain(atom: Filter) -> tuple[str, str]:
    """Return the simplest operator and text equivalent to a text atom."""
    match atom:
        case TextTest(op=op, text=text):
            return op, text
        case Like(pattern=pattern):
            return _plain_like(pattern)
        case Regex(pattern=pattern):
            return _plain_pattern(pattern)
        case Compare(op=op, value=str() as text):
            return op, text
        case In(values=values):
            return "in", ", ".join(map(show_value, values))
        case Between(low=low, high=high):
            return "between", f"{show_value(low)} and {show_value(high)}"
        case _:
            raise AssertionError(f"{atom} is not a text predicate")


def _plain_like(pattern: str) -> tuple[str, str]:
    match like_parts(pattern):
        case []:
            return "=", ""
        case [(text, None)]:
            return "=", text
        case [("", "%")]:
            return "contains", ""
        case [(text, None), ("", "%")]:
            return "starts with", text
        case [("", "%"), (text, None)]:
            return "ends with", text
        case [("", "%"), (text, None), ("", "%")]:
            return "contains", text
        case _:
            return "like", pattern


def _plain_pattern(pattern: str) -> tuple[str, str]:
    at_start, at_end = pattern.startswith("^"), pattern.endswith("$")
    text = pattern[at_start : len(pattern) - at_end]
    if not _PATTERN_CHARACTERS.isdisjoint(text):
        return "matches", pattern
    return {
        (False, False): "contains",
        (True, False): "starts with",
        (False, True): "ends with",
        (True, True): "=",
    }[at_start, at_end], text
