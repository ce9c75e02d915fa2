"""Many columns of numbers are ranked together as each of them is ranked alone."""

from __future__ import annotations

import math
from random import Random
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from tamis import Engine, Subscription
from tamis.events.arrow import batch_of_arrow
from tamis.events.batch import EventBatch
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


def random_batch(rng: Random) -> EventBatch:
    arrays = {}
    for number in range(50):
        share = rng.choice((0.05, 0.5, 1.0))
        pool = rng.choice(
            ((0, 1, 3, 7), (-1.0, 2.5, math.inf), (2**53 + 1, 5), (math.nan, 1.0), ("a", "b"))
        )
        arrays[f"f{number}"] = [
            rng.choice(pool) if rng.random() < share else None for _ in range(70)
        ]
    return batch_of_arrow(pa.table(arrays))


def evaluator_of(engine: Engine) -> Evaluator:
    (segment,) = engine._collection.state.segments
    return segment.evaluator


@pytest.mark.parametrize("seed", range(6))
def test_columns_ranked_together_have_the_cells_of_each(seed: int) -> None:
    rng = Random(seed)
    finder, batch = evaluator_of(random_engine(rng))._finder, random_batch(rng)
    with patch.object(cells, "MIN_COLUMNS_RANKED_TOGETHER", 1_000):
        alone = finder.find(batch).by_attribute
    together = finder.find(batch).by_attribute
    assert len(alone.cells) > 100
    assert np.array_equal(alone.starts, together.starts)
    assert np.array_equal(alone.events, together.events)
    assert np.array_equal(alone.cells, together.cells)
