"""Conditions on what stand-ins stand for, checked when they are written."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tamis.errors import FilterTypeError
from tamis.events import Kind
from tamis.events.reflection import element_of, is_collection, may_be_text, united
from tamis.events.schema import did_you_mean
from tamis.events.values import brief
from tamis.filters.build import like, regular, text_test
from tamis.objects.accessors import Accessor, class_identity
from tamis.objects.checking import (
    check_comparison,
    check_membership,
    check_text_test,
    is_constant,
    kinds_of,
    looks_like_collection,
)
from tamis.objects.comparing import kind_of_operand, known_comparisons, operand
from tamis.objects.message_classes import remember
from tamis.objects.patterns import (
    Complement,
    ObjectCondition,
    ObjectFilter,
    require_object_filter,
)
from tamis.objects.quantifying import Quantifier
from tamis.objects.stepping import (
    Recorded,
    described,
    is_stand_in,
    recorded,
    require_called,
    take_element,
)

MakeElement = Callable[[Recorded], Any]
"""Makes a stand-in for each element of a collection."""


def true_condition(given: Recorded) -> ObjectFilter:
    """Return the condition that something is true; of a message, that it is of its class."""
    accessor, promise, *_ = require_called(given)
    if not accessor.steps and accessor.root:
        return ObjectCondition(accessor, "is a", accessor.root)
    is_member = bool(accessor.steps) or given.is_element
    if not is_member and promise.is_known:
        raise FilterTypeError(
            f"{promise} describes structure, which is no condition: ask for one of its members"
        )
    if not is_member or Kind.BOOLEAN not in kinds_of(promise, elements=False):
        raise FilterTypeError(
            f"{accessor} is {promise}, which is no condition: compare it, as in {accessor} == …"
        )
    return ObjectCondition(accessor, "=", True)


def _subject(given: Recorded, what: str) -> Accessor:
    accessor = require_called(given).accessor
    if not accessor.steps and not given.is_element:
        raise FilterTypeError(f"{what} needs a member of the message, as in message().price")
    return accessor


def _constant(accessor: Accessor, other: object) -> Any:
    if is_stand_in(other):
        raise FilterTypeError(
            f"{accessor} is compared with {recorded(other).accessor}, but a condition compares "
            "with a constant: add a method to the class that compares the two"
        )
    if isinstance(other, ObjectFilter):
        raise FilterTypeError(f"{accessor} is compared with a filter: put it in parentheses")
    if other is None:
        raise FilterTypeError(
            f"nothing compares with None: write {accessor}.is_present() or {accessor}.is_absent(), "
            f"in where `{accessor} is not None` or `{accessor} is None`"
        )
    if isinstance(other, list | tuple | set | frozenset | dict):
        raise FilterTypeError(
            f"{accessor} is compared with a {type(other).__name__}: write in_(*values) for one of "
            "several values, or contains(value) for an element"
        )
    return operand(other, str(accessor))


# --- values ----------------------------------------------------------------------------------


def compared(given: Recorded, op: str, other: object) -> ObjectFilter:
    """Return a comparison with a constant."""
    accessor = _subject(given, "a comparison")
    constant = _constant(accessor, other)
    check_comparison(accessor, given.promise, op, constant, other)
    return ObjectCondition(accessor, op, constant)


def is_one_of(given: Recorded, *values: object) -> ObjectFilter:
    """Return the test for equality with one of some constants."""
    accessor = _subject(given, "in_")
    if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset | range):
        raise FilterTypeError(
            f"in_ takes the values one by one, not a {type(values[0]).__name__} of them; write "
            "in_(*values)"
        )
    given_constants = [_constant(accessor, value) for value in values]
    # By their kinds as well: for Python, 1 and True are equal.
    constants = (*{(kind_of_operand(one), one): one for one in given_constants}.values(),)
    check_membership(accessor, given.promise, constants, values)
    return ObjectCondition(accessor, "in", constants)


def contains(given: Recorded, item: object) -> ObjectFilter:
    """Return the test for an element of a collection, or for a part of a text."""
    accessor, promise = _subject(given, "contains"), given.promise
    constant = _constant(accessor, item)
    several = [one for one in promise.classes if is_collection(one.cls)]
    if any(map(may_be_text, several)):
        return ObjectCondition(accessor, "contains", constant)
    if promise.is_known and len(several) == len(promise.classes):
        check_comparison(accessor, united(map(element_of, several)), "=", constant, item)
        return ObjectCondition(accessor, "has", constant)
    if promise.is_known and not several:
        check_text_test(accessor, promise, "contains", constant)
        return ObjectCondition(accessor, "has part", constant)
    return ObjectCondition(accessor, "contains", constant)


def text_condition(op: str, given: Recorded, text: object) -> ObjectFilter:
    """Return a test of text."""
    accessor = _subject(given, op)
    constant = _constant(accessor, text)
    check_text_test(accessor, given.promise, op, constant)
    # Patterns are checked where those of every other filter are.
    if op == "like":
        like(accessor.name, constant)
    elif op == "matches":
        regular(accessor.name, constant)
    else:
        text_test(accessor.name, op, constant)
    return ObjectCondition(accessor, op, constant)


def is_present(given: Recorded) -> ObjectFilter:
    """Return the test for a value."""
    return ObjectCondition(_subject(given, "is_present"), "present")


def is_absent(given: Recorded) -> ObjectFilter:
    """Return the test for no value."""
    return Complement.of(is_present(given))


def is_instance(given: Recorded, cls: object) -> ObjectFilter:
    """Return the test for a class."""
    accessor, promise, *_ = require_called(given)
    if not isinstance(cls, type):
        raise FilterTypeError(f"is_a takes a class, not {brief(cls)}")
    if getattr(cls, "_is_protocol", False) or typing.is_typeddict(cls):
        raise FilterTypeError(
            f"{cls.__name__} describes structure, and no object is derived from it: ask for "
            "members of message() instead"
        )
    if not promise.may_be(cls):
        raise FilterTypeError(f"{accessor} is {promise}, never a {cls.__name__}")
    remember(cls)
    return ObjectCondition(accessor, "is a", class_identity(cls))


def compared_by(given: Recorded, name: object, constant: object) -> ObjectFilter:
    """Return a comparison of the user's own."""
    found, known = require_called(given), known_comparisons()
    if not isinstance(name, str) or name not in known:
        others = f"there are {', '.join(map(repr, known[:8]))}" if known else "register one first"
        hint = did_you_mean(str(name), known) or others
        raise FilterTypeError(f"there is no comparison {name!r:.60}; {hint}")
    if not is_constant(constant):
        raise FilterTypeError(f"{name!r} compares with a constant, not {described(constant)}")
    return ObjectCondition(found.accessor, "compare", (name, constant))


# --- elements --------------------------------------------------------------------------------


def quantified(
    given: Recorded, condition: object, make: MakeElement, *, every: bool
) -> ObjectFilter:
    """Return the condition that some element of a collection satisfies a filter, or all do."""
    word = "all" if every else "any"
    accessor = _quantifiable(given, word)
    if not callable(condition) or is_stand_in(condition) or isinstance(condition, ObjectFilter):
        raise FilterTypeError(
            f"{word} takes a function of an element: write {accessor}.{word}(lambda each: …)"
        )
    element = take_element(given)
    return quantified_over(given, element, condition(make(element)), every=every)


def quantified_over(
    given: Recorded, element: Recorded, condition: object, *, every: bool
) -> ObjectFilter:
    """Return the same of a condition that was written about an element."""
    accessor = _quantifiable(given, "all" if every else "any")
    quantifier = Quantifier(accessor, every, element.accessor.scope)
    return quantifier.over(require_object_filter(condition))


def _quantifiable(given: Recorded, word: str) -> Accessor:
    accessor, promise = _subject(given, word), given.promise
    if promise.is_surely(Mapping):
        raise FilterTypeError(
            f"{accessor} is {promise}: say of what, {accessor}.keys() or {accessor}.values()"
        )
    if promise.is_known and not any(is_collection(one.cls) for one in promise.classes):
        raise FilterTypeError(
            f"{accessor} is {promise}, which has no elements for {word}"
            f"{looks_like_collection(promise)}"
        )
    return accessor


CONDITIONS: Final[Mapping[str, Callable[..., ObjectFilter]]] = {
    "contains": contains,
    "in_": is_one_of,
    "startswith": partial(text_condition, "starts with"),
    "endswith": partial(text_condition, "ends with"),
    "starts_with": partial(text_condition, "starts with"),
    "ends_with": partial(text_condition, "ends with"),
    "like": partial(text_condition, "like"),
    "matches": partial(text_condition, "matches"),
    "is_present": is_present,
    "is_absent": is_absent,
    "is_a": is_instance,
    "compare": compared_by,
}
"""By their names on a stand-in; `any` and `all` make stand-ins themselves."""
