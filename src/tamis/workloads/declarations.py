"""The tables of a workload file, as msgspec decodes them, and the distributions they declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product
from math import prod
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from tamis.events import Type
from tamis.workloads.distributions import (
    EPOCH,
    RESOLUTION,
    Distribution,
    EvenRanks,
    Grid,
    Listed,
    Ranks,
    Reals,
    WeightedRanks,
    Window,
    zipf,
)
from tamis.workloads.limits import LIMITS, Mistake, check_limit

MAX_WEIGHTS: Final = 1_000_000
MAX_NAMES: Final = 10_000
MAX_VALUES_PER_ATTRIBUTE: Final = 16
"""Values of one attribute in one event."""
MAX_POOL_CONDITIONS: Final = 10_000_000
MAX_DECIMALS: Final = 9
MAX_DIGITS: Final = 30
"""Digits before or after the point; beyond these, Decimal overflows."""

Positive = Annotated[float, Meta(gt=0, le=1e15)]
Probability = Annotated[float, Meta(gt=0, le=1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Width = Annotated[int, Meta(ge=1, le=RESOLUTION)]
ValueCount = Annotated[int, Meta(ge=1, le=MAX_VALUES_PER_ATTRIBUTE)]
Choices = str | list[str] | dict[str, Positive]
"""One, several that are equally likely, or several with weights."""
Known = Mapping[str, Distribution | Window]

_HOLE: Final = re.compile(r"\{(\w{1,60})(?:\.\.([0-9]{1,9}))?\}")
_NAME_RANGE: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)\.\.(.*?)(0|[1-9][0-9]*)")


class Weighted(NamedTuple):
    """Texts and their probabilities, which sum to 1."""

    texts: list[str]
    chances: list[float]

    @classmethod
    def of(cls, key: str, choices: Choices) -> Weighted:
        """Return the choices of a key."""
        if not choices:
            raise Mistake(key, "there is nothing to choose from", "add at least one text")
        if not isinstance(choices, dict):
            texts = [choices] if isinstance(choices, str) else choices
            return cls(texts, [1 / len(texts)] * len(texts))
        total = sum(choices.values())
        return cls(list(choices), [weight / total for weight in choices.values()])


# --- distributions -------------------------------------------------------------------------------


class Normal(Struct, forbid_unknown_fields=True):
    """A normal distribution."""

    mean: float
    deviation: Positive

    def weights(self, _: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density at each value."""
        return np.asarray(np.exp(-(((values - self.mean) / self.deviation) ** 2) / 2))


class Lognormal(Struct, forbid_unknown_fields=True):
    """A normal distribution of the logarithm."""

    median: Positive
    deviation: Positive

    def weights(self, key: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the density at each value."""
        if values[0] <= 0:
            raise Mistake(key, "a lognormal range begins above 0", "raise its low end")
        logarithms = np.log(values / self.median) / self.deviation
        return np.asarray(np.exp(-(logarithms**2) / 2) / values)


class Declaration(
    Struct, forbid_unknown_fields=True, tag_field="type", kw_only=True, omit_defaults=True
):
    """What all declared distributions have in common."""

    present: Probability = 1.0
    """The probability that an event has the attribute."""
    # Not `ValueCount | tuple`: msgspec 0.22 crashes on a constrained int beside a tuple.
    many: tuple[ValueCount, ValueCount] = (1, 1)
    """The fewest and the most values of the attribute in an event."""

    def build(self, key: str, known: Known) -> Distribution | Window:
        """Return the distribution; texts may have holes for known texts."""
        raise NotImplementedError


class NumberDeclaration(Declaration):
    """What declared ranges of numbers have in common."""

    zipf: Positive | None = None
    normal: Normal | None = None
    lognormal: Lognormal | None = None
    wide: tuple[Width, Width] | None = None

    def _on_grid(self, key: str, grid: Grid, last: int) -> Distribution | Window:
        count = (last - grid.low) // grid.step + 1
        if count < 1:
            raise Mistake(f"{key}.range", "the first number must not exceed the last", "swap them")
        found = Distribution(grid.type, self._ranks(key, grid, count), grid)
        if self.wide is None:
            return found
        narrowest, widest = self.wide
        if not narrowest <= widest <= count:
            raise Mistake(f"{key}.wide", f"a window is 1 to {count:,} values wide, narrowest first")
        return Window(found, narrowest, widest)

    def _ranks(self, key: str, grid: Grid, count: int) -> Ranks:
        shapes = [name for name in ("zipf", "normal", "lognormal") if getattr(self, name)]
        if len(shapes) > 1:
            raise Mistake(key, f"a range has one shape, not {' and '.join(shapes)}", "keep one")
        most = MAX_WEIGHTS if shapes else RESOLUTION
        if count > most:
            raise Mistake(
                f"{key}.range",
                f"the range has {count:,} values, and {most:,} can be drawn",
                "take a larger step" if shapes else "",
            )
        if self.zipf:
            return zipf(count, self.zipf)
        shape = self.normal or self.lognormal
        if shape is None:
            return EvenRanks(count)
        weights = shape.weights(
            key, (grid.low + grid.step * np.arange(count, dtype=np.float64)) / 10**grid.digits
        )
        if not weights.sum() > 0:
            raise Mistake(f"{key}.{shapes[0]}", "the range lies where the density is 0")
        return WeightedRanks(weights)


class IntDeclaration(NumberDeclaration, tag="int", kw_only=True):
    """Whole numbers, both ends included."""

    range: tuple[Int64, Int64]
    step: Width = 1

    def build(self, key: str, _: Known) -> Distribution | Window:
        """Return the distribution."""
        return self._on_grid(key, Grid(Type.INT, self.range[0], self.step), self.range[1])


class FloatDeclaration(NumberDeclaration, tag="float", kw_only=True):
    """Decimal numbers, or without a step floats of full precision."""

    range: tuple[Decimal, Decimal]
    step: Decimal | None = None

    def build(self, key: str, _: Known) -> Distribution | Window:
        """Return the distribution."""
        low, high = self.range
        given = (low, high, self.step or Decimal(1))
        if not all(x.is_finite() and abs(x.adjusted()) <= MAX_DIGITS for x in given):
            raise Mistake(key, "the numbers should be finite and no larger than 64 bits can hold")
        if self.step is None:
            return self._reals(key, float(low), float(high))
        if not self.step > 0:
            raise Mistake(f"{key}.step", "a step is more than 0")
        exponents = [x.normalize().as_tuple().exponent for x in given]
        digits = max(0, *(-int(exponent) for exponent in exponents))
        if digits > MAX_DECIMALS or max(abs(low), abs(high)).scaleb(digits) > RESOLUTION:
            raise Mistake(key, "the range has more digits than a float can distinguish")
        first, last, step = (int(value.scaleb(digits)) for value in given)
        return self._on_grid(key, Grid(Type.FLOAT, first, step, digits), last)

    def _reals(self, key: str, low: float, high: float) -> Distribution:
        if low > high:
            raise Mistake(f"{key}.range", "the first number must not exceed the last", "swap them")
        for name in ("zipf", "normal", "lognormal", "wide"):
            if getattr(self, name):
                raise Mistake(f"{key}.{name}", "this needs separate values", "add step = 0.01")
        return Distribution(Type.FLOAT, EvenRanks(RESOLUTION), Reals(low, high))


class StrDeclaration(Declaration, tag="str", kw_only=True):
    """Texts; a text with holes declares every way to fill them."""

    texts: Choices
    zipf: Positive | None = None

    def build(self, key: str, known: Known) -> Distribution:
        """Return the distribution."""
        texts, weights = _filled_texts(f"{key}.texts", self.texts, known)
        is_even = np.allclose(weights, weights[0])
        ranks: Ranks = EvenRanks(len(texts)) if is_even else WeightedRanks(weights)
        if self.zipf:
            if not is_even:
                raise Mistake(key, "texts have either weights or zipf", "remove one of them")
            ranks = zipf(len(texts), self.zipf)
        return Distribution(Type.STR, ranks, Listed(texts))


class BoolDeclaration(Declaration, tag="bool"):
    """True or false."""

    true: Annotated[float, Meta(ge=0, le=1)] = 0.5

    def build(self, key: str, known: Known) -> Distribution:  # noqa: ARG002
        """Return the distribution."""
        ranks = WeightedRanks(np.array([1 - self.true, self.true]))
        return Distribution(Type.BOOL, ranks, Listed((False, True)))


class TimestampDeclaration(Declaration, tag="timestamp", kw_only=True):
    """Instants, with a step in seconds."""

    range: tuple[Annotated[datetime, Meta(tz=True)], Annotated[datetime, Meta(tz=True)]]
    step: Positive = 1.0

    def build(self, key: str, _: Known) -> Distribution:
        """Return the distribution."""
        low, high = ((end - EPOCH) // timedelta(microseconds=1) for end in self.range)
        step = round(self.step * 1_000_000)
        if low > high or not step:
            raise Mistake(
                key, "the first time must not exceed the last, and a step is at least a microsecond"
            )
        count = (high - low) // step + 1
        return Distribution(Type.TIMESTAMP, EvenRanks(count), Grid(Type.TIMESTAMP, low, step))


AnyDeclaration = (
    IntDeclaration | FloatDeclaration | StrDeclaration | BoolDeclaration | TimestampDeclaration
)


# --- texts ---------------------------------------------------------------------------------------


def _filled_texts(
    key: str, choices: Choices, known: Known
) -> tuple[list[str], NDArray[np.float64]]:
    texts: list[str] = []
    weights: list[float] = []
    characters = 0
    for text, chance in zip(*Weighted.of(key, choices), strict=True):
        between = _HOLE.split(text)
        fillings: list[Weighted] = []
        count, length = 1, len(text)
        for name, last in zip(between[1::3], between[2::3], strict=True):
            fillings.append(_filling(key, name, last, known))
            count *= len(fillings[-1].texts)
            length += max(map(len, fillings[-1].texts))
            check_limit(key, "texts", len(texts) + count)
        characters += count * length
        check_limit(key, "characters in texts", characters)
        texts += [
            "".join(part for pair in zip(between[::3], (*chosen, ""), strict=True) for part in pair)
            for chosen in product(*(filling.texts for filling in fillings))
        ]
        weights += [
            chance * prod(each) for each in product(*(filling.chances for filling in fillings))
        ]
    return texts, np.array(weights)


def _filling(key: str, name: str, last: str | None, known: Known) -> Weighted:
    if name.isdecimal() and last is not None:
        numbers = range(int(name), min(int(last), int(name) + LIMITS["texts"]) + 1)
        if not numbers:
            raise Mistake(
                key,
                f"in {{{name}..{last}}}, the first number must not exceed the last",
                "swap them",
            )
        return Weighted.of(key, [str(number) for number in numbers])
    filling = known.get(name)
    if not isinstance(filling, Distribution) or not isinstance(filling.values, Listed):
        raise Mistake(
            key,
            f"{{{name}}} names no texts",
            f'define them above: values.{name} = {{ type = "str", texts = ["…", "…"] }}',
        )
    texts, ranks = [str(text) for text in filling.values.values], filling.ranks
    if isinstance(ranks, EvenRanks):
        return Weighted.of(key, texts)
    return Weighted(texts, [float(weight) for weight in ranks.weights / ranks.weights.sum()])


# --- names, events and pools ---------------------------------------------------------------------


def names_in(key: str, name: str) -> list[str]:
    """Return the names that `f0..f9` stands for, or the one name.

    >>> names_in("", "f8..f10")
    ['f8', 'f9', 'f10']
    """
    check_limit(key, "characters in a name", len(name), f"{name:.40}…")
    found = _NAME_RANGE.fullmatch(name)
    if found is None:
        return [name]
    stem, low, other, high = found.groups()
    numbers = range(int(low), int(high) + 1)
    if stem != other or not 0 < numbers.stop - numbers.start <= MAX_NAMES:
        raise Mistake(
            key, f"{name} is not a range of 1 to {MAX_NAMES:,} names", "write it as f0..f9"
        )
    return [f"{stem}{number}" for number in numbers]


class AttributeSource(NamedTuple):
    """Where the values of an attribute come from."""

    distribution: Distribution
    present: float
    least: int
    most: int

    @property
    def is_many(self) -> bool:
        """Return whether an event may have several values of it."""
        return self.most > 1

    @classmethod
    def of(cls, key: str, declared: AnyDeclaration, known: Known) -> AttributeSource:
        """Return the source that a table declares."""
        distribution = declared.build(key, known)
        if isinstance(distribution, Window):
            raise Mistake(
                f"{key}.wide", "an attribute has values, not windows", "move it to a value"
            )
        least, most = declared.many
        if least > most:
            raise Mistake(f"{key}.many", "the first number must not exceed the second")
        return cls(distribution, declared.present, least, most)


class Group(Struct, forbid_unknown_fields=True):
    """Attributes of which an event has some, all equally likely."""

    count: Annotated[int, Meta(ge=1, le=1000)]
    of: list[str]


class Form(Struct, forbid_unknown_fields=True):
    """Attributes and groups that events have together."""

    has: list[str] = []
    choose: list[Group] = []
    weight: Positive = 1.0

    def all_names(self) -> list[str]:
        """Return every attribute that an event of this form may have."""
        return [*self.has, *(name for group in self.choose for name in group.of)]


class PoolDeclaration(Struct, forbid_unknown_fields=True):
    """Conditions that a rule makes once, to be drawn repeatedly."""

    of: str
    size: Annotated[int, Meta(ge=1, le=MAX_POOL_CONDITIONS)]
    zipf: Positive | None = None

    def ranks(self) -> Ranks:
        """Return how they are drawn."""
        return zipf(self.size, self.zipf) if self.zipf else EvenRanks(self.size)


class Tables(Struct, forbid_unknown_fields=True):
    """A workload file."""

    attributes: dict[str, Any]
    rules: dict[str, Any]
    values: dict[str, Any] = {}
    pools: dict[str, Any] = {}
    events: list[Any] = []
