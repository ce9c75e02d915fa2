"""Distinct rows of keys are found as NumPy finds them, whether they fit into one number or not."""

from __future__ import annotations

import numpy as np
import pytest

from tamis.matching.compile.access import distinct_rows


@pytest.mark.parametrize("most", [1, 7, 2_000_000, 1 << 40])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_distinct_rows_are_those_of_numpy(most: int, count: int) -> None:
    rng = np.random.default_rng(5)
    rows = rng.choice(rng.integers(-1, most, 12), (count, 3))
    different, number = distinct_rows(rows)
    expected, places = np.unique(rows, axis=0, return_inverse=True)
    assert np.array_equal(different, expected)
    assert np.array_equal(number, places.reshape(-1))
