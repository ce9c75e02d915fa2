"""Reading distributions: `float 1..500 step 0.01 lognormal 60 0.8`, `str "buy" | "sell"`."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.events import Type
from tamis.events.values import parse_timestamp
from tamis.workloads.distributions import (
    EPOCH,
    RESOLUTION,
    Decimals,
    Distribution,
    EvenRanks,
    Instants,
    Listed,
    Ranks,
    Reals,
    WeightedRanks,
    Whole,
    Window,
    zipf,
)
from tamis.workloads.source import Cursor, Token, shown
from tamis.workloads.texts import read_texts, unquoted

TYPES: Final = ("int", "float", "str", "bool", "timestamp")
SHAPES: Final = ("zipf", "normal", "lognormal")
MOST_WEIGHTS: Final = 1_000_000
_MOST_DIGITS: Final = 9
_INT64: Final = 2**63 - 1

Known = Mapping[str, "Distribution | Window"]


def read_distribution(cursor: Cursor, known: Known) -> Distribution | Window:
    """Read a distribution; texts may have holes for texts that are known already."""
    token = cursor.take()
    match token.word:
        case "int" | "float":
            return _numbers(cursor, Type(token.word))
        case "str":
            return _texts(cursor, known)
        case "bool":
            true = cursor.percentage() or 0.5
            return Distribution(
                Type.BOOL, WeightedRanks(np.array([1 - true, true])), Listed((False, True))
            )
        case "timestamp":
            return _instants(cursor)
    raise cursor.error(
        f"a type should stand here, not {shown(token)}",
        token,
        hint=f"the types are {', '.join(TYPES)}",
    )


# --- numbers --------------------------------------------------------------------------------------


def _numbers(cursor: Cursor, type_: Type) -> Distribution | Window:
    start = cursor.current
    low, high = _ends(cursor)
    step = Decimal(1) if type_ is Type.INT else None
    if cursor.skip("step"):
        step = _step(cursor, type_)
    if step is None:
        found = Distribution(type_, EvenRanks(RESOLUTION), Reals(float(low), float(high)))
        if cursor.current.word in (*SHAPES, "wide"):
            raise cursor.error(
                f'"{cursor.current.word}" needs values one by one', hint='put "step 0.01" before it'
            )
        return found
    digits = _digits(cursor, start, type_, (low, high, step))
    first, last, by = (int(value.scaleb(digits)) for value in (low, high, step))
    count = (last - first) // by + 1
    ranks = _shaped(cursor, first, by, count, digits)
    values = Whole(first, by) if type_ is Type.INT else Decimals(first, by, digits)
    return _windowed(cursor, Distribution(type_, ranks, values))


def _ends(cursor: Cursor) -> tuple[Decimal, Decimal]:
    at = cursor.current
    low = cursor.number("the low end of a range such as 0..80")
    cursor.expect("..", "between the ends of the range")
    high = cursor.number("the high end of the range")
    if low > high:
        raise cursor.error(f"the range {low}..{high} is empty", at, hint="the low end comes first")
    return low, high


def _step(cursor: Cursor, type_: Type) -> Decimal:
    at = cursor.current
    step = cursor.number("a step")
    if step <= 0 or (type_ is Type.INT and step != int(step)):
        what = "a whole number from 1 up" if type_ is Type.INT else "more than 0"
        raise cursor.error(f"the step is {step}, but should be {what}", at)
    return step


def _digits(cursor: Cursor, at: Token, type_: Type, numbers: tuple[Decimal, ...]) -> int:
    exponents = [number.normalize().as_tuple().exponent for number in numbers]
    digits = max(0, *(-exponent for exponent in exponents if isinstance(exponent, int)))
    if type_ is Type.INT and digits:
        raise cursor.error("the ends of a range of int are whole numbers", at)
    most = _INT64 if type_ is Type.INT else RESOLUTION
    if digits > _MOST_DIGITS or any(abs(number.scaleb(digits)) > most for number in numbers):
        raise cursor.error("the range has more digits than numbers of 64 bits can keep apart", at)
    return digits


def _shaped(cursor: Cursor, first: int, by: int, count: int, digits: int) -> Ranks:
    at = cursor.current
    if at.word not in SHAPES:
        if count > RESOLUTION:
            raise cursor.error(f"the range has {count:,} values, and 2**53 can be drawn evenly", at)
        return EvenRanks(count)
    cursor.take()
    if count > MOST_WEIGHTS:
        raise cursor.error(
            f"the range has {count:,} values, and {at.word} takes {MOST_WEIGHTS:,} at the most",
            at,
            hint="take a larger step",
        )
    if at.word == "zipf":
        return zipf(count, _positive(cursor, "the exponent of zipf"))
    values = (first + by * np.arange(count, dtype=np.float64)) / 10**digits
    weights = _bell(cursor, at, values)
    if not weights.sum() > 0:
        raise cursor.error(f"the range lies so far out of this {at.word} that nothing is in it", at)
    return WeightedRanks(weights)


def _bell(cursor: Cursor, at: Token, values: NDArray[np.float64]) -> NDArray[np.float64]:
    if at.word == "normal":
        mean = float(cursor.number("the mean"))
        deviation = _positive(cursor, "the standard deviation")
        return np.asarray(np.exp(-(((values - mean) / deviation) ** 2) / 2))
    if values[0] <= 0:
        raise cursor.error("a lognormal range begins above 0", at)
    median = _positive(cursor, "the median")
    deviation = _positive(cursor, "the standard deviation of the logarithm")
    return np.asarray(np.exp(-((np.log(values / median) / deviation) ** 2) / 2) / values)


def _positive(cursor: Cursor, what: str) -> float:
    at = cursor.current
    value = float(cursor.number(what))
    if not 0 < value <= 1e15:
        raise cursor.error(f"{what} should be more than 0", at)
    return value


def _windowed(cursor: Cursor, found: Distribution) -> Distribution | Window:
    if not cursor.skip("wide"):
        return found
    count = found.ranks.size
    narrowest = cursor.whole("the width of a window, in values,", 1, count)
    widest = narrowest
    if cursor.skip(".."):
        widest = cursor.whole("the largest width of a window, in values,", narrowest, count)
    return Window(found, narrowest, widest)


# --- texts and timestamps -------------------------------------------------------------------------


def _texts(cursor: Cursor, known: Known) -> Distribution:
    start = cursor.current
    texts, weights = read_texts(cursor, known)
    if not cursor.skip("zipf"):
        even = np.allclose(weights, weights[0])
        ranks: Ranks = EvenRanks(len(texts)) if even else WeightedRanks(weights)
        return Distribution(Type.STR, ranks, Listed(texts))
    exponent = _positive(cursor, "the exponent of zipf")
    if not np.allclose(weights, weights[0]):
        raise cursor.error("texts have either percentages or zipf, not both", start)
    return Distribution(Type.STR, zipf(len(texts), exponent), Listed(texts))


def _instants(cursor: Cursor) -> Distribution:
    at = cursor.current
    low = _instant(cursor)
    cursor.expect("..", "between the ends of the range")
    high = _instant(cursor)
    if low > high:
        raise cursor.error("the range is empty", at, hint="the earlier end comes first")
    by = 1_000_000
    if cursor.skip("step"):
        at = cursor.current
        by = round(_positive(cursor, "a step in seconds") * 1_000_000)
        if not by:
            raise cursor.error("a step is a microsecond, 0.000001, or more", at)
    return Distribution(Type.TIMESTAMP, EvenRanks((high - low) // by + 1), Instants(low, by))


def _instant(cursor: Cursor) -> int:
    token = cursor.current
    text = unquoted(cursor, 'a timestamp such as "2026-11-15T04:02:00Z"')
    try:
        moment = parse_timestamp(text) - EPOCH
    except ValueError as error:
        raise cursor.error(str(error), token) from None
    return (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds
