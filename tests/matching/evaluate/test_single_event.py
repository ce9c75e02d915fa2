"""Single events against the oracle: one after the other, so that each finds the memory clean."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings

from seeds import seeds
from strategies import (
    CONSTANTS,
    VALUES,
    World,
    fits,
    generators,
    random_filter,
    random_world,
)
from tamis import Engine, Event, Mode, Schema, Subscription, attribute
from tamis.errors import TamisError
from tamis.events import Kind, Value, decode_json, encode_json
from tamis.filters import Filter, attr
from tamis.filters.build import text_test
from tamis.matching.compile import plans

Kept = list[tuple[int, Filter, Mode]]


def random_data(rng: Random, world: World, *, total: bool) -> dict[str, Value]:
    """Return an event with one value for each attribute, and some that nobody asks about."""
    data: dict[str, Value] = {}
    for name in world.names:
        if total or rng.random() < 0.75:
            declared = world.schema[name] if world.schema else None
            kind = rng.choice(list(Kind)) if declared is None else declared.kind
            pool = [v for v in VALUES[kind] if declared is None or fits(v, declared.type)]
            data[name] = rng.choice(pool)
            if kind is Kind.NUMBER and isinstance(data[name], float) and rng.random() < 0.1:
                data[name] = math.nan
    if rng.random() < 0.3:
        data["nobody asks"] = rng.choice(CONSTANTS[Kind.TEXT])
    names = list(data)
    rng.shuffle(names)
    return {name: data[name] for name in names}


def engine_of(rng: Random, world: World, mode: Mode) -> tuple[Engine, Kept]:
    modes = [mode] if mode is Mode.TOTAL else [Mode.SQL, Mode.STRICT, Mode.DEFAULT]
    engine = Engine(world.schema, mode)
    kept: Kept = []
    for number in range(rng.choice((1, 20, 60))):
        filter_ = random_filter(rng, world, rng.choice((0, 1, 2, 3, 5)))
        kept.append((number, filter_, rng.choice(modes)))
        engine.add(number, filter_, mode=kept[-1][2])
    engine.compact()
    return engine, kept


def expected(kept: Kept, event: Event, world: World) -> list[int]:
    return [number for number, f, mode in kept if f.matches(event, mode, world.schema)]


def compare(rng: Random, events: int) -> int:
    """Match single events in every form that they can have; return how many matched."""
    world = random_world(rng, typed=rng.random() < 0.5)
    total = world.schema is not None and rng.random() < 0.2
    matched = 0
    with (
        patch.object(plans, "PLANS", rng.choice((plans.PLANS, (1,), (2,), (3,)))),
        patch.object(plans, "ROW_NS", rng.choice((plans.ROW_NS, 1e9))),
    ):
        engine, kept = engine_of(rng, world, Mode.TOTAL if total else Mode.SQL)
    for _ in range(events):
        data = random_data(rng, world, total=total)
        wanted = expected(kept, Event(data), world)
        matched += len(wanted)
        assert engine.match(data) == wanted, f"{world.schema} {kept} on {data}"
        assert engine.match(Event(data)) == wanted
        compare_text(engine, kept, world, written(rng, data))
    return matched


def written(rng: Random, data: dict[str, Value]) -> str:
    """Return an event as JSON: with escapes and spaces or without, flat or nested."""
    finite = {n: v for n, v in data.items() if not isinstance(v, float) or math.isfinite(v)}
    plain: dict[str, Any] = json.loads(encode_json(Event(finite)))
    if rng.random() < 0.3 and "b.c" in plain:
        plain["b"] = {"d": [1, {}], "c": plain.pop("b.c")}
    if rng.random() < 0.2 and plain:
        name = rng.choice(list(plain))
        plain[name] = rng.choice((None, [], [plain[name]], [plain[name], "a"], {"x": plain[name]}))
    return json.dumps(
        plain, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)), sort_keys=True
    )


def compare_text(engine: Engine, kept: Kept, world: World, text: str) -> None:
    """Compare with the strict reader and the oracle, including what is refused."""
    try:
        event = decode_json(text, schema=world.schema)
        wanted: list[int] | str = expected(kept, event, world)
        if engine.mode is Mode.TOTAL and world.schema is not None:
            world.schema.require_all(event)
    except TamisError as error:
        wanted = str(error)
    for form in (text, text.encode()):
        try:
            found: list[Any] | str = engine.match_json(form)
        except TamisError as error:
            found = str(error)
        assert found == wanted, f"{world.schema} {kept} on {text}"


PARTS = [
    *"{}[],:0-",
    *('"', "\\", "\\u00e9", "\\ud83d\\ude00", "\\ud800", "é", " ", "\0", '"a"', '"b.c"'),
    *("1e3", "1E999", "01", "true", "nul", "NaN", "9007199254740993"),
]


@pytest.mark.parametrize("seed", seeds(8))
def test_mutated_texts_are_accepted_or_refused_as_by_the_strict_reader(seed: int) -> None:
    rng = Random(seed)
    for _ in range(8):
        world = random_world(rng, typed=rng.random() < 0.5)
        engine, kept = engine_of(rng, world, Mode.SQL)
        for _ in range(60):
            text = written(rng, random_data(rng, world, total=False))
            for _ in range(rng.choice((0, 1, 1, 2))):
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(PARTS) + text[at + rng.choice((0, 1)) :]
            compare_text(engine, kept, world, text)


ESCAPED = (
    r"\n\t\r\b\f\"\\\/",
    r"\u0041\u00e9\u20ac\ud83d\ude00",
    r"é\u0000€😀",
    r"\u007f\u0080\u07ff\u0800\uffff\ud800\udc00\udbff\udfff",
)


@pytest.mark.parametrize("written_text", ESCAPED)
def test_texts_with_escapes_are_the_texts_they_stand_for(written_text: str) -> None:
    text = json.loads(f'"{written_text}"')
    engine = Engine()
    engine.add("equal", attr("x") == text)
    engine.add("less", attr("x") < text)
    engine.add("more", attr("x") > text[:-1])
    engine.add("part", text_test("x", "contains", text[1:]))
    engine.compact()
    assert engine.match_json(f'{{"x": "{written_text}"}}') == ["equal", "more", "part"]
    assert engine.match_json(json.dumps({"x": text[:-1]})) == ["less"]


def test_many_texts_are_ranked_as_python_ranks_them() -> None:
    rng = Random(3)
    alphabet = "ab\x7f\x80é߿ࠀ€퟿\ue000\uffff😀\U0010ffff"
    texts = ["".join(rng.choices(alphabet, k=rng.randrange(4))) for _ in range(400)]
    engine = Engine()
    engine.add_many(Subscription(n, attr("x") < text) for n, text in enumerate(texts[:200]))
    engine.compact()
    for text in texts:
        wanted = [n for n, other in enumerate(texts[:200]) if text < other]
        assert engine.match_json(json.dumps({"x": text}, ensure_ascii=False)) == wanted
        assert engine.match({"x": text}) == wanted


def test_an_engine_without_compiled_subscriptions_still_checks_the_text() -> None:
    engine = Engine()
    with pytest.raises(TamisError, match="not JSON"):
        engine.match_json(b"{,}")
    with pytest.raises(TamisError, match="name"):
        engine.match({"": 1})
    engine.add("one", "x < 5")
    assert engine.match_json(b'{"x": 4}') == ["one"]


@pytest.mark.parametrize("data", [{"": 1}, {"x": 2**70}, {"y": 2**70}, {"y": "\ud800"}, {1: 2}])
def test_a_compiled_engine_refuses_what_is_invalid(data: Any) -> None:
    engine = Engine()
    engine.add("one", "x < 5 or x >= 5")
    engine.compact()
    with pytest.raises(TamisError):
        engine.match(data)


def test_subscriptions_that_are_gone_or_new_count_in_every_form() -> None:
    now = 10.0
    engine = Engine(clock=lambda: now)
    for number in range(30):
        engine.add(number, "x = 1", expires_at=20.0 if number == 3 else None)
    engine.compact()
    engine.remove(7)

    def found() -> list[list[Any]]:
        return [
            engine.match({"x": 1}),
            engine.match(Event({"x": 1})),
            engine.match_json('{"x": 1}'),
        ]

    there = [n for n in range(30) if n != 7]
    assert found() == [there] * 3
    engine.add("new", "x < 5")
    assert found() == [[*there, "new"]] * 3
    now = 21.0
    assert found() == [[*(n for n in there if n != 3), "new"]] * 3


@given(generators())
@settings(max_examples=25)
def test_a_single_event_finds_what_the_oracle_finds(rng: Random) -> None:
    compare(rng, events=6)


@pytest.mark.parametrize("seed", seeds(2, by_default=0))
def test_a_single_event_finds_what_the_oracle_finds_in_volume(seed: int) -> None:
    rng = Random(seed)
    assert sum(compare(rng, events=30) for _ in range(60)) > 8_000


def test_integers_that_are_no_floats_are_compared_exactly() -> None:
    engine = Engine()
    engine.add("more", f"x >= {2**53 + 4}")
    engine.compact()
    for number, wanted in ((2**53 + 3, []), (2**53 + 4, ["more"]), (2**53 + 5, ["more"])):
        assert engine.match({"x": number}) == wanted
        assert engine.match(Event({"x": number})) == wanted
        assert engine.match_json(f'{{"x": {number}}}') == wanted


def test_many_matches_come_in_order() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f"x < {n % 7} or y = {n}") for n in range(3_000))
    engine.compact()
    assert engine.match({"x": 3.0, "y": 5}) == sorted({5, *(n for n in range(3_000) if n % 7 > 3)})
    assert engine.match({"x": 9.0, "y": 5}) == [5]


def test_nodes_that_depend_on_nodes_wait_for_them() -> None:
    schema = Schema({name: attribute("int") for name in "abcdef"})
    engine = Engine(schema)
    nested = "(a < 5 or b < 5) and (c < 5 or (d < 5 and (e < 5 or f < 5)))"
    engine.add("nested", nested)
    engine.add("odd", f"({nested}) xor (e < 5 or f < 9) xor (a = 1 and f = 9)")
    engine.compact()
    rng = Random(7)
    for _ in range(500):
        data = {name: rng.randrange(10) for name in "abcdef" if rng.random() < 0.8}
        wanted = [id_ for id_ in ("nested", "odd") if engine.filter(id_)[0].matches(Event(data))]
        assert engine.match(data) == wanted


def test_threads_do_not_disturb_each_other() -> None:
    engine = Engine()
    engine.add_many(
        Subscription(n, f'x = {n} or (y < {n} and t contains "{n}")') for n in range(500)
    )
    engine.compact()
    events = [{"x": n, "y": n - 3, "t": f"a {n} b"} for n in range(500)]
    wanted = [engine.match(event) for event in events]
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: [engine.match(event) for event in events], range(8)):
            assert found == wanted
