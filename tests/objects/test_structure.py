"""Filters over objects as data, and back."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from tamis.errors import FilterStructureError
from tamis.objects import (
    ObjectFilter,
    message,
    object_filter_from_structure,
    object_filter_to_structure,
)

from .random_objects import Patterns, World
from .shop import Address, Line, Trade

t = message(Trade)


def travelled(filter_: ObjectFilter, *classes: type, calls: bool = False) -> ObjectFilter:
    text = json.dumps(object_filter_to_structure(filter_))
    return object_filter_from_structure(json.loads(text), *classes, calls=calls)


def test_random_filters_travel_as_json() -> None:
    for seed in range(12):
        rng = Random(seed)
        world = World(rng)
        for _ in range(20):
            pattern = Patterns(rng, world).pattern()
            assert travelled(pattern, *world.classes(), calls=True) == pattern


def test_a_structure_is_names_and_constants() -> None:
    filter_ = (t.symbol == "A") & ~(t.discounted(5.5) > 3) | t.lines.any(lambda e: e.price > 1)
    assert object_filter_to_structure(filter_) == [
        1,
        ["=", "objects.shop.Trade", ["symbol"], "A"],
        [">", "objects.shop.Trade", [["discounted", [{"float": 5.5}]]], 3],
        ["not"],
        ["and", 2],
        ["for any", "objects.shop.Trade", ["lines"]],
        [">", "", ["price"], 1],
        ["any"],
        ["or", 2],
    ]
    assert travelled(filter_, Trade) == filter_


TRADE = "objects.shop.Trade"
WRONG: list[tuple[Any, str]] = [
    (5, "the structure of a filter is a list"),
    ([], "the structure of a filter is a list"),
    ([2, ["present", "", ["a"]]], "version 2, but this Tamis knows only version 1"),
    ([1], "the nodes do not end with one filter"),
    ([1, 5], "node 1 of the filter, 5: a node is a list that begins with a word"),
    ([1, ["not"]], "it needs 1 filters before it"),
    ([1, ["present", "", ["a"]], ["and", 2]], "node 2 of the filter"),
    ([1, ["present", "", ["a"]], ["present", "", ["b"]]], "do not end with one filter"),
    ([1, ["present", "os.System", ["a"]]], "the class 'os.System' is not known here"),
    ([1, ["present", TRADE, ["symbl"]]], 'did you mean "symbol"?'),
    ([1, ["present", TRADE, ["_secret"]]], "is private to its class"),
    ([1, ["present", "", ["__class__"]]], "is private to its class"),
    ([1, ["present", "", [["delete", []]]]], "no class says that 'delete' is a method"),
    ([1, ["present", TRADE, [["anything", []]]]], "no class says that 'anything' is a method"),
    ([1, ["=", TRADE, ["symbol"], 5]], "symbol is str, which is never equal to 5"),
    ([1, ["=", TRADE, ["symbol"], {"decimal": "x"}]], "'x' is no decimal"),
    ([1, ["=", TRADE, ["symbol"], {"lambda": "x"}]], "is no type of constants"),
    ([1, ["=", TRADE, ["on"], {"date": "soon"}]], "'soon' is not a date"),
    ([1, ["=", TRADE, ["symbol"], [1]]], "[1] is no constant"),
    ([1, ["equals", TRADE, ["symbol"], 1]], "is no test like that"),
    ([1, ["is a", TRADE, ["address"], "os.Path"]], "the class 'os.Path' is not known here"),
    ([1, ["present", "", ["a"] * 33]], "at most 32 steps"),
    ([1, ["present", "", [True]]], "not a boolean"),
    ([1, ["present", "", [None]]], "None is no step"),
    ([1, ["any"]], "there is no collection before it"),
    ([1, ["for any", TRADE, ["lines"]], ["not"]], "it needs 1 filters before it"),
    ([1, ["for any", TRADE, ["lines"]], ["present", "", ["prize"]]], "Line has no member 'prize'"),
    ([1, ["for any", TRADE, ["lines"]]], "do not end with one filter"),
    ([1, ["=", "", ["a"], "x" * 100_000]], "more characters than a filter may have"),
    ([1, ["and", True]], "is not a node with 1 operands"),
]


@pytest.mark.parametrize(("structure", "sentence"), WRONG, ids=[s[:40] for _, s in WRONG])
def test_what_is_no_filter_is_refused_by_a_sentence(structure: Any, sentence: str) -> None:
    with pytest.raises(FilterStructureError) as caught:
        object_filter_from_structure(structure, Trade, Address, Line)
    assert sentence in str(caught.value)
