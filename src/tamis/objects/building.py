"""Stand-ins: objects that record what is asked of them, and become filters."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

from tamis.errors import FilterTypeError
from tamis.events.reflection import declaring_class, member_of, promise_of
from tamis.events.values import brief
from tamis.filters.translations import Translation
from tamis.objects.accessors import Accessor, class_identity
from tamis.objects.conditions import CONDITIONS, compared, quantified, true_condition
from tamis.objects.message_classes import remember
from tamis.objects.patterns import Combinable, Complement, ObjectFilter
from tamis.objects.stepping import (
    TEST_NAMES,
    Recorded,
    recorded,
    take_call,
    take_item,
    take_member,
)
from tamis.objects.translating import translate_object_filter


class StandIn(Combinable):
    """What `message` returns: it stands for the object that an accessor finds."""

    __slots__ = ("_recorded",)

    def __init__(self, found: Recorded) -> None:
        object.__setattr__(self, "_recorded", found)

    # --- steps -------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in TEST_NAMES and not _has_own(recorded(self), name):
            return test_of(self, name)
        return member(self, name)

    def __call__(self, *arguments: object, **named: object) -> StandIn:
        """Call the method that was asked for."""
        return StandIn(take_call(recorded(self), arguments, named))

    def __getitem__(self, key: object) -> StandIn:
        return StandIn(take_item(recorded(self), key))

    # --- conditions --------------------------------------------------------------------------

    def __eq__(self, other: object) -> ObjectFilter:  # type: ignore[override]
        return compared(recorded(self), "=", other)

    def __ne__(self, other: object) -> ObjectFilter:  # type: ignore[override]
        return compared(recorded(self), "!=", other)

    def __lt__(self, other: object) -> ObjectFilter:
        return compared(recorded(self), "<", other)

    def __le__(self, other: object) -> ObjectFilter:
        return compared(recorded(self), "<=", other)

    def __gt__(self, other: object) -> ObjectFilter:
        return compared(recorded(self), ">", other)

    def __ge__(self, other: object) -> ObjectFilter:
        return compared(recorded(self), ">=", other)

    def __invert__(self) -> ObjectFilter:
        return Complement.of(self.__condition__())

    def __condition__(self) -> ObjectFilter:
        """Return the condition that it is true; of a message, that it is of its class."""
        return true_condition(recorded(self))

    def __translation__(self) -> Translation:
        """Return the translation of that condition."""
        return translate_object_filter(self.__condition__())

    # --- what Python would do silently -------------------------------------------------------

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        accessor = recorded(self).accessor
        raise FilterTypeError(
            f"{accessor} is neither true nor false before there is a message: combine with "
            "& | ~ instead of and, or, not; a < x < b is (a < x) & (x < b); or use where"
        )

    def __contains__(self, item: object) -> NoReturn:
        accessor, promise, *_ = recorded(self)
        keys = ".keys()" if promise.is_surely(Mapping) else ""
        raise FilterTypeError(f"write {accessor}{keys}.contains({item!r:.40}) instead of `in`")

    def __iter__(self) -> NoReturn:
        accessor = recorded(self).accessor
        raise FilterTypeError(
            f"{accessor} cannot be iterated before there is a message: write "
            f"{accessor}.any(lambda each: …) or .all(…)"
        )

    def __len__(self) -> NoReturn:
        raise FilterTypeError(
            f"len({recorded(self).accessor}) is not known before there is a message: add a "
            "property that returns the length"
        )

    def _no_arithmetic(self, _: object) -> NoReturn:
        raise FilterTypeError(
            f"filters over objects do not compute with {recorded(self).accessor}: add a method to "
            "its class that does, and compare what it returns"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_arithmetic
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __pow__ = _no_arithmetic

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FilterTypeError(f"a filter cannot change {name!r}: write == to compare")

    def __repr__(self) -> str:
        accessor, promise, *_ = recorded(self)
        return f"<message {accessor.name}: {promise}>" if accessor.name else f"<message: {promise}>"


def message(cls: Any = None) -> StandIn:
    """Return a stand-in for messages of a class, or for all objects that answer what is asked.

    >>> class Trade:
    ...     symbol: str
    ...     price: float
    >>> t = message(Trade)
    >>> (t.symbol == "ACME") & (t.price > 5)
    (message(Trade).symbol == 'ACME') & (message(Trade).price > 5)
    """
    if cls is None:
        return StandIn(Recorded(Accessor()))
    promise = promise_of(cls)
    if isinstance(cls, str) or len(promise.classes) != 1 or promise.optional:
        raise FilterTypeError(
            f"message takes a class, not {brief(cls)}; without one it stands for any object"
        )
    [promised] = promise.classes
    if (problem := _no_message(promised.cls)) is not None:
        raise FilterTypeError(f"{promised} is no class of messages: {problem}")
    is_structure = typing.is_typeddict(promised.cls) or getattr(promised.cls, "_is_protocol", False)
    root = "" if is_structure else class_identity(promised.cls)
    if root:
        remember(promised.cls)
    return StandIn(Recorded(Accessor(root), promise))


def _no_message(cls: type) -> str | None:
    """Return why no message could be of a class; None if one may be."""
    if typing.is_typeddict(cls):
        return None
    if issubclass(cls, Mapping):
        return "a mapping is a plain event, which message() and a TypedDict ask"
    if cls.__module__ == "builtins":
        return "write a class with fields that holds it"
    return None


def member(given: StandIn, name: str) -> StandIn:
    """Return the stand-in for a public member, whatever it is called."""
    return StandIn(take_member(recorded(given), name))


def test_of(given: StandIn, name: str) -> Callable[..., ObjectFilter]:
    """Return one of the tests that every stand-in has."""
    if name in ("any", "all"):
        return lambda condition: quantified(
            recorded(given), condition, StandIn, every=name == "all"
        )
    return partial(CONDITIONS[name], recorded(given))


def _has_own(given: Recorded, name: str) -> bool:
    """Return whether a class of the user's has a member that is called like a test."""
    known = [one for one in given.promise.classes if member_of(one, name) is not None]
    modules = [declaring_class(one.cls, name).__module__.partition(".")[0] for one in known]
    return any(module not in sys.stdlib_module_names for module in modules)
