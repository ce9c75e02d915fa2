"""Additions: many subscriptions compiled beside readers, and in force together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from tamis.errors import FilterError
from tamis.filters import Mode
from tamis.languages import parse
from tamis.matching import Engine
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store import additions
from tamis.matching.store.segments import Segment, UncompiledColumns

NEVER = float("inf")
EVENTS = [{"a": a, "b": b, "c": f"t{a}"} for a in range(6) for b in range(6)]


@pytest.fixture(autouse=True, params=[1, 256])
def smallest_segment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compile even a few beside the readers, or leave them to the next event."""
    monkeypatch.setattr(additions, "MAX_RECOMPILED_SUBSCRIPTIONS", request.param)
    return int(request.param)


def drawn(rng: Random) -> str:
    tests = [f"a = {rng.randrange(6)}", f"b < {rng.randrange(6)}", f'c = "t{rng.randrange(6)}"']
    joined = rng.choice([" and ", " or "]).join(rng.sample(tests, rng.randint(1, 3)))
    return rng.choice(["{}", "not ({})", "({}) and a + b > 3", 'c matches "t." and {}']).format(
        joined
    )


@pytest.mark.parametrize("mode", [Mode.SQL, Mode.STRICT, Mode.DEFAULT])
def test_an_addition_matches_what_subscriptions_match_one_by_one(mode: Mode) -> None:
    rng = Random(7)
    alone, together = Engine(), Engine()
    for number in range(4):
        alone.add(f"old-{number}", "a = 1")
        together.add(f"old-{number}", "a = 1")
    texts = [drawn(rng) for _ in range(600)]
    for number, text in enumerate(texts):
        alone.add(number, text, mode=mode)
    for first in range(0, 600, 200):
        addition = together.addition()
        some = range(first, first + 200)
        given = [texts[number] for number in some]
        added = addition.add_texts(some, given, mode, [NEVER] * 200)
        for number in (n for n, is_added in zip(some, added, strict=True) if not is_added):
            addition.add(number, parse(texts[number]), mode)
        addition.commit()
    assert sorted(map(str, together.ids())) == sorted(map(str, alone.ids()))
    assert len(together) == len(alone)
    for event in EVENTS:
        assert {*together.match(event)} == {*alone.match(event)}
        assert together.filter(together.match(event)[-1])[1] is mode


def test_nothing_is_in_force_before_the_commit_and_expiry_is_kept() -> None:
    now = [10.0]
    engine = Engine(clock=lambda: now[0])
    engine.add("first", "a = 1")
    addition = engine.addition()
    assert addition.add_texts(["second", "third"], ["a = 1", "a >"], Mode.SQL, [20.0, 1.0]) == [
        True,
        False,
    ]
    assert engine.match({"a": 1}) == ["first"]
    addition.commit()
    assert engine.match({"a": 1}) == ["first", "second"]
    assert engine.ids() == ["first", "second"]
    now[0] = 20.0
    assert engine.match({"a": 1}) == ["first"]


def test_readers_and_writers_go_on_while_an_addition_is_compiled(
    monkeypatch: pytest.MonkeyPatch, smallest_segment: int
) -> None:
    engine = Engine()
    compile_, seen = Segment.of, list[object]()

    def meanwhile() -> list[object]:
        engine.add("meanwhile", "a = 1")
        return [*engine.match({"a": 1})]

    def slowly(columns: UncompiledColumns, vocabulary: Vocabulary) -> Segment:
        if len(columns.ids) == 2 and smallest_segment == 1:
            with ThreadPoolExecutor(1) as pool:
                seen.extend(pool.submit(meanwhile).result(timeout=30))
        return compile_(columns, vocabulary)

    monkeypatch.setattr(Segment, "of", slowly)
    addition = engine.addition()
    addition.add_texts(["x", "y"], ["a = 1", "a > 0"], Mode.SQL, [NEVER] * 2)
    addition.commit()
    if smallest_segment == 1:
        assert seen == ["meanwhile"]
        assert engine.match({"a": 1}) == ["meanwhile", "x", "y"]
    else:
        assert engine.match({"a": 1}) == ["x", "y"]


def test_leaves_that_are_renumbered_meanwhile_do_not_confuse_an_addition() -> None:
    engine = Engine()
    for number in range(50):
        engine.add(number, f"old{number} = 1")
    engine.compact()
    addition = engine.addition()
    addition.add_texts(["x", "y"], ["a = 1", 'c = "t" and a < 5'], Mode.SQL, [NEVER] * 2)
    addition.add("z", parse("a + b > 3"), Mode.STRICT)
    for number in range(49):
        engine.remove(number)
    engine.compact()
    addition.add_texts(["w"], ["a = 1"], Mode.SQL, [NEVER])
    addition.compile()
    engine.remove(49)
    engine.compact()
    addition.commit()
    assert engine.match({"a": 1, "b": 9, "c": "t"}) == ["x", "y", "z", "w"]
    assert engine.match({"old3": 1}) == []


@pytest.mark.parametrize("is_compiled", [False, True])
def test_an_addition_with_a_known_id_adds_nothing(is_compiled: bool) -> None:
    engine = Engine()
    engine.add("x", "a = 1")
    if is_compiled:
        engine.compact()
    addition = engine.addition()
    addition.add_texts(["w", "x"], ["a = 1"] * 2, Mode.SQL, [NEVER] * 2)
    with pytest.raises(FilterError, match="there is a subscription 'x' already"):
        addition.commit()
    assert engine.match({"a": 1}) == ["x"]
    with pytest.raises(FilterError, match="two subscriptions 'w'"):
        addition.add("w", parse("a = 1"), Mode.SQL)


def test_what_is_refused_at_last_is_not_in_force() -> None:
    engine = Engine()
    addition = engine.addition()
    addition.add_texts(["x", "y", "z"], ["a = 1"] * 3, Mode.SQL, [NEVER] * 3)
    addition.compile()
    addition.commit({"x", "z"})
    assert engine.match({"a": 1}) == ["x", "z"]
    assert (engine.ids(), len(engine), "y" in engine) == (["x", "z"], 2, False)
    engine.add("y", "a = 1")
    assert engine.match({"a": 1}) == ["x", "z", "y"]
    addition = engine.addition()
    addition.add_texts(["w"], ["a = 1"], Mode.SQL, [NEVER])
    addition.commit([])
    assert len(engine) == 3


def test_an_id_can_come_back_after_it_was_removed() -> None:
    engine = Engine()
    for _ in range(3):
        addition = engine.addition()
        addition.add_texts(["x"], ["a = 1"], Mode.SQL, [NEVER])
        addition.commit()
        assert engine.match({"a": 1}) == ["x"]
        engine.remove("x")
    engine.addition().commit()
    assert engine.ids() == []
