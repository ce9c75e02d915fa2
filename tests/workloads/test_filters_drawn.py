"""What a grammar makes: filters that can be read, the same for every way to draw them."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from collections.abc import Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seeds import in_volume
from tamis import parse
from tamis.filters.atoms import Compare
from tamis.filters.boolean import And, Not, Or, Xor
from tamis.workloads import Workload, shipped

ATTRIBUTES = """
[attributes]
a = { type = "int", range = [0, 9] }
b = { type = "int", range = [0, 9] }
c = { type = "int", range = [0, 9] }
"f0..f9" = { type = "float", range = [0, 1], step = 0.25 }
name = { type = "str", texts = ["x", "y"] }
"unit price" = { type = "float", range = [0, 100] }
at = { type = "timestamp", range = [2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z], step = 3600 }
[rules]
"""

Rules = Mapping[str, str | list[str] | dict[str, float]]

names = pytest.mark.parametrize("name", shipped())


def workload_of(rules: Rules, more: str = "") -> Workload:
    # JSON texts, lists and numbers are TOML, too.
    lines = [
        f"{json.dumps(name)} = {{ {', '.join(f'{json.dumps(k)} = {v}' for k, v in way.items())} }}"
        if isinstance(way, dict)
        else f"{json.dumps(name)} = {json.dumps(way)}"
        for name, way in rules.items()
    ]
    return Workload("\n".join([ATTRIBUTES, *lines, more]))


def texts(rules: Rules, count: int = 200, more: str = "") -> list[str]:
    found = workload_of(rules, more).subscriptions(0, count, 1).column("filter")
    return list(found.to_pylist())


# --- numbers ------------------------------------------------------------------------------------


@names
def test_a_subscription_does_not_depend_on_the_batch_it_is_drawn_in(name: str) -> None:
    random = Random(name)
    fresh = Workload.load(name)
    workload = Workload.load(name)
    for _ in range(5):
        seed = random.getrandbits(70)
        first, middle, last = sorted(random.randrange(300) for _ in range(3))
        whole = fresh.subscriptions(first, last, seed).to_pylist()
        assert [row["id"] for row in whole] == list(range(first, last))
        # The later part first: what was drawn before must not matter.
        later = workload.subscriptions(middle, last, seed).to_pylist()
        assert workload.subscriptions(first, middle, seed).to_pylist() + later == whole


def test_what_a_seed_gives_never_changes() -> None:
    # Results of experiments are compared over years: a change here is a change of all of them.
    drawn = Workload.load("paper").subscriptions(1_000_000, 1_000_002, seed=7).column("filter")
    assert drawn.to_pylist() == PAPER


PAPER = [
    (
        '(not int1 > 70 or string2 within "bb") and '
        '(double2 <= 50 or int2 != 10 or string2 contains "a") and '
        '(double1 <= 50 or int0 = 70 or string3 = "aa" or string1 != "bb")'
    ),
    '(string3 within "aa" or double1 = 30 and int1 <= 70) and not (int0 > 70 or int1 <= 50)',
]


def test_seeds_and_numbers_give_different_filters() -> None:
    workload = Workload.load("be-b")
    one, other = (
        set(workload.subscriptions(0, 500, seed).column(1).to_pylist()) for seed in (1, 2)
    )
    assert len(one) == 500
    assert not one & other


def test_a_workload_can_be_sent_to_another_process() -> None:
    workload = Workload.load("abe")
    sent = pickle.loads(pickle.dumps(workload))  # noqa: S301
    assert sent.subscriptions(5, 9, seed=3) == workload.subscriptions(5, 9, seed=3)


def test_numbers_are_a_range_from_0_on() -> None:
    workload = Workload.load("be-a")
    assert workload.subscriptions(5, 5, seed=1).num_rows == 0
    for first, last in ((-1, 5), (5, 4)):
        with pytest.raises(ValueError, match="not a range of numbers from 0 on"):
            workload.subscriptions(first, last, seed=1)


# --- filters ------------------------------------------------------------------------------------


@names
def test_every_filter_is_read_back_as_it_was_drawn(name: str) -> None:
    workload = Workload.load(name)
    drawn = workload.subscriptions(0, 500, seed=2).column("filter").to_pylist()
    filters = workload.filters(0, 500, seed=2)
    for text, filter_ in zip(drawn, filters, strict=True):
        assert parse(text).bind(workload.schema) == filter_
        assert parse(str(filter_)).bind(workload.schema) == filter_


ONE_RULE = {
    "a = 1": r"a = 1",
    "a in (1, 2)": r"a in \(1, 2\)",
    "a=1 AND (b>2)": r"a = 1 and \(b > 2\)",
    "a > -5": r"a > -5",
    "a - b > 1": r"a - b > 1",
    "(-a) * 2 > 1": r"\(-a\) \* 2 > 1",
    "`unit price` < 5": r"`unit price` < 5",
    "a = {a}": r"a = \d",
    "`unit price` < {unit price}": r"`unit price` < \d+\.\d+(e-\d+)?",
    "name = {name}": r'name = "[xy]"',
    "at > {at}": r'at > timestamp "2026-01-0\dT\d\d:00:00Z"',
    "{f0..f9} < {f0}": r"f\d < (0\.0|0\.25|0\.5|0\.75|1\.0)",
    "a = {3..5}": r"a = [345]",
    "{f3..f5} = 1": r"f[345] = 1",
    "a is present and b is not a number": r"a is present and b is not a number",
    'name starts with "{x}#"': r'name starts with "\{x\}#"',
}


@pytest.mark.parametrize("rule", ONE_RULE)
def test_words_stay_and_draws_become_values(rule: str) -> None:
    for text in texts({"filter": rule}, 50):
        assert re.fullmatch(ONE_RULE[rule], text)


PUT_TOGETHER: list[tuple[Rules, str]] = [
    ({"filter": "{t} and c = 1", "t": "a = 1 or b = 1"}, "(a = 1 or b = 1) and c = 1"),
    ({"filter": "{t} or c = 1", "t": "a = 1 or b = 1"}, "a = 1 or b = 1 or c = 1"),
    ({"filter": "{t} or c = 1", "t": "a = 1 and b = 1"}, "a = 1 and b = 1 or c = 1"),
    ({"filter": "not {t}", "t": "a = 1 and b = 1"}, "not (a = 1 and b = 1)"),
    ({"filter": "({t}) xor c = 1", "t": "a = 1 or b = 1"}, "(a = 1 or b = 1) xor c = 1"),
    (
        {"filter": "{one} and c = 1", "one": "{two}", "two": "a = 1 or b = 1"},
        "(a = 1 or b = 1) and c = 1",
    ),
    ({"filter": "{and 2 t}", "t": "a = 1 or b = 1"}, "(a = 1 or b = 1) and (a = 1 or b = 1)"),
    ({"filter": "{t} and c = 1", "t": "{or 2 u}", "u": "a = 1"}, "(a = 1 or a = 1) and c = 1"),
    ({"filter": "{t} and c = 1", "t": "(a = 1 or b = 1)"}, "(a = 1 or b = 1) and c = 1"),
    ({"filter": "{t} and c = 1", "t": "not {u}", "u": "a = 1"}, "not (a = 1) and c = 1"),
    ({"filter": "{sum} * 2 > 3", "sum": "a + b"}, "(a + b) * 2 > 3"),
    ({"filter": "a - {sum} > 3", "sum": "b - c"}, "a - (b - c) > 3"),
    ({"filter": "{sum} - a > 3", "sum": "b - c"}, "b - c - a > 3"),
    (
        {"filter": "a between 1 and 2 and {t}", "t": "b = 1 or c = 1"},
        "a between 1 and 2 and (b = 1 or c = 1)",
    ),
    ({"filter": "{t} or c = 1", "t": "a between 1 and 2"}, "a between 1 and 2 or c = 1"),
    (
        {"filter": "a between {w} and {t}", "t": "b = 1 or c = 1"},
        "a between 3 and 4 and (b = 1 or c = 1)",
    ),
]
W = '[values]\nw = { type = "int", range = [3, 4], wide = [2, 2] }'


@pytest.mark.parametrize(("rules", "expected"), PUT_TOGETHER)
def test_a_rule_is_one_condition_wherever_it_stands(rules: Rules, expected: str) -> None:
    assert set(texts(rules, 5, W)) == {expected}


def test_alternatives_come_as_often_as_they_should() -> None:
    rules: Rules = {"filter": {"a = 1": 70, "{t}": 20, "b = 3": 10}, "t": ["b = 1", "b = 2"]}
    drawn = Counter(texts(rules, 10_000))
    for text, share in {"a = 1": 0.7, "b = 1": 0.1, "b = 2": 0.1, "b = 3": 0.1}.items():
        assert drawn[text] / 10_000 == pytest.approx(share, abs=0.02)


def test_repetitions_are_as_many_and_as_different_as_they_should_be() -> None:
    counts: Counter[int] = Counter()
    rules: Rules = {"filter": "{and 2..4 distinct t}", "t": ["{f0..f9} > {f0}", "a < 3"]}
    for text in texts(rules, 3000):
        attributes = re.findall(r"\b(f\d|a)\b", text)
        assert len(set(attributes)) == len(attributes)
        counts[len(attributes)] += 1
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) > 900


def test_a_window_lies_inside_of_its_range() -> None:
    window = 'values.w = { type = "int", range = [10, 20], wide = [3, 5] }'
    workload = Workload(f'{window}{ATTRIBUTES}filter = "a between {{w}}"')
    drawn = workload.subscriptions(0, 2000, 1).column("filter").to_pylist()
    ends = [tuple(map(int, re.findall(r"\d+", text))) for text in drawn]
    assert {high - low + 1 for low, high in ends} == {3, 4, 5}
    assert min(low for low, _ in ends) == 10
    assert max(high for _, high in ends) == 20


def test_a_pool_holds_as_many_conditions_as_declared() -> None:
    rules = {"filter": "{p} and {p}", "t": "`unit price` < {unit price}"}
    pool = '[pools]\np = { size = 5, of = "t", zipf = 2 }'
    drawn = [text.split(" and ") for text in texts(rules, 2000, pool)]
    often = Counter(part for pair in drawn for part in pair)
    assert len(often) == 5
    shares = np.array([count for _, count in often.most_common()]) / 4000
    weights = np.arange(1, 6.0) ** -2
    assert np.allclose(shares, weights / weights.sum(), atol=0.03)


def test_rules_that_lead_back_to_themselves_come_to_an_end() -> None:
    ways: dict[str, float] = {"{filter} and {filter}": 45, "not {filter}": 5, "a = {a}": 50}
    drawn = texts({"filter": ways}, 3000)
    sizes = [sum(1 for _ in parse(text).atoms()) for text in drawn]
    assert max(sizes) > 20
    assert np.median(sizes) == 1


def test_even_the_deepest_recursion_is_within_the_limits_of_filters() -> None:
    ways: dict[str, float] = {"not (a = 1 and (b = 1 or {filter}))": 99.9, "c = 1": 0.1}
    for text in texts({"filter": ways}, 50):
        parse(text)


# --- random grammars ----------------------------------------------------------------------------


def random_rules(random: Random) -> dict[str, list[str]]:
    """Return rules of which each leads only to those below it, so that they end."""
    count = random.randint(1, 5)
    rules = {}
    for number in range(count):
        below = [f"{{t{n}}}" for n in range(number + 1, count + 1)]
        ways = [random_way(random, below) for _ in range(random.randint(1, 3))]
        rules[f"t{number}" if number else "filter"] = [*ways, below[0]]
    return rules | {f"t{count}": ["a < {a}", "name = {name}", "{f0..f9} between 0 and 1"]}


def random_way(random: Random, below: list[str]) -> str:
    one, other = random.choice(below), random.choice(below)
    word = random.choice(("and", "or", "xor"))
    return random.choice(
        (
            f"{one} {word} {other}",
            f"not {one}",
            f"({one}) {word} not {other}",
            f"{{{word} 1..3 {one[1:-1]}}}",
            f"{one} and {other} or {one}",
        )
    )


@settings(max_examples=in_volume(40))
@given(st.randoms(use_true_random=False))
def test_parentheses_stand_wherever_they_make_a_difference(random: Random) -> None:
    rules = random_rules(random)
    # The same grammar with parentheses around everything takes the same random numbers.
    enclosed = {
        name: [re.sub(r"\bt(\d)\b", r"u\1", way) for way in ways] for name, ways in rules.items()
    }
    used = sorted({found for ways in enclosed.values() for found in re.findall(r"u\d", str(ways))})
    enclosed |= {u: [f"({{t{u[1]}}})"] for u in used}
    for text, cautious in zip(texts(rules, 30), texts(enclosed, 30), strict=True):
        assert parse(text) == parse(cautious)


def test_and_of_ors_is_an_and() -> None:
    workload = workload_of(
        {
            "filter": "{and 2..3 o}",
            "o": "{or 2 x}",
            "x": "{xor 2 y}",
            "y": "not {t}",
            "t": "a = {a}",
        }
    )
    for filter_ in workload.filters(0, 100, seed=5):
        assert isinstance(filter_, And)
        for either in filter_.terms:
            assert isinstance(either, Or)
            assert all(isinstance(term, Xor) for term in either.terms)
            atoms = [part for x in either.terms if isinstance(x, Xor) for part in x.terms]
            assert all(isinstance(p, Not) and isinstance(p.term, Compare) for p in atoms)
