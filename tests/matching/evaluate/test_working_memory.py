"""The memory that a batch needs is bounded, however many predicates and events there are."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from seeds import seeds
from strategies import random_event, random_filter, random_world
from tamis.events.batch import EventBatch
from tamis.matching import Engine, Matches, Subscription
from tamis.matching.evaluate import evaluator, text_index
from tamis.matching.evaluate.predicates import PredicateIndex

BOUND = 256 * 1024 * 1024
# As a byte for each predicate and event, 312 MiB.
PREDICATES = 20_000
EVENTS = 16_384


def test_predicates_times_events_are_never_in_memory_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The sides a fifth of what they are in the slow suite, and so the bound a twenty-fifth.
    predicates, events, bound = PREDICATES // 5, EVENTS // 5, BOUND // 25
    monkeypatch.setattr(evaluator, "MAX_PREDICATE_BYTES", evaluator.MAX_PREDICATE_BYTES // 25)
    engine = Engine()
    engine.add_many(Subscription(n, f'text contains "w{n:05d}"') for n in range(predicates))
    batch = EventBatch.of_events([{"text": f"w{n:05d} w{n + 7:05d}"} for n in range(events)])
    find, sizes = PredicateIndex.find, list[int]()

    def measured(index: PredicateIndex, *given: Any) -> NDArray[np.bool_]:
        rows = find(index, *given)
        sizes.append(rows.nbytes)
        return rows

    monkeypatch.setattr(PredicateIndex, "find", measured)
    matches = engine.match_batch(batch)
    assert max(sizes) <= bound
    assert sum(sizes) >= predicates * events
    _, numbers = matches.numbers()
    assert numbers.tolist() == [m for n in range(events) for m in (n, n + 7)]


PROGRAM = f"""
from tamis import Engine, Subscription
from tamis.events.batch import EventBatch

def peak():
    # Not getrusage: its maximum is at least what the parent held when it started this process.
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

engine = Engine()
engine.add_many(
    Subscription(n, f's = {{n}} and text contains "w{{n:05d}}"') for n in range({PREDICATES})
)
batch = EventBatch.of_events([{{"s": n, "text": f"w{{n:05d}}"}} for n in range({EVENTS})])
engine.match_batch([{{"s": 1, "text": "w00001"}}, {{}}]).counts()
before = peak()
assert engine.match_batch(batch).counts().sum() == {EVENTS}
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_batch_takes_no_more_memory_than_the_bound() -> None:
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) <= BOUND


@pytest.mark.parametrize("seed", seeds(8))
def test_parts_of_a_batch_give_what_the_whole_gives(seed: int) -> None:
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0)
    filters = [random_filter(rng, world, 3) for _ in range(80)]
    filters += [random_filter(rng, world, 1) for _ in range(80)]
    events = [random_event(rng, world) for _ in range(700)]
    # One that the schema refuses, if there is one.
    refused = [dict.fromkeys(world.schema or (), object())]
    events[300:300] = refused  # type: ignore[assignment]

    def matches(working_bytes: int) -> tuple[object, ...]:
        engine = Engine(world.schema, threads=1 + seed % 2)
        engine.add_many(map(Subscription, range(len(filters)), filters))
        with patch.object(evaluator, "MAX_PREDICATE_BYTES", working_bytes):
            found = engine.match_batch(events)
        return list(found), found.bitmap().tolist(), list(found.errors), found.counts().tolist()

    whole = matches(BOUND)
    for working_bytes in (1, 40_000, 200_000):
        assert matches(working_bytes) == whole


@pytest.mark.parametrize("seed", seeds(8))
def test_many_events_are_matched_some_at_a_time_with_the_same_result(seed: int) -> None:
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0)
    filters = [random_filter(rng, world, 1 + n % 3) for n in range(600)]
    events = [random_event(rng, world) for _ in range(700)]

    def matches(most: int) -> tuple[object, ...]:
        with patch.multiple(evaluator, MIN_BATCH_EVENTS=64, MAX_BATCH_EVENTS=most):
            engine = Engine(world.schema, clock=lambda: 10.0)
            for number, filter_ in enumerate(filters):
                engine.add(number, filter_, expires_at=5.0 if number % 50 == 7 else None)
                if number == 400:
                    engine.compact()
            for number in range(0, 600, 31):
                engine.remove(number)
            found = engine.match_batch(EventBatch.of_events(events, world.schema))
        assert len(found._segments) > 1
        assert len(found._batches) == -(-700 // most)
        numbered = [array.tolist() for array in (*found.pairs(), *found.numbers())]
        bits, lists = found.bitmap().tolist(), found.to_arrow().to_pylist()
        return list(found), found.counts().tolist(), numbered, bits, lists, found.ids.tolist()

    whole = matches(1024)
    for most in (64, 320):
        assert matches(most) == whole


def test_bits_of_many_events_become_lists_with_the_same_members() -> None:
    rng = Random(1)
    events = [{"a": rng.randrange(900), "b": rng.randrange(900)} for _ in range(1_000)]

    def matches(most: int) -> Matches:
        with patch.multiple(evaluator, MIN_BATCH_EVENTS=64, MAX_BATCH_EVENTS=most):
            engine = Engine()
            for n in range(900):
                engine.add(n, f"a > {n} and b < {n} and a < {n + 9} or b > {n} and b < {n + 3}")
                if n == 700:
                    engine.compact()
            return engine.match_batch(EventBatch.of_events(events))

    whole, parts = matches(4_096), matches(64)
    assert any(len(found.unindexed) for found in whole._batches[0].segments)
    assert not any(len(f.unindexed) for batch in parts._batches for f in batch.segments)
    assert list(parts) == list(whole)
    assert parts.bitmap().tolist() == whole.bitmap().tolist()


MANY = """
from tamis import Engine, Subscription
from tamis.events.batch import EventBatch

def resident(what):
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith(what)]
    return int(line.split()[1]) * 1024

engine = Engine()
engine.add_many(
    Subscription(n, f"a > {n} and b < {n} or a = {n} and b > {n}") for n in range(20_000)
)
def taken(count):
    batch = EventBatch.of_events([{"a": n % 20_000, "b": n % 20_000 + 5} for n in range(count)])
    with open("/proc/self/clear_refs", "w") as peak:
        peak.write("5")
    before = resident("VmRSS")
    matches = engine.match_batch(batch)
    assert matches.counts().sum() == count
    return resident("VmHWM") - before
taken(4_096)
few = taken(4_096)
print(taken(100_000) - few)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hundred_thousand_events_take_little_more_memory_than_a_few_thousand() -> None:
    # Their bits would take 250 MB.
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", MANY], capture_output=True, text=True, check=True, timeout=300
    )
    assert int(done.stdout) <= 100 * 1024 * 1024


def peak_of(engine: Engine, table: pa.Table) -> int:
    """Return the memory that matching a table takes, of what Python and NumPy allocate."""
    tracemalloc.start()
    try:
        engine.match_batch(table).counts()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_table_is_read_some_thousand_rows_at_a_time() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f'text = "t{n}" and a < {n}') for n in range(3_000))
    engine.compact()
    table = pa.table({"text": [f"t{n}" for n in range(100_000)], "a": np.arange(100_000) - 1})
    engine.match_batch(table.slice(0, 10))
    few, many = peak_of(engine, table.slice(0, 16_384)), peak_of(engine, table)
    # Each event has one more number in the result.
    assert many - few < 8 * 8 * len(table)
    assert few > 8 * 8 * len(table) / 4
    assert engine.match_batch(table).numbers()[1].tolist() == list(range(3_000))


def test_pairs_take_memory_for_the_matches_not_for_the_engine() -> None:
    engine = Engine()
    engine.add_many(Subscription(f"s{n}", f"a = {n}") for n in range(30_000))
    engine.compact()
    engine.add_many(Subscription(f"t{n}", f"a = {n}") for n in range(2_000))
    matches = engine.match_batch([{"a": n} for n in range(5)])
    assert len(matches._segments) == 2
    # The kernels allocate for the events alone.
    matches.counts()
    tracemalloc.start()
    try:
        numbers, ids = matches.pairs()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    expected = [(n, f"{letter}{n}") for n in range(5) for letter in "st"]
    assert list(zip(numbers.tolist(), ids, strict=True)) == expected
    assert peak < 100_000


def test_a_text_that_passes_everything_is_passed_on_in_time() -> None:
    engine = Engine()
    engine.add_many(Subscription(n, f'text contains "{chr(0x4E00 + n)}"') for n in range(500))
    texts = ["".join(chr(0x4E00 + n) for n in range(500)) + str(m) for m in range(40)]
    with patch.object(text_index, "MAX_PASSED_PER_PASS", 700):
        matches = engine.match_batch([{"text": text} for text in texts])
    assert matches.counts().tolist() == [500] * 40
