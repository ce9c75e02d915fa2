"""The filter: immutable Boolean conditions over atoms, with their reference semantics.

`truth_in` is the reference semantics of Tamis. Every fast path is compared with it, so it is
written to be obviously right: three truth values, with None for unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Generic, NoReturn, Protocol, Self, TypeVar

import msgspec

from tamis.errors import FilterTypeError, LimitError
from tamis.events import Event, Schema
from tamis.filters.modes import Mode, View, as_mode, view_of
from tamis.html_text import html_code

# Deeper trees than this are refused where they are built, so that every walk over a filter may
# be plain recursion. Admission limits (`FilterLimits`) lie below it.
MAX_DEPTH = 200

Id = str | int
"""The name of a filter among others, such as that of a subscription."""


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on events; combine with `&`, `|`, `^` and `~`, print to see it as text."""

    depth: int = 0
    """Levels of Boolean nodes above the deepest atom."""

    precedence: ClassVar[int] = 5

    def matches(
        self,
        event: Event | Mapping[str, object],
        mode: str = Mode.SQL,
        schema: Schema | None = None,
    ) -> bool:
        """Return whether `event` satisfies this filter: the reference semantics.

        >>> from tamis.filters import attr
        >>> (attr("price") < 1000).matches({"price": 999})
        True
        """
        return self.truth(event, mode, schema) is True

    def truth(
        self,
        event: Event | Mapping[str, object],
        mode: str = Mode.SQL,
        schema: Schema | None = None,
    ) -> bool | None:
        """Return True, False, or None for unknown: why an event that does not match does not.

        >>> from tamis.filters import attr
        >>> cheap = attr("price") < 1000
        >>> cheap.truth({"price": 999}), cheap.truth({"price": 1000}), cheap.truth({"size": 5})
        (True, False, None)
        """
        mode = as_mode(mode)
        view = view_of(event, mode, schema)
        bound = self if schema is None else self.bind(schema)
        if mode is Mode.STRICT and not bound.is_adequate(view):
            return None
        return bound.truth_in(view)

    def truth_in(self, view: View) -> bool | None:
        """Return the truth on an event as a mode sees it; None is unknown."""
        raise NotImplementedError

    def is_adequate(self, view: View) -> bool:
        """Return whether every atom of the filter is known on the event."""
        return all(atom.truth_in(view) is not None for atom in self.atoms())

    def bind(self, schema: Schema) -> Filter:
        """Return this filter with its constants converted to the schema's types."""
        raise NotImplementedError

    def atoms(self) -> Iterator[Filter]:
        """Yield the atoms from left to right, with repetitions."""
        raise NotImplementedError

    def attributes(self) -> frozenset[str]:
        """Return the names of the attributes that the filter mentions."""
        return frozenset(name for atom in self.atoms() for name in atom.attributes())

    def __and__(self, other: Filter) -> Filter:
        return And.of((self, other)) if isinstance(other, Filter) else NotImplemented

    def __or__(self, other: Filter) -> Filter:
        return Or.of((self, other)) if isinstance(other, Filter) else NotImplemented

    def __xor__(self, other: Filter) -> Filter:
        return Xor.of((self, other)) if isinstance(other, Filter) else NotImplemented

    def __invert__(self) -> Filter:
        return Not.of(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"the filter {self} is neither true nor false before it meets an event: combine "
            "filters with & | ^ ~ instead of and, or, not (comparisons in parentheses, and "
            "a < x < b as attr.between), and ask .matches(event) for an answer"
        )

    def negated_text(self) -> str:
        """Return the text of this filter's negation."""
        return f"not ({self})"

    def __repr__(self) -> str:
        return f"<Filter {self}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return html_code(self)


class Constant(Filter, frozen=True):
    """True or false, whatever the event."""

    value: bool

    def truth_in(self, view: View) -> bool:  # noqa: ARG002
        """Return the constant."""
        return self.value

    def bind(self, schema: Schema) -> Self:  # noqa: ARG002
        """Return the constant."""
        return self

    def atoms(self) -> Iterator[Filter]:
        """Yield nothing."""
        return iter(())

    def __str__(self) -> str:
        return "true" if self.value else "false"


TRUE = Constant(True)
FALSE = Constant(False)


class Not(Filter, frozen=True):
    """True where the term is false."""

    term: Filter

    precedence: ClassVar[int] = 4

    @classmethod
    def of(cls, term: Filter) -> Filter:
        """Return the negation; the negation of a negation is its term."""
        if isinstance(term, Not):
            return term.term
        return cls(term, depth=one_deeper((term,)))

    def truth_in(self, view: View) -> bool | None:
        """Return the opposite; unknown stays unknown."""
        truth = self.term.truth_in(view)
        return None if truth is None else not truth

    def bind(self, schema: Schema) -> Filter:
        """Bind the term."""
        bound = self.term.bind(schema)
        return self if bound is self.term else Not.of(bound)

    def atoms(self) -> Iterator[Filter]:
        """Yield the term's atoms."""
        return self.term.atoms()

    def __str__(self) -> str:
        return self.term.negated_text()


class Connective(Filter, frozen=True):
    """Several terms joined by one operator; nested ones of the same operator are flattened."""

    terms: tuple[Filter, ...]

    word: ClassVar[str]
    neutral: ClassVar[Constant]

    @classmethod
    def of(cls, terms: Iterable[Filter]) -> Filter:
        """Join the terms; a single term is itself, no terms are the neutral constant."""
        flat: list[Filter] = []
        for term in terms:
            if isinstance(term, cls):
                flat.extend(term.terms)
            else:
                flat.append(term)
        if len(flat) < 2:
            return flat[0] if flat else cls.neutral
        return cls(tuple(flat), depth=one_deeper(flat))

    def bind(self, schema: Schema) -> Filter:
        """Bind every term; a filter that is already bound stays the same object."""
        bound = [term.bind(schema) for term in self.terms]
        if all(new is old for new, old in zip(bound, self.terms, strict=True)):
            return self
        return type(self).of(bound)

    def atoms(self) -> Iterator[Filter]:
        """Yield the terms' atoms."""
        for term in self.terms:
            yield from term.atoms()

    def __str__(self) -> str:
        return f" {self.word} ".join(
            f"({term})" if term.precedence < self.precedence else str(term) for term in self.terms
        )


class And(Connective, frozen=True):
    """True where every term is."""

    word: ClassVar[str] = "and"
    precedence: ClassVar[int] = 3
    neutral: ClassVar[Constant] = TRUE

    def truth_in(self, view: View) -> bool | None:
        """Return false if a term is, otherwise unknown if a term is, otherwise true."""
        truths = [term.truth_in(view) for term in self.terms]
        if False in truths:
            return False
        return None if None in truths else True


class Or(Connective, frozen=True):
    """True where some term is."""

    word: ClassVar[str] = "or"
    precedence: ClassVar[int] = 1
    neutral: ClassVar[Constant] = FALSE

    def truth_in(self, view: View) -> bool | None:
        """Return true if a term is, otherwise unknown if a term is, otherwise false."""
        truths = [term.truth_in(view) for term in self.terms]
        if True in truths:
            return True
        return None if None in truths else False


class Xor(Connective, frozen=True):
    """True where an odd number of terms is."""

    word: ClassVar[str] = "xor"
    precedence: ClassVar[int] = 2
    neutral: ClassVar[Constant] = FALSE

    def truth_in(self, view: View) -> bool | None:
        """Return unknown if a term is, otherwise whether the number of true terms is odd."""
        truths = [term.truth_in(view) for term in self.terms]
        return None if None in truths else truths.count(True) % 2 == 1


def all_of(*filters: Filter) -> Filter:
    """Return the filter that holds where all of `filters` do."""
    return And.of(require_filter(one, "all_of") for one in filters)


def any_of(*filters: Filter) -> Filter:
    """Return the filter that holds where at least one of `filters` does."""
    return Or.of(require_filter(one, "any_of") for one in filters)


def require_filter(value: object, asker: str = "") -> Filter:
    """Return a filter as it is, or raise an error that says how to make one.

    >>> require_filter("price < 5")
    Traceback (most recent call last):
    tamis.errors.FilterTypeError: a Filter is needed, not 'price < 5': write parse('price < 5')
    """
    if isinstance(value, Filter):
        return value
    advice = ""
    if isinstance(value, str):
        advice = f": write parse({value!r:.60})"
    elif isinstance(value, list | tuple) and asker:
        advice = f": write {asker}(*filters)"
    elif name := getattr(value, "name", ""):
        advice = f", which is no condition: compare it, as in {name} = 5"
    raise FilterTypeError(f"a Filter is needed, not {value!r:.60}{advice}")


class _Deep(Protocol):
    @property
    def depth(self) -> int: ...


def one_deeper(terms: Iterable[_Deep]) -> int:
    """Return the depth of a node over `terms`, or refuse one too deep for recursion."""
    depth = 1 + max(term.depth for term in terms)
    if depth > MAX_DEPTH:
        raise LimitError("levels inside the filter", actual=depth, limit=MAX_DEPTH)
    return depth


T = TypeVar("T")


class TruthSets(Generic[T]):
    """Where a filter is true and where it is false; elsewhere it is unknown.

    One walk for every representation of sets of events: diagrams, or filters of two truth values.
    """

    def where(self, filter_: Filter, *, truth: bool) -> T:
        """Return the events on which a filter is true, or those on which it is false."""
        match filter_:
            case Constant(value=value):
                return self._constant(value is truth)
            case Not(term=term):
                return self.where(term, truth=not truth)
            case And(terms=terms) | Or(terms=terms):
                parts = [self.where(term, truth=truth) for term in terms]
                return self._all(parts) if isinstance(filter_, And) is truth else self._any(parts)
            case Xor(terms=terms):
                return self._parity(terms, odd=truth)
            case _:
                return self._atom(filter_, truth=truth)

    def _constant(self, value: bool) -> T:
        raise NotImplementedError

    def _all(self, parts: Sequence[T]) -> T:
        raise NotImplementedError

    def _any(self, parts: Sequence[T]) -> T:
        raise NotImplementedError

    def _parity(self, terms: Sequence[Filter], *, odd: bool) -> T:
        """Return where all terms are known, and an odd or even number of them is true."""
        raise NotImplementedError

    def _atom(self, atom: Filter, *, truth: bool) -> T:
        raise NotImplementedError
