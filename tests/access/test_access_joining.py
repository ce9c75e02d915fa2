"""Filters of different modes, joined to one filter of one mode: it matches where all of them do."""

from __future__ import annotations

from itertools import chain
from random import Random

import pytest
from hypothesis import given, settings

from seeds import in_volume, seeds
from strategies import World, generators, random_event, random_filter, random_world
from tamis.access.joining import (
    JOINED_LIMITS,
    FilterInMode,
    in_sql_mode,
    join,
    without_attributes,
)
from tamis.errors import AccessError, LimitError
from tamis.events import Event, Schema, attribute
from tamis.filters import Filter, Mode, attr
from tamis.filters.any_text import AnyText
from tamis.filters.arithmetic import Relation
from tamis.filters.boolean import Xor
from tamis.languages import parse
from tamis.matching import Engine

MODES = (Mode.SQL, Mode.STRICT, Mode.DEFAULT)


def random_reading(rng: Random, world: World, mode: Mode | None = None) -> FilterInMode:
    filter_ = random_filter(rng, world, rng.choice((0, 1, 2, 3)))
    bound = filter_ if world.schema is None else filter_.bind(world.schema)
    return FilterInMode(bound, mode or rng.choice(MODES))


def matches(reading: FilterInMode, event: Event, world: World) -> bool:
    return reading.filter.matches(event, reading.mode, world.schema)


def can_be_refused(readings: list[FilterInMode], world: World) -> bool:
    """Return whether mode `default` compares attributes beside filters that see what is absent."""
    of_several = Relation | AnyText
    related = [r for r in readings if any(isinstance(a, of_several) for a in r.filter.atoms())]
    return world.schema is not None and any(r.mode is Mode.DEFAULT for r in related)


def compare_joined(rng: Random) -> int:
    """Join some readings and compare with them; return how often both matched."""
    world = random_world(rng, typed=rng.random() < 0.6)
    total = world.schema is not None and rng.random() < 0.2
    asked = random_reading(rng, world, Mode.TOTAL if total else None)
    allowed = [
        [random_reading(rng, world) for _ in range(rng.choice((1, 1, 2)))]
        for _ in range(rng.choice((0, 1, 1, 2)))
    ]
    try:
        joined = join(asked, allowed, world.schema)
    except AccessError:
        assert can_be_refused([asked, *chain.from_iterable(allowed)], world)
        return 0
    assert (joined.mode is Mode.TOTAL) is total
    events = [random_event(rng, world, total=total) for _ in range(8)]
    wanted = [
        matches(asked, event, world)
        and all(any(matches(one, event, world) for one in group) for group in allowed)
        for event in events
    ]
    for event, matched in zip(events, wanted, strict=True):
        assert matches(joined, event, world) is matched, (asked, allowed, joined, event)
    if rng.random() < 0.05:
        assert find(joined, events, world) == wanted
    return sum(wanted)


def find(joined: FilterInMode, events: list[Event], world: World) -> list[bool]:
    """Match with an engine."""
    engine = Engine(world.schema, Mode.TOTAL if joined.mode is Mode.TOTAL else Mode.SQL)
    engine.add("joined", joined.filter, mode=joined.mode)
    return [bool(ids) for ids in engine.match_batch(events)]


@given(generators())
@settings(max_examples=in_volume(40))
def test_what_is_joined_matches_where_all_of_it_does(rng: Random) -> None:
    compare_joined(rng)


def test_what_is_joined_matches_where_all_of_it_does_in_volume() -> None:
    rng = Random(5)
    assert sum(compare_joined(rng) for _ in range(800)) > 800


@pytest.mark.slow
def test_a_million_events_meet_joined_filters() -> None:
    rng = Random(6)
    matched = sum(compare_joined(rng) for _ in range(125_000))
    print(f"\njoined filters: 125,000, each on 8 events, 0 differences, {matched:,} matches")


def test_one_mode_needs_no_translation() -> None:
    asked, allowed = parse("not (a < b)"), parse("c = 1")
    for mode in (Mode.SQL, Mode.DEFAULT):
        joined = join(FilterInMode(asked, mode), [[FilterInMode(allowed, mode)]], None)
        assert joined == FilterInMode(asked & allowed, mode)


def test_where_nothing_is_added_nothing_changes() -> None:
    asked = FilterInMode(parse("a = 1 or b = 2"), Mode.STRICT)
    assert join(asked, [], None) == asked


def test_mode_default_that_compares_attributes_is_refused_beside_what_it_cannot_see() -> None:
    schema = Schema({"a": "int", "b": "int", "level": attribute("int", default=0)})
    asked = FilterInMode(parse("not (a < b)"), Mode.DEFAULT)
    allowed = FilterInMode(parse("level is present"), Mode.SQL)
    with pytest.raises(AccessError, match="use mode 'sql'") as caught:
        join(asked, [[allowed]], schema)
    assert "level" not in str(caught.value)
    # Without a default there is nothing that it would not see.
    plain = Schema({"a": "int", "b": "int", "level": "int"})
    assert join(asked, [[allowed]], plain).mode is Mode.DEFAULT


def test_xor_within_xor_is_refused_before_it_grows() -> None:
    filter_: Filter = attr("x0") == 1
    for level in range(1, 40):
        filter_ = Xor.of((filter_, attr(f"x{level}") == 1)) & (attr("y") == level)
    asked = FilterInMode(attr("z") == 1, Mode.DEFAULT)
    with pytest.raises(LimitError):
        join(asked, [[FilterInMode(filter_, Mode.SQL)]], None)


def test_what_can_be_joined_the_engine_takes() -> None:
    asked = FilterInMode(parse(f"a in ({', '.join(map(str, range(1000)))})"), Mode.SQL)
    groups = [[FilterInMode(parse(f"b in ({', '.join(map(str, range(1000)))})"), Mode.SQL)]]
    joined = join(asked, groups, None)
    engine = Engine(limits=JOINED_LIMITS)
    engine.add("large", joined.filter, mode=joined.mode)
    assert engine.match({"a": 5, "b": 7}) == ["large"]
    with pytest.raises(LimitError):
        join(asked, groups * 40, None)


@pytest.mark.parametrize("seed", seeds(100))
def test_a_filter_of_any_mode_is_one_of_mode_sql_or_within_one(seed: int) -> None:
    rng, exact = Random(seed), 0
    for _ in range(300):
        world = random_world(rng, typed=rng.random() < 0.7)
        mode = Mode.TOTAL if world.schema is not None and rng.random() < 0.2 else None
        reading = random_reading(rng, world, mode)
        sql = FilterInMode(in_sql_mode(reading, world.schema), Mode.SQL)
        event = random_event(rng, world, total=mode is Mode.TOTAL)
        if matches(reading, event, world):
            assert matches(sql, event, world), (reading, sql, event)
        elif not can_be_wider(reading):
            exact += 1
            assert not matches(sql, event, world), (reading, sql, event)
    assert exact > 50


def can_be_wider(reading: FilterInMode) -> bool:
    of_several = any(isinstance(atom, Relation | AnyText) for atom in reading.filter.atoms())
    return of_several and not reading.mode.is_three_valued


def test_what_mode_sql_cannot_express_is_left_out_and_the_rest_is_kept() -> None:
    reading = FilterInMode(parse("(a < b or c = 1) and not (d = 2)"), Mode.DEFAULT)
    assert in_sql_mode(reading, None) == parse("not (d is a number and d = 2)")


def compare_without_attributes(rng: Random) -> int:
    """Hide some attributes of a filter; return how often the rest matched nothing more."""
    world = random_world(rng, typed=rng.random() < 0.6)
    one = random_reading(rng, world, Mode.SQL)
    hidden = {name for name in one.filter.attributes() if rng.random() < 0.4}
    wide = FilterInMode(without_attributes(one.filter, lambda name: name not in hidden), Mode.SQL)
    assert not hidden & {*wide.filter.attributes()}, (one, wide)
    equal = 0
    for event in (random_event(rng, world) for _ in range(8)):
        narrow = matches(one, event, world)
        assert matches(wide, event, world) >= narrow, (one, hidden, wide, event)
        assert hidden or matches(wide, event, world) is narrow, (one, wide, event)
        equal += matches(wide, event, world) is narrow
    return equal


@pytest.mark.parametrize("seed", seeds(200))
def test_a_filter_without_some_attributes_matches_the_same_and_more(seed: int) -> None:
    rng = Random(seed)
    # Otherwise every filter may have become one that always matches.
    assert sum(compare_without_attributes(rng) for _ in range(200)) > 800
