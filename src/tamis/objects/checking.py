"""Checks of conditions when they are written: does the constant fit what the class promises?"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from numbers import Number
from typing import Final
from uuid import UUID

from tamis.errors import FilterTypeError
from tamis.events import Bits, Kind
from tamis.events.kinds import KINDS, is_value
from tamis.events.reflection import (
    SINGLE,
    Promise,
    PromisedClass,
    element_of,
    is_collection,
    is_protocol,
)
from tamis.events.schema import did_you_mean
from tamis.filters.atoms import can_compare
from tamis.objects.accessors import Accessor
from tamis.objects.comparing import Comparand, kind_of_operand, operand, value_of

_NUMBERS: Final = (int, float, Decimal)

# Booleans and timestamps first: for Python they are integers and dates.
_KINDS_OF_CLASSES: Final[Mapping[Kind, tuple[type, ...]]] = {
    Kind.BOOLEAN: (bool,),
    Kind.TIMESTAMP: (datetime,),
    Kind.NUMBER: _NUMBERS,
    Kind.TEXT: (str,),
    Kind.DATE: (date,),
    Kind.UUID: (UUID,),
    Kind.BYTES: (bytes, bytearray, memoryview),
    Kind.BITS: (Bits,),
}
ANY_KIND: Final = frozenset(Kind)


def kinds_of(promise: Promise, *, elements: bool = True) -> frozenset[Kind]:
    """Return the kinds that values may have which keep a promise."""
    if not promise.is_known:
        return ANY_KIND
    return frozenset[Kind]().union(*(_kinds_of(one, elements=elements) for one in promise.classes))


def _kinds_of(promised: PromisedClass, *, elements: bool) -> frozenset[Kind]:
    cls = promised.cls
    if issubclass(cls, Enum):
        kinds = {kind_of_operand(value_of(member, exact=True)) for member in cls}
        return frozenset(kind for kind in kinds if kind is not None)
    for kind, classes in _KINDS_OF_CLASSES.items():
        if issubclass(cls, classes):
            return frozenset((kind,))
    if is_collection(cls):
        return kinds_of(element_of(promised)) if elements else frozenset()
    if issubclass(cls, Number) and any(issubclass(one, cls) for one in _NUMBERS):
        return frozenset((Kind.NUMBER,))
    # A class may be a base of values, such as Hashable; a number of NumPy is one by itself.
    if issubclass(cls, Iterator):
        return frozenset()
    if cls.__module__.partition(".")[0] == "numpy" or inspect.isabstract(cls):
        return ANY_KIND
    return frozenset()


def may_hold_decimals(promise: Promise) -> bool:
    """Return whether what is compared may be a decimal: the value itself, or an element of it."""
    return promise.may_be(Decimal) or any(map(_holds_decimals, promise.classes))


def _holds_decimals(promised: PromisedClass) -> bool:
    cls = promised.cls
    if issubclass(cls, Enum):
        return any(isinstance(member.value, Decimal) for member in cls)
    return is_collection(cls) and may_hold_decimals(element_of(promised))


def check_comparison(
    accessor: Accessor, promise: Promise, op: str, constant: Comparand, given: object
) -> None:
    """Refuse a comparison that could never hold, or has no meaning."""
    kind = kind_of_operand(constant)
    assert kind is not None  # noqa: S101 - constants are never NaN
    _check_single(accessor, promise, constant)
    kinds = kinds_of(promise, elements=False)
    if not kinds:
        raise _no_value(accessor, promise)
    if kind not in kinds:
        never = "never equal to" if op in ("=", "!=") else "neither less nor more than"
        raise FilterTypeError(
            f"{accessor} is {promise}, which is {never} {given!r:.60}: that is {kind.value}"
            f"{_without_quotes(given, kinds)}"
        )
    if not can_compare(op, kind):
        raise FilterTypeError(
            f"{accessor} {op} {given!r:.60}: {op} has no meaning for {kind.value}; "
            f"{KINDS[kind].advice}"
        )
    if op in ("=", "!=") or isinstance(given, Enum):
        _check_member(accessor, promise, given)
    if op in ("=", "!="):
        _check_literal(accessor, promise, constant, kind)


def _without_quotes(given: object, kinds: frozenset[Kind]) -> str:
    """Return advice for a number that was written as a text."""
    if not isinstance(given, str) or Kind.NUMBER not in kinds:
        return ""
    try:
        number = Decimal(given)
    except ArithmeticError:
        return ""
    return f"; write {given.strip()}, without quotes" if number.is_finite() else ""


def check_membership(
    accessor: Accessor, promise: Promise, constants: Sequence[Comparand], given: Sequence[object]
) -> None:
    """Refuse a list of constants that could never hold one of the values."""
    if not constants:
        raise FilterTypeError(f"{accessor}.in_(): the list is empty, so nothing could match")
    kinds = list(dict.fromkeys(map(kind_of_operand, constants)))
    if len(kinds) > 1:
        first, second = (kind.value if kind else "NaN" for kind in kinds[:2])
        raise FilterTypeError(
            f"{accessor} is compared with {first} and with {second} in one list; join two tests "
            "with |"
        )
    for one in given:
        check_comparison(accessor, promise, "=", operand(one), one)


def check_text_test(accessor: Accessor, promise: Promise, op: str, constant: object) -> None:
    """Refuse a test of text on what is no text, or with what is no text."""
    if op == "contains" and promise.is_surely(Mapping):
        raise FilterTypeError(
            f"{accessor} is {promise}: write {accessor}.keys().contains({constant!r:.40}) or "
            f"{accessor}.values().contains({constant!r:.40})"
        )
    if Kind.TEXT not in kinds_of(promise):
        raise FilterTypeError(
            f"{accessor} is {promise}, which has no test {op!r}: only texts do"
            f"{looks_like_collection(promise)}"
        )
    if not isinstance(constant, str):
        raise FilterTypeError(f"{accessor} {op} {constant!r:.60}: {op} takes a text")


def looks_like_collection(promise: Promise) -> str:
    """Return advice for a class that is no collection, though it has what collections have."""
    alike = [one.cls for one in promise.classes if issubclass(one.cls, Collection)]
    named = next((cls for cls in alike if not issubclass(cls, (*SINGLE, Mapping, Enum))), None)
    return (
        f"; if it is a collection, derive {named.__name__} from collections.abc.Collection"
        if named is not None
        else ""
    )


def _check_single(accessor: Accessor, promise: Promise, constant: object) -> None:
    if promise.is_known and all(is_collection(one.cls) for one in promise.classes):
        raise FilterTypeError(
            f"{accessor} is {promise}, which holds several values: write "
            f"{accessor}.contains({constant!r:.40}), or any(lambda each: …)"
        )


def _check_member(accessor: Accessor, promise: Promise, given: object) -> None:
    """Refuse a constant that is no member of the promised enumeration."""
    enums = [one.cls for one in promise.classes if issubclass(one.cls, Enum)]
    if not enums or len(enums) < len(promise.classes):
        return
    members = [member for cls in enums for member in cls]
    if isinstance(given, Enum):
        if not isinstance(given, tuple(enums)):
            raise FilterTypeError(f"{accessor} is {promise}, and {given} is not one of its members")
        return
    values = [value_of(member, exact=True) for member in members]
    if given not in values:
        hint = did_you_mean(str(given), map(str, values))
        known = ", ".join(map(str, members[:8]))
        raise FilterTypeError(
            f"{accessor} is {promise}, which has no member of value {given!r:.60}; "
            f"{hint or f'its members are {known}'}"
        )


def _check_literal(accessor: Accessor, promise: Promise, constant: Comparand, kind: Kind) -> None:
    """Refuse a constant that is none of those that are promised, where only those are."""
    able = [one for one in promise.classes if kind in _kinds_of(one, elements=False)]
    constants = [each for one in able for each in one.constants or ()]
    if not promise.is_known or any(one.constants is None for one in able):
        return
    values = [value_of(each, exact=True) for each in constants]
    if not any(kind_of_operand(each) is kind and each == constant for each in values):
        hint = did_you_mean(str(constant), map(str, values))
        raise FilterTypeError(
            f"{accessor} is {promise}, which is never {constant!r:.60}{'; ' + hint if hint else ''}"
        )


def _no_value(accessor: Accessor, promise: Promise) -> FilterTypeError:
    return FilterTypeError(
        f"{accessor} is {promise}, which is no value to compare: ask for one of its members, or "
        "is_a, or a comparison of your own"
    )


# --- arguments -------------------------------------------------------------------------------


# As type checkers have it: an integer is accepted where a float is promised.
_WIDER: Final[Mapping[type, tuple[type, ...]]] = {int: (float, complex), float: (complex,)}


def is_constant(given: object) -> bool:
    """Return whether something may be the argument of a call in a filter: it never changes."""
    if hasattr(type(given), "__condition__"):
        return False
    if isinstance(given, tuple):
        return all(map(is_constant, given))
    return given is None or (is_value(given) and not isinstance(given, bytearray | memoryview))


def fits_argument(given: object, promise: Promise) -> bool:
    """Return whether an argument keeps the promise of a parameter."""
    if not promise.is_known or given is None:
        return given is not None or promise.optional or not promise.classes
    wider = _WIDER.get(type(given), ())
    return _fits_one(type(given), promise, wider)


def _fits_one(cls: type, promise: Promise, wider: tuple[type, ...]) -> bool:
    """Return whether an instance of a class keeps a promise; structure is not looked at."""
    return any(
        is_protocol(one.cls)
        or one.cls in wider
        or (not typing.is_typeddict(one.cls) and issubclass(cls, one.cls))
        for one in promise.classes
    )
