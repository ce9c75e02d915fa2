"""Filters from Python: `(attr("price") < 1000) & attr("company").in_("IBM", "Dell")`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from tamis.errors import EventError, FilterTypeError
from tamis.events import Bits, Kind, Value
from tamis.events.kinds import KIND_OF_TYPE, KINDS, check_value, kind_of
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.arithmetic import (
    Arithmetic,
    Expression,
    Literal,
    Reference,
    Relation,
    compare_values,
)
from tamis.filters.atoms import (
    MIRRORED,
    Between,
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
    can_compare,
    caseless,
)
from tamis.filters.boolean import And, Constant, Filter, Not, require_filter
from tamis.filters.element_test import ElementTest
from tamis.filters.like import compile_like
from tamis.filters.networks import network_of
from tamis.filters.patterns import compile_pattern
from tamis.filters.printing import show_name, show_value


def constant(value: object, attribute: str = "") -> Value:
    """Return `value` as a constant of a filter, or raise FilterTypeError."""
    if value is None:
        raise FilterTypeError(
            "nothing compares with None: use is_present() or is_absent()", attribute=attribute
        )
    try:
        checked = check_value(value)
    except EventError as error:
        raise FilterTypeError(error.reason, attribute=attribute) from None
    if isinstance(checked, float):
        return _finite(checked)
    return checked


def _finite(value: float) -> int | float:
    if not math.isfinite(value):
        raise FilterTypeError(f"an attribute cannot be compared with {value}: use a finite number")
    # 5 and 5.0 are one constant, because they compare alike.
    return int(value) if value.is_integer() and INT64_MIN <= value <= INT64_MAX else value


def kind_of_constant(value: Value) -> Kind:
    """Return the kind of a constant, which always has one."""
    kind = kind_of(value)
    assert kind is not None, "constants are never NaN"  # noqa: S101
    return kind


def comparison_of(attribute: str, op: str, value: object) -> Filter:
    """Return the comparison of an attribute with a constant."""
    checked = constant(value, attribute)
    return _comparison(attribute, kind_of_constant(checked), op, checked)


def _comparison(attribute: str, kind: Kind, op: str, checked: Value) -> Filter:
    if not can_compare(op, kind):
        raise FilterTypeError(
            f"{show_name(attribute)} {op} {show_value(checked)}: {op} has no meaning for "
            f"{kind.value}; {KINDS[kind].advice}",
            attribute=attribute,
        )
    return Compare(attribute, kind, op, checked)


def compare_expressions(op: str, left: Expression, right: Expression) -> Filter:
    """Return the simplest filter for a comparison of two expressions."""
    # Not a match statement: parsers come through here for every atom.
    if isinstance(right, Literal):
        if isinstance(left, Reference):
            return _compare_literal(left.name, op, right)
        if isinstance(left, Literal):
            return _compare_literals(op, left, right)
    elif isinstance(left, Literal) and isinstance(right, Reference):
        return _compare_literal(right.name, MIRRORED[op], left)
    return Relation.of(op, left, right)


def _compare_literals(op: str, left: Literal, right: Literal) -> Filter:
    truth = compare_values(op, left.constant, right.constant)
    if truth is None:
        raise FilterTypeError(f"{left} {op} {right} compares what cannot be compared")
    return Constant(truth)


def _compare_literal(attribute: str, op: str, literal: Literal) -> Filter:
    value = literal.constant
    if isinstance(value, float):
        value = _finite(value)
    return _comparison(attribute, KIND_OF_TYPE[literal.type], op, value)


def between(attribute: str, low: object, high: object) -> Filter:
    """Return the closed range from `low` to `high`."""
    first, last = constant(low, attribute), constant(high, attribute)
    kind = _one_kind(attribute, (first, last))
    if not can_compare("<", kind):
        raise FilterTypeError(
            f"{show_name(attribute)} between: there is no order of {kind.value}",
            attribute=attribute,
        )
    return Between(attribute, kind, first, last)


def between_expressions(term: Expression, low: Expression, high: Expression) -> Filter:
    """Return the closed range, for an expression as two comparisons."""
    if isinstance(term, Reference) and isinstance(low, Literal) and isinstance(high, Literal):
        return between(term.name, low.constant, high.constant)
    return And.of((compare_expressions(">=", term, low), compare_expressions("<=", term, high)))


def membership_of(attribute: str, values: Iterable[object]) -> Filter:
    """Return the test for equality with one of `values`."""
    checked = tuple(dict.fromkeys(constant(value, attribute) for value in values))
    if not checked:
        raise FilterTypeError(
            f"{show_name(attribute)} in (): the list is empty, so nothing could match",
            attribute=attribute,
        )
    kind = _one_kind(attribute, checked)
    if not can_compare("=", kind):
        raise FilterTypeError(
            f"{show_name(attribute)} in: there is no equality of {kind.value}; "
            f"{KINDS[kind].advice}",
            attribute=attribute,
        )
    return In(attribute, kind, checked)


def _one_kind(attribute: str, values: Iterable[Value]) -> Kind:
    kinds = list(dict.fromkeys(map(kind_of_constant, values)))
    if len(kinds) > 1:
        raise FilterTypeError(
            f"{show_name(attribute)} is compared with {kinds[0].value} and with {kinds[1].value} "
            "in one list; join two tests with or",
            attribute=attribute,
        )
    return kinds[0]


def text_test(attribute: str, op: str, text: object) -> Filter:
    """Return `contains`, `within`, `starts with` or `ends with`."""
    return TextTest(attribute, Kind.TEXT, op, _text(attribute, op, text))


def like(attribute: str, pattern: object) -> Filter:
    """Return SQL's LIKE, its pattern checked."""
    checked = _text(attribute, "like", pattern)
    # Only these two can be wrong, or too many.
    if "_" in checked or "\\" in checked:
        compile_like(checked)
    return Like(attribute, Kind.TEXT, checked)


def regular(attribute: str, pattern: object) -> Filter:
    """Return the search for a regular expression, its pattern checked."""
    checked = _text(attribute, "matches", pattern)
    compile_pattern(checked)
    return Regex(attribute, Kind.TEXT, checked)


def _text(attribute: str, op: str, text: object) -> str:
    checked = constant(text, attribute)
    if not isinstance(checked, str):
        raise FilterTypeError(
            f"{show_name(attribute)} {op} {show_value(checked)}: {op} takes a text",
            attribute=attribute,
        )
    return checked


def has_bits(attribute: str, op: str, bits: Bits | int | Iterable[int]) -> Filter:
    """Return the test for all or any of some bits: a mask, or bit numbers."""
    try:
        wanted = Bits.from_mask(bits) if isinstance(bits, int) else Bits(bits)
    except EventError as error:
        raise FilterTypeError(error.reason, attribute=attribute) from None
    return HasBits(attribute, Kind.BITS, op, wanted)


def in_network(attribute: str, networks: Iterable[object]) -> Filter:
    """Return the test for an IP address in one of some networks."""
    texts = [_text(attribute, "in", network) for network in networks]
    if not texts:
        raise FilterTypeError(
            f"{show_name(attribute)} in (): the list is empty, so nothing could match",
            attribute=attribute,
        )
    found = dict.fromkeys(network_of(text).text for text in texts)
    return InNetwork(attribute, Kind.TEXT, tuple(found))


def ignoring_case(filter_: Filter) -> Filter:
    """Return a test of text that ignores case."""
    if isinstance(filter_, ValueAtom):
        return caseless(filter_)
    raise FilterTypeError(f"{filter_} has no variant that ignores case: only tests of texts do")


class _Comparable:
    """Makes filters of Python's comparisons."""

    __slots__ = ()

    def __eq__(self, other: object) -> Filter:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: object) -> Filter:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: object) -> Filter:
        return self._compare("<", other)

    def __le__(self, other: object) -> Filter:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Filter:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Filter:
        return self._compare(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def _compare(self, op: str, other: object) -> Filter:
        raise NotImplementedError


class Term(_Comparable):
    """An expression under construction, with Python's operators for arithmetic and comparison."""

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    def __add__(self, other: object) -> Term:
        return _computed("+", self, other)

    def __sub__(self, other: object) -> Term:
        return _computed("-", self, other)

    def __mul__(self, other: object) -> Term:
        return _computed("*", self, other)

    def __truediv__(self, other: object) -> Term:
        return _computed("/", self, other)

    def __radd__(self, other: object) -> Term:
        return _computed("+", other, self)

    def __rsub__(self, other: object) -> Term:
        return _computed("-", other, self)

    def __rmul__(self, other: object) -> Term:
        return _computed("*", other, self)

    def __rtruediv__(self, other: object) -> Term:
        return _computed("/", other, self)

    def __neg__(self) -> Term:
        return _computed("-", 0, self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._expression}>"

    def between(self, low: object, high: object) -> Filter:
        """From `low` to `high`, both included."""
        return between_expressions(self._expression, _expression(low), _expression(high))

    def _compare(self, op: str, other: object) -> Filter:
        return compare_expressions(op, self._expression, _expression(other))


class Computed(Term):
    """The result of arithmetic."""

    # A sibling of Attr, not its parent: Python tries the right operand first if it is a subclass.

    __slots__ = ()


class Attr(Term):
    """An attribute of the event; made by `attr`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__(Reference(name))
        self.name = name

    @property
    def caseless(self) -> CaselessAttr:
        """The attribute, to be tested without regard to case.

        >>> attr("name").caseless == "Straße"
        <Filter name ~= "strasse">
        """
        return CaselessAttr(self)

    def in_(self, *values: object) -> Filter:
        """Equal to one of `values`."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | range):
            raise FilterTypeError(
                f"in_ takes the values one by one, not a {type(values[0]).__name__} of them; write "
                "in_(*values)",
                attribute=self.name,
            )
        return membership_of(self.name, values)

    def in_network(self, *networks: str) -> Filter:
        """The value is an IP address in one of `networks`.

        >>> attr("ip").in_network("10.0.0.0/8", "2001:db8::/32")
        <Filter ip in (10.0.0.0/8, 2001:db8::/32)>
        """
        return in_network(self.name, networks)

    def contains(self, text: str) -> Filter:
        """The value has `text` somewhere in it."""
        return text_test(self.name, "contains", text)

    def within(self, text: str) -> Filter:
        """The value stands somewhere in `text`."""
        return text_test(self.name, "within", text)

    def starts_with(self, text: str) -> Filter:
        """The value begins with `text`."""
        return text_test(self.name, "starts with", text)

    def ends_with(self, text: str) -> Filter:
        """The value ends with `text`."""
        return text_test(self.name, "ends with", text)

    def like(self, pattern: str) -> Filter:
        """The whole value fits an SQL pattern: % any text, _ one character."""
        return like(self.name, pattern)

    def matches(self, pattern: str) -> Filter:
        """A regular expression (RE2) is found in the value."""
        return regular(self.name, pattern)

    def has_all_bits(self, bits: Bits | int | Iterable[int]) -> Filter:
        """The bit set has every bit of a mask, or every one of some bit numbers."""
        return has_bits(self.name, "all", bits)

    def has_any_bit(self, bits: Bits | int | Iterable[int]) -> Filter:
        """The bit set has at least one bit of a mask, or one of some bit numbers."""
        return has_bits(self.name, "any", bits)

    def some(self, condition: Filter) -> Filter:
        """Some element of the attribute, which is a list of objects, satisfies `condition` alone.

        >>> attr("items").some((attr("sku") == "a") & (attr("price") > 3))
        <Filter items[sku = "a" and price > 3]>
        """
        return ElementTest.of(self.name, require_filter(condition, "some"))

    def is_present(self) -> Filter:
        """The event has the attribute."""
        return Present(self.name)

    def is_absent(self) -> Filter:
        """The event lacks the attribute."""
        return Not.of(Present(self.name))

    def is_a(self, kind: Kind) -> Filter:
        """The attribute has a value of this kind."""
        return HasKind(self.name, _kind(kind))


class CaselessAttr(_Comparable):
    """An attribute whose texts are tested without regard to case; made by `attr(…).caseless`."""

    __slots__ = ("_attribute",)

    def __init__(self, attribute: Attr) -> None:
        self._attribute = attribute

    def between(self, low: str, high: str) -> Filter:
        """From `low` to `high`, both included."""
        self._refuse_attributes(low, high)
        return ignoring_case(between(self._attribute.name, low, high))

    def in_(self, *values: object) -> Filter:
        """Equal to one of `values`."""
        self._refuse_attributes(*values)
        return ignoring_case(self._attribute.in_(*values))

    def contains(self, text: str) -> Filter:
        """The value has `text` somewhere in it."""
        return ignoring_case(self._attribute.contains(text))

    def within(self, text: str) -> Filter:
        """The value stands somewhere in `text`."""
        return ignoring_case(self._attribute.within(text))

    def starts_with(self, text: str) -> Filter:
        """The value begins with `text`."""
        return ignoring_case(self._attribute.starts_with(text))

    def ends_with(self, text: str) -> Filter:
        """The value ends with `text`."""
        return ignoring_case(self._attribute.ends_with(text))

    def like(self, pattern: str) -> Filter:
        """The whole value fits an SQL pattern: % any text, _ one character."""
        return ignoring_case(self._attribute.like(pattern))

    def matches(self, pattern: str) -> Filter:
        """A regular expression (RE2) is found somewhere in the value."""
        return ignoring_case(self._attribute.matches(pattern))

    def _compare(self, op: str, other: object) -> Filter:
        self._refuse_attributes(other)
        return ignoring_case(comparison_of(self._attribute.name, op, other))

    def _refuse_attributes(self, *values: object) -> None:
        if any(isinstance(value, Term | CaselessAttr) for value in values):
            name = self._attribute.name
            raise FilterTypeError(
                f"{show_name(name)} is compared without regard to case, so it needs a text: two "
                "attributes can only be compared exactly",
                attribute=name,
            )

    if not TYPE_CHECKING:  # Type checkers know that there are no such methods.

        def __getattr__(self, name: str) -> NoReturn:
            """Say why a method of `attr(…)` is missing here."""
            if name.startswith("_") or not hasattr(Attr, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(f"{name} does not look at case; leave .caseless out")


def _kind(kind: object) -> Kind:
    if isinstance(kind, Kind):
        return kind
    kinds = ", ".join(f"Kind.{one.name}" for one in Kind)
    raise FilterTypeError(f"a kind is one of {kinds}, not {kind!r:.60}")


def attr(name: str) -> Attr:
    """Return the attribute `name`, to be compared.

    >>> (attr("price") < 1000) & attr("company").in_("IBM", "Dell")
    <Filter price < 1000 and company in ("IBM", "Dell")>
    >>> attr("price") * attr("quantity") > attr("budget")
    <Filter price * quantity > budget>
    """
    if not isinstance(name, str) or not name:
        raise FilterTypeError(f"an attribute's name is a text that is not empty, not {name!r}")
    return Attr(constant_name(name))


def constant_name(name: str) -> str:
    """Return an attribute's name, or raise FilterTypeError if it is not valid."""
    try:
        check_value(name)
    except EventError as error:
        raise FilterTypeError(error.reason) from None
    return name


def _computed(op: str, left: object, right: object) -> Term:
    return Computed(Arithmetic.of(op, _expression(left), _expression(right)))


def _expression(operand: object) -> Expression:
    if isinstance(operand, Term):
        return operand._expression  # noqa: SLF001
    return Literal.of(_operand(operand))


def _operand(operand: object) -> Value:
    checked = constant(operand)
    # Arithmetic distinguishes 2 and 2.0, comparisons do not.
    return operand if type(operand) is float else checked
