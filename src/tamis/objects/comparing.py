"""Values of objects, and the tests that conditions make of them, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

from tamis.errors import EventError, FilterTypeError
from tamis.events.kinds import Kind, Value, check_value, is_value, kind_of
from tamis.events.values import brief, nearest_number
from tamis.filters.atoms import COMPARISONS
from tamis.filters.build import constant
from tamis.filters.like import compile_like
from tamis.filters.patterns import compile_pattern
from tamis.objects.accessors import (
    MAX_ACCESSOR_STEPS,
    MAX_NESTED_VALUES,
    first_elements,
    is_several,
    too_many_values,
)

Comparand = Value | Decimal
"""What a condition compares with, and what it is compared to."""

NO_VALUE: Final = math.nan
"""Stands for an object that is no value: it is there, but compares with nothing."""


def operand(given: object, accessor: str = "") -> Comparand:
    """Return a constant as conditions compare it, or raise FilterTypeError."""
    if isinstance(given, Enum) and not isinstance(given, int | str | float):
        given = given.value if is_value(given.value) else given.name
    if isinstance(given, Decimal):
        if not given.is_finite():
            raise FilterTypeError(f"{accessor} is compared with {given}: use a finite number")
        number = nearest_number(given)
        # What has the same value is the same constant.
        return number if number == given else given.normalize()
    if isinstance(given, datetime) and given.tzinfo is None:
        raise FilterTypeError(
            f"{accessor} is compared with the datetime {given.isoformat()}, which has no time "
            "zone; give it one, for example tzinfo=datetime.UTC"
        )
    return constant(given, accessor)


def kind_of_operand(value: Comparand) -> Kind | None:
    """Return the kind of a value; NaN has none."""
    return Kind.NUMBER if isinstance(value, Decimal) else kind_of(value)


Failed = Callable[[Exception], None]
"""Receives exceptions raised by user objects while they are read."""


def value_of(given: object, *, exact: bool, failed: Failed | None = None) -> Comparand:
    """Return an object as it is compared; decimals only if they are to stay exact."""
    try:
        return _value_of(given, exact=exact)
    except EventError:
        return NO_VALUE
    except Exception as error:  # Even asking for its class may raise.
        if failed is not None:
            failed(error)
        return NO_VALUE


def _value_of(given: object, *, exact: bool) -> Comparand:
    if isinstance(given, Enum) and not isinstance(given, int | str | float):
        given = given.value if is_value(given.value) else given.name
    if isinstance(given, Decimal):
        return given if exact and given.is_finite() else nearest_number(given)
    return check_value(given)


def comparands_of(found: object, *, exact: bool, failed: Failed | None = None) -> list[Comparand]:
    """Return the values of what an accessor found: of all elements, if it is a collection."""
    return [value_of(each, exact=exact, failed=failed) for each in elements_of(found, failed)]


def elements_of(found: object, failed: Failed | None = None) -> Sequence[object]:
    """Return what an accessor found, one by one; None is nothing."""
    if is_several(found):
        return [each for each in scalars_of(found, failed) if each is not None]
    return () if found is None else (found,)


def listed(several: Any, failed: Failed | None) -> list[Any] | None:
    """Return the elements of a collection, within limits; None if it does not give them."""
    try:
        return first_elements(several, failed)
    except Exception as error:  # Collections may be other people's code.
        if failed is not None:
            failed(error)
        return None


def scalars_of(found: Any, failed: Failed | None = None) -> Iterator[object]:
    """Yield the elements of collections inside each other, within limits."""
    stack, count = [iter(listed(found, failed) or ())], 0
    while stack:
        for each in stack[-1]:
            if is_several(each):
                if len(stack) < MAX_ACCESSOR_STEPS:
                    stack.append(iter(listed(each, failed) or ()))
                    break
                continue
            count += 1
            if count > MAX_NESTED_VALUES:
                if failed is not None:
                    failed(too_many_values(MAX_NESTED_VALUES))
                return
            yield each
        else:
            stack.pop()


def _compared(op: str) -> Callable[[Comparand, Comparand], bool]:
    return lambda value, given: bool(COMPARISONS[op](value, given))


TESTS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    **{op: _compared(op) for op in COMPARISONS},
    "in": lambda value, given: value in given,
    "has part": lambda value, given: given in value,
    "starts with": lambda value, given: value.startswith(given),
    "ends with": lambda value, given: value.endswith(given),
    "like": lambda value, given: compile_like(given).fits(value),
    "matches": lambda value, given: compile_pattern(given).search(value) is not None,
}
"""The tests of one value, which is of the same kind as the constant."""

TEXT_TESTS: Final = frozenset({"has part", "starts with", "ends with", "like", "matches"})


def passes(op: str, given: Any, value: Comparand) -> bool | None:
    """Return whether a value passes a test; None if it is of another kind than the constant."""
    wanted = kind_of_operand(given[0] if op == "in" else given)
    if kind_of_operand(value) is not wanted:
        return None
    return TESTS[op](value, given)


def some_passes(op: str, given: Any, values: list[Comparand]) -> bool | None:
    """Return whether one of some values passes; None if none is of the right kind."""
    truth: bool | None = None
    for value in values:
        passed = passes(op, given, value)
        if passed:
            return True
        truth = passed if passed is not None else truth
    return truth


def contains_value(
    found: object, given: Comparand, *, exact: bool, failed: Failed | None = None
) -> bool | None:
    """Return whether a collection has an element, a mapping a key, or a text a part; else None."""
    if issubclass(type(found), Mapping):
        keys = [each for each in listed(found, failed) or () if not is_several(each)]
        return contains_value(keys, given, exact=exact, failed=failed)
    if is_several(found):
        return some_passes("=", given, comparands_of(found, exact=exact, failed=failed)) is True
    value = value_of(found, exact=exact, failed=failed)
    if isinstance(value, str) and isinstance(given, str):
        return given in value
    return None


# --- comparisons of the user's own -----------------------------------------------------------

_COMPARISONS: Final[dict[str, Callable[[Any, Any], object]]] = {}


def register_comparison(name: str, function: Callable[[Any, Any], object]) -> None:
    """Make a function of a value and a constant usable in filters, under a name.

    >>> register_comparison("sounds like", lambda value, text: value[:1] == text[:1])
    """
    if not isinstance(name, str) or not name:
        raise FilterTypeError(f"the name of a comparison is a text that is not empty, not {name!r}")
    if not callable(function):
        raise FilterTypeError(
            f"a comparison is a function of a value and a constant, not {brief(function)}"
        )
    known = _COMPARISONS.get(name)
    if known is not None and known is not function:
        raise FilterTypeError(f"there is a comparison {name!r} already; choose another name")
    _COMPARISONS[name] = function


def comparison_called(name: str) -> Callable[[Any, Any], object]:
    """Return a registered comparison."""
    return _COMPARISONS[name]


def known_comparisons() -> list[str]:
    """Return the names of all registered comparisons."""
    return [*_COMPARISONS]
