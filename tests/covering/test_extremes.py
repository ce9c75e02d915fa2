"""The ends of the numbers, and filters that cannot be added."""

from __future__ import annotations

import sys
from unittest.mock import patch

import pytest

from tamis.covering import CoveringIndex, ExhaustiveCoveringIndex, access
from tamis.covering import index as index_module
from tamis.errors import FilterError
from tamis.events import Schema
from tamis.languages import parse

LARGEST = sys.float_info.max
CONSTANTS = (LARGEST, -LARGEST, 2**63 - 1, -(2**63), 2**53 + 1, 5)
TEXTS = [
    *(f"a {op} {value!r}" for op in ("<", "<=", ">", ">=", "=", "!=") for value in CONSTANTS),
    *(f"not a {op} {LARGEST!r}" for op in ("<", "<=")),
    f"a between {-LARGEST!r} and {LARGEST!r}",
    "a is present",
]


@pytest.mark.parametrize("compiled_from", [0, 256])
@pytest.mark.parametrize("schema", [None, Schema({"a": float}), Schema({"a": int})])
def test_answers_at_the_ends_of_the_numbers(compiled_from: int, schema: Schema | None) -> None:
    fast, plain = CoveringIndex(schema=schema), ExhaustiveCoveringIndex(schema=schema)
    with patch.object(index_module, "COMPILED_FROM", compiled_from):
        for text in TEXTS:
            assert fast.add(text, parse(text)) == plain.add(text, parse(text))
        fast.assert_consistent()
        for text in TEXTS:
            asked = parse(text)
            assert fast.covering(asked) == plain.covering(asked), text
            assert fast.covered_by(asked) == plain.covered_by(asked), text
            assert fast.intersecting(asked) == plain.intersecting(asked), text
        for text in TEXTS:
            assert fast.remove(text) == plain.remove(text)


def test_a_filter_that_cannot_be_added_changes_nothing() -> None:
    index = CoveringIndex()
    texts = [f"p = {n} and q > {n}" for n in range(40)]
    index.add_many((text, parse(text)) for text in texts)
    bad = parse("(p = 1 and q > 2) or (q = 7 and p < 3)")
    is_point, calls = access.is_point, []

    def fail_later(*args: object) -> bool:
        calls.append(args)
        if len(calls) > 2:
            raise OverflowError("a planted fault")
        return is_point(*args)

    with patch.object(access, "is_point", fail_later), pytest.raises(OverflowError):
        index.add("bad", bad)
    assert len(calls) > 2
    index.assert_consistent()
    assert "bad" not in index
    assert index.ids() == texts
    index.add("bad", bad)
    index.remove("bad")
    for text in texts:
        index.remove(text)
    assert len(index) == 0


def test_a_boolean_is_no_id() -> None:
    index = CoveringIndex()
    index.add(1, parse("a = 1"))
    assert True not in index
    with pytest.raises(FilterError, match="True"):
        index.remove(True)
