"""Numbers of all events of a batch: arithmetic and comparisons, where that is exact."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tamis.events.columns import split_integers
from tamis.events.values import INT64_MIN

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


class Numbers(NamedTuple):
    """A number per event, or one for all of them."""

    known: Flags
    """Where there is a number; elsewhere the other fields mean nothing."""
    whole: Flags
    """Where it is an integer."""
    integers: Integers
    """Its value, if it is an integer; otherwise 0."""
    floats: Floats
    """Its value, or the nearest float."""
    unsure: Flags
    """Where the reference semantics must decide."""

    @classmethod
    def of(cls, known: Flags, whole: Flags, integers: Integers, floats: Floats) -> Numbers:
        """Return integers, and elsewhere floats."""
        integers = np.where(whole, integers, 0)
        floats = np.where(whole, integers.astype(np.float64), floats)
        return cls(known, whole, integers, floats, np.zeros(1, np.bool_))

    @classmethod
    def constant(cls, number: float) -> Numbers:
        """Return one number for all events."""
        whole = isinstance(number, int)
        return cls.of(
            known=np.array([not math.isnan(number)]),
            whole=np.array([whole]),
            integers=np.array([number if whole else 0], np.int64),
            floats=np.array([number], np.float64),
        )


def compute_columns(op: str, left: Numbers, right: Numbers) -> Numbers:
    """Return the results of one operation."""
    known = left.known & right.known
    whole = left.whole & right.whole & (op != "/")
    if op in ("/", "div"):
        known &= right.floats != 0
    integers, fits, sure = ON_INTEGERS[op](left, right)
    with np.errstate(all="ignore"):
        floats = ON_FLOATS[op](left.floats, right.floats)
    result = Numbers.of(known & np.where(whole, fits, ~np.isnan(floats)), whole, integers, floats)
    return result._replace(unsure=left.unsure | right.unsure | (known & whole & ~sure))


def compare_columns(op: str, left: Numbers, right: Numbers) -> Flags:
    """Return where `left op right` holds; meaningless where one of them is unknown.

    An integer and a float compare by their floats, and if those are equal, by the difference of the
    integer from its float.
    """
    left_residues, right_residues = _residues(left), _residues(right)
    same = left.floats == right.floats
    equal = same & (left_residues == right_residues)
    less = (left.floats < right.floats) | (same & (left_residues < right_residues))
    return FROM_ORDER[op](less, equal)


FROM_ORDER: Final[dict[str, Callable[[Flags, Flags], Flags]]] = {
    "=": lambda less, equal: equal,  # noqa: ARG005
    "!=": lambda less, equal: ~equal,  # noqa: ARG005
    "<": lambda less, equal: less,  # noqa: ARG005
    "<=": lambda less, equal: less | equal,
    ">": lambda less, equal: ~(less | equal),
    ">=": lambda less, equal: ~less,  # noqa: ARG005
}


def _residues(numbers: Numbers) -> Any:
    residues = split_integers(numbers.integers)[1]
    return np.int16(0) if residues is None else residues


# --- integers --------------------------------------------------------------------------------

# The results where they fit 64 bits, and where both facts are certain.
OnIntegers = tuple[Integers, Flags, Flags]

_CERTAIN: Final = np.ones(1, np.bool_)


def _add(left: Numbers, right: Numbers) -> OnIntegers:
    total = left.integers + right.integers
    # It overflowed if both terms have the same sign and the result has the other.
    fits = ((left.integers ^ total) & (right.integers ^ total)) >= 0
    return total, fits, _CERTAIN


def _subtract(left: Numbers, right: Numbers) -> OnIntegers:
    difference = left.integers - right.integers
    fits = ((left.integers ^ right.integers) & (left.integers ^ difference)) >= 0
    return difference, fits, _CERTAIN


def _multiply(left: Numbers, right: Numbers) -> OnIntegers:
    # Three roundings change a product of floats by far less than a factor of two.
    with np.errstate(all="ignore"):
        sure = np.abs(left.floats * right.floats) < 2.0**62
    return left.integers * right.integers, _CERTAIN, sure


def _quotient(left: Numbers, right: Numbers) -> OnIntegers:
    # The least integer has no absolute value.
    sure = (left.integers != INT64_MIN) & (right.integers != INT64_MIN)
    divisors = np.where(right.integers == 0, 1, right.integers)
    sizes = np.abs(left.integers) // np.where(sure, np.abs(divisors), 1)
    return np.where((left.integers < 0) == (divisors < 0), sizes, -sizes), _CERTAIN, sure


def _no_integers(left: Numbers, right: Numbers) -> OnIntegers:
    return np.zeros(np.broadcast(left.whole, right.whole).shape, np.int64), _CERTAIN, _CERTAIN


ON_INTEGERS: Final[dict[str, Callable[[Numbers, Numbers], OnIntegers]]] = {
    "+": _add,
    "-": _subtract,
    "*": _multiply,
    "/": _no_integers,
    "div": _quotient,
}

ON_FLOATS: Final[dict[str, Callable[[Floats, Floats], Floats]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "div": np.divide,
}
