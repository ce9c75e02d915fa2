"""Filters over objects: conditions on what accessors find, combined.

`truth` is their reference semantics, in plain Python: three truth values, with None for unknown. A
condition is unknown where its accessor finds nothing, fails, or finds what cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, NoReturn

from tamis.errors import FilterTypeError, LimitError
from tamis.events import Event
from tamis.filters.boolean import MAX_DEPTH, Filter
from tamis.filters.translations import Translation
from tamis.html_text import html_code
from tamis.objects.accessors import (
    Accessor,
    AccessorFailures,
    ByName,
    CallStep,
    ClassStep,
    FieldStep,
    FoundInElements,
    KeyStep,
    Reader,
    class_names,
    is_several,
    name_in_identity,
    show_argument,
)
from tamis.objects.comparing import (
    Failed,
    comparands_of,
    comparison_called,
    contains_value,
    elements_of,
    kind_of_operand,
    listed,
    some_passes,
)

MAX_CONDITIONS: Final = 10_000


class Combinable:
    """What can be combined to filters over objects."""

    __slots__ = ()

    def __and__(self, other: object) -> ObjectFilter:
        return combined(Conjunction, self, other)

    def __rand__(self, other: object) -> ObjectFilter:
        return combined(Conjunction, other, self)

    def __or__(self, other: object) -> ObjectFilter:
        return combined(Disjunction, self, other)

    def __ror__(self, other: object) -> ObjectFilter:
        return combined(Disjunction, other, self)

    def __xor__(self, other: object) -> ObjectFilter:
        return combined(Parity, self, other)

    def __rxor__(self, other: object) -> ObjectFilter:
        return combined(Parity, other, self)


class ObjectFilter(Combinable):
    """A condition on objects; combine with `&`, `|`, `^` and `~`, print to see it as Python."""

    depth: ClassVar[int] = 0
    """Levels of nodes above the deepest condition."""
    translate: ClassVar[Callable[[ObjectFilter], Translation]]
    """Set by `translating`, which knows all nodes."""

    def __translation__(self) -> Translation:
        """Return what the engine takes."""
        return ObjectFilter.translate(self)

    def matches(self, message: object) -> bool:
        """Return whether an object, or a plain event, satisfies this filter: the reference."""
        return self.truth(message) is True

    def truth(self, message: object, read: Reader | None = None) -> bool | None:
        """Return True, False, or None for unknown."""
        if isinstance(message, Mapping):
            return self.truth_by(Event.of(message), _read_event)
        return self.truth_by(message, read or ByName())

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return the truth on an object, which `read` reads."""
        raise NotImplementedError

    def conditions(self) -> Iterator[ObjectCondition | Quantified]:
        """Yield the conditions from left to right; not those inside of other conditions."""
        raise NotImplementedError

    def __invert__(self) -> ObjectFilter:
        return Complement.of(self)

    def nand(self, other: object) -> ObjectFilter:
        """Not both."""
        return ~(self & other)

    def nor(self, other: object) -> ObjectFilter:
        """Neither."""
        return ~(self | other)

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        return html_code(repr(self))

    def __bool__(self) -> NoReturn:
        raise FilterTypeError(
            f"the filter {self!r} is neither true nor false before it meets an object: combine "
            "filters with & | ^ ~ instead of and, or, not (comparisons in parentheses); x in "
            "(a, b) is x.in_(a, b); or write them as where(cls, lambda …)"
        )


def _told_apart_by(op: str, operand: Any) -> object:
    match op:
        case "present" | "is a":
            return operand
        case "compare":
            return operand[0], show_argument(operand[1])
        case "in":
            return tuple((kind_of_operand(one), one) for one in operand)
        case _:
            return kind_of_operand(operand), operand


@dataclass(frozen=True, repr=False)
class ObjectCondition(ObjectFilter):
    """A test of what an accessor finds; if that is several values, one has to pass."""

    accessor: Accessor
    op: str
    """A comparison, `in`, a test of text, `contains`, `present`, `is a`, or `compare`."""
    operand: Any = field(default=None, compare=False)
    """The constant; the constants of `in`; name and constant of `compare`."""
    told_apart_by: object = field(init=False)
    """Compared in its place: for Python, 1 and True are equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "told_apart_by", _told_apart_by(self.op, self.operand))

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return the truth on an object."""
        found = read(message, self.accessor)
        if self.op == "present":
            return self._is_present(found, message)
        if found is None:
            return None
        exact, failed = self.accessor.exact, _noting(read, message, self.accessor)
        match self.op:
            case "contains":
                return contains_value(found, self.operand, exact=exact, failed=failed)
            case "has":
                values = comparands_of(found, exact=exact, failed=failed)
                truth = some_passes("=", self.operand, values)
                return bool(truth) if is_several(found) else truth
            case "is a":
                return _is_instance(found, self.operand)
            case "compare":
                return self._compare(message, found, read)
            case _:
                values = comparands_of(found, exact=exact, failed=failed)
                return some_passes(self.op, self.operand, values)

    def _is_present(self, found: object, message: object) -> bool | None:
        root = self.accessor.root
        if root and root not in class_names(type(message)):
            return None
        return bool(comparands_of(found, exact=False))

    def _compare(self, message: object, found: object, read: Reader) -> bool | None:
        name, given = self.operand
        compare = comparison_called(name)
        truth: bool | None = None
        for value in elements_of(found):
            try:
                passed = bool(compare(value, given))
            except Exception as error:  # As in accessors: the object does not match.
                failures = getattr(read, "failures", None)
                if failures is not None:
                    failures.note(message, f"{self.accessor.name} {name}", error)
                continue
            if passed:
                return True
            truth = False
        return truth

    def conditions(self) -> Iterator[ObjectCondition | Quantified]:
        """Yield the condition itself."""
        yield self

    def __repr__(self) -> str:
        return _show_condition(self, _root_text(self.accessor))


@dataclass(frozen=True, repr=False)
class Quantified(ObjectFilter):
    """Some element of a collection satisfies a filter, or all do."""

    accessor: Accessor
    every: bool
    inner: ObjectFilter

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _one_deeper((self.inner,)))

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return the truth on an object; what is no collection counts as its only element."""
        found: Any = read(message, self.accessor)
        if found is None:
            return None
        several = is_several(found)
        elements = listed(found, _noting(read, message, self.accessor)) if several else (found,)
        if elements is None:
            return None
        truths = [self.inner.truth_by(each, read) for each in elements]
        if (not self.every) in truths:
            return not self.every
        return None if None in truths else self.every

    def conditions(self) -> Iterator[ObjectCondition | Quantified]:
        """Yield the condition itself."""
        yield self

    def __repr__(self) -> str:
        word = "all" if self.every else "any"
        return f"{_root_text(self.accessor)}.{word}(lambda each: {_show(self.inner, 'each')})"


@dataclass(frozen=True, repr=False)
class Complement(ObjectFilter):
    """True where the term is false."""

    term: ObjectFilter

    @classmethod
    def of(cls, term: ObjectFilter) -> ObjectFilter:
        """Return the negation; the negation of a negation is its term."""
        return term.term if isinstance(term, Complement) else cls(term)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _one_deeper((self.term,)))

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return the opposite; unknown stays unknown."""
        truth = self.term.truth_by(message, read)
        return None if truth is None else not truth

    def conditions(self) -> Iterator[ObjectCondition | Quantified]:
        """Yield the term's conditions."""
        return self.term.conditions()

    def __repr__(self) -> str:
        return _show(self, "")


@dataclass(frozen=True, repr=False)
class Combination(ObjectFilter):
    """Several filters joined by one operator; nested ones of the same operator are flattened."""

    terms: tuple[ObjectFilter, ...]

    sign: ClassVar[str]

    @classmethod
    def of(cls, terms: Iterable[ObjectFilter]) -> ObjectFilter:
        """Join the terms."""
        flat: list[ObjectFilter] = []
        for term in terms:
            flat.extend(term.terms if isinstance(term, cls) else (term,))
        if len(flat) > MAX_CONDITIONS:
            raise LimitError("conditions of a filter", actual=len(flat), limit=MAX_CONDITIONS)
        return flat[0] if len(flat) == 1 else cls(tuple(flat))

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _one_deeper(self.terms))

    def conditions(self) -> Iterator[ObjectCondition | Quantified]:
        """Yield the conditions of all terms."""
        for term in self.terms:
            yield from term.conditions()

    def __repr__(self) -> str:
        return _show(self, "")


@dataclass(frozen=True, repr=False)
class Conjunction(Combination):
    """True where every term is."""

    sign: ClassVar[str] = "&"

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return false if a term is, otherwise unknown if a term is, otherwise true."""
        truths = [term.truth_by(message, read) for term in self.terms]
        if False in truths:
            return False
        return None if None in truths else True


@dataclass(frozen=True, repr=False)
class Disjunction(Combination):
    """True where some term is."""

    sign: ClassVar[str] = "|"

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return true if a term is, otherwise unknown if a term is, otherwise false."""
        truths = [term.truth_by(message, read) for term in self.terms]
        if True in truths:
            return True
        return None if None in truths else False


@dataclass(frozen=True, repr=False)
class Parity(Combination):
    """True where an odd number of terms is."""

    sign: ClassVar[str] = "^"

    def truth_by(self, message: object, read: Reader) -> bool | None:
        """Return unknown if a term is, otherwise whether the number of true terms is odd."""
        truths = [term.truth_by(message, read) for term in self.terms]
        return None if None in truths else truths.count(True) % 2 == 1


def _is_instance(found: object, identity: str) -> bool | None:
    """Return whether something is of a class; of what was found in elements, one has to be."""
    if type(found) is FoundInElements:
        truths = [_is_instance(each, identity) for each in found]
        return True if True in truths else None if False not in truths else False
    return identity in class_names(type(found))


def _noting(read: Reader, message: object, accessor: Accessor) -> Failed | None:
    """Return what counts a failure of what an accessor found, if its reader counts failures."""
    failures: AccessorFailures | None = getattr(read, "failures", None)
    return None if failures is None else partial(failures.note, message, accessor.name)


# --- combining -------------------------------------------------------------------------------


def combined(kind: type[Combination], *terms: object) -> ObjectFilter:
    """Return some filters joined, or say what is wrong with one of them."""
    return kind.of(require_object_filter(term) for term in terms)


def require_object_filter(given: object) -> ObjectFilter:
    """Return a filter over objects, or raise an error that says how to make one."""
    if isinstance(given, ObjectFilter):
        return given
    as_condition = getattr(type(given), "__condition__", None)
    if as_condition is not None:
        condition: ObjectFilter = as_condition(given)
        return condition
    if isinstance(given, Filter):
        raise FilterTypeError(
            f"{given} is a filter over attributes, which cannot be combined with a filter over "
            "objects; add both to the engine, or write it with message()"
        )
    hint = ": put the comparison in parentheses" if isinstance(given, bool | int | float) else ""
    raise FilterTypeError(f"a filter over objects is needed, not {given!r:.60}{hint}")


def _one_deeper(terms: Iterable[ObjectFilter]) -> int:
    depth = 1 + max(term.depth for term in terms)
    if depth > MAX_DEPTH:
        raise LimitError("levels inside the filter", actual=depth, limit=MAX_DEPTH)
    return depth


def _read_event(event: object, accessor: Accessor) -> object:
    """Return the values of a plain event, which has no class and no methods."""
    assert isinstance(event, Event)  # noqa: S101 - `truth` made it one
    values = () if accessor.root else event.held.get(accessor.name, ())
    return (values[0] if len(values) == 1 else list(values)) if values else None


# --- printing --------------------------------------------------------------------------------

_SIGNS: Final = {"=": "=="}
_METHODS: Final = {
    "starts with": "startswith",
    "ends with": "endswith",
    "has": "contains",
    "has part": "contains",
}


def _short(identity: str) -> str:
    return name_in_identity(identity).rpartition(".")[2]


def _root_text(accessor: Accessor, root: str = "") -> str:
    start = root or f"message({_short(accessor.root)})"
    return start + "".join(_step_text(step) for step in accessor.steps)


def _step_text(step: object) -> str:
    match step:
        case KeyStep(name=name):
            return f"[{name!r}]"
        case FieldStep(name=name):
            return f".{name}"
        case CallStep(name=name, arguments=arguments):
            return f".{name}({', '.join(map(repr, arguments))})"
        case ClassStep(class_name=name):
            return f".is_a({_short(name)})"
        case _:
            return str(step)


def _show(shown: ObjectFilter, root: str) -> str:
    match shown:
        case ObjectCondition():
            return _show_condition(shown, _root_text(shown.accessor, root))
        case Quantified(accessor=accessor, every=every, inner=inner):
            word = "all" if every else "any"
            inside = f"lambda each: {_show(inner, 'each')}"
            return f"{_root_text(accessor, root)}.{word}({inside})"
        case Complement(term=term):
            return f"~{_enclosed(term, root)}"
        case Combination(terms=terms):
            return f" {shown.sign} ".join(_enclosed(term, root) for term in terms)
        case _:
            return repr(shown)


def _enclosed(shown: ObjectFilter, root: str) -> str:
    text = _show(shown, root)
    is_single = isinstance(shown, Complement | Quantified) or (
        isinstance(shown, ObjectCondition) and shown.op not in _COMPARED
    )
    return text if is_single else f"({text})"


_COMPARED: Final = frozenset({"=", "!=", "<", "<=", ">", ">="})


def _show_condition(shown: ObjectCondition, accessor: str) -> str:
    given = shown.operand
    match shown.op:
        case op if op in _COMPARED:
            return f"{accessor} {_SIGNS.get(op, op)} {given!r}"
        case "in":
            return f"{accessor}.in_({', '.join(map(repr, given))})"
        case "present":
            return f"{accessor}.is_present()"
        case "is a":
            own = not shown.accessor.steps and given == shown.accessor.root
            return accessor if own else f"{accessor}.is_a({_short(given)})"
        case "compare":
            return f"{accessor}.compare({given[0]!r}, {given[1]!r})"
        case op:
            return f"{accessor}.{_METHODS.get(op, op)}({given!r})"
