"""Memory for results: used again when it is free, never while someone looks at it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tamis.matching.evaluate.segment_matches import (
    CACHE_LINE_BYTES,
    MAX_KEPT_BLOCKS,
    Memory,
    zero_rows,
)

ROWS, WORDS = 4_096, 64


def address(array: np.ndarray[tuple[int, int], np.dtype[np.uint64]]) -> int:
    return int(array.ctypes.data)


def test_memory_that_nobody_holds_is_used_again() -> None:
    memory = Memory()
    first = memory.array(ROWS, WORDS)
    place = address(first)
    del first
    assert address(memory.array(ROWS // 2, WORDS)) == place
    assert address(memory.array(ROWS, WORDS)) == place


def test_memory_that_someone_holds_is_left_alone_even_through_a_view() -> None:
    memory = Memory()
    held = memory.array(ROWS, WORDS)[:3, 5]
    held[:] = 7
    others = [memory.array(ROWS, WORDS) for _ in range(3)]
    for other in others:
        other[:] = 0
    assert held.tolist() == [7, 7, 7]
    assert len({address(other) for other in others}) == 3


def test_no_more_memory_is_kept_than_allowed() -> None:
    memory = Memory()
    arrays = [memory.array(ROWS, WORDS) for _ in range(MAX_KEPT_BLOCKS + 3)]
    arrays.clear()
    assert len(memory._free) == MAX_KEPT_BLOCKS
    memory.array(2 * ROWS, WORDS)
    assert max(map(len, memory._free)) >= 2 * ROWS * WORDS


def test_results_of_several_threads_do_not_share_memory() -> None:
    memory = Memory()

    def use(number: int) -> bool:
        array = memory.array(ROWS, WORDS)
        array[:] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(200)))


def test_rows_begin_at_cache_lines() -> None:
    memory = Memory()
    kept = [zero_rows(rows, 8) for rows in range(1, 40)] + [memory.array(ROWS, WORDS)]
    assert {address(rows) % CACHE_LINE_BYTES for rows in kept} == {0}
    assert not any(rows.any() for rows in kept[:-1])
