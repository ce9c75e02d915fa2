"""Constraints as values of a message: `Apply`, which becomes `Intersect`, for every operator."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from strategies import random_event, random_filter, random_world
from tamis import Bits, Constraint, applies, constraint_filter, parse
from tamis.errors import FilterTypeError
from tamis.languages.constraints import constraints_of, is_query, named_constraints
from tamis.languages.siena import BIT_TESTS, OPERATORS, intersects
from tamis.languages.siena import apply as siena_apply

VALUES: dict[str, tuple[Any, ...]] = {
    "numbers": (1, 2.5, 3),
    "texts": ("a", "ab", "b"),
    "booleans": (True, False),
    "bits": (Bits.from_mask(0b01), Bits.from_mask(0b11)),
}


def constraints(value: Any) -> list[Constraint]:
    """Return every operator that takes a value."""
    found = []
    for op in OPERATORS:
        try:
            found.append(Constraint(op) if op == "any" else Constraint(op, value))
        except FilterTypeError:
            continue
    return found


@pytest.mark.parametrize("kind", VALUES)
def test_a_constraint_in_a_message_switches_apply_to_intersect(kind: str) -> None:
    every = [one for value in VALUES[kind] for one in constraints(value)]
    assert len({one.op for one in every}) >= 3
    for ours, theirs in product(every, repeat=2):
        found = applies(ours.on("x"), {"x": theirs})
        assert found is bool(intersects(ours.op, ours.value, theirs.op, theirs.value))
    for ours, value in product(every, VALUES[kind]):
        if kind == "numbers" and ours.op in BIT_TESTS:
            # A number in a message is no bit set, though one in a triple may stand for it.
            assert not applies(ours.on("x"), {"x": value})
            continue
        assert applies(ours.on("x"), {"x": value}) is siena_apply(ours.op, ours.value, value)


def test_values_that_a_query_does_not_mention_do_not_matter() -> None:
    advertised = parse("author contains 'Stein' and edition = 1 and copies > 1")
    assert applies(advertised, {"author": Constraint("=", "John Steinbeck")})
    assert applies(advertised, {"publisher": Constraint("any")})
    assert not applies(advertised, {"publisher": "Viking"})


def test_a_plain_value_beside_a_constraint_is_equal_to_itself() -> None:
    message = {"book": {"edition": 1, "author": Constraint(">*", "J")}, "tags": ["a", "b"]}
    assert is_query(message)
    wanted = parse("book.edition = 1 and book.author starts with 'J' and tags = 'a' and tags = 'b'")
    assert constraint_filter(message) == wanted


def test_site_select_sends_a_query_to_sites_with_at_least_its_bits() -> None:
    for held, wanted in product(range(16), repeat=2):
        site = constraint_filter({"properties": Bits.from_mask(held)})
        query = {"properties": Constraint("all-bits", wanted)}
        assert applies(site, query) is (wanted & held == wanted)


def test_triples_become_a_message_and_back() -> None:
    triples: list[Any] = [
        ("author", "*", "Stein"),
        ("edition", ">", 1),
        ("edition", "<=", 3),
        ("x", "any"),
    ]
    message = named_constraints(triples)
    assert constraints_of(constraint_filter(message)) == message
    assert constraints_of(parse("true")) == {}
    for text in (
        "a = 1 or b = 2",
        "not a = 1",
        "a like '%x'",
        "a + 1 = 2",
        "a = 1 and b in (1, 2)",
    ):
        assert constraints_of(parse(text)) is None


def test_the_message_of_a_filter_means_the_same() -> None:
    rng, found = Random(5), 0
    for _ in range(2_000):
        world = random_world(rng, typed=False)
        filter_ = random_filter(rng, world)
        message = constraints_of(filter_)
        if message is not None:
            found += 1
            event = random_event(rng, world)
            assert constraint_filter(message).truth(event) == filter_.truth(event)
    assert found > 50


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Constraint("~", 1), "is not an operator of Siena"),
        (lambda: Constraint("<"), '"<" takes a value'),
        (lambda: Constraint("any", 5), '"any" takes no value'),
        (lambda: Constraint(5, 5), "an operator is a text such as '<', not 5"),  # type: ignore[arg-type]
        (lambda: constraint_filter([1]), "a query is a mapping of names to constraints, not"),  # type: ignore[arg-type]
        (lambda: named_constraints([("a",)]), "a triple has an attribute, an operator and"),  # type: ignore[list-item]
    ],
)
def test_mistakes_are_sentences(make: Any, sentence: str) -> None:
    with pytest.raises(FilterTypeError) as error:
        make()
    assert sentence in str(error.value)
