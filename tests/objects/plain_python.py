"""Random conditions on typed members, each with a function of plain Python that says the same.

The functions read objects with `getattr` and compare with Python's own operators, so they share
nothing with stand-ins, accessors or conditions. Unknown is None: what is None has no value.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass
from random import Random
from types import GenericAlias
from typing import Any, Final, NamedTuple

from tamis.objects import ObjectFilter, message, where

from .random_functions import function_of
from .random_objects import POOLS

Said = Callable[[Any], bool | None]
Values = Callable[[Random, Callable[[], Any]], Any]


class Condition(NamedTuple):
    """A filter, and what plain Python says instead."""

    filter: ObjectFilter
    says: Said


def _some(rng: Random, draw: Callable[[], Any]) -> list[Any]:
    return [draw() for _ in range(rng.randrange(4))]


SHAPES: Final[dict[str, tuple[Callable[[Any], Any], Values]]] = {
    "list": (lambda cls: GenericAlias(list, (cls,)), _some),
    "tuple": (lambda cls: GenericAlias(tuple, (cls, ...)), lambda r, draw: tuple(_some(r, draw))),
    "pair": (lambda cls: GenericAlias(tuple, (cls, cls)), lambda _, draw: (draw(), draw())),
    "set": (lambda cls: GenericAlias(set, (cls,)), lambda r, draw: {*_some(r, draw)}),
    "frozen": (
        lambda cls: GenericAlias(frozenset, (cls,)),
        lambda r, draw: frozenset(_some(r, draw)),
    ),
    "deque": (lambda cls: GenericAlias(deque, (cls,)), lambda r, draw: deque(_some(r, draw))),
    "sequence": (lambda cls: GenericAlias(Sequence, (cls,)), _some),
    "optional": (
        lambda cls: GenericAlias(list, (cls,)) | None,
        lambda r, draw: None if r.random() < 0.3 else _some(r, draw),
    ),
    "mapping": (
        lambda cls: GenericAlias(dict, (str, cls)),
        lambda r, draw: dict(zip("abc", _some(r, draw), strict=False)),
    ),
    "nested": (
        lambda cls: GenericAlias(list, (GenericAlias(list, (cls,)),)),
        lambda r, draw: [_some(r, draw) for _ in range(r.randrange(3))],
    ),
}
ORDERS: Final = (operator.lt, operator.le, operator.gt, operator.ge)
UNORDERED: Final = ("bool", "Side", "Rank")


class TypedCollections:
    """A class with a collection of each shape and a single member, all of one class of values."""

    def __init__(self, rng: Random, cls: Any) -> None:
        self._rng = rng
        self._pool = POOLS[cls]
        self._has_order = cls.__name__ not in UNORDERED
        fields = [(name, annotate(cls)) for name, (annotate, _) in SHAPES.items()]
        self.cls = make_dataclass(f"Holder_{cls.__name__}", [*fields, ("single", cls)])

    def objects(self, count: int) -> list[Any]:
        return [self._object() for _ in range(count)]

    def _object(self) -> Any:
        held = [make(self._rng, self._draw) for _, make in SHAPES.values()]
        return self.cls(*held, self._draw())

    def _draw(self) -> Any:
        return self._rng.choice(self._pool)

    def condition(self, depth: int = 2) -> Condition:
        rng = self._rng
        if depth == 0 or rng.random() < 0.4:
            return self._atom()
        one, two = self.condition(depth - 1), self.condition(depth - 1)
        match rng.randrange(3):
            case 0:
                return Condition(~one.filter, lambda given: _inverted(one.says(given)))
            case 1:
                return Condition(
                    one.filter & two.filter, lambda given: _least(one.says(given), two.says(given))
                )
            case _:
                return Condition(
                    one.filter | two.filter,
                    lambda given: _inverted(
                        _least(_inverted(one.says(given)), _inverted(two.says(given)))
                    ),
                )

    def _atom(self) -> Condition:
        rng, constant = self._rng, self._draw()
        if rng.random() < 0.15:
            return self._single(constant)
        name = rng.choice([*SHAPES])
        match 3 if name == "nested" else rng.randrange(4):
            case 0 | 1:
                return self._contains(name, constant)
            case 2:
                return self._in(name, constant)
            case _:
                return self._quantified(name, constant)

    def _single(self, constant: Any) -> Condition:
        stand_in = message(self.cls).single
        if self._rng.random() < 0.5:
            return Condition(stand_in == constant, lambda given: given.single == constant)
        some = self._rng.sample(self._pool, 2)
        return Condition(stand_in.in_(*some), lambda given: given.single in some)

    def _contains(self, name: str, constant: Any) -> Condition:
        held = getattr(message(self.cls), name)
        held = held.values() if name == "mapping" else held
        return Condition(held.contains(constant), _over(name, lambda some: constant in some))

    def _in(self, name: str, constant: Any) -> Condition:
        """Write the same as a function, which is read or called."""
        if name == "optional":
            return self._contains(name, constant)
        shown = f"t.{name}.values()" if name == "mapping" else f"t.{name}"
        function = function_of(f"constant in {shown}", self._rng.randrange(10**9), constant)
        return Condition(where(self.cls, function), function)

    def _quantified(self, name: str, constant: Any) -> Condition:
        rng = self._rng
        held = getattr(message(self.cls), name)
        held = held.values() if name == "mapping" else held
        compare: Any = operator.eq
        if self._has_order and rng.random() < 0.6:
            compare = rng.choice(ORDERS)
        every = rng.random() < 0.4
        if name == "nested":
            found = (held.all if every else held.any)(lambda each: each.contains(constant))
            said: Said = lambda given: (all if every else any)(  # noqa: E731
                constant in each for each in given.nested
            )
            return Condition(found, said)
        found = (held.all if every else held.any)(lambda each: compare(each, constant))
        return Condition(
            found,
            _over(name, lambda some: (all if every else any)(compare(e, constant) for e in some)),
        )


def _over(name: str, says: Callable[[Any], bool]) -> Said:
    def of_member(given: Any) -> bool | None:
        held = getattr(given, name)
        if held is None:
            return None
        if name == "mapping":
            held = [*held.values()]
        return says(held)

    return of_member


def _inverted(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def _least(one: bool | None, two: bool | None) -> bool | None:
    if one is False or two is False:
        return False
    return None if one is None or two is None else True
