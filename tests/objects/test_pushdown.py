"""What brokers evaluate of a filter lets through every object that satisfies it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from seeds import seeds
from tamis import EventError, Mode, decode_json, message, parse
from tamis.objects import ObjectFilter, decode_object, encode_object, read_object_header
from tamis.objects.accessors import AccessorFailures, ByName
from tamis.objects.pushdown import pushed_down

from .random_objects import Patterns, World
from .shop import BlockTrade, Side, Trade

t = message(Trade)


def holds(filter_: ObjectFilter, data: bytes) -> bool:
    return pushed_down(filter_).truth(decode_json(data), Mode.SQL) is True


def check_world(rng: Random, filters: int, objects: int) -> tuple[int, int]:
    """Return how many pairs were compared, and how many the broker would keep back."""
    world = World(rng)
    patterns = [Patterns(rng, world).pattern() for _ in range(filters)]
    pushed = [parse(str(pushed_down(pattern))) for pattern in patterns]
    pairs = kept_back = 0
    for given in world.roots_of(rng, objects, honest=True) + world.roots_of(rng, objects):
        try:
            event = decode_json(encode_object(given))
        except EventError:
            continue  # It breaks what its class promises.
        for pattern, filter_ in zip(patterns, pushed, strict=True):
            is_true = pattern.truth(given, ByName(AccessorFailures())) is True
            passes = filter_.truth(event, Mode.SQL) is True
            assert passes or not is_true, (pattern, filter_, vars(given))
            pairs += 1
            kept_back += not passes
    return pairs, kept_back


@pytest.mark.parametrize("seed", seeds(60, by_default=3))
def test_a_broker_lets_through_what_satisfies_a_filter(seed: int) -> None:
    rng = Random(seed)
    pairs = kept_back = 0
    while pairs < 1_000:
        more, kept = check_world(rng, 40, 15)  # None, if a class has no fields.
        pairs, kept_back = pairs + more, kept_back + kept
    assert kept_back > pairs // 20


@pytest.mark.parametrize(
    ("filter_", "text"),
    [
        (t.symbol == "A", 'symbol = "A"'),
        (~(t.symbol == "A"), 'not (symbol = "A")'),
        (t.price > Decimal("1.5"), "price >= 1.5"),
        ((t.symbol == "A") & (t.notional() > 5), 'symbol = "A"'),
        ((t.symbol == "A") | (t.notional() > 5), ""),
        (t.customer.city == "Wien", ""),
        (t.lines[0].price > 5, ""),
        (t.on > date(2026, 1, 1), ""),
        (t.lines.all(lambda line: line.price > 5), ""),
        (t.symbol.is_present(), "symbol is present"),
        (t.address.is_present(), ""),
        (t.is_a(BlockTrade), f'_object.type = "{BlockTrade.__module__}.BlockTrade"'),
        (t.quantity == 2**60, ""),
    ],
)
def test_what_travels_is_tested_by_the_broker(filter_: ObjectFilter, text: str) -> None:
    guard = f'_object.type = "{Trade.__module__}.Trade"'
    assert pushed_down(filter_) == parse(f"{guard} and {text}" if text else guard)


def test_a_field_with_a_default_is_tested_unless_the_writer_has_other_fields() -> None:
    found = str(pushed_down(t.side == Side.SELL))
    assert 'side = "sell" or _object.schema != ' in found
    assert found.endswith("and side is absent)")


def test_without_a_class_every_object_that_may_answer_is_let_through() -> None:
    assert str(pushed_down(message().size >= 3)) == (
        "size >= 3 or _object.type is present and size is absent"
    )
    assert str(pushed_down(message().part.size >= 3)) == "part.size >= 3 or _object.type is present"


# --- objects of other versions -------------------------------------------------------------------


@dataclass
class Part:
    size: int = 3
    word: str = "a"


@dataclass
class Whole:
    size: int = 3
    word: str | None = None
    part: Part = field(default_factory=Part)
    parts: list[Part] = field(default_factory=lambda: [Part()])
    sizes: list[int] = field(default_factory=lambda: [3])


def older(rng: Random, data: Any) -> Any:
    """Leave out some fields, as an older class would."""
    if isinstance(data, list):
        return [older(rng, each) for each in data]
    if isinstance(data, dict):
        return {name: older(rng, value) for name, value in data.items() if rng.random() < 0.7}
    return data


def test_defaults_of_fields_that_a_writer_lacks_are_matched() -> None:
    rng, w = Random(5), message(Whole)
    conditions = [
        w.size == 3,
        w.size != 3,
        ~(w.size > 2),
        w.word == "a",
        w.word.is_absent(),
        w.part.size == 3,
        ~(w.part.word == "b"),
        w.parts.any(lambda part: part.size == 3),
        w.parts.any(lambda part: ~(part.size == 1) & (part.word == "a")),
        w.sizes.contains(3),
        ~w.sizes.contains(1),
    ]
    matched = 0
    for _ in range(400):
        given = Whole(
            rng.randrange(4),
            rng.choice((None, "a")),
            Part(rng.randrange(4)),
            [Part(rng.randrange(4), rng.choice("ab")) for _ in range(rng.randrange(3))],
            [rng.randrange(4)],
        )
        data = json.loads(encode_object(given))
        header = {**data.pop("_object"), "schema": "other"}
        text = json.dumps({**older(rng, data), "_object": header}).encode()
        carried = read_object_header(text)
        assert carried is not None
        read = decode_object(text, carried)
        for condition in conditions:
            if condition.matches(read):
                matched += 1
                assert holds(condition, text), (condition, pushed_down(condition), text)
    assert matched > 1000
