"""Tests of texts that ignore case."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tamis.diagrams import covers, equivalent, intersects
from tamis.errors import FilterError, FilterSyntaxError, FilterTypeError, SchemaError
from tamis.events import Event, Schema, attribute, decode_schema
from tamis.events.json_text import schema_data, schema_of
from tamis.filters import Filter, attr
from tamis.filters.build import CaselessAttr
from tamis.filters.folding import fold, is_caseless
from tamis.languages import parse
from tamis.matching import Engine, Subscription


@pytest.mark.parametrize(
    ("text", "values", "others"),
    [
        ('x ~= "Straße"', ["STRASSE", "straße", "Strasse", "StraSSe"], ["strase", "straßen"]),
        ('x ~!= "a"', ["b", "aa"], ["a", "A"]),
        ('x ~in ("Bob", "ALICE")', ["BOB", "alice"], ["Bo", ""]),
        ('x ~contains "MimiKatz"', ["run MIMIKATZ.exe", "mimikatz"], ["mimi katz"]),
        ('x ~starts with "C:\\\\Win"', ["c:\\windows", "C:\\WIN"], ["D:\\win", "xC:\\Win"]),
        ('x ~ends with ".EXE"', ["cmd.exe", "CMD.Exe"], ["cmd.ex", ".exe2"]),
        ('x ~like "%\\\\\\\\CMD._xe"', ["c:\\cmd.EXE", "\\Cmd.axe"], ["cmd.exe"]),
        ('x ilike "a_c%"', ["ABC", "aXcd"], ["ac"]),
        ('x ~matches "^power(shell|cfg)$"', ["PowerShell", "POWERCFG"], ["xpowershell"]),
        ('x ~matches "straße"', ["STRASSE", "Straße"], ["strase"]),
        ('x ~within "ABC"', ["bc", "Ab", ""], ["ac"]),
        ('x ~between "B" and "C"', ["bX", "B", "c"], ["A", "cc"]),
        ('x ~< "b"', ["A", "az", "AZ"], ["B", "b"]),
        ('x ~contains "ς"', ["ΣΟΦΟΣ", "σ"], ["o"]),
    ],
)
def test_case_does_not_matter(text: str, values: list[str], others: list[str]) -> None:
    filter_ = parse(text)
    assert parse(str(filter_)) == filter_
    engine = Engine()
    engine.add("it", text)
    for value in values:
        assert filter_.matches({"x": value})
        assert engine.match({"x": value}) == ["it"]
    for value in others:
        assert filter_.truth({"x": value}) is False
        assert engine.match({"x": value}) == []
    assert filter_.truth({}) is None
    assert filter_.truth({"x": 5}) is None


def test_python_writes_the_same_tests() -> None:
    name = attr("name").caseless
    assert (name == "Bob") == parse('name ~= "bob"')
    assert (name != "Bob") == parse('name ~!= "BOB"')
    assert (name < "Bob") == parse('name ~< "BOB"')
    assert (name >= "Bob") == parse('name ~>= "BOB"')
    assert name.in_("A", "b") == parse('name ~in ("a", "B")')
    assert name.between("A", "B") == parse('name ~between "a" and "b"')
    assert name.contains("X") == parse('name ~contains "x"')
    assert name.within("X") == parse('name ~within "x"')
    assert name.starts_with("X") == parse('name ~starts with "x"')
    assert name.ends_with("X") == parse('name ~ends with "x"')
    assert name.like("X%") == parse('name ilike "x%"')
    assert name.matches("X+") == parse('name ~matches "X+"')
    with pytest.raises(FilterError, match="only tests of texts"):
        name == 5  # noqa: B015


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x ~= 5", '"~=" takes a text in quotes, not "5"'),
        ("x ~= y", '"~=" takes a text in quotes, not "y"'),
        ("x ~in (1, 2)", "only tests of texts"),
        ('x ~ "a"', 'write "matches"'),
        ('x icontains "a"', 'write "~contains"'),
        ('x ~starts "a"', '"with" is missing after "starts"'),
        ("~x = 1", 'write "not"'),
        ('x ~between "a"', '"and" is missing'),
        ('x ~matches "("', "nothing closes"),
    ],
)
def test_mistakes_are_told_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    assert said in f"{caught.value} {caught.value.hint}"


def test_a_schema_makes_all_tests_of_an_attribute_ignore_case() -> None:
    schema = decode_schema('{"image": {"type": "str", "caseless": true}, "user": "str"}')
    assert schema["image"] == attribute(str, caseless=True)
    assert schema_of(schema_data(schema)) == schema
    bound = parse('image ends with "CMD.exe" and user = "Bob"').bind(schema)
    assert str(bound) == 'image ~ends with "cmd.exe" and user = "Bob"'
    assert bound.bind(schema) is bound
    engine = Engine(schema)
    engine.add(1, 'image = "CMD"')
    engine.add(2, 'image in ("cmd", "sh")')
    engine.add(3, 'user = "bob"')
    engine.add(4, 'image like "c%D" and image < "D"')
    assert engine.match({"image": "Cmd", "user": "Bob"}) == [1, 2, 4]
    assert covers(parse('image = "a"'), parse('image = "A"'), schema=schema)


def test_a_saved_engine_still_ignores_case(tmp_path: Path) -> None:
    engine = Engine(Schema({"host": attribute(str, caseless=True), "user": "str", "ip": "str"}))
    rows = ['host = "WEB"', 'user ~matches "^A[B]"', 'user ~in ("Ab", "C")', "ip in 10.0.0.0/8"]
    engine.add_many(Subscription(number, row) for number, row in enumerate(rows))
    engine.save(tmp_path / "engine")
    event = {"host": "wEb", "user": "aB", "ip": "10.0.0.9"}
    for one in (engine, Engine.load(tmp_path / "engine")):
        assert one.match(event) == [0, 1, 2, 3]
        assert [*one.match_batch([event])] == [[0, 1, 2, 3]]
        assert one.match_json(json.dumps(event)) == [0, 1, 2, 3]
        assert [*one.match_json_lines(json.dumps(event).encode())] == [[0, 1, 2, 3]]


def test_only_texts_can_be_declared_caseless() -> None:
    with pytest.raises(SchemaError, match="only texts have case, so 'int' cannot be caseless"):
        attribute("int", caseless=True)
    with pytest.raises(SchemaError, match=r"x\.caseless: expected true or false"):
        decode_schema('{"x": {"type": "str", "caseless": 1}}')


def test_folding_is_what_the_shortcuts_rely_on() -> None:
    folded_to = set[str]()
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        folded = fold(character)
        assert fold(folded) == folded != ""
        if folded != character:
            folded_to.update(folded)
    assert {c for c in folded_to if c.isascii()} == set("abcdefghijklmnopqrstuvwxyz")
    assert is_caseless("0:/ %")
    assert not is_caseless("x")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ('x ~= "a"', 'x = "A"'),
        ('x ~= "a"', 'x ~= "A"'),
        ('x ~in ("a", "b")', 'x ~= "B"'),
        ('x ~starts with "a"', 'x ~= "ABC"'),
        ('x ~starts with "a"', 'x starts with "Ab"'),
        ('x ~contains "b"', 'x contains "aBc"'),
        ('x ~contains "b"', 'x ~contains "ABC"'),
        ('x ~contains "b"', 'x starts with "aBc"'),
        ('x ~contains "b"', 'x ends with "aBc"'),
        ('x ~contains "b"', 'x ~ends with "ABC"'),
        ('x ~ends with "c"', 'x ends with "BC"'),
        ('x ~ends with "c"', 'x ~ends with "BC"'),
        ('x ~like "a%"', 'x ~starts with "AB"'),
        ('x ~matches "abc"', 'x ~contains "ABCD"'),
        ('x ~contains "abc"', 'x ~matches "xABC"'),
        ('x = "12"', 'x ~= "12"'),
        ('x contains "12"', 'x ~contains "123"'),
        ("x is text", 'x ~contains "a"'),
        ('x ~!= "a"', 'x ~= "b"'),
        ('x ~< "c"', 'x ~= "B"'),
    ],
)
def test_relations_know_case(wide: str, narrow: str) -> None:
    answer = covers(parse(wide), parse(narrow))
    assert answer
    assert answer.exact


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('x ~= "a"', 'x ~= "b"'),
        ('x ~= "a"', 'x = "b"'),
        ('x ~starts with "a"', 'x starts with "B"'),
        ('x ~starts with "a"', 'x ~starts with "B"'),
        ('x ~ends with "a"', 'x ~ends with "B"'),
        ('x ~= "abc"', 'not (x ~contains "B")'),
        ('x = "ABC"', 'not (x ~contains "b")'),
    ],
)
def test_what_differs_in_more_than_case_does_not_meet(one: str, other: str) -> None:
    assert intersects(parse(one), parse(other)) == (False, True, None, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('x ~= "abc"', 'not (x = "abc") and x starts with "AB"'),
        ('x ~contains "abc"', 'x ~ends with "XYZ" and y ~= "q"'),
        ('x ~contains "a" and x contains "B"', 'x ~starts with "c"'),
        ('x ~like "a_c%"', 'x ~contains "Q"'),
        ('x ~matches "[0-9]{2}z"', 'x ~contains "Q"'),
        ('x ~> "b"', 'x ~< "bb"'),
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_meetings_in_any_case_are_shown_by_an_event(one: str, other: str, many: bool) -> None:
    left, right = parse(one), parse(other)
    event = intersects(left, right, many=many).witness()
    assert event is not None
    assert left.matches(event)
    assert right.matches(event)


def test_a_difference_in_case_is_a_difference_of_exact_tests() -> None:
    answer = equivalent(parse('x = "ab"'), parse('x ~= "ab"'))
    assert not answer
    assert answer.witness() == Event({"x": "AB"})


def test_many_parts_in_any_case_share_one_automaton() -> None:
    rng = Random(5)
    letters = "abAB1"
    engine = Engine()
    filters = {}
    for number in range(300):
        part = "".join(rng.choices(letters, k=rng.randint(1, 5)))
        test = rng.choice(
            ("contains", "~contains", "ends with", "~ends with", "~starts with", "~=", "~like")
        )
        filters[number] = parse(f'x {test} "{part}"')
        engine.add(number, filters[number])
    events = [{"x": "".join(rng.choices(letters, k=rng.randint(0, 9)))} for _ in range(200)]
    matches = engine.match_batch(events)
    for number, event in enumerate(events):
        expected = [id_ for id_, filter_ in filters.items() if filter_.matches(event)]
        assert sorted(matches[number]) == expected
        assert sorted(engine.match(event)) == expected


@pytest.mark.parametrize(
    "compare",
    [
        lambda one, other: one == other,
        lambda one, other: one != other,
        lambda one, other: one < other,
        lambda one, other: one.between("a", other),
        lambda one, other: one.in_("a", other),
    ],
)
@pytest.mark.parametrize("other", [attr("b"), attr("b").caseless, attr("b") + 1])
def test_attributes_are_not_compared_with_one_another_in_any_case(
    compare: Callable[[CaselessAttr, object], Filter], other: object
) -> None:
    with pytest.raises(FilterTypeError, match="a is compared without regard to case, so it needs"):
        compare(attr("a").caseless, other)


@pytest.mark.parametrize("name", ["is_present", "is_a", "has_any_bit", "in_network"])
def test_what_ignores_no_case_is_named(name: str) -> None:
    said = f"{name} does not look at case; leave .caseless out"
    with pytest.raises(AttributeError, match=said):
        getattr(attr("a").caseless, name)
    assert not hasattr(attr("a").caseless, "nonsense")
