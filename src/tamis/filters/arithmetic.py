"""Comparisons between attributes, and with arithmetic: `price * quantity > budget`.

Integers compute exactly; a result beyond 64 bits has no value. With a float the result is a float,
as in IEEE 754. `/` always divides as floats; `div` of two integers is an integer, truncated towards
zero, as JMS requires. Division by zero and NaN have no value. Where no combination of values gives
a value on both sides, the comparison is unknown, as with an absent attribute.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, Final

import msgspec

from tamis.errors import FilterTypeError
from tamis.events import Event, Kind, Schema, Type, Value
from tamis.events.kinds import KIND_OF_TYPE, TYPE_OF_CLASS, kind_of
from tamis.events.values import INT64_MAX, INT64_MIN
from tamis.filters.atoms import COMPARISONS, MIRRORED, can_compare, declared
from tamis.filters.boolean import Filter, one_deeper
from tamis.filters.modes import View
from tamis.filters.printing import show_name, show_value

# With several values per attribute every combination counts, up to this many; past it the
# comparison is unknown, so that no event can make a filter cost the product of its lists.
MAX_COMBINATIONS: Final = 128

COMMUTATIVE: Final = frozenset("+*")

Choice = Mapping[str, Value]


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """An expression: an attribute, a constant, or arithmetic on them."""

    depth: int = 0

    def value(self, choice: Choice) -> Value | None:
        """Return the value, or None where there is none."""
        raise NotImplementedError

    def kind(self, schema: Schema) -> Kind:
        """Return the kind of the value under a schema."""
        raise NotImplementedError

    def operands(self) -> Iterator[Expression]:
        """Yield the attributes and constants from left to right."""
        yield self

    def canonical(self) -> Expression:
        """Return the same value with the operands of `+` and `*` in a fixed order."""
        return self

    def text(self, level: int) -> str:  # noqa: ARG002
        """Return the expression as text, next to an operator of precedence `level`."""
        return str(self)


class Reference(Expression, frozen=True):
    """The value of an attribute."""

    name: str

    def value(self, choice: Choice) -> Value | None:
        """Return the chosen value."""
        return choice[self.name]

    def kind(self, schema: Schema) -> Kind:
        """Return the declared kind."""
        return declared(self.name, schema, advice="a text needs quotes").kind

    def __str__(self) -> str:
        return show_name(self.name)


class Literal(Expression, frozen=True):
    """A constant; its type distinguishes 1, 1.0 and true."""

    constant: Value
    type: Type

    @classmethod
    def of(cls, constant: Value) -> Literal:
        """Return the constant as an expression."""
        return cls(constant, TYPE_OF_CLASS[type(constant)])

    def value(self, choice: Choice) -> Value:  # noqa: ARG002
        """Return the constant."""
        return self.constant

    def kind(self, schema: Schema) -> Kind:  # noqa: ARG002
        """Return the constant's kind."""
        return KIND_OF_TYPE[self.type]

    def __str__(self) -> str:
        return show_value(self.constant)


class Arithmetic(Expression, frozen=True):
    """Two expressions under `+`, `-`, `*`, `/` or `div`."""

    op: str
    left: Expression
    right: Expression

    @classmethod
    def of(cls, op: str, left: Expression, right: Expression) -> Expression:
        """Return the operation; on two constants, its result."""
        for side in (left, right):
            if isinstance(side, Literal) and KIND_OF_TYPE[side.type] is not Kind.NUMBER:
                shown = f"{left} {op} {right}"
                raise FilterTypeError(f"{side} is not a number, so {shown} has no value")
        if isinstance(left, Literal) and isinstance(right, Literal):
            result = compute(op, left.constant, right.constant)
            if result is None or not math.isfinite(result):
                raise FilterTypeError(f"{left} {op} {right} has no value")
            return Literal.of(result)
        return cls(op, left, right, depth=one_deeper((left, right)))

    def value(self, choice: Choice) -> int | float | None:
        """Compute, if both sides are numbers."""
        return compute(self.op, self.left.value(choice), self.right.value(choice))

    def kind(self, schema: Schema) -> Kind:
        """Return number, if both sides are."""
        for side in (self.left, self.right):
            if side.kind(schema) is not Kind.NUMBER:
                raise FilterTypeError(
                    f"{side} is {side.kind(schema).value}, so {self} has no value"
                )
        return Kind.NUMBER

    def operands(self) -> Iterator[Expression]:
        """Yield the operands of both sides."""
        yield from self.left.operands()
        yield from self.right.operands()

    def canonical(self) -> Expression:
        """Sort what commutes, with integers as with floats: both sides of `+` and `*`."""
        left, right = self.left.canonical(), self.right.canonical()
        if self.op in COMMUTATIVE:
            left, right = sorted((left, right), key=str)
        return Arithmetic(self.op, left, right, depth=self.depth)

    def __str__(self) -> str:
        level = 1 if self.op in "+-" else 2
        return f"{self.left.text(level)} {self.op} {self.right.text(level + 1)}"

    def text(self, level: int) -> str:
        """Return the expression, in parentheses next to an operator that binds tighter."""
        return str(self) if level <= (1 if self.op in "+-" else 2) else f"({self})"


class Relation(Filter, frozen=True):
    """A comparison of two expressions, other than an attribute with a constant."""

    op: str
    left: Expression
    right: Expression

    @classmethod
    def of(cls, op: str, left: Expression, right: Expression) -> Relation:
        """Return the comparison."""
        return cls(op, left, right, depth=max(left.depth, right.depth))

    def truth_in(self, view: View) -> bool | None:
        """Return whether some choice of the attributes' values satisfies the comparison."""
        truths = {
            compare_values(self.op, self.left.value(choice), self.right.value(choice))
            for choice in self._choices(view.event)
        }
        if True in truths:
            return True
        return False if False in truths else view.unknown

    def _choices(self, event: Event) -> Iterator[Choice]:
        names = sorted(self.attributes())
        values = [event.get(name, ()) for name in names]
        if math.prod(map(len, values)) <= MAX_COMBINATIONS:
            for chosen in product(*values):
                yield dict(zip(names, chosen, strict=True))

    def bind(self, schema: Schema) -> Filter:
        """Check that both sides can be compared."""
        left, right = self.left.kind(schema), self.right.kind(schema)
        if left is not right:
            raise FilterTypeError(f"{self} compares {left.value} with {right.value}")
        if not can_compare(self.op, left):
            raise FilterTypeError(f"{self}: {self.op} has no meaning for {left.value}")
        return self

    def canonical(self) -> Relation:
        """Return the one form that equal comparisons share: `b < a` is `a > b`."""
        left, right = self.left.canonical(), self.right.canonical()
        if str(right) < str(left):
            return Relation.of(MIRRORED[self.op], right, left)
        return Relation.of(self.op, left, right)

    def atoms(self) -> Iterator[Filter]:
        """Yield the comparison itself."""
        yield self

    def operands(self) -> Iterator[Expression]:
        """Yield the attributes and constants of both sides."""
        yield from self.left.operands()
        yield from self.right.operands()

    def attributes(self) -> frozenset[str]:
        """Return the attributes of both sides."""
        return frozenset(o.name for o in self.operands() if isinstance(o, Reference))

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


def compute(op: str, left: Value | None, right: Value | None) -> int | float | None:
    """Return the result of one operation on two numbers, or None where it has none."""
    if not (_is_number(left) and _is_number(right)):
        return None
    try:
        result = OPERATIONS[op](left, right)
    except ZeroDivisionError:
        return None
    if isinstance(result, int):
        return result if INT64_MIN <= result <= INT64_MAX else None
    return None if math.isnan(result) else result


def compare_values(op: str, left: Value | None, right: Value | None) -> bool | None:
    """Return whether `left op right`, or None where the two cannot be compared."""
    if left is None or right is None:
        return None
    kind = kind_of(left)
    if kind is None or kind is not kind_of(right) or not can_compare(op, kind):
        return None
    return COMPARISONS[op](left, right)


def _is_number(value: Value | None) -> bool:
    return value is not None and kind_of(value) is Kind.NUMBER


def _divide(left: float, right: float) -> float:
    return float(left) / float(right)


def _quotient(left: int | float, right: int | float) -> int | float:  # noqa: PYI041
    if isinstance(left, int) and isinstance(right, int):
        size = abs(left) // abs(right)
        return size if (left < 0) == (right < 0) else -size
    return _divide(left, right)


OPERATIONS: Final[dict[str, Callable[[Any, Any], int | float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide,
    "div": _quotient,
}
