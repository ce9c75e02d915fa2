"""The vocabulary and the segments hold what living subscriptions need, not what there once was."""

from __future__ import annotations

from pathlib import Path
from random import Random
from threading import Thread

import numpy as np
import pytest

from seeds import seeds
from strategies import random_event, random_filter, random_world
from tamis.events import Schema
from tamis.filters import Mode
from tamis.languages import parse
from tamis.matching import Engine, Subscription
from tamis.matching.store import collection
from tamis.matching.store.snapshot_file import read_file


def leaves_in(engine: Engine) -> int:
    """Return how many atoms the vocabulary holds, by what it would save."""
    return len(engine._collection.vocabulary.saved().ends)


def joined(engine: Engine) -> None:
    """Wait until nothing is joined in the background any more."""
    joining = engine._collection._tidying
    if joining is not None:
        joining.join(timeout=60)


def test_adding_and_removing_leaves_nothing_in_the_snapshot(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("stays", "price < 10 and name = 'x'")
    for number in range(500):
        engine.add(number, f"a = {number} and b < {number}")
        engine.remove(number)
    engine.save(tmp_path / "s")
    _, arrays = read_file(tmp_path / "s")
    assert len(arrays["vocabulary.ends"]) == 2
    assert leaves_in(engine) == 2
    loaded = Engine.load(tmp_path / "s")
    assert loaded.filter("stays") == (parse("price < 10 and name = 'x'"), Mode.SQL)
    assert loaded.match({"price": 5, "name": "x"}) == ["stays"]


@pytest.mark.parametrize("compiles", [False, True])
def test_the_vocabulary_is_bounded_without_compaction(compiles: bool) -> None:
    engine = Engine()
    engine.add("stays", "price < 10")
    for number in range(3_000):
        engine.add(number, f"a = {number} and b < {number}")
        if compiles and number % 300 == 0:
            assert engine.match_batch([{"a": number, "b": -1}])[0] == [number]
        engine.remove(number)
    assert leaves_in(engine) <= collection.MIN_COLLECTED_LEAVES
    assert engine.filter("stays")[0] == parse("price < 10")


def test_filters_that_are_refused_or_replaced_leave_no_leaves() -> None:
    engine = Engine()
    engine.add("it", "price < 10")
    for number in range(3_000):
        engine.replace("it", f"a = {number}")
    refused = engine.add_many(Subscription("it", f"b = {number}") for number in range(3_000))
    assert len(refused.rejected) == 3_000
    assert leaves_in(engine) <= collection.MIN_COLLECTED_LEAVES
    assert engine.match({"a": 2_999}) == ["it"]


def test_spellings_of_the_same_atom_are_not_kept_for_ever() -> None:
    engine = Engine(Schema({"at": "timestamp"}))
    for number in range(3_000):
        engine.add(number, f"at > '2026-01-01T00:00:00.{number:06d}Z'")
        engine.remove(number)
        engine.add(number, f"at > '2026-01-01T00:00:00.{number:06d}+00:00'")
        engine.remove(number)
    assert engine._collection.vocabulary.size <= 2 * collection.MIN_COLLECTED_LEAVES


def test_a_segment_that_is_mostly_removed_is_compiled_anew() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f"a = {n} and b < {n}") for n in range(2_000))
    engine.compact()
    for number in range(1_990):
        engine.remove(number)
    joined(engine)
    engine.remove(1_990)
    joined(engine)
    compiled = sum(segment.size for segment in engine._collection.state.segments)
    assert compiled <= 2 * collection.MAX_RECOMPILED_SUBSCRIPTIONS
    assert engine.ids() == list(range(1_991, 2_000))
    assert engine.match({"a": 1_995, "b": 0}) == [1_995]
    engine.compact()
    assert leaves_in(engine) == 18


@pytest.mark.parametrize("seed", seeds(6))
def test_collecting_changes_no_answer_and_no_filter(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MIN_COLLECTED_LEAVES", 4)
    monkeypatch.setattr(collection, "MAX_RECOMPILED_SUBSCRIPTIONS", seed % 3)
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0)
    engine, kept = Engine(world.schema), {}
    for number in range(150):
        filter_, mode = random_filter(rng, world, 2), rng.choice([Mode.SQL, Mode.STRICT])
        engine.add(number, filter_, mode=mode)
        kept[number] = filter_, mode
        if rng.random() < 0.7:
            gone = rng.choice(list(kept))
            engine.remove(gone)
            del kept[gone]
        if number == 75:
            engine.save(tmp_path / "s")
            engine = Engine.load(tmp_path / "s")
        if number % 10 == 0:
            events = [random_event(rng, world) for _ in range(5)]
            wanted = [
                [n for n, (f, m) in kept.items() if f.matches(event, m, world.schema)]
                for event in events
            ]
            assert list(engine.match_batch(events)) == wanted
            assert [engine.match(event) for event in events] == wanted
    for number, (filter_, mode) in kept.items():
        bound = filter_ if world.schema is None else filter_.bind(world.schema)
        assert engine.filter(number) == (bound, mode)
    joined(engine)
    engine.compact()
    (segment,) = engine._collection.state.segments
    assert np.array_equal(
        np.unique(segment.leaves[segment.leaves > 1]) - 2, range(leaves_in(engine))
    )


def test_a_filter_can_be_read_while_leaves_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MIN_COLLECTED_LEAVES", 4)
    engine = Engine()
    engine.add("compiled", "a = -1 and b = -2")
    engine.compact()
    engine.add("pending", "c = -3 and d = -4")
    stop, seen = list[bool](), set[str]()

    def read() -> None:
        while not stop:
            seen.update(str(engine.filter(id_)[0]) for id_ in ("compiled", "pending"))

    reader = Thread(target=read)
    reader.start()
    for number in range(2_000):
        engine.add(number, f"e = {number}")
        engine.remove(number)
    stop.append(True)
    reader.join(timeout=60)
    assert seen == {"a = -1 and b = -2", "c = -3 and d = -4"}


def test_leaves_that_are_all_in_use_keep_their_numbers() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f"a = {n} and b < {n} or c{n} = 1.5") for n in range(3_000))
    vocabulary = engine._collection.vocabulary
    engine.compact()
    assert engine._collection.vocabulary is vocabulary
    engine.remove(1_500)
    engine.compact()
    assert engine._collection.vocabulary is not vocabulary
    assert leaves_in(engine) == 3 * 2_999
    assert engine.match({"a": 7}) == []
    assert engine.match({"a": 2_999, "b": 2_998}) == [2_999]
