"""Rights hold for every value of an attribute with several; filters of users for some value."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from access.oracle import (
    MODES,
    Document,
    choices,
    random_case,
    random_object,
    random_role,
    random_schema,
    world_of,
)
from broker.authorization_fixture import broker_fixture, encoded, fetched, refusal, run_async
from broker.authorization_fixture import subscribe as subscribe_to
from tamis.access import Policy, Principal, Rights
from tamis.access.every_value import MAX_CHOICES, from_above, holds_for_every_value
from tamis.access.joining import FilterInMode
from tamis.errors import AccessError, TamisError
from tamis.events import Event, decode_json
from tamis.filters import Mode
from tamis.languages import parse

ROOF = {"source": "roof"}


def rights(policy: str) -> Rights:
    return Policy.parse(policy).rights(Principal("ann", ("r",)))


# --- cases by hand -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("right", "allowed", "refused"),
    [
        ('source = "roof"', ["roof", ["roof"], ["roof", "roof"]], [["roof", "cellar"], [], None]),
        ("source < 3", [1, [1, 2]], [[1, 9], [1, "1"], 9]),
        ('not (source = "cellar")', ["roof", ["roof", "hall"]], [["roof", "cellar"], "cellar"]),
        ("source != 3", [1, [1, 2]], [[1, 3], 3]),
        ("source < 3 or source > 7", [1, [1, 9]], [[1, 5, 9]]),
        ("source > 1 and source < 3", [2, [2, 2.5]], [[1, 9], [0, 2]]),
        ("source is present", [1, [1, "a"]], [None, []]),
        ("source is absent", [None], [1, [1, 2]]),
        ('source like "r%"', ["roof", ["roof", "room"]], [["roof", "cellar"]]),
        ('not (source like "c%")', [["roof", "room"]], [["roof", "cellar"]]),
        ('source in ("a", "b")', [["a", "b"]], [["a", "c"]]),
        ("source * 2 < 6", [[1, 2]], [[1, 3], [1, "a"]]),
        ("(source = 1) xor (source = 2)", [[1, 2], 1], [[1, 3], 3]),
    ],
)
def test_a_right_holds_for_all_values_or_not_at_all(
    right: str, allowed: list[object], refused: list[object]
) -> None:
    publishing = rights(f"[roles.r]\npublish = '{right}'\n")
    for value in allowed:
        publishing.check_publish(event({"source": value}))
    for value in refused:
        with pytest.raises(AccessError, match="this is not an event that you may publish"):
            publishing.check_publish(event({"source": value}))
    seeing = rights(f"[roles.r]\nsee = '{right}'\n")
    assert all(seeing.sight(event({"source": value})) for value in allowed)
    assert not any(seeing.sight(event({"source": value})) for value in refused)


def event(document: Document) -> Event:
    return Event({name: value for name, value in document.items() if value not in (None, [])})


def test_values_of_two_attributes_are_chosen_independently() -> None:
    right = FilterInMode(parse("a < 3 or b < 3"), Mode.SQL)
    for a, b, holds in (([1, 2], [1, 9], True), ([1, 9], [1, 9], False), ([1, 9], 1, True)):
        assert holds_for_every_value(right, Event({"a": a, "b": b}), None) is holds


def test_many_values_cost_no_more_than_their_number() -> None:
    many = [*range(16_000)]
    plain = FilterInMode(parse("a >= 0 and b >= 0 and (c >= 0 or d >= 0)"), Mode.SQL)
    assert holds_for_every_value(plain, Event(dict.fromkeys("abcd", many)), None)
    # Nobody can look at all choices of these, so the right does not hold.
    joined = FilterInMode(parse("a + b >= 0"), Mode.SQL)
    few = [*range(MAX_CHOICES // 50)]
    assert holds_for_every_value(joined, Event({"a": few, "b": [*range(50)]}), None)
    assert not holds_for_every_value(joined, Event({"a": many, "b": many}), None)


# --- chance --------------------------------------------------------------------------------------


def test_rights_hold_for_every_choice_and_the_engine_gets_no_less() -> None:
    rng, held, several = Random(5), 0, 0
    for _ in range(6_000):
        schema = random_schema(rng) if rng.random() < 0.4 else None
        role = random_role(rng, 0, world_of(schema))
        right = FilterInMode(role.filter, rng.choice(MODES))
        try:
            found = decode_json(encoded([random_object(rng, schema, "")])[0], schema=schema)
        except TamisError:
            continue
        wanted = all(right.filter.matches(one, right.mode, schema) for one in choices(found))
        assert holds_for_every_value(right, found, schema) is wanted, (right, found)
        above, is_exact = from_above(right)
        is_matched = above.filter.matches(found, above.mode, schema)
        assert is_matched or not wanted, (right, found)
        if len([*choices(found)]) == 1 and is_exact:
            assert is_matched is wanted, (right, found)
        held += wanted
        several += len([*choices(found)]) > 1
    assert held > 1_000
    assert several > 500


def test_random_cases_have_several_values() -> None:
    rng = Random(1)
    found = [random_case(rng) for _ in range(200)]
    assert sum(len([*choices(case.event())]) > 1 for case in found) > 40


# --- a broker ------------------------------------------------------------------------------------

POLICY = """
[roles.sensor]
publish = 'source = "roof"'
[roles.reader]
see = "level < 3"
[roles.odd]
see = 'not (name like "x%")'
"""


@run_async
async def test_a_publisher_cannot_add_a_source_to_its_own(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        sensor = await fixture.login("sensor", "sensor")
        await sensor.publish(encoded([ROOF, {"source": ["roof", "roof"]}]))
        said = await refusal(sensor.publish(encoded([{"source": ["roof", "cellar"]}])))
        assert said == "forbidden: this is not an event that you may publish"


@pytest.mark.parametrize("start", ["latest", "earliest"])
@run_async
async def test_an_event_with_one_hidden_value_neither_waits_nor_comes(
    tmp_path: Path, start: str
) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        reader, odd = await fixture.login("ann", "reader"), await fixture.login("bob", "odd")
        if start == "latest":
            await subscribe_to(reader, "true", "x")
            await subscribe_to(odd, "true", "y")
        await fixture.publish(
            {"level": [1, 9]},
            {"level": [1, 2]},
            {"level": 1},
            {"name": ["xa", "b"]},
            {"name": "xa"},
            {"name": ["a", "b"]},
        )
        if start == "earliest":
            await subscribe_to(reader, "true", "x", start=start)
            await subscribe_to(odd, "true", "y", start=start)
        low, other = [{"level": [1, 2]}, {"level": 1}], [{"name": ["a", "b"]}]
        assert await fetched(reader, "x", wait=5.0) == low
        assert await fetched(odd, "y", wait=5.0) == other
        assert (await reader.subscription("x")).pending == 2
        assert (await odd.subscription("y")).pending == 1
        assert len((await reader.history("true")).events) == 2
