"""What is found by index against what the atoms themselves say."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from itertools import product
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from seeds import seeds
from strategies import generators
from tamis.diagrams.atom_intervals import intervals_of
from tamis.diagrams.value_order import BRACKET_OF_KIND, Partition, ValueOrder
from tamis.events import Attribute, Bits, Event, Kind, Schema, Type, Value
from tamis.events.batch import Column, EventBatch
from tamis.events.columns import Entries, entries_of
from tamis.filters import Mode
from tamis.filters.arithmetic import Arithmetic, Expression, Literal, Reference, Relation
from tamis.filters.atoms import COMPARISONS, HasBits, Like, Regex, TextTest, ValueAtom
from tamis.filters.modes import View
from tamis.matching import Engine
from tamis.matching.compile.leaves import Predicate
from tamis.matching.evaluate import relations as relation_columns
from tamis.matching.evaluate import text_finders, text_index
from tamis.matching.evaluate.cells import Ranker
from tamis.matching.evaluate.predicates import PredicateIndex
from tamis.matching.evaluate.text_finders import (
    EachFinder,
    PatternFinder,
    Placed,
    asked_by,
    nesting,
    pattern_finders,
)
from tamis.matching.evaluate.text_index import TextIndex

# Few characters, so that texts meet; of one to four bytes, some with bytes in common.
CHARACTERS = "abAB \n.é\u00e8\u20ac\U0001f600\U0001f601\0"
SURROGATES = "ab\ud83d\ude00"

PATTERNS = (
    *("a+b", "^a.*b$", "(?i)ab", "(?s)a.b", "a.b", "(?m)^a$", "(?m)b$", r"\Aa", r"b\z", "[^a]"),
    *(r"\bab\b", r"\Ba", "a|b|é", "(a|ab)(b|é)*", "^(a|b)*$", r"\w+ \w+", r"\pL\PL", "a{2,3}"),
    *(r"\x{1F600}", "[è-é]", ".", "^.$", "()", "a*", "(?:)", "x^", "$a", r"\Qa.b\E", "[[:upper:]]"),
    *("é?$", "(?U)a+b", r"\C", r"\s$", "^$|a", "(?i)É", ".{3}", "(?-s).{4}", r"[\n]", r"\d|\x00"),
)


def passing_rows(
    predicates: Collection[Predicate], batch: EventBatch, schema: Schema | None = None
) -> NDArray[np.bool_]:
    rows = PredicateIndex(predicates, schema).find(batch)
    assert rows.shape[1] % 64 == 0
    assert not rows[:, len(batch) :].any()
    return rows[:, : len(batch)]


def random_text(rng: Random, longest: int = 8, characters: str = CHARACTERS) -> str:
    return "".join(rng.choices(characters, k=rng.randint(0, longest)))


def random_text_atom(rng: Random, characters: str = CHARACTERS) -> ValueAtom:
    text = random_text(rng, 4, characters)
    match rng.randrange(6):
        case 0:
            return Regex("t", Kind.TEXT, rng.choice(PATTERNS))
        case 1:
            parts = [rng.choice(("%", "_", "a", "b", "é", "\n", "\\%")) for _ in range(4)]
            return Like("t", Kind.TEXT, "".join(parts))
        case 2:
            return TextTest("t", Kind.TEXT, "within", random_text(rng, 30, characters))
        case 3 | 4:
            return TextTest("t", Kind.TEXT, "contains", text or "a")
        case _:
            return TextTest("t", Kind.TEXT, "ends with", text or "a")


def indexed(atoms: Sequence[ValueAtom]) -> tuple[list[ValueAtom], TextIndex]:
    """Return the atoms without intervals, equal ones once, and their index."""
    lineless = [atom for atom in atoms if intervals_of(atom, ValueOrder(None, Mode.SQL)) is None]
    different = list({asked_by(atom): atom for atom in lineless}.values())
    return different, index_of(different)


def index_of(atoms: Sequence[ValueAtom]) -> TextIndex:
    index = TextIndex()
    for row, atom in enumerate(atoms):
        index.add(row, atom)
    return index


def assert_same(atoms: Sequence[ValueAtom], index: TextIndex, texts: Sequence[str]) -> None:
    found = np.zeros((len(atoms), len(texts)), np.bool_)
    places = np.arange(len(texts), dtype=np.int32)
    index.set_rows(Entries(places, places, texts=texts), found)
    for (place, atom), (number, text) in product(enumerate(atoms), enumerate(texts)):
        assert found[place, number] == atom.accepts(text), f"{atom} on {text!r}"


def compare_texts(rng: Random) -> None:
    atoms = [random_text_atom(rng) for _ in range(rng.choice((1, 5, 40, 120)))]
    with (
        patch.object(text_finders, "SCAN_BYTES", rng.choice((1, 5, text_finders.SCAN_BYTES))),
        patch.object(
            text_finders, "MIN_AUTOMATON_TEXTS", rng.choice((1, text_finders.MIN_AUTOMATON_TEXTS))
        ),
        patch.object(text_finders, "MAX_NESTING", rng.choice((1, 2, text_finders.MAX_NESTING))),
        patch.object(text_finders, "MAX_LISTED_PER_PIECE", rng.choice((1, 256))),
        patch.object(text_finders, "MAX_OCCURRENCES", rng.choice((0, 1, 32))),
        patch.object(text_finders, "MAX_PART_BYTES", rng.choice((3, 1024))),
        patch.object(text_index, "TEXTS_PER_PASS", rng.choice((3, text_index.TEXTS_PER_PASS))),
    ):
        different, index = indexed(atoms)
        texts = [random_text(rng, rng.choice((3, 8, 30))) for _ in range(30)]
        assert_same(different, index, texts)


@given(generators())
@settings(max_examples=25)
def test_texts_pass_what_they_pass_one_by_one(rng: Random) -> None:
    compare_texts(rng)


@pytest.mark.parametrize("seed", seeds(4, by_default=0))
def test_texts_pass_what_they_pass_one_by_one_in_volume(seed: int) -> None:
    rng = Random(seed)
    for _ in range(60):
        compare_texts(rng)


@given(st.lists(st.text(min_size=1), min_size=8, unique=True), st.lists(st.text()))
def test_parts_and_endings_are_found_in_any_text(wanted: list[str], others: list[str]) -> None:
    atoms: list[ValueAtom] = [
        TextTest("t", Kind.TEXT, op, text) for op in ("contains", "ends with") for text in wanted
    ]
    texts = [*wanted, *others, *("".join(pair) for pair in zip(others, wanted, strict=False))]
    assert_same(atoms, index_of(atoms), texts)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_fits_the_same_texts_in_a_set(pattern: str) -> None:
    others = [Regex("t", Kind.TEXT, p) for p in PATTERNS if p != pattern]
    atoms = [Regex("t", Kind.TEXT, pattern), *others]
    finder = PatternFinder([Placed(n, atom, atom.pattern) for n, atom in enumerate(atoms)])
    rng = Random(pattern)
    for text in ["", *(random_text(rng) for _ in range(300))]:
        assert (0 in finder.find(text)) == atoms[0].accepts(text), repr(text)


def test_parts_and_endings_may_have_lone_surrogates() -> None:
    rng = Random(1)
    ops = ("contains", "ends with")
    wanted = {random_text(rng, 3, SURROGATES) for _ in range(60)} - {""}
    atoms: list[ValueAtom] = [
        TextTest("t", Kind.TEXT, op, text) for op in ops for text in sorted(wanted)
    ]
    texts = [random_text(rng, 6, SURROGATES + "\U0001f600") for _ in range(300)]
    assert_same(atoms, index_of(atoms), texts)


def test_a_long_text_has_parts_that_lie_across_its_pieces() -> None:
    rng = Random(2)
    text = "".join(rng.choices("ab", k=3 * text_finders.SCAN_BYTES))
    wanted = [text[at : at + 40] for at in range(0, len(text), 997)]
    atoms: list[ValueAtom] = [
        TextTest("t", Kind.TEXT, "contains", part) for part in [*wanted, "a" * 300, "b" * 299]
    ]
    assert_same(atoms, index_of(atoms), [text, text[1:], text[7:] + "\U0001f600"])


def test_parts_inside_of_each_other_do_not_multiply() -> None:
    atoms: list[ValueAtom] = [
        TextTest("t", Kind.TEXT, "contains", "a" * length) for length in range(1, 2001)
    ]
    text = "a" * 5000
    index = index_of(atoms)
    assert len([row for finder in index._finders for row in finder.find(text)]) == 2000
    listed = sum(
        len(finder._parts.automaton.find_matches_as_indexes(text.encode(), overlapping=True))
        for finder in index._finders
        if isinstance(finder, text_finders.PartFinder)
    )
    assert listed <= text_finders.MAX_NESTING * 5000


@pytest.mark.parametrize(
    ("parts", "levels"),
    [
        (["a"], [0]),
        (["a", "ba", "cba", "ca"], [0, 1, 2, 1]),
        (["cba", "ba", "a"], [2, 1, 0]),
        (["ab", "b", "abb", "bb"], [1, 0, 2, 1]),
    ],
)
def test_nesting_counts_the_endings(parts: list[str], levels: list[int]) -> None:
    assert nesting(parts) == levels


def test_nesting_is_what_counting_says() -> None:
    rng = Random(3)
    for _ in range(200):
        parts = list({random_text(rng, 5, "ab") for _ in range(20)} - {""})
        counted = [sum(p.endswith(other) for other in parts) - 1 for p in parts]
        assert nesting(parts) == counted


# --- sets of patterns that fail --------------------------------------------------------------


def placed(patterns: Sequence[str]) -> list[Placed]:
    return [Placed(n, Regex("t", Kind.TEXT, p), p) for n, p in enumerate(patterns)]


def test_patterns_that_are_too_large_together_are_parted() -> None:
    tests = placed([f"{letter}.{{50,99}}b" for letter in "abAB"] + ["a", "b"])
    with patch.object(text_finders, "PATTERN_SET_BYTES", 40_000):
        with pytest.raises(re2.error):
            PatternFinder(tests)
        finders = pattern_finders(tests)
    assert len(finders) > 1
    rng = Random(4)
    for text in [random_text(rng, 200) for _ in range(200)]:
        found = sorted(place for finder in finders for place in finder.find(text))
        assert found == list(EachFinder(tests).find(text))


def test_an_answer_that_is_none_is_not_taken_for_one() -> None:
    tests = placed(["a+", "b+", "[ab]$", "é"])
    finder = PatternFinder(tests)

    class OutOfMemory:
        def Match(self, text: str) -> None:  # noqa: N802, ARG002
            return None

    with patch.object(finder, "_set", OutOfMemory()):
        assert sorted(finder.find("xa")) == [0, 2]


def test_little_memory_changes_no_answer() -> None:
    patterns = [f"{a}.{{0,{n}}}{b}" for a, b, n in product("ab ", "AB\n", (3, 9, 20))]
    tests = placed(patterns)
    rng = Random(5)
    texts = [random_text(rng, 120) for _ in range(200)]
    for memory in (30_000, 60_000, 120_000, 1_000_000):
        with patch.object(text_finders, "PATTERN_SET_BYTES", memory):
            finders = pattern_finders(tests)
        for text in texts:
            found = sorted(place for finder in finders for place in finder.find(text))
            assert found == list(EachFinder(tests).find(text))


def test_patterns_that_are_tried_one_by_one_are_few() -> None:
    """Those whose literal a text lacks are not tried."""
    patterns = [f"part{n}.*x{n}" for n in range(50)] + [f"(?i)Word{n}.y" for n in range(50)]
    tests, tried, accepts = placed([*patterns, "a+", "b|c"]), list[str](), Regex.accepts

    def count(atom: Regex, text: str) -> bool:
        tried.append(atom.pattern)
        return accepts(atom, text)

    with patch.object(Regex, "accepts", count):
        finder = PatternFinder(tests)
        finder._max_characters = 0
        assert sorted(finder.find("part7 and WORD33 y, PART8, x7")) == [7, 83, 100]
    assert sorted(tried) == ["(?i)Word3.y", "(?i)Word33.y", "a+", "b|c", "part7.*x7"]


# --- relations -------------------------------------------------------------------------------

INSTANTS = tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
NUMBERS: tuple[Value, ...] = (
    *(0, 1, -1, 2, 3, -7, 0.0, -0.0, 0.5, 1.0, -1.5, 1e308, -1e308, 5e-324, math.inf, -math.inf),
    *(2**31, 2**53, 2**53 + 1, -(2**53) - 1, float(2**53), 2.0**62, 2.0**63, -(2.0**63), 3e9),
    *(2**62, 2**62 + 1, 2**63 - 1, 2**63 - 513, -(2**63), -(2**63) + 1, 3037000500, -3037000500),
)
OTHERS: tuple[Value, ...] = (math.nan, "", "a", "b", "é", True, False, *INSTANTS, Bits((1,)))


def random_expression(rng: Random, depth: int) -> Expression:
    if depth == 0 or rng.random() < 0.3:
        if rng.random() < 0.7:
            return Reference(rng.choice("abc"))
        return Literal.of(rng.choice(NUMBERS))
    op = rng.choice(("+", "-", "*", "/", "div"))
    left, right = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    return Arithmetic(op, left, right, depth=depth)


def random_relation(rng: Random) -> Relation:
    depth = rng.choice((0, 0, 1, 2))
    left, right = random_expression(rng, depth), random_expression(rng, rng.randint(0, depth))
    return Relation.of(rng.choice(list(COMPARISONS)), left, right)


def random_values(rng: Random, *, many: bool) -> tuple[Value, ...]:
    if rng.random() < 0.15:
        return (rng.choice(OTHERS),)
    if many and rng.random() < 0.2:
        return tuple(rng.choices((*NUMBERS, *OTHERS), k=rng.choice((2, 3, 3, 6, 12, 130))))
    roll = rng.random()
    if roll < 0.7:
        return (rng.choice(NUMBERS),)
    if roll < 0.85:
        return (rng.randint(-(2**63), 2**63 - 1) >> rng.randint(0, 62),)
    return (rng.uniform(-9, 9) * 2.0 ** rng.randint(-60, 60),)


def random_events(rng: Random, count: int, *, many: bool = True) -> list[Event]:
    return [
        Event.of_checked({n: random_values(rng, many=many) for n in "abc" if rng.random() < 0.85})
        for _ in range(count)
    ]


def random_defaults(rng: Random) -> Schema:
    """Return a schema with defaults of many types; the events need not be of those types."""
    choices: list[Attribute] = [
        Attribute(Type.INT, 2**53 + 1),
        Attribute(Type.INT, 0),
        Attribute(Type.FLOAT, -1.5),
        Attribute(Type.STR, "a"),
        Attribute(Type.TIMESTAMP, INSTANTS[0]),
        Attribute(Type.BOOL, True),
        Attribute(Type.FLOAT),
    ]
    return Schema({name: rng.choice(choices) for name in "ab"})


def compare_relations(rng: Random, *, relations: int, events: int) -> int:
    schema = random_defaults(rng) if rng.random() < 0.5 else None
    asked = {
        Predicate(
            random_relation(rng), rng.random() < 0.5, schema is not None and rng.random() < 0.5
        )
        for _ in range(relations)
    }
    predicates = {predicate: number for number, predicate in enumerate(asked)}
    held = random_events(rng, events, many=rng.random() < 0.5)
    with (
        patch.object(relation_columns, "MIN_COMBINED", rng.choice((1, 24))),
        patch.object(relation_columns, "MAX_COMBINED", rng.choice((5, 16_384))),
        patch.object(relation_columns, "MAX_KEPT_VALUES", rng.choice((3, 100_000))),
    ):
        found = passing_rows(predicates, EventBatch.of_events(held), schema)
    for predicate, number in predicates.items():
        for place, event in enumerate(held):
            whole = schema.with_defaults(event) if schema and predicate.completed else event
            wanted = predicate.atom.truth_in(View(whole, None)) is predicate.truth
            assert found[number, place] == wanted, f"{predicate} on {whole}"
    return len(asked) * len(held)


@given(generators())
@settings(max_examples=25)
def test_relations_hold_where_the_oracle_says(rng: Random) -> None:
    compare_relations(rng, relations=4, events=rng.choice((1, 20)))


@pytest.mark.parametrize("seed", seeds(4, by_default=0))
def test_relations_hold_where_the_oracle_says_in_volume(seed: int) -> None:
    rng = Random(seed)
    pairs = 0
    while pairs < 30_000:
        pairs += compare_relations(rng, relations=20, events=40)


@pytest.mark.parametrize("op", list(COMPARISONS))
def test_all_numbers_compare_exactly(op: str) -> None:
    pairs = list(product((*NUMBERS, *OTHERS), repeat=2))
    batch = EventBatch.of_events([Event.of_checked({"a": (a,), "b": (b,)}) for a, b in pairs])
    relation = Relation.of(op, Reference("a"), Reference("b"))
    known = {Predicate(relation, truth): number for number, truth in enumerate((False, True))}
    with patch.object(relation_columns.Operands, "event", side_effect=AssertionError("asked")):
        rows = passing_rows(known, batch)
    for (a, b), is_false, is_true in zip(pairs, *rows, strict=True):
        truth = relation.truth_in(View(Event.of_checked({"a": (a,), "b": (b,)}), None))
        assert (is_false, is_true) == (truth is False, truth is True), f"{a!r} {op} {b!r}"


def test_single_values_do_not_need_the_oracle() -> None:
    rng = Random(6)
    events = [{"a": rng.randint(-9, 9), "b": rng.choice((1.5, 2, 0))} for _ in range(50)]
    left = Arithmetic("-", Reference("a"), Literal.of(2), depth=1)
    predicates = {Predicate(Relation.of("<", left, Reference("b"))): 0}
    with patch.object(relation_columns.Operands, "event", side_effect=AssertionError("asked")):
        rows = passing_rows(predicates, EventBatch.of_events(events))
    assert rows[0].tolist() == [event["a"] - 2 < event["b"] for event in events]


def test_several_values_do_not_need_the_oracle() -> None:
    events = [{"a": [*range(8)], "b": [*range(n, n + 16)]} for n in range(5)]
    total = Arithmetic("+", Reference("a"), Reference("b"), depth=1)
    relations = [
        Relation.of("=", total, Literal.of(3)),
        Relation.of(">", Reference("b"), Reference("a")),
    ]
    for some in (events, events[:1]):
        with patch.object(relation_columns.Operands, "event", side_effect=AssertionError("asked")):
            rows = passing_rows([*map(Predicate, relations)], EventBatch.of_events(some))
        assert rows[0].tolist() == [n <= 3 for n in range(len(some))]
        assert rows[1].all()


def test_events_without_an_attribute_do_not_need_the_oracle() -> None:
    batch = EventBatch.of_events([{"a": [1, 2]}, {"b": 3}, {}] * 4)
    predicates = {Predicate(Relation.of("<", Reference("a"), Reference("b"))): 0}
    with patch.object(relation_columns.Operands, "event", side_effect=AssertionError("asked")):
        assert not passing_rows(predicates, batch).any()


# --- whole batches ---------------------------------------------------------------------------


def random_predicates(rng: Random, schema: Schema | None) -> dict[Predicate, int]:
    atoms: list[ValueAtom] = []
    for name in ("t", "u"):
        for _ in range(rng.choice((2, 30))):
            chosen = random_text_atom(rng)
            if intervals_of(chosen, ValueOrder(None, Mode.SQL)) is None:
                fields = {f: getattr(chosen, f) for f in chosen.__struct_fields__}
                atoms.append(type(chosen)(**{**fields, "attribute": name}))
    atoms += [HasBits("u", Kind.BITS, op, Bits((0, 2))) for op in ("all", "any")]
    asked = [Predicate(atom, True, schema is not None and rng.random() < 0.5) for atom in atoms]
    return {p: 10 + 3 * n for n, p in enumerate(dict.fromkeys(asked))}


@pytest.mark.parametrize("seed", seeds(6))
def test_a_batch_passes_what_its_events_pass(seed: int) -> None:
    rng = Random(seed)
    default = rng.choice(("ab", "é", ""))
    schema = Schema({"t": Attribute(Type.STR, default)}) if rng.random() < 0.7 else None
    predicates = random_predicates(rng, schema)
    texts = [random_text(rng) for _ in range(12)]
    others: list[Value] = [1, True, math.nan, Bits((0,)), Bits((0, 2)), Bits((1,))]
    events = [
        Event.of_checked(
            {n: tuple(rng.choices(texts + others, k=rng.choice((1, 1, 3)))) for n in names}
        )
        for names in rng.choices(("tu", "t", "u", ""), k=100)
    ]
    passing = passing_rows(predicates, EventBatch.of_events(events), schema)
    for predicate, row in zip(predicates, passing, strict=True):
        for event, holds in zip(events, row, strict=True):
            whole = schema.with_defaults(event) if schema and predicate.completed else event
            assert holds == predicate.atom.truth_in(View(whole, False)), f"{predicate} on {whole}"


def test_no_events_and_no_predicates_are_no_special_case() -> None:
    predicates = {Predicate(TextTest("t", Kind.TEXT, "contains", "a")): 0}
    assert PredicateIndex(predicates, None).find(EventBatch.of_events([])).shape == (1, 0)
    assert PredicateIndex({}, None).find(EventBatch.of_events([{"t": "a"}])).shape == (0, 64)


# --- ranks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(4))
def test_numbers_pass_the_breakpoints_that_are_not_above_them(seed: int) -> None:
    rng, bracket = Random(seed), BRACKET_OF_KIND[Kind.NUMBER]
    near = [base + step for base in (2**53, -(2**53), 2**62, 2**63 - 2000) for step in range(9)]
    pool: list[int | float] = [n for n in NUMBERS if isinstance(n, int | float)]
    pool += near + [float(n) for n in near]
    for _ in range(50):
        breakpoints = rng.sample(pool, rng.randint(0, 30))
        partition = Partition([(bracket,), *((bracket, point) for point in breakpoints)])
        values = rng.choices(pool, k=40)
        entries = entries_of(Kind.NUMBER, np.arange(40, dtype=np.int32), values)
        _, cells = Ranker(partition).rank(Column({Kind.NUMBER: entries}))
        assert cells.tolist() == [
            1 + sum(point <= value for point in set(breakpoints)) for value in values
        ]


@pytest.mark.parametrize("seed", seeds(4))
def test_texts_pass_the_breakpoints_that_are_not_above_them(seed: int) -> None:
    rng, bracket = Random(seed), BRACKET_OF_KIND[Kind.TEXT]
    for _ in range(30):
        breakpoints = {random_text(rng, 4) for _ in range(30)} - {""}
        partition = Partition([(bracket,), *((bracket, point) for point in breakpoints)])
        values = [random_text(rng, 4) for _ in range(40)]
        entries = entries_of(Kind.TEXT, np.arange(40, dtype=np.int32), values)
        _, cells = Ranker(partition).rank(Column({Kind.TEXT: entries}))
        assert cells.tolist() == [
            1 + sum(point <= value for point in breakpoints) for value in values
        ]


@given(
    st.lists(st.integers(-60, 60), min_size=8, max_size=40, unique=True),
    st.lists(
        st.integers(-70, 70)
        | st.floats(-70, 70)
        | st.integers(-60, 60).map(lambda n: math.nextafter(n, math.inf))
        | st.integers(-60, 60).map(lambda n: math.nextafter(n, -math.inf))
        | st.sampled_from([math.inf, -math.inf, 1e300, -1e300, 2**53, -(2**62)]),
        min_size=1,
        max_size=30,
    ),
)
def test_numbers_are_looked_up_where_they_lie(numbers: list[int], values: list[float]) -> None:
    engine = Engine()
    for number in numbers:
        engine.add(number, f"x = {number}")
    engine.add("less", f"x < {numbers[0]}")
    found = engine.match_batch([{"x": value} for value in values])
    for value, ids in zip(values, found, strict=True):
        less = ["less"] if value < numbers[0] else []
        assert ids == [number for number in numbers if number == value] + less
