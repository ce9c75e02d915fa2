"""The covering index against brute force: small domains, on which a filter is a set of events."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from covering_ways import compile_from, ways
from seeds import seeds
from tamis.covering import CoveringIndex
from tamis.diagrams import Space
from tamis.events import Event, Schema
from tamis.filters import Filter, all_of, any_of, attr
from tamis.filters.boolean import Xor

NAMES = ("a", "b")
SCHEMA = Schema({"a": "int", "b": "int"})
# Constants are from 0 to 6, so no filter tells other integers from these.
STATES = (None, -1, 0, 1, 2, 3, 4, 5, 6, 7)
EVENTS = [
    Event({n: v for n, v in zip(NAMES, held, strict=True) if v is not None})
    for held in product(STATES, repeat=len(NAMES))
]
TABLE = 24
QUESTIONS_PER_TABLE = 50


def drawn_atom(rng: Random) -> Filter:
    name, constant = attr(rng.choice(NAMES)), rng.randrange(5)
    match rng.randrange(8):
        case 0:
            return name.between(constant, constant + rng.randrange(3))
        case 1:
            return name.in_(constant, rng.randrange(5))
        case 2:
            return name.is_present() if rng.random() < 0.5 else name.is_absent()
        case 3 | 4:
            return name == constant
        case 5:
            return name != constant
        case 6:
            return name < constant
        case _:
            return name >= constant


def drawn_filter(rng: Random, depth: int) -> Filter:
    if depth == 0 or rng.random() < 0.2:
        return drawn_atom(rng)
    parts = [drawn_filter(rng, depth - 1) for _ in range(2)]
    match rng.randrange(8):
        case 0 | 1 | 2 | 3:
            return all_of(*parts)
        case 4 | 5:
            return any_of(*parts)
        case 6:
            return ~parts[0]
        case _:
            return Xor.of(parts)


def truths(filter_: Filter) -> int:
    """Return the events that a filter matches, as a bit mask."""
    return sum(filter_.matches(e, schema=SCHEMA) << n for n, e in enumerate(EVENTS))


def expected_roots(masks: dict[int, int]) -> list[int]:
    def is_superseded(id_: int, mask: int) -> bool:
        return any(
            not mask & ~other and (other != mask or another < id_)
            for another, other in masks.items()
            if another != id_
        )

    return [id_ for id_, mask in masks.items() if not is_superseded(id_, mask)]


def check(rng: Random, questions: int) -> int:
    """Ask questions about tables of random filters that change; return how many."""
    pool = [drawn_filter(rng, rng.choice((0, 1, 1, 2, 3))) for _ in range(150)]
    known = [(filter_, truths(filter_)) for filter_ in pool]
    asked = 0
    while asked < questions:
        index, masks = CoveringIndex(schema=SCHEMA), dict[int, int]()
        for number in range(TABLE):
            filter_, masks[number] = rng.choice(known)
            index.add(number, filter_)
        for number in rng.sample(range(TABLE), TABLE // 4):
            index.remove(number)
            del masks[number]
        assert index.roots() == expected_roots(masks)
        asked += 1
        for filter_, mask in rng.choices(known, k=QUESTIONS_PER_TABLE):
            wide = [id_ for id_, other in masks.items() if not mask & ~other]
            narrow = [id_ for id_, other in masks.items() if not other & ~mask]
            near = [id_ for id_, other in masks.items() if other & mask]
            assert index.covering(filter_) == wide, filter_
            assert index.covered_by(filter_) == narrow, filter_
            assert index.intersecting(filter_) == near, filter_
            asked += 3
    index.assert_consistent()
    return asked


def test_brute_force_and_the_relations_agree() -> None:
    rng, space = Random(1), Space(schema=SCHEMA)
    for _ in range(60):
        one, other = drawn_filter(rng, 2), drawn_filter(rng, 2)
        assert space.surely_covers(one, other) == (not truths(other) & ~truths(one))
        assert space.surely_disjoint(one, other) == (not truths(other) & truths(one))


@pytest.mark.parametrize("compiled_from", ways(0, 10))
def test_answers_are_those_of_brute_force(
    compiled_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_from(compiled_from, monkeypatch)
    assert check(Random(0), 300) >= 300


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20, 20))
def test_a_million_answers_are_those_of_brute_force(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_from((0, 10, 256)[seed % 3], monkeypatch)
    assert check(Random(seed), 50_000) >= 50_000


@pytest.mark.parametrize("compiled_from", ways(0))
def test_what_has_gone_is_forgotten(compiled_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_from(compiled_from, monkeypatch)
    monkeypatch.setattr("tamis.covering.compiled.MIN_WASTE", 200)
    rng, index, masks = Random(2), CoveringIndex(schema=SCHEMA), dict[int, int]()
    for number in range(120):
        filter_ = drawn_filter(rng, 2)
        index.add(number, filter_)
        masks[number] = truths(filter_)
        if number >= 12:
            index.remove(number - 12)
            del masks[number - 12]
        assert index.roots() == expected_roots(masks)
    index.assert_consistent()
