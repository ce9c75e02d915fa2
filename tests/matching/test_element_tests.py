"""Tests of elements: every way to match gives what a plain evaluation of nested data gives."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from seeds import seeds
from tamis import Engine, parse
from tamis.access import Policy
from tamis.covering import CoveringIndex
from tamis.diagrams import covers, equivalent, intersects, is_never
from tamis.diagrams.pictures import Picture
from tamis.errors import EventError, FilterTypeError, LimitError, PolicyError
from tamis.events import Event
from tamis.events.batch import EventBatch
from tamis.filters import any_of, attr
from tamis.filters.element_bounds import bound_mode, upper_bound
from tamis.filters.modes import Mode
from tamis.matching import Subscription

Node = tuple[Any, ...]
"""A random filter: its word, then its parts."""

OPERATORS = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
}
MODES = ("sql", "default", "strict")
FILTERS, EVENTS = 50, 10


# --- a plain evaluation of nested data ----------------------------------------------------------


def reached(data: object, keys: tuple[str, ...]) -> Iterator[object]:
    """Yield what lies at a path, through lists."""
    if isinstance(data, list):
        for item in data:
            yield from reached(item, keys)
    elif not keys:
        yield data
    elif isinstance(data, dict) and keys[0] in data:
        yield from reached(data[keys[0]], keys[1:])


def scalars(data: object, path: str) -> list[Any]:
    found = reached(data, tuple(path.split(".")))
    return [value for value in found if value is not None and not isinstance(value, dict)]


def all_texts(data: object) -> Iterator[str]:
    if isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from all_texts(item)
    elif isinstance(data, str):
        yield data


def some(truths: list[bool | None], nothing: bool | None) -> bool | None:
    if not truths:
        return nothing
    if True in truths:
        return True
    return None if None in truths else False


def plain_truth(node: Node, data: object, nothing: bool | None) -> bool | None:
    """Return the truth of a filter; `nothing` is that of a comparison without a value."""
    match node:
        case ("not", term):
            truth = plain_truth(term, data, nothing)
            return None if truth is None else not truth
        case ("and", *terms):
            opposites = [plain_truth(("not", term), data, nothing) for term in terms]
            truth = some(opposites, False)
            return None if truth is None else not truth
        case ("or", *terms):
            return some([plain_truth(term, data, nothing) for term in terms], False)
        case ("xor", *terms):
            truths = [plain_truth(term, data, nothing) for term in terms]
            return None if None in truths else sum(map(bool, truths)) % 2 == 1
        case ("some", path, condition):
            objects = [o for o in reached(data, tuple(path.split("."))) if isinstance(o, dict)]
            return some([plain_truth(condition, each, nothing) for each in objects], nothing)
        case ("present", path):
            return bool(scalars(data, path))
        case ("any", text):
            return some([text in each for each in all_texts(data)], nothing)
        case ("sum", left, right, bound):
            sides = [[v for v in scalars(data, p) if type(v) is int] for p in (left, right)]
            return some([a + b > bound for a in sides[0] for b in sides[1]], nothing)
        case (op, path, constant):
            same = [v for v in scalars(data, path) if type(v) is type(constant)]
            return some([OPERATORS[op](value, constant) for value in same], nothing)
    raise AssertionError(node)


def plain_atoms(node: Node) -> Iterator[Node]:
    if node[0] in {"not", "and", "or", "xor"}:
        for term in node[1:]:
            yield from plain_atoms(term)
    else:
        yield node


def plain_match(node: Node, data: object, mode: str) -> bool:
    nothing = False if mode == "default" else None
    if mode == "strict" and None in [plain_truth(a, data, nothing) for a in plain_atoms(node)]:
        return False
    return plain_truth(node, data, nothing) is True


# --- random filters and events ------------------------------------------------------------------


def random_event(random: Random, depth: int = 3) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in "abxy":
        if random.random() < 0.6:
            found[name] = random_member(random, depth) if name in "ab" else random_scalar(random)
    return found


def random_scalar(random: Random) -> object:
    return random.choice((1, 2, 3, "s", "t", "st", None))


def random_member(random: Random, depth: int) -> object:
    kind = random.randrange(6) if depth else 5
    if kind <= 2:
        return [random_event(random, depth - 1) for _ in range(random.randint(0, 3))]
    if kind == 3:
        return random_event(random, depth - 1)
    if kind == 4:
        return [[random_event(random, depth - 1)], random_scalar(random), {}]
    return random_scalar(random)


def random_filter(random: Random, depth: int) -> Node:
    kind = random.randrange(12) if depth else 8
    if kind <= 2:
        path = random.choice(("a", "b", "a", "b", "a.b", "b.a"))
        return ("some", path, random_filter(random, depth - 1))
    if kind == 3:
        return ("not", random_filter(random, depth - 1))
    if kind <= 6:
        word = random.choice(("and", "and", "or", "xor"))
        return (word, *(random_filter(random, depth - 1) for _ in range(random.randint(2, 3))))
    path = random.choice(("x", "y", "x", "y", "a.x", "b.y", "a"))
    rare = random.random()
    if rare < 0.1:
        return ("present", path)
    if rare < 0.15:
        return ("any", random.choice("st"))
    if rare < 0.2:
        return ("sum", "x", "y", random.randint(1, 5))
    return (random.choice(tuple(OPERATORS)), path, random.choice((1, 2, 3, "s", "t")))


def written(node: Node) -> str:
    match node:
        case ("not", term):
            return f"not ({written(term)})"
        case ("and" | "or" | "xor" as word, *terms):
            return f" {word} ".join(f"({written(term)})" for term in terms)
        case ("some", path, condition):
            return f"{path}[{written(condition)}]"
        case ("present", path):
            return f"{path} is present"
        case ("any", text):
            return f'any contains "{text}"'
        case ("sum", left, right, bound):
            return f"{left} + {right} > {bound}"
        case (op, path, constant):
            return f"{path} {op} {json.dumps(constant)}"
    raise AssertionError(node)


class Case:
    """Random filters and events, and which match which."""

    def __init__(self, seed: int, mode: str) -> None:
        random = Random(seed)
        self.mode = mode
        self.nodes = [random_filter(random, 3) for _ in range(FILTERS)]
        self.events = [random_event(random) for _ in range(EVENTS)]
        self.expected = [
            [n for n, node in enumerate(self.nodes) if plain_match(node, event, mode)]
            for event in self.events
        ]

    def engine(self) -> Engine:
        engine = Engine(mode=self.mode)
        for number, node in enumerate(self.nodes):
            engine.add(number, written(node))
        return engine


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(150))
def test_every_way_to_match_agrees_with_a_plain_evaluation(seed: int, mode: str) -> None:
    case = Case(seed, mode)
    filters = [parse(written(node)) for node in case.nodes]
    oracle = [
        [n for n, one in enumerate(filters) if one.matches(event, mode)] for event in case.events
    ]
    assert oracle == case.expected
    engine = case.engine()
    assert [engine.match(event) for event in case.events] == case.expected
    assert [engine.match(Event(event)) for event in case.events] == case.expected
    assert [engine.match_json(json.dumps(event)) for event in case.events] == case.expected
    assert [*engine.match_batch(case.events)] == case.expected
    lines = "\n".join(map(json.dumps, case.events))
    assert [*engine.match_json_lines(lines)] == case.expected
    assert [*engine.match_json_lines(lines.splitlines())] == case.expected
    engine.compact()
    assert [engine.match(event) for event in case.events] == case.expected
    assert [*engine.match_batch(case.events)] == case.expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", seeds(150))
def test_a_bound_holds_wherever_its_filter_does(seed: int, mode: str) -> None:
    case = Case(1_000 + seed, mode)
    sharp = 0
    for number, node in enumerate(case.nodes):
        bound = upper_bound(parse(written(node)), Mode(mode))
        assert "[" not in str(bound)
        for event, expected in zip(case.events, case.expected, strict=True):
            holds = bound.matches(event, bound_mode(Mode(mode)))
            assert holds or number not in expected, (written(node), event)
            sharp += not holds
    assert sharp > FILTERS * EVENTS // 10


# --- what no random filter says -----------------------------------------------------------------

CHAIRS = 'items[sku = "chair" and quantity > 5]'
CROSSED = {"items": [{"sku": "chair", "quantity": 2}, {"sku": "table", "quantity": 10}]}
MATCHING = {"items": [{"sku": "chair", "quantity": 6}]}


def chairs() -> Engine:
    engine = Engine()
    engine.add("chairs", CHAIRS)
    return engine


@pytest.mark.parametrize("seed", seeds(50))
def test_rows_of_arrow_tables_have_elements(seed: int) -> None:
    random = Random(seed)
    table = [
        {
            "x": random.choice((1, 2, None)),
            "a": random.choice(
                (
                    None,
                    [
                        {"x": random.choice((1, 2, 3, None)), "y": random.choice(("s", "t", None))}
                        for _ in range(random.randint(0, 3))
                    ],
                )
            ),
        }
        for _ in range(50)
    ]
    nodes = [random_filter(random, 2) for _ in range(25)]
    engine = Engine()
    for number, node in enumerate(nodes):
        engine.add(number, written(node))
    expected = [
        [number for number, node in enumerate(nodes) if plain_match(node, row, "sql")]
        for row in table
    ]
    assert [*engine.match_batch(pa.Table.from_pylist(table))] == expected
    assert any(expected)


def test_rows_have_attributes_that_only_the_exact_filter_tests() -> None:
    engine = Engine()
    engine.add(1, "a[x = 1] xor y = 2")
    table = pa.Table.from_pylist([{"a": [{"x": 1}], "y": 2}, {"a": [{"x": 1}], "y": 3}])
    assert [*engine.match_batch(table)] == [[], [1]]


def test_a_part_of_a_batch_knows_its_events_as_they_were_given() -> None:
    part = EventBatch.of_events([{"x": 1}, {"x": 2}, {"x": 3}]).part(1, 3)
    assert part.given is not None
    assert [part.given(0), part.given(1)] == [{"x": 2}, {"x": 3}]


def test_many_subscriptions_at_once_have_element_tests() -> None:
    engine = Engine()
    texts = [f'items[sku = "chair" and quantity > {n}]' for n in range(1_100)]
    added = engine.add_many([Subscription(n, text) for n, text in enumerate(texts)])
    assert not added.rejected
    assert engine.match(MATCHING) == [*range(6)]
    assert [*engine.match_batch([CROSSED, MATCHING])] == [[0, 1], [*range(6)]]


def test_a_subscription_can_be_replaced_and_removed() -> None:
    engine = chairs()
    assert str(engine.filter("chairs")[0]) == CHAIRS
    engine.replace("chairs", "items.quantity > 5")
    assert engine.match(CROSSED) == ["chairs"]
    engine.replace("chairs", CHAIRS)
    assert engine.match(CROSSED) == []
    engine.remove("chairs")
    assert engine.match(MATCHING) == []


def test_an_explanation_says_what_holds_exactly() -> None:
    engine = chairs()
    assert str(engine.explain("chairs", CROSSED)) == (
        f"'chairs' does not match:\n- this does not hold exactly: {CHAIRS}"
    )
    assert str(engine.explain("chairs", MATCHING)) == (f"'chairs' matches:\n- this holds: {CHAIRS}")
    assert str(engine.explain("chairs", {"items": [{"sku": "table", "quantity": 6}]})) == (
        "'chairs' does not match:\n"
        '- items.sku is "table", so items.sku = "chair" is false: it needs exactly "chair"\n'
        "No change was found that would make it match."
    )


def test_events_that_lost_their_elements_are_refused() -> None:
    flat = Event.of_checked(Event(MATCHING).held)
    with pytest.raises(EventError, match="items: only its values are known"):
        chairs().match(flat)
    with pytest.raises(EventError, match="items: only its values are known"):
        parse(CHAIRS).matches(flat)
    assert not parse(CHAIRS).matches(Event.of_checked({"price": (5,)}))


def test_a_copied_event_keeps_its_elements() -> None:
    copied = pickle.loads(pickle.dumps(Event(MATCHING)))  # noqa: S301 - it was made here
    assert chairs().match(copied) == ["chairs"]


def test_a_snapshot_holds_element_tests(tmp_path: Path) -> None:
    chairs().save(tmp_path / "engine")
    loaded = Engine.load(tmp_path / "engine")
    for quantity in (4, 9):
        order = {"items": [{"sku": "chair", "quantity": quantity}, {"sku": "table", "quantity": 9}]}
        assert loaded.match(order) == chairs().match(order)
    assert loaded.match({"items": [{"sku": "chair", "quantity": 9}]}) == ["chairs"]


def test_relations_are_safe() -> None:
    test = parse(CHAIRS)
    assert covers(parse('items.sku = "chair"'), test) == (True, True, None, "")
    assert not intersects(test, parse("items.quantity is absent"))
    assert equivalent(test, parse(CHAIRS))
    assert is_never(parse("items[x = 1 and false]"))
    unsure = covers(test, parse('items.sku = "chair"'))
    assert (unsure.yes, unsure.exact) == (False, False)
    assert intersects(test, ~test) == (True, False, None, "tests of elements are not compared")
    with pytest.raises(FilterTypeError, match="a diagram cannot test elements"):
        Picture({"it": test})


@pytest.mark.parametrize("text", ["items[" * 70 + "x = 1" + "]" * 70, "a[b[" * 3_000])
def test_depth_is_limited(text: str) -> None:
    with pytest.raises(LimitError, match="levels inside the filter"):
        parse(text)


def test_conditions_count_as_atoms() -> None:
    conditions = " or ".join(f"x = {n}" for n in range(1_100))
    with pytest.raises(LimitError, match="atoms in the filter"):
        parse(f"items[{conditions}]")
    with pytest.raises(LimitError, match="atoms in the filter"):
        Engine().add(1, attr("items").some(any_of(*(attr("x") == n for n in range(1_100)))))
    with pytest.raises(LimitError, match="steps for one character"):
        parse("items[" + " and ".join(['x matches "(a|b){90}"'] * 5) + "]")


def test_rejected_lines_match_nothing() -> None:
    engine = Engine()
    engine.add(1, "items[x is absent]")
    found = engine.match_json_lines('{"items": [{}]}\n{"items": [{}, }\n')
    assert [*found] == [[1], []]
    assert [*found.errors] == [1]


def test_policies_and_covering_indexes_refuse_element_tests() -> None:
    with pytest.raises(PolicyError, match="a policy cannot test elements"):
        Policy.parse("[roles.r]\nsee = { filter = 'items[x = 1]' }\n")
    with pytest.raises(FilterTypeError, match="an index of covering cannot test elements"):
        CoveringIndex().add("it", parse("items[x = 1]"))


def test_lint_passes_over_element_tests() -> None:
    engine = chairs()
    engine.add("again", CHAIRS)
    engine.add("never", "x < 1 and x > 2")
    engine.add("wide", 'items.sku = "chair"')
    engine.add("narrow", 'items.sku = "chair" and items.quantity > 5')
    assert [finding.id for finding in engine.lint()] == ["never", "narrow"]


def test_too_many_tests_of_elements_are_undecided_and_others_are_answered() -> None:
    engine, pairs = Engine(), " or ".join(f"a = {n} and b = {n + 1}" for n in range(500))
    engine.add("costly", f"items[{pairs}]")
    engine.add("cheap", "items[a = 0 and b = 0]")
    event = {"items": [{"a": n % 500, "b": n % 500} for n in range(600)]}
    assert engine.match(event) == ["cheap"]
    assert engine.undecided["costly"].times == 1
    assert "tests of the elements of one event" in engine.undecided["costly"].reason
    assert engine.match({"items": [{"a": 3, "b": 4}]}) == ["costly"]
