"""What is suspicious about the filters in an engine."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from seeds import in_volume, seeds
from strategies import World, random_filter, random_world
from tamis import covers
from tamis.analysis import lint as lint_module
from tamis.analysis.lint import Findings, LintedFilter, Linter, lint
from tamis.analysis.pinned_values import PinIndex, Requirements
from tamis.analysis.redundancy import _variants, redundant_parts
from tamis.analysis.rules import LintRule
from tamis.diagrams import Space
from tamis.diagrams.encoding import Encoding
from tamis.events import Schema
from tamis.filters import Filter, Id, Mode
from tamis.filters.printing import ANY
from tamis.languages import parse
from tamis.matching import Engine

UNLESS = ", unless an attribute holds several values"


def linted(*filters: str, schema: Schema | None = None, **options: int) -> Findings:
    """Lint filters whose ids are a, b, c, …"""
    engine = Engine(schema)
    for id_, filter_ in zip("abcdefgh", filters, strict=False):
        engine.add(id_, filter_)
    return engine.lint(**options)


@pytest.mark.parametrize(
    ("filters", "sentences"),
    [
        (["false"], ["'a': no event can match it"]),
        (["x < 1 and x > 2"], [f"'a': no event can match it{UNLESS}"]),
        (["x is present or x is absent"], ["'a': every event matches it"]),
        (["x < 1", "x < 1 or x < 1"], ["'b': it matches the same events as a"]),
        (["x < 10", "not (x >= 10)"], [f"'b': it matches the same events as a{UNLESS}"]),
        (
            ["x in (1, 2) and y = 3", "y = 3 and (x = 2 or x = 1)"],
            ["'b': it matches the same events as a"],
        ),
        (["x < 5", "x < 10"], ["'a': every event that matches it matches b as well"]),
        (
            ["name starts with 'ab'", "name contains 'b'", "name = 'b'"],
            [
                "'a': every event that matches it matches b as well",
                "'c': every event that matches it matches b as well",
            ],
        ),
        (["x < 5", "y < 5", "x > 3", "x < 5 and z = 1 or y = 7"], ["no problems found"]),
        ([], ["no problems found"]),
    ],
)
def test_findings_are_sentences(filters: list[str], sentences: list[str]) -> None:
    assert str(linted(*filters)).splitlines() == sentences


def test_findings_have_fields_for_programs() -> None:
    findings = linted("x < 10", "x < 5", "x < 5 or x < 5", "y = 1 and y = 2")
    assert [(f.id, f.rule, f.other) for f in findings] == [
        ("b", LintRule.COVERED, "a"),
        ("c", LintRule.SAME, "b"),
        ("d", LintRule.NEVER, None),
    ]
    assert len(findings) == 3
    assert repr(findings).startswith("<Findings: 'b': every event")


def test_each_covered_filter_is_reported_with_one_that_covers_it() -> None:
    findings = linted("x < 1", "x < 2", "x < 3", "x < 4")
    assert [(f.id, f.other) for f in findings] == [("a", "b"), ("b", "c"), ("c", "d")]


def test_a_schema_leaves_no_doubt_about_several_values() -> None:
    schema = Schema({"n": "int"})
    assert str(linted("n > 1 and n < 2", schema=schema)) == "'a': no event can match it"
    assert str(linted("n < 6", "not (n > 5)", schema=schema)) == (
        "'b': it matches the same events as a"
    )


def test_filters_of_different_modes_are_not_compared() -> None:
    engine = Engine()
    engine.add(1, "x < 1")
    engine.add(2, "x < 1", mode="strict")
    assert len(engine.lint()) == 0
    total = Engine(Schema({"x": "int", "y": "int"}), "total")
    total.add(1, "x < 1")
    total.add(2, "x < 5")
    total.add(3, "x < 5", mode="sql")
    total.add(4, "x < 7", mode="sql")
    assert [(f.id, f.other) for f in total.lint()] == [(1, 2), (3, 4)]


def test_expired_subscriptions_are_not_looked_at() -> None:
    engine = Engine(clock=lambda: 100.0)
    engine.add("wide", "x < 10", expires_at=50)
    engine.add("narrow", "x < 5")
    engine.add("odd", "false", expires_at=50)
    assert len(engine.lint()) == 0


def test_what_is_left_out_for_the_budget_is_said() -> None:
    filters = ["x < 1", "x < 2", "x < 3"]
    skipped = linted(*filters, pairs=1)
    assert (len(skipped), skipped.unasked) == (1, 1)
    assert "1 pair was skipped for the budget" in str(skipped)
    unseen = linted(*filters, filters=1)
    assert (len(unseen), unseen.unseen) == (0, 2)
    assert str(unseen) == "2 filters were not looked at"


def test_questions_that_stay_open_are_counted() -> None:
    findings = linted('x matches "a[bc]*d"', 'x matches "a[bc]*[de]"')
    assert findings.open > 0
    assert "stayed open, so there may be more to find" in str(findings)


def test_hundreds_of_filters_are_looked_at() -> None:
    engine = Engine()
    for number in range(in_volume(700)):
        engine.add(number, f"company = 'c{number % 50}' and a{number % 7} < {number}")
    findings = engine.lint()
    assert (findings.unseen, findings.unasked) == (0, 0)
    assert {f.rule for f in findings} == {LintRule.COVERED}
    assert len(findings) > 300


# --- laws ------------------------------------------------------------------------------------


def answers(
    subjects: list[LintedFilter], world: World, *, many: bool
) -> tuple[set[tuple[int, LintRule]], set[tuple[int, int]]]:
    """Ask the relations about every filter and every pair, without any shortcut."""
    alone: set[tuple[int, LintRule]] = set()
    for number, one in enumerate(subjects):
        space = Space(one.mode, world.schema, many=many)
        if space.is_never(one.filter):
            alone.add((number, LintRule.NEVER))
        elif space.is_always(one.filter):
            alone.add((number, LintRule.ALWAYS))
    reported = {number for number, _ in alone}
    covered = {
        (wide, narrow)
        for pair in combinations(range(len(subjects)), 2)
        for wide, narrow in (pair, pair[::-1])
        if subjects[wide].mode is subjects[narrow].mode
        and not {wide, narrow} & reported
        and Space(subjects[wide].mode, world.schema, many=many).covers(
            subjects[wide].filter, subjects[narrow].filter
        )
    }
    return alone, covered


def random_subjects(rng: Random, world: World) -> list[LintedFilter]:
    def bound() -> Filter:
        filter_ = random_filter(rng, world, 2)
        return filter_ if world.schema is None else filter_.bind(world.schema)

    modes = (Mode.SQL, Mode.STRICT, Mode.DEFAULT)
    return [LintedFilter(number, bound(), rng.choice(modes)) for number in range(8)]


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("seed", seeds(12, by_default=1))
def test_all_shortcuts_taken_together_find_what_the_relations_find(
    seed: int, many: bool, is_indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_indexed:
        monkeypatch.setattr(lint_module, "INDEXED_FROM", 1)
    rng = Random(seed)
    world = random_world(rng, typed=seed % 2 == 0, exact=True)
    subjects = random_subjects(rng, world)
    alone, covered = answers(subjects, world, many=many)
    linter = Linter(world.schema, many=many)
    found, distinct = linter.look_at_each(subjects)
    pairs = list(linter.look_at_pairs(distinct, 1_000, every=True))
    assert {(f.id, f.rule) for f in found if f.rule in (LintRule.NEVER, LintRule.ALWAYS)} == alone
    kept = {one.id for one in distinct}
    reported: set[tuple[object, object]] = set()
    for finding in pairs:
        reported.add((finding.other, finding.id))
        if finding.rule is LintRule.SAME:
            reported.add((finding.id, finding.other))
    # Of three that are the same, two are reported as the same as the first.
    same = {(a, b) for a, b in covered if (b, a) in covered}
    assert reported <= covered
    missing = {(a, b) for a, b in covered - reported if a in kept and b in kept}
    assert missing <= same
    assert {frozenset(pair) for pair in same if kept.issuperset(pair)} == {
        frozenset(pair) for pair in same if kept.issuperset(pair) and linked(pair, reported)
    }


def linked(pair: tuple[int, int], reported: set[tuple[object, object]]) -> bool:
    """Return whether two are reported as the same, perhaps via a third."""
    both = {frozenset(p) for p in reported if p[::-1] in reported}
    reached: set[object] = {pair[0]}
    for _ in range(8):
        reached |= {other for link in both if link & reached for other in link}
    return pair[1] in reached


@pytest.mark.parametrize("typed", [False, True])
def test_filters_have_the_same_key_just_where_they_match_the_same_events(typed: bool) -> None:
    rng = Random(5)
    kept: list[LintedFilter] = []
    world = random_world(rng, typed=typed, exact=True, most=1)
    if world.schema is not None:
        one_value = {name: declared._replace(many=False) for name, declared in world.schema.items()}
        world = World(world.names, Schema(one_value), exact=True)
    linter = Linter(world.schema)
    for _ in range(60):
        filter_ = random_filter(rng, world, 2)
        if ANY in filter_.attributes():
            # Those have no key: what the others are depends on the attributes that are named.
            continue
        bound = filter_ if world.schema is None else filter_.bind(world.schema)
        kept.append(LintedFilter(0, bound, Mode.SQL))
    keys = [linter._profile(one)[:2] for one in kept]
    space = Space(Mode.SQL, world.schema)
    equal = 0
    for (one, key), (other, its_key) in combinations(zip(kept, keys, strict=True), 2):
        assert bool(space.equivalent(one.filter, other.filter)) is (key == its_key)
        equal += key == its_key
    assert equal > 10


def test_an_engine_finds_what_its_filters_alone_show() -> None:
    rng = Random(9)
    for _ in range(10):
        world = random_world(rng, typed=True, exact=True)
        subjects = random_subjects(rng, world)
        engine = Engine(world.schema)
        for one in subjects:
            engine.add(one.id, one.filter, mode=one.mode)
        linter = Linter(world.schema)
        found, distinct = linter.look_at_each(subjects)
        found += linter.look_at_pairs(distinct, 1_000)
        assert set(engine.lint()) == set(found)
    assert len(lint([], None, Engine().match_batch, count=0)) == 0


# --- parts that never decide -----------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(6))
def test_without_its_redundant_parts_a_filter_matches_the_same_events(seed: int) -> None:
    rng = Random(seed)
    removed = 0
    for _ in range(40):
        world = random_world(rng, typed=rng.random() < 0.5, exact=True)
        filter_ = random_filter(rng, world, 3)
        bound = filter_ if world.schema is None else filter_.bind(world.schema)
        mode = rng.choice((Mode.SQL, Mode.STRICT, Mode.DEFAULT))
        encoding = Encoding([bound], mode, world.schema, many=False, budget=100_000)
        report = redundant_parts(bound, encoding)
        space = Space(mode, world.schema)
        if report.complete and report.parts:
            removed += 1
            assert space.equivalent(bound, report.rest), (str(bound), str(report.rest), mode)
        for _, part, less in _variants(report.rest) if report.complete else ():
            assert not space.equivalent(bound, less), (str(bound), str(part), mode)
    assert removed > 2


# --- pairs that need not be asked about ------------------------------------------------------


def test_a_filter_without_an_example_does_not_use_up_the_budget_of_others() -> None:
    # No event is found for the first, though it cannot be ruled out that there is one.
    hard = r'name matches "\\pN\\pL{3}" and name matches "^\\P{Greek}+$"'
    filters = {"hard": hard}
    for number in range(40):
        filters[f"wide {number}"] = f"company = 'c{number}' and price < 10"
        filters[f"narrow {number}"] = f"company = 'c{number}' and price < 5"
    engine = Engine()
    for id_, text in filters.items():
        engine.add(id_, text)
    findings = engine.lint(pairs=40)
    assert {f.id for f in findings} == {f"narrow {number}" for number in range(40)}
    assert findings.unasked == 0


def test_an_index_answers_for_many_filters_whatever_the_budget() -> None:
    engine = Engine()
    for number in range(120):
        engine.add(f"wide {number}", f"a > {number} and b = 1")
        engine.add(f"narrow {number}", f"a > {number} and b = 1 and c = {number}")
    findings = engine.lint(pairs=0)
    assert findings.unasked == findings.open == 0
    assert all(finding.rule is LintRule.COVERED for finding in findings)
    # All but the widest are covered.
    assert len(findings) == 239
    for finding in findings:
        wide, narrow = (engine.filter(id_)[0] for id_ in (finding.other or "", finding.id))
        assert covers(wide, narrow), finding


def test_the_filters_that_were_not_compared_are_named() -> None:
    findings = linted(*(f"x < {number}" for number in range(1, 9)), pairs=2)
    assert findings.unasked == sum(findings.unasked_of.values()) > 3
    assert "may be covered by others" in str(findings)
    assert " and " in str(findings).splitlines()[-1]


@pytest.mark.parametrize(
    ("wide", "narrow", "is_ruled_out"),
    [
        ("x = 1", "x = 2 and y = 1", True),
        ("x = 1 and y = 2", "x = 1", True),
        ("x in (1, 2)", "x = 2 and y = 1", False),
        ("x in (1, 2) and y = 1", "x = 2 and y = 2", True),
        ("x = 1 or x = 3", "x = 2", True),
        ("x = 1 or y = 3", "x = 2", False),
        ("x = 1", "x = true", True),
        ("x = 1", "x < 5", False),
        ("x < 1", "y = 1", False),
        ("not (x = 1)", "x = 1", False),
    ],
)
def test_required_values_rule_pairs_out(wide: str, narrow: str, is_ruled_out: bool) -> None:
    requirements: dict[Id, Requirements] = {
        "wide": Requirements.of(parse(wide)),
        "narrow": Requirements.of(parse(narrow)),
    }
    pins = PinIndex(requirements, None, many=False)
    assert pins.is_ruled_out("wide", "narrow", Mode.SQL) is is_ruled_out
    assert ("wide" not in pins.may_cover("narrow", Mode.SQL)) is is_ruled_out


def test_with_several_values_one_does_not_exclude_another() -> None:
    requirements: dict[Id, Requirements] = {
        "wide": Requirements.of(parse("x = 1")),
        "narrow": Requirements.of(parse("x = 2 and x = 1")),
    }
    pins = PinIndex(requirements, None, many=True)
    assert not pins.is_ruled_out("wide", "narrow", Mode.SQL)
    assert [*pins.may_cover("narrow", Mode.SQL)] == ["wide", "narrow"]
