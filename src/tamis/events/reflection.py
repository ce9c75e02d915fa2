"""Structural reflection: what the classes of objects promise about their members.

A *promise* is what an annotation says that a member holds or returns: some classes, or nothing that
is known. Only annotations and class attributes are read; no code of the class runs.
"""

from __future__ import annotations

import dis
import inspect
import types
import typing
from collections.abc import (
    Callable,
    Collection,
    Container,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Reversible,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache, partialmethod, singledispatchmethod
from itertools import pairwise
from typing import Any, Final, Generic, NamedTuple, TypeVar

# Nested unions and aliases beyond this promise nothing that is known.
MAX_ANNOTATION_DEPTH: Final = 16


class PromisedClass(NamedTuple):
    """A class that an annotation promises, with what is promised of its parameters."""

    cls: type
    arguments: tuple[Promise, ...] = ()
    constants: tuple[Any, ...] | None = None
    """The only values that it may be, if that is said, as `Literal` does."""

    def __str__(self) -> str:
        if self.constants is not None:
            return f"Literal[{', '.join(map(repr, self.constants))}]"
        inside = ", ".join(map(str, self.arguments))
        return f"{self.cls.__name__}[{inside}]" if inside else self.cls.__name__


@dataclass(frozen=True)
class Promise:
    """What an annotation says: an instance of one of some classes; of none: nothing is known."""

    classes: tuple[PromisedClass, ...] = ()
    optional: bool = False
    """Whether it may be None as well."""

    @property
    def is_known(self) -> bool:
        """Return whether it says anything."""
        return bool(self.classes)

    def __str__(self) -> str:
        shown = " | ".join(map(str, self.classes)) or "anything"
        return f"{shown} | None" if self.optional and self.classes else shown

    def may_be(self, *classes: type) -> bool:
        """Return whether an instance of one of some classes would keep the promise."""
        return not self.classes or any(
            _may_be(mine.cls, other) for mine in self.classes for other in classes
        )

    def is_surely(self, *classes: type) -> bool:
        """Return whether all that is promised are instances of some classes."""
        return self.is_known and all(issubclass(mine.cls, classes) for mine in self.classes)


def _may_be(promised: type, other: type) -> bool:
    """Return whether something may be an instance of both, as far as Python can tell."""
    if is_protocol(promised) or is_protocol(other):
        return True
    one, two = (dict if typing.is_typeddict(cls) else cls for cls in (promised, other))
    return issubclass(one, two) or issubclass(two, one)


def is_protocol(cls: type) -> bool:
    """Return whether a class describes structure; Python refuses to ask most for their instances.

    >>> is_protocol(Sequence), is_protocol(typing.SupportsInt)
    (False, True)
    """
    return bool(getattr(cls, "_is_protocol", False))


UNKNOWN: Final = Promise()


class Method(NamedTuple):
    """A method as its class declares it."""

    name: str
    signature: inspect.Signature | None
    """Without `self`; None if Python does not tell."""
    parameters: Mapping[str, Promise]
    returns: Promise


# --- from annotations ------------------------------------------------------------------------

_WRAPPERS: Final = (
    typing.Annotated,
    typing.ClassVar,
    typing.Final,
    typing.Required,
    typing.NotRequired,
)

TypeArguments = Mapping[Any, Promise]


def promise_of(
    annotation: object, arguments: TypeArguments | None = None, depth: int = 0
) -> Promise:
    """Return what an annotation promises; `arguments` says what type variables stand for.

    >>> print(promise_of(list[int] | None))
    list[int] | None
    """
    if depth > MAX_ANNOTATION_DEPTH or annotation is Any or annotation is object:
        return UNKNOWN
    arguments = arguments or {}
    if annotation is None or annotation is type(None):
        return Promise((), optional=True)
    if isinstance(annotation, TypeVar):
        return arguments.get(annotation) or promise_of(annotation.__bound__ or Any, {}, depth + 1)
    if isinstance(annotation, typing.NewType):
        return promise_of(annotation.__supertype__, arguments, depth + 1)
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _WRAPPERS and inside:
        return promise_of(inside[0], arguments, depth + 1)
    if origin in (typing.Union, types.UnionType):
        return _united([promise_of(each, arguments, depth + 1) for each in inside])
    if origin is typing.Literal:
        return _literal(inside)
    if isinstance(origin, type):
        return Promise(
            (PromisedClass(origin, tuple(promise_of(a, arguments, depth + 1) for a in inside)),)
        )
    return Promise((PromisedClass(annotation),)) if isinstance(annotation, type) else UNKNOWN


def _literal(constants: Sequence[Any]) -> Promise:
    by_class: dict[type, list[Any]] = {}
    for each in constants:
        by_class.setdefault(type(each), []).append(each)
    is_optional = by_class.pop(type(None), None) is not None
    found = [PromisedClass(cls, (), tuple(several)) for cls, several in by_class.items()]
    return Promise(tuple(found), is_optional)


def _united(parts: Sequence[Promise]) -> Promise:
    optional = any(part.optional for part in parts)
    given = [part for part in parts if part.classes or not part.optional]
    if not all(part.is_known for part in given):
        return Promise((), optional)
    return Promise(tuple(dict.fromkeys(one for part in given for one in part.classes)), optional)


def united(parts: Iterable[Promise]) -> Promise:
    """Return the promise of one of several."""
    return _united([*parts])


@lru_cache(maxsize=1024)
def hints_of(owner: Any) -> Mapping[str, Any]:
    """Return the resolved annotations of a class or function; none that cannot be resolved."""
    try:
        return typing.get_type_hints(owner, include_extras=False)
    except Exception:  # Annotations are other people's code, and may name what is not there.
        return _resolvable_hints(owner)


def _resolvable_hints(owner: Any) -> Mapping[str, Any]:
    bases = reversed(owner.__mro__) if isinstance(owner, type) else (owner,)
    found: dict[str, Any] = {}
    for base in bases:
        given = vars(base).get("__annotations__", {}) if isinstance(base, type) else {}
        given = given or getattr(base, "__annotations__", {})
        found.update({name: Any if isinstance(a, str) else a for name, a in given.items()})
    return found


def declaring_class(cls: type, name: str) -> type:
    """Return the class that says what a member is: the first one that has or annotates it."""
    own = (base for base in cls.__mro__ if name in vars(base) or name in _annotations(base))
    return next(own, cls)


def _annotations(cls: type) -> Mapping[str, Any]:
    found: Mapping[str, Any] = vars(cls).get("__annotations__", {})
    return found


def generic_bases(cls: type) -> Iterator[tuple[type, tuple[Any, ...]]]:
    """Yield the bases of a class with what it gives for their type variables."""
    for base in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and origin is not Generic:
            yield origin, typing.get_args(base)


def _arguments_in(promised: PromisedClass, owner: type) -> TypeArguments:
    """Return what the type variables of a class, or of one that it is derived from, stand for.

    The same variable may stand for something else in each of them.
    """
    cls = promised.cls
    own = dict(zip(getattr(cls, "__parameters__", ()), promised.arguments, strict=False))
    if cls is owner:
        return own
    for base, inside in generic_bases(cls):
        if owner in base.__mro__:
            below = tuple(promise_of(each, own) for each in inside)
            return _arguments_in(PromisedClass(base, below), owner)
    return {}


# --- members ---------------------------------------------------------------------------------

ClassMember = Promise | Method


def member_of(promised: PromisedClass, name: str) -> ClassMember | None:
    """Return what a class says about a public member; None if it has none of this name."""
    cls = promised.cls
    if typing.is_typeddict(cls):
        return None
    arguments = _arguments_in(promised, declaring_class(cls, name))
    found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    if isinstance(found, property):
        return _returned(found.fget, arguments)
    if isinstance(found, cached_property):
        return _returned(found.func, arguments)
    if isinstance(found, staticmethod | classmethod):
        return _method(name, found.__func__, arguments, bound=isinstance(found, classmethod))
    if _is_method(found):
        method = _method(name, found, arguments, bound=True)
        is_view = name in _VIEWS and issubclass(cls, Mapping) and not method.returns.is_known
        return method._replace(returns=_view(promised, name)) if is_view else method
    hints = hints_of(cls)
    if name in hints:
        return promise_of(hints[name], arguments)
    if found is not None or name in assigned_names(cls):
        # What a descriptor returns is not known.
        is_value = found is not None and not hasattr(type(found), "__get__")
        return promise_of(type(found)) if is_value else UNKNOWN
    return UNKNOWN if _answers_any(cls) else None


def _answers_any(cls: type) -> bool:
    """Return whether a class may have members that it does not declare."""
    config = getattr(cls, "model_config", None)
    if isinstance(config, Mapping) and config.get("extra") == "allow":
        return True
    # Pydantic's own looks for private members, and for extra ones where they are allowed.
    return any("__getattr__" in vars(base) and not of_pydantic(base) for base in cls.__mro__)


def of_pydantic(cls: type) -> bool:
    """Return whether a class is one of Pydantic's own, such as the base of all models."""
    return cls.__module__.partition(".")[0] == "pydantic"


def _is_method(found: object) -> bool:
    """Return whether a class has something to call; a descriptor of the user's own may be a value.

    >>> _is_method(str.upper), _is_method(property())
    (True, False)
    """
    if isinstance(found, partialmethod | singledispatchmethod):
        return True
    return inspect.isroutine(found) and callable(found)


def members_of(cls: type) -> list[str]:
    """Return the names of the public members of a class, as far as it declares them."""
    names = dict.fromkeys((*hints_of(cls), *assigned_names(cls), *dir(cls)))
    return [name for name in names if not name.startswith("_")]


@lru_cache(maxsize=1024)
def assigned_names(cls: type) -> frozenset[str]:
    """Return the names that methods of a class assign to `self`, read from their byte code."""
    found: set[str] = set()
    for base in cls.__mro__:
        for function in vars(base).values():
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType) and base is not object:
                found.update(_stored_names(code))
    return frozenset(found)


def _stored_names(code: types.CodeType) -> Iterator[str]:
    # Not `some.other.member = …`; what was loaded for `+=` is on top again after a swap.
    for owner, stored in pairwise(dis.get_instructions(code)):
        if stored.opname == "STORE_ATTR" and owner.opname.startswith(_LOADS_OF_VARIABLES):
            yield str(stored.argval)


_LOADS_OF_VARIABLES: Final = ("LOAD_FAST", "LOAD_DEREF", "SWAP")


def _returned(function: Any, arguments: TypeArguments) -> Promise:
    return promise_of(hints_of(function).get("return", Any), arguments) if function else UNKNOWN


_VIEWS: Final[Mapping[str, type]] = {"keys": KeysView, "values": ValuesView, "items": ItemsView}


def _view(promised: PromisedClass, name: str) -> Promise:
    """Return what a dictionary promises of its keys, its values, or both."""
    pair = promised.arguments if len(promised.arguments) == 2 else (UNKNOWN, UNKNOWN)
    both = Promise((PromisedClass(tuple, tuple(pair)),))
    element = {"keys": pair[0], "values": pair[1], "items": both}[name]
    return Promise((PromisedClass(_VIEWS[name], (element,)),))


# Python's own classes have no annotations. What is not here returns what is not known.
_TEXT_METHODS: Final[Mapping[type, str]] = {
    str: """capitalize casefold center expandtabs format join ljust lower lstrip removeprefix
            removesuffix replace rjust rstrip strip swapcase title translate upper zfill""",
    int: "count find index rfind rindex",
    bool: """endswith isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric
             isprintable isspace istitle isupper startswith""",
}
_RETURNED_BY_TEXT: Final = {
    name: Promise((PromisedClass(cls),))
    for cls, names in _TEXT_METHODS.items()
    for name in names.split()
}


def _method(name: str, function: Any, arguments: TypeArguments, *, bound: bool) -> Method:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return Method(name, None, {}, UNKNOWN)
    if bound:
        signature = signature.replace(parameters=[*signature.parameters.values()][1:])
    hints = hints_of(function) if inspect.isfunction(function) else {}
    promises = {n: promise_of(hints.get(n, Any), arguments) for n in signature.parameters}
    returns = promise_of(hints.get("return", Any), arguments)
    if getattr(function, "__objclass__", None) is str:
        returns = _RETURNED_BY_TEXT.get(name, UNKNOWN)
    return Method(name, signature, promises, returns)


def declared_keys(cls: type) -> Mapping[str, Promise]:
    """Return the keys that a typed dictionary declares."""
    return {name: promise_of(annotation) for name, annotation in hints_of(cls).items()}


# --- collections -----------------------------------------------------------------------------

SINGLE: Final = (str, bytes, bytearray, memoryview)


_MAY_BE_COLLECTIONS: Final = (Collection, Container, Iterable, Reversible)


def is_collection(cls: type) -> bool:
    """Return whether instances hold several values, as lists, tuples and sets do.

    A class that only looks like a collection may be anything, such as a document with a length:
    one that is meant as a collection says so by its base class.
    """
    return cls in _MAY_BE_COLLECTIONS or holds_elements(cls)


def may_be_text(promised: PromisedClass) -> bool:
    """Return whether what is promised as a collection may be a text or a mapping as well."""
    return promised.cls in _MAY_BE_COLLECTIONS and element_of(promised).may_be(str)


def holds_elements(cls: type) -> bool:
    """Return whether something of a class is a collection: not a text, mapping or named tuple."""
    return (
        (issubclass(cls, Sequence | AbstractSet | ValuesView) or Collection in cls.__mro__)
        and not issubclass(cls, (*SINGLE, Mapping, Enum))
        and not hasattr(cls, "_fields")
    )


def element_of(promised: PromisedClass) -> Promise:
    """Return what a collection promises of each of its elements, or a mapping of its values."""
    arguments = promised.arguments
    if issubclass(promised.cls, Mapping):
        return arguments[1] if len(arguments) == 2 else UNKNOWN
    if not arguments:
        bases = generic_bases(promised.cls)
        below = next((inside for base, inside in bases if inside and is_collection(base)), ())
        return promise_of(below[0]) if below else UNKNOWN
    if issubclass(promised.cls, tuple) and not (len(arguments) == 2 and not arguments[1].is_known):
        return united(arguments)
    return arguments[0]


def call_problem(
    method: Method, given: Sequence[object], fits: Callable[[object, Promise], bool]
) -> str:
    """Return what is wrong with the arguments of a call; empty if nothing is."""
    if method.signature is None:
        return ""
    try:
        bound = method.signature.bind(*given)
    except TypeError as error:
        return (
            f"{method.name}{method.signature} cannot be called with {len(given)} arguments: {error}"
        )
    for name, value in bound.arguments.items():
        kind = method.signature.parameters[name].kind
        values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
        for each in values:
            if not fits(each, method.parameters[name]):
                return (
                    f"the argument {name!r} of {method.name}{method.signature} is "
                    f"{method.parameters[name]}, not {each!r:.60}"
                )
    return ""
