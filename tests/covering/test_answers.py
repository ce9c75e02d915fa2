"""The covering index and pairwise answers of `Space`, on a pool of filters that is asked often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from covering_ways import compile_from
from seeds import seeds
from strategies import World, random_filter, random_world
from tamis.covering import CoveringIndex
from tamis.diagrams import Space
from tamis.diagrams.relations import RelationOptions
from tamis.events import Kind
from tamis.filters import Filter, Mode, attr
from tamis.filters.any_text import any_text
from tamis.filters.atoms import TextTest
from tamis.filters.printing import ANY

POOL = 36
TABLE = 20
WITNESSED_EVERY = 41


def ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `Space` find each answer of a world once: what the index asks it is in question here."""
    for name in ("surely_covers", "surely_disjoint", "is_never"):
        monkeypatch.setattr(Space, name, _remembering(getattr(Space, name)))


def _remembering(ask: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[tuple[Filter, ...], Any] = {}

    def answer(space: Space, *filters: Filter) -> Any:
        if filters not in known:
            known[filters] = ask(space, *filters)
        return known[filters]

    return answer


def hard_filters(rng: Random, world: World) -> Iterator[Filter]:
    """Yield filters that no event is found for, and case distinctions that no cube proves."""
    drawn = random_filter(rng, world, 1)
    one, other = attr(rng.choice(world.names)), attr(rng.choice(world.names))
    square = one * one < 0
    mentioning = any_text(TextTest(ANY, Kind.TEXT, "contains", "a"))
    yield square
    yield square & drawn
    yield square & mentioning
    yield square & mentioning & drawn
    # Two cases that leave nothing out, and one more that compares what the narrow one does not.
    split = other < 5
    cases = (drawn & split) | (drawn & (other >= 5))
    yield drawn & other.is_a(Kind.NUMBER)
    yield cases
    yield cases | (drawn & (one + other < 3))


def pool_of(rng: Random, world: World) -> list[Filter]:
    pool: list[Filter] = []
    if world.schema is None:
        pool += hard_filters(rng, world)
    while len(pool) < POOL:
        drawn = random_filter(rng, world, rng.choice((0, 1, 1, 2)))
        if pool and rng.random() < 0.4:
            near = rng.choice(pool)
            drawn = near & drawn if rng.random() < 0.5 else near | drawn
        pool.append(drawn)
    return pool


class Pairs:
    """What `Space` answers about the pairs of a pool, each asked once."""

    def __init__(self, pool: list[Filter], options: RelationOptions) -> None:
        space = Space(**options)
        schema = options.get("schema")
        bound = pool if schema is None else [one.bind(schema) for one in pool]
        never = {one for one in bound if space.is_never(one)}
        # `Space` may be unsure about a pair of which it knows that one never matches.
        self.covers = [
            [narrow in never or space.surely_covers(wide, narrow) for narrow in bound]
            for wide in bound
        ]
        self.meet = [
            [not ({one, other} & never or space.surely_disjoint(one, other)) for other in bound]
            for one in bound
        ]
        # To look for witnesses takes ten times as long, so that is done for some.
        for place in range(0, len(bound) ** 2, WITNESSED_EVERY):
            one, other = divmod(place, len(bound))
            pair = bound[one], bound[other]
            assert bool(space.covers(*pair)) is self.covers[one][other] or pair[1] in never, pair
            assert bool(space.intersects(*pair)) is self.meet[one][other] or {*pair} & never, pair

    def roots(self, table: dict[int, int]) -> list[int]:
        """Return the roots of a table of ids and filters."""
        ids = list(table)

        def is_superseded(place: int) -> bool:
            narrow = table[ids[place]]
            return any(
                self.covers[table[id_]][narrow]
                and (other < place or not self.covers[narrow][table[id_]])
                for other, id_ in enumerate(ids)
                if other != place
            )

        return [id_ for place, id_ in enumerate(ids) if not is_superseded(place)]


def check(rng: Random, tables: int) -> int:
    """Compare answers about random tables; return how many."""
    world = random_world(rng, typed=rng.random() < 0.4)
    options: RelationOptions = {"schema": world.schema, "many": rng.random() < 0.2}
    modes = list(Mode) if world.schema else [mode for mode in Mode if mode is not Mode.TOTAL]
    options["mode"] = rng.choice(modes) if rng.random() < 0.5 else Mode.SQL
    pool = pool_of(rng, world)
    pairs, asked = Pairs(pool, options), 0
    for _ in range(tables):
        index, table = CoveringIndex(**options), dict[int, int]()
        for id_ in range(TABLE):
            table[id_] = rng.randrange(len(pool))
            index.add(id_, pool[table[id_]])
        for id_ in rng.sample(range(TABLE), TABLE // 5):
            index.remove(id_)
            del table[id_]
        assert index.roots() == pairs.roots(table)
        asked += len(table)
        for number, filter_ in enumerate(pool):
            wide = [id_ for id_, one in table.items() if pairs.covers[one][number]]
            narrow = [id_ for id_, one in table.items() if pairs.covers[number][one]]
            near = [id_ for id_, one in table.items() if pairs.meet[one][number]]
            assert index.covering(filter_) == wide, filter_
            assert index.covered_by(filter_) == narrow, filter_
            assert index.intersecting(filter_) == near, filter_
            asked += 3 * len(table)
        index.assert_consistent()
    return asked


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(60, 60))
def test_a_million_answers_are_those_of_space(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_from((0, 5, 1_000)[seed % 3], monkeypatch)
    ask_once(monkeypatch)
    assert check(Random(seed), 10) >= 17_000
