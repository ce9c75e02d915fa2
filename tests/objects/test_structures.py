"""Typed dictionaries and protocols describe structure, also as members of a class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict

import pytest

from tamis import Engine, message
from tamis.errors import FilterTypeError
from tamis.objects.patterns import require_object_filter


class Sized(TypedDict):
    size: int


class Weighed(Protocol):
    weight: int

    def heavy(self) -> bool: ...


@dataclass
class Stone:
    weight: int

    def heavy(self) -> bool:
        return self.weight > 5


@dataclass
class Load:
    box: Sized
    stone: Weighed
    boxes: list[Sized] = field(default_factory=list)
    stones: list[Weighed] = field(default_factory=list)
    spare: Sized | None = None

    def beside(self, other: Weighed | None = None) -> int:
        return 1 if other is None else 2


load = message(Load)
CONDITIONS: list[Any] = [
    load.box["size"] == 1,
    load.stone.weight == 9,
    load.stone.heavy(),
    load.boxes.any(lambda each: each["size"] == 2),
    load.stones.any(lambda each: each.heavy() & (each.weight == 7)),
    load.spare["size"] == 3,
    load.beside() == 1,
]


@pytest.mark.parametrize("condition", CONDITIONS, ids=repr)
def test_members_that_describe_structure_are_asked(condition: Any) -> None:
    full = Load({"size": 1}, Stone(9), [{"size": 2}], [Stone(7)], {"size": 3})
    engine = Engine()
    engine.add("it", condition)
    assert require_object_filter(condition).matches(full)
    assert engine.match(full) == ["it"]


def test_what_they_do_not_have_is_refused() -> None:
    with pytest.raises(FilterTypeError, match="Sized has no key 'sise'; did you mean \"size\""):
        _ = load.box["sise"]
    with pytest.raises(FilterTypeError, match="has no member 'weigth'; did you mean"):
        _ = load.stone.weigth
