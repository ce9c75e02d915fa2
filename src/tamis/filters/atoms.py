"""Atoms: tests of one attribute. With several values, an atom holds if one of them passes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Self

from tamis.errors import EventError, FilterTypeError
from tamis.events import Attribute, Bits, Kind, Schema, Value
from tamis.events.kinds import KIND_OF_CLASS, KINDS, TYPES, Type, kind_of
from tamis.events.schema import check_schema, fit
from tamis.filters.boolean import Filter
from tamis.filters.folding import CASELESS_FLAG, fold, fold_pattern
from tamis.filters.like import compile_like
from tamis.filters.modes import View
from tamis.filters.networks import network_of, position_of
from tamis.filters.patterns import compile_pattern
from tamis.filters.printing import show_name, show_value

COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# `5 < x` is `x > 5`.
COMPLEMENTS: Final = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Final = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "contains": operator.contains,
    "within": lambda value, text: value in text,
    "starts with": str.startswith,
    "ends with": str.endswith,
}


class Atom(Filter, frozen=True):
    """A test of one attribute."""

    attribute: str

    def atoms(self) -> Iterator[Filter]:
        """Yield the atom itself."""
        yield self

    def attributes(self) -> frozenset[str]:
        """Return the attribute's name."""
        return frozenset((self.attribute,))

    def passes(self, value: Value | None) -> bool:
        """Return whether an attribute with just this value, such as its default, satisfies it."""
        raise NotImplementedError

    def known(self) -> Atom | None:
        """Return where the atom is true or false, not unknown; None is everywhere."""
        return None

    def _declared(self, schema: Schema) -> Attribute:
        return declared(self.attribute, schema)


class Present(Atom, frozen=True):
    """The attribute is there, with a value of any kind."""

    def truth_in(self, view: View) -> bool:
        """Return whether the event has the attribute."""
        return self.attribute in view.event

    def passes(self, value: Value | None) -> bool:
        """Take any value."""
        return value is not None

    def bind(self, schema: Schema) -> Self:
        """Check that the schema knows the attribute."""
        self._declared(schema)
        return self

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} is present"

    def negated_text(self) -> str:
        """Return `… is absent`."""
        return f"{show_name(self.attribute)} is absent"


class HasKind(Atom, frozen=True):
    """The attribute is there with a value of one kind."""

    kind: Kind

    def truth_in(self, view: View) -> bool:
        """Return whether the event has a value of the kind."""
        return bool(view.event.of_kind(self.attribute, self.kind))

    def passes(self, value: Value | None) -> bool:
        """Compare the kind."""
        return value is not None and kind_of(value) is self.kind

    def bind(self, schema: Schema) -> Self:
        """Check that the schema knows the attribute."""
        self._declared(schema)
        return self

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} is {self.kind.value}"


class ValueAtom(Atom, frozen=True):
    """A test of the attribute's values of one kind; values of other kinds count as absent."""

    kind: Kind

    def truth_in(self, view: View) -> bool | None:
        """Return whether some value of the kind passes; without one the mode decides."""
        truth = view.unknown
        for value in view.event.held.get(self.attribute, ()):
            # As `Event.of_kind` has it: NaN, which differs from itself, is of no kind.
            if KIND_OF_CLASS[type(value)] is self.kind and value == value:  # noqa: PLR0124
                if self.accepts(value):
                    return True
                truth = False
        return truth

    def passes(self, value: Value | None) -> bool:
        """Test a value of the kind; no other passes."""
        return value is not None and kind_of(value) is self.kind and self.accepts(value)

    def known(self) -> Atom:
        """Return the test for a value of the kind: without one the atom is unknown."""
        return HasKind(self.attribute, self.kind)

    def accepts(self, value: Any) -> bool:
        """Return whether one value of the right kind passes."""
        raise NotImplementedError

    def bind(self, schema: Schema) -> ValueAtom:
        """Check the kind, and convert texts where the schema declares a type written as text."""
        attribute = self._declared(schema)
        if attribute.kind is self.kind:
            return caseless(self) if attribute.caseless else self
        if self.kind is Kind.TEXT and Type.STR in TYPES[attribute.type].conversions:
            return self.converted(attribute.type)
        raise self._contradiction(attribute)

    def converted(self, type_: Type) -> ValueAtom:
        """Return the atom with its texts converted to a type."""
        raise FilterTypeError(
            f"{show_name(self.attribute)} is declared as {type_.value!r}, which has no {self!s}",
            attribute=self.attribute,
        )

    def folded(self) -> ValueAtom:
        """Return the test with its constants folded, for texts that are."""
        raise FilterTypeError(
            f"{self} has no variant that ignores case: only tests of texts do",
            attribute=self.attribute,
        )

    def _contradiction(self, attribute: Attribute) -> FilterTypeError:
        return FilterTypeError(
            f"{self} asks for {self.kind.value}, but the schema declares "
            f"{show_name(self.attribute)} as {attribute.type.value!r}",
            attribute=self.attribute,
        )

    def _convert(self, text: Value, type_: Type) -> Value:
        try:
            return fit(text, type_, "")
        except EventError as error:
            raise FilterTypeError(
                f"{show_name(self.attribute)} is declared as {type_.value!r}, but {error.reason}",
                attribute=self.attribute,
            ) from None


class Compare(ValueAtom, frozen=True):
    """`=`, `!=`, `<`, `<=`, `>` or `>=` with a constant."""

    op: str
    value: Value

    def truth_in(self, view: View) -> bool | None:
        """Return whether some value of the kind passes; comparisons need no call for each one."""
        compare, truth = COMPARISONS[self.op], view.unknown
        for value in view.event.held.get(self.attribute, ()):
            if KIND_OF_CLASS[type(value)] is self.kind and value == value:  # noqa: PLR0124 - NaN
                if compare(value, self.value):
                    return True
                truth = False
        return truth

    def accepts(self, value: Any) -> bool:
        """Compare exactly; Python does so between int and float."""
        return COMPARISONS[self.op](value, self.value)

    def converted(self, type_: Type) -> ValueAtom:
        """Convert the constant."""
        value = self._convert(self.value, type_)
        return Compare(self.attribute, TYPES[type_].kind, self.op, value)

    def folded(self) -> ValueAtom:
        """Fold the constant."""
        if not isinstance(self.value, str):
            return super().folded()
        return Compare(self.attribute, self.kind, self.op, fold(self.value))

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} {self.op} {show_value(self.value)}"


class Between(ValueAtom, frozen=True):
    """From low to high, both included."""

    low: Any
    high: Any

    def accepts(self, value: Any) -> bool:
        """Return whether the value lies in the closed range."""
        return bool(self.low <= value <= self.high)

    def converted(self, type_: Type) -> ValueAtom:
        """Convert both ends."""
        return Between(
            self.attribute,
            TYPES[type_].kind,
            self._convert(self.low, type_),
            self._convert(self.high, type_),
        )

    def folded(self) -> ValueAtom:
        """Fold both ends."""
        if self.kind is not Kind.TEXT:
            return super().folded()
        return Between(self.attribute, self.kind, fold(self.low), fold(self.high))

    def __str__(self) -> str:
        low, high = show_value(self.low), show_value(self.high)
        return f"{show_name(self.attribute)} between {low} and {high}"


class In(ValueAtom, frozen=True):
    """Equal to one of several constants."""

    values: tuple[Value, ...]

    def accepts(self, value: Any) -> bool:
        """Return whether the value is one of the constants."""
        return value in self.values

    def converted(self, type_: Type) -> ValueAtom:
        """Convert the constants."""
        values = tuple(self._convert(value, type_) for value in self.values)
        return In(self.attribute, TYPES[type_].kind, values)

    def folded(self) -> ValueAtom:
        """Fold the constants."""
        texts = [fold(value) for value in self.values if isinstance(value, str)]
        if not texts:
            return super().folded()
        return In(self.attribute, self.kind, tuple(dict.fromkeys(texts)))

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} in ({', '.join(map(show_value, self.values))})"


class TextTest(ValueAtom, frozen=True):
    """`contains`, `within`, `starts with` or `ends with` a constant text."""

    op: str
    text: str

    def accepts(self, value: Any) -> bool:
        """Run the test; `within` asks whether the value is a part of the constant."""
        return TEXT_TESTS[self.op](value, self.text)

    def folded(self) -> ValueAtom:
        """Fold the constant."""
        return TextTest(self.attribute, self.kind, self.op, fold(self.text))

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} {self.op} {show_value(self.text)}"


class Like(ValueAtom, frozen=True):
    r"""SQL's LIKE: % any text, _ any one character, \ before a % or _ that is meant."""

    pattern: str

    def accepts(self, value: Any) -> bool:
        """Return whether the whole value fits the pattern."""
        return compile_like(self.pattern).fits(value)

    def folded(self) -> ValueAtom:
        """Fold the pattern; its wildcards stay."""
        return Like(self.attribute, self.kind, fold(self.pattern))

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} like {show_value(self.pattern)}"


class Regex(ValueAtom, frozen=True):
    """A regular expression (RE2) is found somewhere in the value."""

    pattern: str

    def accepts(self, value: Any) -> bool:
        """Return whether the pattern is found."""
        return compile_pattern(self.pattern).search(value) is not None

    def folded(self) -> ValueAtom:
        """Make the pattern ignore case."""
        return Regex(self.attribute, self.kind, fold_pattern(self.pattern))

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} matches {show_value(self.pattern)}"


class Caseless(ValueAtom, frozen=True):
    """A test of text that ignores case: it is made of the folded value, with folded constants."""

    test: ValueAtom

    def accepts(self, value: Any) -> bool:
        """Test the folded value."""
        return self.test.accepts(fold(value))

    def bind(self, schema: Schema) -> ValueAtom:
        """Check the kind."""
        attribute = self._declared(schema)
        if attribute.kind is not self.kind:
            raise self._contradiction(attribute)
        return self

    def folded(self) -> ValueAtom:
        """Return the test, which is."""
        return self.test

    def __str__(self) -> str:
        test = self.test
        if isinstance(test, Regex):
            test = Regex(test.attribute, test.kind, test.pattern.removeprefix(CASELESS_FLAG))
        name = show_name(self.attribute)
        return f"{name} ~{str(test).removeprefix(name).lstrip()}"


def caseless(atom: ValueAtom) -> Caseless:
    """Return a test of text that ignores case, or raise FilterTypeError."""
    return Caseless(atom.attribute, Kind.TEXT, atom.folded())


class InNetwork(ValueAtom, frozen=True):
    """The text is an IP address in one of several networks."""

    networks: tuple[str, ...]

    def accepts(self, value: Any) -> bool:
        """Return whether the text is an address that lies in one of the networks."""
        position = position_of(value)
        return any(n.first <= position < n.end for n in map(network_of, self.networks))

    def bind(self, schema: Schema) -> ValueAtom:
        """Check the kind; case makes no difference to addresses."""
        attribute = self._declared(schema)
        if attribute.kind is not self.kind:
            raise self._contradiction(attribute)
        return self

    def __str__(self) -> str:
        shown = ", ".join(self.networks)
        shown = f"({shown})" if len(self.networks) > 1 else shown
        return f"{show_name(self.attribute)} in {shown}"


class HasBits(ValueAtom, frozen=True):
    """The bit set has all, or any, of some bits."""

    op: str
    bits: Bits

    words: ClassVar[dict[str, str]] = {"all": "has all bits", "any": "has any bit"}

    def accepts(self, value: Any) -> bool:
        """Compare as sets."""
        return self.bits <= value if self.op == "all" else not self.bits.isdisjoint(value)

    def __str__(self) -> str:
        return f"{show_name(self.attribute)} {self.words[self.op]} {show_value(self.bits)}"


PLAIN_ATOMS: Final = frozenset((Compare, Between, TextTest, Like))
"""What most atoms are: each counts as one, and is no regular expression."""


def declared(name: str, schema: Schema, *, advice: str = "") -> Attribute:
    """Return what the schema declares for `name`, or say that it declares nothing."""
    check_schema(schema)
    try:
        return schema[name]
    except KeyError:
        hint = schema.suggestion(name) or advice
        raise FilterTypeError(
            f"the schema has no attribute {name!r}{'; ' + hint if hint else ''}", attribute=name
        ) from None


def can_compare(op: str, kind: Kind) -> bool:
    """Return whether values of `kind` have the comparison `op`."""
    return op in KINDS[kind].comparisons
