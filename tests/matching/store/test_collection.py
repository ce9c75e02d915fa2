"""Subscriptions in segments: few of them, however many changes there were, and nothing lost."""

from __future__ import annotations

from random import Random
from threading import Event, Thread

import pytest

from tamis.filters import Mode
from tamis.matching import Engine, Subscription
from tamis.matching.compile.vocabulary import Vocabulary
from tamis.matching.store import additions, collection
from tamis.matching.store.segments import Segment, UncompiledColumns
from waiting import eventually


def joined(engine: Engine) -> None:
    """Wait until nothing is joined in the background any more."""
    joining = engine._collection._tidying
    if joining is not None:
        joining.join(timeout=60)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MAX_RECOMPILED_SUBSCRIPTIONS", 4)
    monkeypatch.setattr(collection, "MAX_SEGMENTS", 3)


@pytest.mark.usefixtures("small")
def test_segments_stay_few_and_hold_what_was_added_in_its_order() -> None:
    engine, wanted, rng = Engine(), list[int](), Random(1)
    for number in range(200):
        engine.add(number, f"x >= {number % 7}")
        wanted.append(number)
        if rng.random() < 0.2:
            gone = wanted.pop(rng.randrange(len(wanted)))
            engine.remove(gone)
        if number % 5 == 0:
            assert engine.match_batch([{"x": 9}])[0] == wanted
            joined(engine)
    assert engine.match_batch([{"x": 9}, {"x": 0}])[0] == wanted
    joined(engine)
    assert len(engine._collection.state.segments) <= collection.MAX_SEGMENTS + 1
    assert engine.ids() == wanted


def test_what_is_removed_while_segments_are_joined_stays_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collection, "MAX_RECOMPILED_SUBSCRIPTIONS", 0)
    engine = Engine()
    for number in range(6):
        engine.add_many(Subscription(10 * number + n, "x = 1") for n in range(6 - number))
        engine.match_batch([{"x": 1}])
    ids = engine.ids()
    compile_ = Segment.of

    def slowly(columns: UncompiledColumns, vocabulary: Vocabulary) -> Segment:
        engine.remove(ids[7])
        engine.remove(ids[-2])
        return compile_(columns, vocabulary)

    monkeypatch.setattr(Segment, "of", slowly)
    before = len(engine._collection.state.segments)
    engine._collection._join()
    assert len(engine._collection.state.segments) < before
    assert engine.match_batch([{"x": 1}])[0] == [*ids[:7], *ids[8:-2], ids[-1]]


@pytest.mark.usefixtures("small")
def test_segments_that_come_while_others_are_joined_are_joined_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(additions, "MAX_RECOMPILED_SUBSCRIPTIONS", 1)
    engine, compile_, more = Engine(), Segment.of, list(range(100, 120))

    def add(number: int) -> None:
        addition = engine.addition()
        addition.add_texts([number], ["x = 1"], Mode.SQL, [float("inf")])
        addition.commit()

    def slowly(columns: UncompiledColumns, vocabulary: Vocabulary) -> Segment:
        while len(columns.ids) > 1 and more:
            add(more.pop())
        return compile_(columns, vocabulary)

    monkeypatch.setattr(Segment, "of", slowly)
    for number in range(collection.MAX_SEGMENTS + 1):
        add(number)
    eventually(lambda: not more and len(engine._collection.state.segments) <= 3)
    assert len(engine.match({"x": 1})) == collection.MAX_SEGMENTS + 1 + 20


def test_a_reader_sees_the_old_filter_or_the_new_one_but_never_none() -> None:
    engine = Engine()
    engine.add("it", "x > 0")
    stop, seen = list[bool](), set[int]()

    def read() -> None:
        while not stop:
            seen.add(len(engine.match({"x": 5})))
            seen.add(len(engine.match_batch([{"x": 5}])[0]))

    reader = Thread(target=read)
    reader.start()
    for number in range(300):
        engine.replace("it", f"x > {number % 4}")
    stop.append(True)
    reader.join(timeout=60)
    assert seen == {1}


def test_few_new_subscriptions_are_not_compiled_for_one_event() -> None:
    engine, few = Engine(), collection.MAX_TRIED_SUBSCRIPTIONS
    for number in range(few):
        engine.add(number, "x = 1")
    assert engine.match({"x": 1}) == [*range(few)]
    assert engine._collection._tidying is None
    assert engine._collection.state.segments == ()


def test_an_event_does_not_wait_until_new_subscriptions_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_begun, may_compile, compile_ = Event(), Event(), Segment.of

    def when_allowed(columns: UncompiledColumns, vocabulary: Vocabulary) -> Segment:
        has_begun.set()
        assert may_compile.wait(timeout=60)
        return compile_(columns, vocabulary)

    monkeypatch.setattr(Segment, "of", when_allowed)
    engine, many = Engine(), collection.MAX_TRIED_SUBSCRIPTIONS + 1
    for number in range(many):
        engine.add(number, f"x > {number % 3}")
    assert engine.match({"x": 9}) == [*range(many)]
    assert has_begun.wait(timeout=60)
    # All that can happen to a subscription while it is compiled.
    engine.remove(0)
    engine.replace(1, "x = 5")
    engine.remove(2)
    engine.add(2, "x = 6")
    engine.add("new", "x = 9")
    wanted = [*range(3, many), "new"]
    assert [*engine.match({"x": 9})] == wanted
    may_compile.set()
    joined(engine)
    state = engine._collection.state
    assert [segment.size for segment in state.segments] == [many]
    assert {one.entry.id for one in state.open} == {1, 2, "new"}
    assert engine.match({"x": 9}) == wanted
    assert 1 in engine.match({"x": 5})
    assert 2 in engine.match({"x": 6})
    assert len(engine) == many


def test_very_many_new_subscriptions_are_compiled_at_once() -> None:
    engine = Engine()
    for number in range(collection.MAX_OPEN_SUBSCRIPTIONS + 1):
        engine.add(number, "x = 1")
    assert len(engine.match({"x": 1})) == collection.MAX_OPEN_SUBSCRIPTIONS + 1
    assert len(engine._collection.state.segments) == 1
