"""What a grammar makes: filters that can be read, the same for every way to draw them."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis import parse
from tamis.filters.atoms import Compare
from tamis.filters.boolean import And, Not, Or, Xor
from tamis.workloads import Workload, shipped

ATTRIBUTES = """
attribute a, b, c : int 0..9
attribute f0..f9  : float 0..1 step 0.25
attribute name    : str "x" | "y"
attribute `unit price` : float 0..100
attribute at      : timestamp "2026-01-01".."2026-01-02" step 3600
"""

names = pytest.mark.parametrize("name", shipped())


def texts(rules: str, count: int = 200, seed: int = 1) -> list[str]:
    found = Workload(ATTRIBUTES + rules).subscriptions(0, count, seed).column("filter")
    return list(found.to_pylist())


# --- numbers ------------------------------------------------------------------------------------


@names
def test_a_subscription_is_the_same_whoever_draws_it(name: str) -> None:
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
        with pytest.raises(ValueError, match="no range from 0 on"):
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
    "a = some a": r"a = \d",
    "`unit price` < some `unit price`": r"`unit price` < \d+\.\d+(e-\d+)?",
    "name = some name": r'name = "[xy]"',
    "at > some at": r'at > timestamp "2026-01-0\dT\d\d:00:00Z"',
    "f0..f9 < some f0": r"f\d < (0\.0|0\.25|0\.5|0\.75|1\.0)",
    "a = 3..5": r"a = [345]",
    "f3..f5 = 1": r"f[345] = 1",
    "a is present and b is not a number": r"a is present and b is not a number",
    'name starts with "{x}#"': r'name starts with "\{x\}#"',
}


@pytest.mark.parametrize("rule", ONE_RULE)
def test_words_stay_and_draws_become_values(rule: str) -> None:
    for text in texts(f"filter = {rule}", 50):
        assert re.fullmatch(ONE_RULE[rule], text)


PUT_TOGETHER = {
    "filter = either and c = 1\neither = a = 1 or b = 1": "(a = 1 or b = 1) and c = 1",
    "filter = either or c = 1\neither = a = 1 or b = 1": "a = 1 or b = 1 or c = 1",
    "filter = both or c = 1\nboth = a = 1 and b = 1": "a = 1 and b = 1 or c = 1",
    "filter = not both\nboth = a = 1 and b = 1": "not (a = 1 and b = 1)",
    "filter = (both) xor c = 1\nboth = a = 1 or b = 1": "(a = 1 or b = 1) xor c = 1",
    "filter = one and c = 1\none = two\ntwo = a = 1 or b = 1": "(a = 1 or b = 1) and c = 1",
    "filter = t{2 and}\nt = a = 1 or b = 1": "(a = 1 or b = 1) and (a = 1 or b = 1)",
    "filter = t and c = 1\nt = u{2 or}\nu = a = 1": "(a = 1 or a = 1) and c = 1",
    "filter = t and c = 1\nt = (a = 1 or b = 1)": "(a = 1 or b = 1) and c = 1",
    "filter = t and c = 1\nt = not u\nu = a = 1": "not (a = 1) and c = 1",
    "filter = sum * 2 > 3\nsum = a + b": "(a + b) * 2 > 3",
    "filter = a - sum > 3\nsum = b - c": "a - (b - c) > 3",
    "filter = sum - a > 3\nsum = b - c": "b - c - a > 3",
    "filter = a between 1 and 2 and t\nt = b = 1 or c = 1":
        "a between 1 and 2 and (b = 1 or c = 1)",
    "filter = t or c = 1\nt = a between 1 and 2": "a between 1 and 2 or c = 1",
    "filter = a between w and t\nvalue w : int 3..4 wide 2\nt = b = 1 or c = 1":
        "a between 3 and 4 and (b = 1 or c = 1)",
}  # fmt: skip


@pytest.mark.parametrize("rules", PUT_TOGETHER)
def test_a_rule_is_one_condition_wherever_it_stands(rules: str) -> None:
    assert set(texts(rules, 5)) == {PUT_TOGETHER[rules]}


def test_alternatives_come_as_often_as_they_should() -> None:
    drawn = Counter(texts("filter = 70% a = 1 | 20% t | 10% b = 3\nt = b = 1 | b = 2", 10_000))
    for text, share in {"a = 1": 0.7, "b = 1": 0.1, "b = 2": 0.1, "b = 3": 0.1}.items():
        assert drawn[text] / 10_000 == pytest.approx(share, abs=0.02)


def test_repetitions_are_as_many_and_as_different_as_they_should_be() -> None:
    counts: Counter[int] = Counter()
    for text in texts("filter = t{2..4 distinct and}\nt = f0..f9 > some f0 | a < 3", 3000):
        attributes = re.findall(r"\b(f\d|a)\b", text)
        assert len(set(attributes)) == len(attributes)
        counts[len(attributes)] += 1
    assert set(counts) == {2, 3, 4}
    assert min(counts.values()) > 900


def test_a_window_lies_inside_of_its_range() -> None:
    ends = [
        tuple(map(int, re.findall(r"\d+", text)))
        for text in texts("filter = a between w\nvalue w : int 10..20 wide 3..5", 2000)
    ]
    assert {high - low + 1 for low, high in ends} == {3, 4, 5}
    assert min(low for low, _ in ends) == 10
    assert max(high for _, high in ends) == 20


def test_a_pool_holds_so_many_conditions_and_no_more() -> None:
    rules = "filter = p and p\npool p : 5 of t zipf 2\nt = `unit price` < some `unit price`"
    drawn = [text.split(" and ") for text in texts(rules, 2000)]
    often = Counter(part for pair in drawn for part in pair)
    assert len(often) == 5
    shares = np.array([count for _, count in often.most_common()]) / 4000
    weights = np.arange(1, 6.0) ** -2
    assert np.allclose(shares, weights / weights.sum(), atol=0.03)


def test_rules_that_lead_back_to_themselves_come_to_an_end() -> None:
    rules = "filter = 45% filter and filter | 5% not filter | 50% a = some a"
    drawn = texts(rules, 3000)
    sizes = [sum(1 for _ in parse(text).atoms()) for text in drawn]
    assert max(sizes) > 20
    assert np.median(sizes) == 1


def test_even_the_deepest_recursion_is_within_the_limits_of_filters() -> None:
    for text in texts("filter = 99.9% not (a = 1 and (b = 1 or filter)) | 0.1% c = 1", 50):
        parse(text)


# --- random grammars ----------------------------------------------------------------------------


def random_rules(random: Random) -> str:
    """Return rules of which each leads only to those below it, so that they end."""
    count = random.randint(1, 5)
    lines = []
    for number in range(count):
        below = [f"t{n}" for n in range(number + 1, count + 1)]
        ways = [random_way(random, below) for _ in range(random.randint(1, 3))]
        lines.append(f"{f't{number}' if number else 'filter'} = {' | '.join([*ways, below[0]])}")
    return "\n".join([*lines, f"t{count} = a < some a | name = some name | f0..f9 between 0 and 1"])


def random_way(random: Random, below: list[str]) -> str:
    one, other = random.choice(below), random.choice(below)
    word = random.choice(("and", "or", "xor"))
    return random.choice(
        (
            f"{one} {word} {other}",
            f"not {one}",
            f"({one}) {word} not {other}",
            f"{one}{{1..3 {word}}}",
            f"{one} and {other} or {one}",
        )
    )


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_parentheses_stand_wherever_they_make_a_difference(random: Random) -> None:
    rules = random_rules(random)
    # The same grammar with parentheses around everything takes the same random numbers.
    references = re.sub(r"\bt(\d)\b(?! =)", r"u\1", rules)
    used = sorted(set(re.findall(r"u\d", references)))
    enclosed = "\n".join([references, *(f"{u} = (t{u[1]})" for u in used)])
    for text, cautious in zip(texts(rules, 30), texts(enclosed, 30), strict=True):
        assert parse(text) == parse(cautious)


def test_and_of_ors_is_an_and() -> None:
    workload = Workload(
        ATTRIBUTES + "filter = o{2..3 and}\no = x{2 or}\nx = y{2 xor}\ny = not t\nt = a = some a"
    )
    for filter_ in workload.filters(0, 100, seed=5):
        assert isinstance(filter_, And)
        for either in filter_.terms:
            assert isinstance(either, Or)
            assert all(isinstance(term, Xor) for term in either.terms)
            atoms = [part for x in either.terms if isinstance(x, Xor) for part in x.terms]
            assert all(isinstance(p, Not) and isinstance(p.term, Compare) for p in atoms)
