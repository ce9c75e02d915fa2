"""The relations against brute force over small domains, and on what they promise."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, product
from random import Random

import pytest

from seeds import seeds
from strategies import VALUES, World, fits, random_filter, random_world
from tamis.diagrams import (
    Answer,
    Relationship,
    Space,
    compare,
    covers,
    intersects,
    is_never,
)
from tamis.events import Event, Kind, Type, Value
from tamis.filters import Filter, Mode, all_of, any_of
from tamis.languages import parse


def domain_of(world: World, name: str, mode: Mode, filters: tuple[Filter, ...]) -> list[object]:
    """Return everything of interest that an attribute may hold, as tuples of values."""
    declared = world.schema[name] if world.schema else None
    kinds = {declared.kind} if declared else asked_kinds(filters, name) | {Kind.BOOLEAN}
    values: list[Value] = [v for kind in sorted(kinds, key=str) for v in VALUES[kind]]
    if declared is not None:
        values = [v for v in values if fits(v, declared.type)]
    if declared is None or declared.type is Type.FLOAT:
        values.append(math.nan)
    held: list[object] = [(v,) for v in values]
    if declared is not None and declared.many:
        held += list(combinations(Random(1).sample(values, min(6, len(values))), 2))
    return held if mode is Mode.TOTAL else [(), *held]


def asked_kinds(filters: tuple[Filter, ...], name: str) -> set[Kind]:
    return {
        atom.kind
        for filter_ in filters
        for atom in filter_.atoms()
        if getattr(atom, "attribute", "") == name and hasattr(atom, "kind")
    }


def events_of(world: World, mode: Mode, filters: tuple[Filter, ...]) -> list[Event]:
    domains = [domain_of(world, name, mode, filters) for name in world.names]
    return [
        Event({}).with_values({n: v for n, v in zip(world.names, held, strict=True) if v})  # type: ignore[misc]
        for held in product(*domains)
    ]


class Tally(Counter[str]):
    """Counts answers, and checks each against all events of a small domain."""

    def check(self, world: World, mode: Mode, one: Filter, other: Filter) -> None:
        space = Space(mode, world.schema)
        events = events_of(world, mode, (one, other))
        first = [one.matches(event, mode, world.schema) for event in events]
        second = [other.matches(event, mode, world.schema) for event in events]
        pairs = set(zip(first, second, strict=True))
        shown = f"{mode} {world.schema}\n  {one}\n  {other}"
        self.judge(space.covers(one, other), (False, True) not in pairs, False, world, shown)
        self.judge(space.intersects(one, other), (True, True) in pairs, True, world, shown)
        same = (False, True) not in pairs and (True, False) not in pairs
        self.judge(space.equivalent(one, other), same, False, world, shown)
        self.judge(space.is_always(one), False not in first, False, world, shown)
        self.judge(space.is_never(one), True not in first, False, world, shown)
        for answer, wanted in (
            (space.covers(one, other), (False, True)),
            (space.intersects(one, other), (True, True)),
        ):
            event = answer.witness()
            if event is not None:
                found = (
                    one.matches(event, mode, world.schema),
                    other.matches(event, mode, world.schema),
                )
                assert found == wanted, f"{event} is no witness: {shown}"

    def judge(self, answer: Answer, brute: bool, safe: bool, world: World, shown: str) -> None:
        """Compare one answer with what the small domain shows, which may lack an event or two."""
        self["answers"] += 1
        if not answer.exact:
            self["not exact"] += 1
            assert not world.exact, f"an exact answer was promised: {answer} {shown}"
            assert answer.yes is safe, f"unsafe: {answer} {shown}"
        elif answer.event is None:
            # Proved without an event, so no event of any domain may show the opposite.
            assert answer.yes is brute, f"wrong: {answer} {shown}"


def compare_pairs(seed: int, count: int, *, exact: bool) -> Tally:
    rng = Random(seed)
    tally = Tally()
    for _ in range(count):
        typed = rng.random() < 0.7
        world = random_world(rng, typed=typed, exact=exact, most=2 if typed else 1)
        mode = rng.choice(list(Mode) if typed else [Mode.SQL, Mode.STRICT, Mode.DEFAULT])
        depth = rng.choice((0, 1, 1, 2))
        one = random_filter(rng, world, depth)
        # Half of the pairs are relatives, so that covering is not rare.
        other = random_filter(rng, world, 1)
        other = rng.choice((other, one & other, one | other, ~one))
        tally.check(world, mode, one, other)
        tally["pairs"] += 1
    return tally


@pytest.mark.parametrize("seed", seeds(4))
def test_exact_filters_get_exact_and_right_answers(seed: int) -> None:
    tally = compare_pairs(seed, 250, exact=True)
    assert tally["not exact"] == 0


@pytest.mark.parametrize("seed", seeds(4))
def test_no_answer_about_any_filter_is_unsafe(seed: int) -> None:
    compare_pairs(100 + seed, 250, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("exact", [True, False])
def test_twenty_thousand_pairs_against_brute_force(exact: bool) -> None:
    tally = compare_pairs(7, 20_000, exact=exact)
    share = tally["not exact"] / tally["answers"]
    print(
        f"\nrelations, exact fragment {exact}: {tally['pairs']:,} pairs, "
        f"{tally['answers']:,} answers, 0 wrong, {share:.2%} safe, not exact"
    )


# --- comparisons between attributes --------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.SQL, Mode.STRICT, Mode.DEFAULT])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > b", "b < a"),
        ("a >= b", "b <= a"),
        ("a = b", "b = a"),
        ("a != b", "b != a"),
        ("a + b > c * 2", "2 * c < b + a"),
        ("a > b or c = 1", "c = 1 or b < a"),
        ("a <= b", "a < b or a = b"),
    ],
)
def test_a_comparison_and_its_mirror_image_are_equal(
    one: str, other: str, mode: Mode, many: bool
) -> None:
    # In mode strict, booleans are comparable for = and not for <=.
    if mode is not Mode.STRICT or "a <= b" not in (one, other):
        found = compare(parse(one), parse(other), mode=mode, many=many)
        expected = Relationship.COVERED if one == "a <= b" else Relationship.EQUAL
        assert (found.relationship, found.exact) == (expected, True)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a >= b", "a > b"),
        ("b <= a", "a = b and a is a number"),
        ("a != b", "b > a"),
        ("a != b", "a < b"),
        ("not (a = b)", "a < b"),
        ("a + 1 >= b", "b < 1 + a"),
    ],
)
def test_one_comparison_of_a_pair_covers_another(wide: str, narrow: str) -> None:
    assert repr(covers(parse(wide), parse(narrow))) == "<yes>"
    assert not covers(parse(narrow), parse(wide))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("text", ["a < a", "a != a", "a + b > b + a"])
def test_nothing_differs_from_itself(text: str, many: bool) -> None:
    assert repr(is_never(parse(text), many=many)) == "<yes>"


def test_contradictions_between_two_attributes_are_seen_where_each_holds_one_value() -> None:
    text = parse("a > b and b > a")
    assert repr(is_never(text)) == "<yes>"
    assert not is_never(text, many=True)
    assert intersects(text, parse("a > 0"), many=True)


_COMPARISONS = [
    f"{left} {op} {right}"
    for left, right in (("a", "b"), ("b", "a"), ("a + 1", "b"), ("a", "a"), ("a / b", "b"))
    for op in ("=", "!=", "<", "<=", ">", ">=")
]
_HELD: list[tuple[Value, ...]] = [
    (),
    (0,),
    (1,),
    (2.0,),
    (True,),
    ("x",),
    ("y",),
    (math.nan,),
    (True, 1),
    (0, 2),
    ("x", 1),
]


@pytest.mark.parametrize("seed", seeds(12))
def test_no_answer_about_two_attributes_is_wrong(seed: int) -> None:
    """Whatever is proved about comparisons of a and b is true on every event of a small domain."""
    rng = Random(seed)
    proved = 0
    for _ in range(100):
        mode, many = rng.choice([Mode.SQL, Mode.STRICT, Mode.DEFAULT]), rng.random() < 0.5
        one, other = (_of_comparisons(rng) for _ in range(2))
        held = _HELD if many else [values for values in _HELD if len(values) < 2]
        events = [
            Event({}).with_values({n: v for n, v in (("a", a), ("b", b)) if v})
            for a, b in product(held, held)
        ]
        pairs = {(one.matches(e, mode), other.matches(e, mode)) for e in events}
        covering = covers(one, other, mode=mode, many=many)
        if covering.exact and covering.yes:
            proved += 1
            assert (False, True) not in pairs, (one, other, mode, many)
        meets = intersects(one, other, mode=mode, many=many)
        if meets.exact and not meets.yes:
            proved += 1
            assert (True, True) not in pairs, (one, other, mode, many)
    assert proved > 6


def _of_comparisons(rng: Random) -> Filter:
    terms = [parse(rng.choice(_COMPARISONS)) for _ in range(rng.choice((1, 1, 2)))]
    terms = [~term if rng.random() < 0.3 else term for term in terms]
    return rng.choice((all_of, any_of))(*terms)
