"""The encoding against the oracle: a real event's assignment leads to the oracle's answer."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings

from seeds import in_volume, seeds
from strategies import generators, random_event, random_filter, random_world
from tamis.diagrams.atom_intervals import TextPredicate
from tamis.diagrams.diagram import Node
from tamis.diagrams.encoding import Encoding
from tamis.diagrams.kernels import TRUE
from tamis.diagrams.value_order import ABSENT, BRACKET_OF_KIND, OTHER, TEXTS, Breakpoint
from tamis.diagrams.variable_order import ADDRESS, FOLDED, ComparedPair, Variable
from tamis.diagrams.witness import find_witness
from tamis.events import Bits, Event, Kind, Schema, Value
from tamis.events.kinds import kind_of
from tamis.filters import Mode
from tamis.filters.arithmetic import MAX_COMBINATIONS, Relation, compare_values
from tamis.filters.modes import view_of
from tamis.filters.networks import position_of
from tamis.filters.printing import ANY
from tamis.languages import parse


def position(value: Value) -> Breakpoint:
    kind = kind_of(value)
    if kind is None:
        return (OTHER, 0)
    if kind is Kind.BITS:
        return (BRACKET_OF_KIND[Kind.BITS], 0)
    return (BRACKET_OF_KIND[kind], value)


def backward(value: Value) -> Breakpoint:
    return (TEXTS, value[::-1]) if isinstance(value, str) else (TEXTS,)


def outcomes_of_choices(pair: ComparedPair, event: Event) -> set[str]:
    """Return how the values of a pair compare, for some choice of them."""
    names = sorted(Relation.of("=", *pair).attributes())
    single = all(len(event.get(name, ())) == 1 for name in names)
    found = set()
    if math.prod(len(event.get(name, ())) for name in names) > MAX_COMBINATIONS:
        return set()
    for values in product(*(event.get(name, ()) for name in names)):
        sides = [side.value(dict(zip(names, values, strict=True))) for side in pair]
        truths = {op: compare_values(op, *sides) for op in ("<", "=", ">")}
        if truths["="] is not None:
            found.add("known")
        if truths["<"] is None and not single:
            found |= {{True: "same", False: "different", None: ""}[truths["="]]}
        else:
            found |= {name for name, op in OUTCOMES.items() if truths[op]}
    return found


OUTCOMES = {"less": "<", "equal": "=", "greater": ">"}


def says(variable: Variable, event: Event, completed: Event, others: tuple[Value, ...]) -> bool:
    """Return whether the test of a variable holds, without the code under test.

    Only of comparisons between attributes does the diagram leave defaults to the variable, and of
    texts of attributes that no filter mentions, which are `others`.
    """
    name, subject, role = variable
    values = others if name == ANY else event.get(name, ())
    if role.startswith(ADDRESS):
        role = role.removeprefix(ADDRESS)
        values = tuple(f"{position_of(v):033x}" for v in values if isinstance(v, str))
    if role.startswith(FOLDED):
        role = role.removeprefix(FOLDED)
        values = tuple(v.casefold() for v in values if isinstance(v, str))
    match subject:
        case ComparedPair():
            return role in outcomes_of_choices(subject, completed)
        case TextPredicate():
            return any(isinstance(v, str) and subject.accepts(v) for v in values)
        case Bits():
            return any(isinstance(v, Bits) and subject <= v for v in values)
        case ((*low,), (*high,)):
            texts = [v for v in values if role == "forward" or isinstance(v, str)]
            place = position if role == "forward" else backward
            return any(tuple(low) <= place(v) < tuple(high) for v in texts)
        case _:
            place = position if role == "forward" else backward
            at = place(values[0]) if values else (ABSENT, 0)
            assert isinstance(subject, tuple)
            return at < subject


def evaluate(encoding: Encoding, root: Node, event: Event, schema: Schema | None) -> bool:
    seen = view_of(event, Mode.SQL, schema).event
    completed = view_of(event, encoding.mode, schema).event
    others = tuple(
        value
        for name, values in completed.items()
        if name not in encoding.variable_order.by_attribute
        for value in values
        if isinstance(value, str)
    )
    variables, lows, highs = encoding.diagram.nodes()
    node = root
    while node > TRUE:
        variable = encoding.variable_order.variables[variables[node]]
        node = (highs if says(variable, seen, completed, others) else lows)[node]
    return bool(node == TRUE)


def check_case(rng: Random) -> int:
    typed = rng.random() < 0.6
    world = random_world(rng, typed=typed)
    mode = rng.choice(list(Mode) if typed else [Mode.SQL, Mode.STRICT, Mode.DEFAULT])
    filters = [random_filter(rng, world, rng.choice((1, 2, 3))) for _ in range(2)]
    bound = [f if world.schema is None else f.bind(world.schema) for f in filters]
    encoding = Encoding(bound, mode, world.schema, many=True, budget=10**5)
    roots = [encoding.matches(f) for f in bound]
    encoding.diagram.assert_consistent()
    events = [random_event(rng, world, total=mode is Mode.TOTAL) for _ in range(8)]
    for event in events:
        for filter_, root in zip(filters, roots, strict=True):
            expected = filter_.matches(event, mode, world.schema)
            found = evaluate(encoding, root, event, world.schema)
            assert found is expected, f"{mode} {world.schema}: {filter_} on {event} gives {found}"
    return len(events) * len(filters)


@given(generators())
@settings(max_examples=in_volume(60))
def test_an_events_assignment_leads_to_the_oracles_answer(rng: Random) -> None:
    check_case(rng)


@pytest.mark.parametrize("seed", seeds(4))
def test_an_events_assignment_leads_to_the_oracles_answer_in_volume(seed: int) -> None:
    rng = Random(seed)
    assert sum(check_case(rng) for _ in range(250)) == 4000


def test_nan_is_on_the_line_but_compares_with_nothing() -> None:
    assert position(math.nan) == (OTHER, 0)


@pytest.mark.parametrize(("budget", "most"), [(1_000, 50), (10_000, 500)])
def test_looking_for_an_example_is_part_of_the_budget(budget: int, most: int) -> None:
    """Found by a stranger: it was the most of the work, and counted as none."""
    conditions = [parse(f"a + {n} > b * {n + 1} and c < d") for n in range(2)]
    encoding = Encoding(conditions, Mode.SQL, None, many=False, budget=budget)
    root = encoding.diagram.both(encoding.possible(), encoding.matches(conditions[0]))
    looked_at: list[Event] = []

    def is_never_one(event: Event) -> bool:
        looked_at.append(event)
        return False

    assert find_witness(encoding, root, is_never_one) is None
    assert len(looked_at) == most
