"""Why a subscription matched or not: the atoms that decided, and the nearest change."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings

from seeds import in_volume
from strategies import World, generators, random_event, random_filter, random_world
from tamis.analysis.explain import Explanation, explain
from tamis.analysis.reasons import deciding_atoms
from tamis.diagrams import Space
from tamis.errors import EventError, FilterError
from tamis.events import Bits, Event, Schema, attribute
from tamis.filters import Filter, Mode
from tamis.filters.boolean import And, Connective, Constant, Not, Or
from tamis.languages import parse
from tamis.matching import Engine

PC_WATCH = 'company in ("IBM", "Dell") and price <= 1000'


def explained(text: str, event: Mapping[str, object], **options: object) -> Explanation:
    engine = Engine(**options)  # type: ignore[arg-type]
    engine.add("it", text)
    return engine.explain("it", event)


def test_an_explanation_reads_as_sentences() -> None:
    found = explained(PC_WATCH, {"company": "IBM", "price": 1200})
    assert str(found) == (
        "'it' does not match:\n"
        "- price is 1200, so price <= 1000 is false: it needs at most 1000\n"
        "With price = 1000 it would match."
    )
    assert repr(found).startswith("<Explanation: 'it' does not match: - price is 1200")
    assert not found


def test_an_explanation_has_fields_for_programs() -> None:
    found = explained(PC_WATCH, {"company": "IBM", "price": 1200})
    assert (found.id, found.matched, found.mode) == ("it", False, Mode.SQL)
    (reason,) = found.reasons
    assert (str(reason.atom), reason.truth, reason.held) == (
        "price <= 1000",
        False,
        {"price": (1200,)},
    )
    assert found.change == {"price": 1000}
    assert found.changed == Event({"company": "IBM", "price": 1000})
    assert found.filter.matches(found.changed)


@pytest.mark.parametrize(
    ("filter_", "event", "sentences"),
    [
        (PC_WATCH, {"company": "IBM"}, ["price is absent, so price <= 1000 is unknown"]),
        (
            "price <= 1000",
            {"price": "dear"},
            ['price is "dear", so price <= 1000 is unknown: it asks for a number'],
        ),
        (
            PC_WATCH,
            {"company": "IBM", "price": 900},
            [
                'company is "IBM", so company in ("IBM", "Dell") is true',
                "price is 900, so price <= 1000 is true",
            ],
        ),
        (
            "a = 1 or b = 2 or (c = 3 and d = 4)",
            {"c": 3, "d": 4, "b": 2},
            ["b is 2, so b = 2 is true"],
        ),
        ("not (a = 1 or b = 2)", {"a": 1, "b": 2}, ["a is 1, so a = 1 is true"]),
        (
            "a = 1 xor b = 2",
            {"a": 1, "b": 3},
            ["a is 1, so a = 1 is true", "b is 3, so b = 2 is false: it needs exactly 2"],
        ),
        ("a = 1 xor b = 2", {"a": 1}, ["b is absent, so b = 2 is unknown"]),
        (
            "(a = 1 and b = 2) xor c = 3",
            {"b": 2, "c": 3},
            ["a is absent, so a = 1 is unknown", "b is 2, so b = 2 is true"],
        ),
        (
            "(a = 1 or b = 2) and (b = 2 or c = 3)",
            {"a": 1, "b": 2, "c": 3},
            ["b is 2, so b = 2 is true"],
        ),
        (
            "n contains 'I'",
            {"n": ["a", "b"]},
            ['n is "a" and "b", so n contains "I" is false: it needs a text that contains "I"'],
        ),
        ("a is absent", {"a": 1}, ["a is 1, so a is present is true"]),
        ("a < b", {"a": 2, "b": 1}, ["a is 2 and b is 1, so a < b is false"]),
        (
            "a between 1 and 2",
            {"a": 3},
            ["a is 3, so a between 1 and 2 is false: it needs something from 1 to 2"],
        ),
        ("true", {}, []),
    ],
)
def test_the_deciding_atoms_are_shown_with_the_values_they_met(
    filter_: str, event: dict[str, object], sentences: list[str]
) -> None:
    assert [reason.sentence for reason in explained(filter_, event).reasons] == sentences


@pytest.mark.parametrize(
    ("filter_", "event", "change"),
    [
        ("price <= 1000", {"price": 900}, {"price": 1001}),
        ("price > 9.5", {"price": 9.25}, {"price": 9.51}),
        ("price < 5 or price > 100", {"price": 20}, {"price": 4}),
        ("price < 5 or price > 100", {"price": 60}, {"price": 101}),
        ("price is absent", {"price": 60}, {"price": None}),
        (PC_WATCH, {"company": "Apple", "price": 2000}, {"company": "IBM", "price": 1000}),
        (
            "a = 1 and b = 2 and c = 3 and d = 4",
            {"a": 1},
            {"b": 2, "c": 3, "d": 4},
        ),
        ("price * quantity > 1000", {"price": 3, "quantity": 500}, {"price": 2}),
        ("tag = 'new' and tag = 'red'", {"tag": ["new", "blue"]}, {"tag": ["new", "red"]}),
        ("flags has all bits 0b110", {"flags": Bits((1,))}, {"flags": Bits((1, 2))}),
        ('name contains "ab"', {"name": "cab"}, {"name": "ca"}),
        ("on = true", {"on": False}, {"on": True}),
    ],
)
def test_the_nearest_change_is_found(
    filter_: str, event: dict[str, object], change: dict[str, object]
) -> None:
    found = explained(filter_, event)
    assert found.change == change
    assert parse(filter_).matches({**event, **change}) is not found.matched


def test_where_no_event_can_match_that_is_said() -> None:
    found = explained("a = 1 and a is absent", {"a": 1})
    assert (found.change, found.fixed) == (None, True)
    assert str(found).endswith("No event can match it.")
    always = explained("a is present or a is absent", {"a": 1})
    assert always
    assert str(always).endswith("Every event matches it.")
    assert str(explained("true", {})).startswith("'it' matches, whatever the event holds.")


def test_where_none_was_found_that_is_said() -> None:
    found = explained("x * x < 0", {"x": 1})
    assert (found.change, found.fixed) == (None, False)
    assert str(found).endswith("No change was found that would make it match.")


def test_in_mode_strict_one_absent_attribute_decides_alone() -> None:
    engine = Engine(mode="strict")
    engine.add(1, 'price < 1 or company = "IBM"')
    found = engine.explain(1, {"company": "IBM"})
    assert [str(reason) for reason in found.reasons] == ["price is absent, so price < 1 is unknown"]
    assert len(engine.explain(1, {"company": "IBM", "price": 5}).reasons) == 2


def test_in_mode_default_the_default_is_shown() -> None:
    schema = Schema({"price": attribute("float", default=1.0)})
    engine = Engine(schema, "default")
    engine.add(1, "price < 0")
    found = engine.explain(1, {})
    assert found.reasons[0].sentence.startswith("price is absent and its default is 1.0, so")
    assert found.change == {"price": -1.0}


def test_in_an_engine_of_mode_total_nothing_is_proposed_to_go() -> None:
    engine = Engine(Schema({"a": "int", "b": "int"}), "total")
    engine.add(1, "not (a = 1)")
    found = engine.explain(1, {"a": 1, "b": 2})
    assert found.change in ({"a": 0}, {"a": 2})
    with pytest.raises(EventError, match="b: the event lacks it"):
        engine.explain(1, {"a": 1})


def test_an_unknown_id_is_an_error_and_an_expired_one_is_mentioned() -> None:
    now = [0.0]
    engine = Engine(clock=lambda: now[0])
    engine.add("short", "a = 1", expires_at=10)
    with pytest.raises(FilterError, match="there is no subscription 'long'"):
        engine.explain("long", {})
    assert not engine.explain("short", {"a": 1}).expired
    now[0] = 10.0
    assert engine.match({"a": 1}) == []
    found = engine.explain("short", {"a": 1})
    assert found.expired
    assert str(found).endswith("The subscription has expired, so it is not reported.")


def test_a_search_that_takes_too_long_is_cut_off() -> None:
    names = range(60)
    filter_ = parse(" and ".join(f"a{n} + b{n} > {n}" for n in names))
    event = {f"{letter}{n}": list(range(11)) for letter in "ab" for n in names}
    asked = 0

    def is_late() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    found = explain("", filter_, Mode.SQL, event, None, is_late=is_late)
    assert asked < 40
    assert not found.matched
    assert found.cut_off
    assert found.reasons
    assert str(found).endswith(
        "The search for a change that would make it match took too long and was cut off."
    )


def test_large_filters_are_explained_in_bounded_time() -> None:
    text = " and ".join(f"(a{n} = {n} xor b{n % 7} > {n})" for n in range(300))
    found = explained(text, {f"a{n}": n for n in range(0, 300, 2)})
    assert not found
    assert len(found.reasons) == 1


# --- laws ------------------------------------------------------------------------------------


def truth_of(filter_: Filter, truths: Mapping[Filter, bool | None]) -> bool | None:
    """Return the truth of a filter given those of its atoms, plainly."""
    match filter_:
        case Constant(value=value):
            return value
        case Not(term=term):
            truth = truth_of(term, truths)
            return None if truth is None else not truth
        case Connective(terms=terms):
            found = [truth_of(term, truths) for term in terms]
            if isinstance(filter_, And | Or):
                decisive = isinstance(filter_, Or)
                if decisive in found:
                    return decisive
                return None if None in found else not decisive
            return None if None in found else found.count(True) % 2 == 1
        case _:
            return truths[filter_]


def outcome(filter_: Filter, mode: Mode, truths: Mapping[Filter, bool | None]) -> bool:
    if mode is Mode.STRICT and None in truths.values():
        return False
    return truth_of(filter_, truths) is True


def random_case(rng: Random) -> tuple[World, Filter, Mode, Event, Explanation]:
    world = random_world(rng, typed=rng.random() < 0.5)
    mode = rng.choice((Mode.SQL, Mode.STRICT, Mode.DEFAULT))
    if world.schema is not None and rng.random() < 0.2:
        mode = Mode.TOTAL
    filter_ = random_filter(rng, world)
    if world.schema is not None:
        filter_ = filter_.bind(world.schema)
    event = random_event(rng, world, total=mode is Mode.TOTAL)
    found = explain(1, filter_, mode, event, world.schema, total=mode is Mode.TOTAL)
    return world, filter_, mode, event, found


def outcomes_with(filter_: Filter, mode: Mode, reasons: Mapping[Filter, bool | None]) -> set[bool]:
    """Return what may come of it if all other atoms are set to everything."""
    others = [atom for atom in dict.fromkeys(filter_.atoms()) if atom not in reasons]
    return {
        outcome(filter_, mode, {**reasons, **dict(zip(others, truths, strict=True))})
        for truths in product((True, False, None), repeat=len(others))
    }


def check_change(world: World, mode: Mode, event: Event, found: Explanation) -> None:
    """Check that the change, and no part of it, turns the answer around."""
    if found.change is None:
        return
    assert found.changed is not None
    assert found.filter.matches(found.changed, mode, world.schema) is not found.matched
    for name in found.change:
        held = {**found.changed, name: event.get(name, ())}
        without = Event.of_checked({n: values for n, values in held.items() if values})
        assert found.filter.matches(without, mode, world.schema) is found.matched


@given(generators())
@settings(max_examples=in_volume(50))
def test_the_reasons_decide_and_the_change_flips(rng: Random) -> None:
    world, filter_, mode, event, found = random_case(rng)
    assert found.matched is filter_.matches(event, mode, world.schema)
    if len(set(filter_.atoms())) <= 7:
        reasons = {reason.atom: reason.truth for reason in found.reasons}
        assert outcomes_with(filter_, mode, reasons) == {found.matched}
    check_change(world, mode, event, found)


def test_a_change_is_found_unless_the_relations_know_of_none() -> None:
    rng = Random(3)
    of_one = 0
    for _ in range(300):
        world, filter_, mode, _, found = random_case(rng)
        of_one += found.change is not None and len(found.change) == 1
        if found.change is None:
            space = Space(mode, world.schema, many=True)
            answer = space.is_always(filter_) if found.matched else space.is_never(filter_)
            assert answer.event is None
            assert found.fixed is answer.yes
    assert of_one > 180


def test_the_deciding_atoms_decide_and_none_can_be_left_out() -> None:
    rng = Random(4)
    for _ in range(2_000):
        world = random_world(rng, typed=rng.random() < 0.5)
        mode = rng.choice((Mode.SQL, Mode.STRICT, Mode.DEFAULT))
        filter_ = random_filter(rng, world)
        atoms = list(dict.fromkeys(filter_.atoms()))
        if len(atoms) > 5:
            continue
        unknown = None if mode.is_three_valued else False
        truths = {atom: rng.choice((True, False, unknown)) for atom in atoms}
        deciding = {atom: truths[atom] for atom in deciding_atoms(filter_, mode, truths)}
        assert outcomes_with(filter_, mode, deciding) == {outcome(filter_, mode, truths)}
        for atom in deciding:
            fewer = {other: truth for other, truth in deciding.items() if other != atom}
            assert outcomes_with(filter_, mode, fewer) == {True, False}, f"{atom} in {filter_}"


@pytest.mark.parametrize(
    "text", ["l = 100000", "not (l = 17)", "l between 9000 and 9001 and m = 1"]
)
def test_very_many_values_take_little_memory(text: str) -> None:
    event = {"l": list(range(3_000)), "m": list(range(500))}
    tracemalloc.start()
    try:
        found = explained(text, event)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not found.matched
    assert peak < 60_000_000
