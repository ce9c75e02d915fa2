"""Many columns of numbers are ranked together as each of them is ranked alone."""

from __future__ import annotations

import math
import sys
from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tamis import Engine, Subscription
from tamis.events import arrow
from tamis.events.arrow import batch_of_arrow
from tamis.matching.evaluate import cells
from tamis.matching.evaluate.evaluator import Evaluator

CONSTANTS = (0, 1, -1, 2.5, 7, 1e300, 2**53 - 1)
OPERATORS = ("=", "!=", "<", "<=", ">", ">=")


def random_engine(rng: Random) -> Engine:
    engine = Engine()
    texts = []
    for number in range(80):
        # Some attributes have breakpoints that are not exact as floats, some have other kinds.
        constant = rng.choice((*CONSTANTS, 2**53 + 1 if number % 9 == 0 else 3))
        texts.append(f"f{rng.randrange(40)} {rng.choice(OPERATORS)} {constant}")
        texts.append(f'f{rng.randrange(40)} = "a" or f{rng.randrange(40)} between 2 and 7')
    engine.add_many(Subscription(number, text) for number, text in enumerate(texts))
    engine.compact()
    return engine


def random_table(rng: Random) -> pa.Table:
    arrays = {}
    for number in range(50):
        share = rng.choice((0.05, 0.5, 1.0))
        pool = rng.choice(
            ((0, 1, 3, 7), (-1.0, 2.5, math.inf), (2**53 + 1, 5), (math.nan, 1.0), ("a", "b"))
        )
        arrays[f"f{number}"] = [
            rng.choice(pool) if rng.random() < share else None for _ in range(70)
        ]
    return pa.table(arrays)


def evaluator_of(engine: Engine) -> Evaluator:
    (segment,) = engine._collection.state.segments
    return segment.evaluator


@pytest.mark.parametrize("seed", range(6))
def test_columns_ranked_together_have_the_cells_of_each(seed: int) -> None:
    rng = Random(seed)
    finder = evaluator_of(random_engine(rng))._finder
    tables = random_table(rng), random_table(rng)
    batches = [batch_of_arrow(table) for table in tables]
    # In turns, since what is known of a table is kept for the next one.
    for table, batch in 2 * list(zip(tables, batches, strict=True)):
        with (
            patch.object(arrow, "MIN_PACKED_COLUMNS", 1_000),
            patch.object(cells, "MIN_COLUMNS_RANKED_TOGETHER", 1_000),
        ):
            alone = finder.find(batch_of_arrow(table)).by_attribute
        together = finder.find(batch).by_attribute
        assert len(alone.cells) > 100
        assert np.array_equal(alone.starts, together.starts)
        assert np.array_equal(alone.events, together.events)
        assert np.array_equal(alone.cells, together.cells)


def calls_to_match(columns: int) -> int:
    """Return how many functions are called to match sparse tables of many columns, in turns."""
    engine = Engine()
    engine.add_many(
        Subscription(n, f"f{n % columns} = {n} and f{(n + 1) % columns} = 1") for n in range(2_000)
    )
    engine.compact()
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2_000, (columns, 64))
    arrays = [pa.array(row, mask=rng.random(64) < 0.9) for row in values]
    names = [f"f{n}" for n in range(columns)]
    tables = [
        pa.RecordBatch.from_arrays(arrays, names),
        pa.RecordBatch.from_arrays(arrays[::-1], names[::-1]),
    ]
    for table in tables:
        engine.match_batch(table).counts()
    calls = 0

    def count(_: object, what: str, __: object) -> None:
        nonlocal calls
        calls += what in ("call", "c_call")

    sys.setprofile(count)
    try:
        for table in tables:
            engine.match_batch(table).counts()
    finally:
        sys.setprofile(None)
    return calls


def test_a_column_of_a_wide_table_costs_no_call_of_a_function() -> None:
    assert calls_to_match(900) < calls_to_match(100) + 50
