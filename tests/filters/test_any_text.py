"""Tests of any attribute."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from seeds import seeds
from tamis.diagrams import covers, equivalent, intersects, is_always, is_never
from tamis.errors import FilterTypeError, LimitError
from tamis.events import Event, Schema, attribute
from tamis.filters import Filter, FilterLimits, Mode, any_attr, attr
from tamis.languages import parse
from tamis.matching import Engine

MIMIKATZ = 'any contains "mimikatz"'


def test_python_writes_the_same_tests() -> None:
    caseless = any_attr.caseless
    written: dict[str, Filter] = {
        'any = "a"': any_attr == "a",
        'any != "a"': any_attr != "a",
        'any < "a"': any_attr < "a",
        'any <= "a"': any_attr <= "a",
        'any > "a"': any_attr > "a",
        'any >= "a"': any_attr >= "a",
        'any between "a" and "b"': any_attr.between("a", "b"),
        'any in ("a", "b")': any_attr.in_("a", "b"),
        "any in 10.0.0.0/8": any_attr.in_network("10.0.0.0/8"),
        'any contains "a"': any_attr.contains("a"),
        'any within "a"': any_attr.within("a"),
        'any starts with "a"': any_attr.starts_with("a"),
        'any ends with "a"': any_attr.ends_with("a"),
        'any like "a%"': any_attr.like("a%"),
        'any matches "a+"': any_attr.matches("a+"),
        'any ~= "a"': caseless == "A",
        'any ~in ("a")': caseless.caseless.in_("A"),
        'any ~like "a%"': caseless.like("A%"),
        'any ~matches "A+"': caseless.matches("A+"),
        'any ~between "a" and "b"': caseless.between("A", "B"),
    }
    for text, filter_ in written.items():
        assert str(filter_) == text
        assert parse(text) == filter_


@pytest.mark.parametrize(
    "make",
    [
        lambda: any_attr == 5,
        lambda: any_attr < attr("b"),
        lambda: any_attr.in_(1, 2),
        lambda: any_attr.caseless.in_network("10.0.0.0/8"),
    ],
)
def test_only_texts_can_be_looked_for(make: Callable[[], Filter]) -> None:
    with pytest.raises(FilterTypeError):
        make()


def test_a_schema_without_texts_has_nothing_to_look_at() -> None:
    with pytest.raises(FilterTypeError, match="tests texts, and the schema declares none"):
        parse(MIMIKATZ).bind(Schema({"pid": "int"}))


def test_limits_count_what_any_attribute_is_tested_for() -> None:
    with pytest.raises(LimitError, match="steps for one character"):
        parse('any matches "(a{50}){20}"')
    with pytest.raises(LimitError, match="atoms in the filter"):
        FilterLimits(atoms=2).check(any_attr.in_("a", "b", "c"))


# --- relations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        ('any contains "a"', 'any contains "ab"', True),
        ('any contains "ab"', 'any contains "a"', False),
        ('any contains "a"', 'name = "bar"', True),
        ('any ~contains "A"', 'any contains "a"', True),
        ('any = "x"', 'any = "x" and any = "y"', True),
        ('any in ("x", "y")', 'a = "x" or b = "y"', True),
        ('a = "x" or any = "x"', 'any = "x"', True),
        ('a = "x"', 'any = "x"', False),
        ('a = "x" or b = "x"', 'any = "x"', False),
        ('any contains ""', "a is text", True),
        ('any contains ""', "a is present", False),
        ("any in 10.0.0.0/8", "ip in 10.1.0.0/16", True),
    ],
)
def test_what_covers_what(wide: str, narrow: str, expected: bool) -> None:
    found = covers(parse(wide), parse(narrow))
    assert found.exact
    assert found.yes is expected


def test_relations_know_that_texts_may_be_several() -> None:
    assert intersects(parse('any = "x"'), parse('any = "y"')).event is not None
    assert intersects(parse('any = "x" and a = "y"'), parse('not (a = "x")')).event is not None
    assert is_never(parse('any = "x" and not (any contains "x")'))
    assert is_never(parse('any = "x" and not (any contains "")'))
    assert is_always(parse('any = "x" or not (any = "x")'), mode="default")
    assert not is_always(parse('any = "x" or not (any = "x")'))
    schema = Schema({"a": "str", "n": "int"})
    assert equivalent(parse('any = "x"'), parse('a = "x"'), schema=schema)
    assert not intersects(parse('any = "x"'), parse('any = "y"'), schema=schema)


def test_a_caseless_attribute_that_no_filter_names_is_not_taken_for_an_exact_one() -> None:
    schema = Schema({"a": attribute("str", caseless=True), "b": "str"})
    found = covers(parse('any < "a"'), parse('any = "B"'), schema=schema)
    assert found.event is not None
    assert "a" in found.event


def test_lint_compares_tests_of_any_attribute_with_others() -> None:
    filters = {
        "any": MIMIKATZ,
        "image": 'image ends with "mimikatz"',
        "never": 'any = "a" and not (any contains "a")',
        "pinned": 'user = "ann" and any contains "mimikatz64"',
    }
    engine = Engine()
    for id_, text in filters.items():
        engine.add(id_, text)
    found = {(finding.id, finding.rule.value, finding.other) for finding in engine.lint()}
    assert ("never", "never-true", None) in found
    assert {id_ for id_, rule, other in found if rule == "covered" and other == "any"} == {
        "image",
        "pinned",
    }


def test_lint_finds_two_that_are_the_same() -> None:
    engine = Engine()
    for number, text in enumerate(('any like "%a%"', MIMIKATZ, 'any contains "a"')):
        engine.add(number, text)
    found = [(one.id, one.rule.value, one.other) for one in engine.lint()]
    assert (2, "same", 0) in found
    assert not any(2 in (id_, other) for id_, rule, other in found if rule != "same")


# --- explanations ---------------------------------------------------------------------------------


def test_explanations_name_the_attribute_that_passes() -> None:
    engine = Engine()
    engine.add("it", MIMIKATZ)
    found = engine.explain("it", {"user": "ann", "image": "mimikatz.exe", "pid": 4})
    assert 'image is "mimikatz.exe", so any contains "mimikatz" is true' in str(found)
    assert found.changed is not None
    found = engine.explain("it", {"user": "ann", "image": "cmd.exe", "pid": 4})
    why = 'no text of user or image passes, so any contains "mimikatz" is false: it needs a text'
    assert f'{why} that contains "mimikatz"' in str(found)
    assert found.changed is not None
    assert parse(MIMIKATZ).matches(found.changed)
    found = engine.explain("it", {"pid": 4})
    assert 'the event has no text, so any contains "mimikatz" is unknown' in str(found)
    assert found.changed is not None
    assert parse(MIMIKATZ).matches(found.changed)


# --- the engine -----------------------------------------------------------------------------------


TEXTS = ("", "a", "b", "ab", "Ab", "cab", "B", "ß", "SS", 'a"\\b', "é\n", "10.1.2.3")
NAMES = ("a", "b", "c.d", "c.e", "unit price", "any", "n")
TESTS = (
    *("contains", "starts with", "ends with", "like", "matches", "within", "="),
    *("~contains", "~starts with", "~ends with", "~like", "~matches", "~=", "!=", "<"),
)
SCHEMA = Schema(
    {
        "a": attribute("str", default="ab"),
        "b": attribute("str", caseless=True, default="B"),
        "c.d": attribute("str", many=True),
        "c.e": "timestamp",
        "n": "int",
    }
)


def random_text_filter(rng: Random) -> str:
    subject = rng.choice(("any", "any", "any", "a", "b"))
    text = json.dumps(rng.choice(("", "a", "b", "ab", "B", "ss", "é")), ensure_ascii=False)
    if rng.random() < 0.2:
        return f"{subject} {rng.choice(('in', '~in'))} ({text}, {json.dumps(rng.choice(TEXTS))})"
    return f"{subject} {rng.choice(TESTS)} {text}"


def random_any_filter(rng: Random) -> str:
    parts = [random_text_filter(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    parts = [f"not ({part})" if rng.random() < 0.3 else part for part in parts]
    if rng.random() < 0.3:
        parts.append("n < 3")
    return rng.choice((" and ", " or ", " xor ")).join(parts)


def random_document(rng: Random, *, typed: bool) -> dict[str, object]:
    document: dict[str, object] = {}
    for name in NAMES:
        if rng.random() < 0.5:
            continue
        if name == "n" or (not typed and rng.random() < 0.1):
            document[name] = rng.randrange(6)
        elif typed and name == "c.e":
            document[name] = "2026-01-01T00:00:00Z"
        elif (not typed or name == "c.d") and rng.random() < 0.3:
            document[name] = rng.choices(TEXTS, k=rng.randrange(4))
        else:
            document[name] = rng.choice(TEXTS)
    if not typed and rng.random() < 0.3:
        # The strict reader decides about so large a number.
        document["large"] = 2**62
    if not typed and rng.random() < 0.3:
        document["nested"] = {"x": rng.choice(TEXTS), "y": [{"z": rng.choice(TEXTS)}, {}]}
    return document


def compare_ways_in(rng: Random) -> None:
    """Compare what the engine finds by each way in with what the filters say."""
    schema = SCHEMA if rng.random() < 0.4 else None
    mode = rng.choice((Mode.SQL, Mode.STRICT, Mode.DEFAULT))
    texts = [random_any_filter(rng) for _ in range(rng.choice((1, 3, 30, 120)))]
    engine = Engine(schema, mode)
    for number, text in enumerate(texts):
        engine.add(number, text)
    if rng.random() < 0.7:
        engine.compact()
    documents = [random_document(rng, typed=schema is not None) for _ in range(20)]
    filters = [parse(text) for text in texts]
    wanted = [
        [number for number, one in enumerate(filters) if one.matches(event, mode, schema)]
        for event in documents
    ]
    lines = [json.dumps(one, ensure_ascii=rng.random() < 0.5) for one in documents]
    assert [engine.match(event) for event in documents] == wanted
    assert [engine.match(Event(event)) for event in documents] == wanted
    assert [engine.match_json(line) for line in lines] == wanted
    assert [sorted(ids) for ids in engine.match_batch(documents)] == wanted
    assert [sorted(ids) for ids in engine.match_json_lines("\n".join(lines))] == wanted
    names = [name for name in NAMES if schema is None or name in schema]
    columns = {name: [_listed(event.get(name)) for event in documents] for name in names}
    if schema is None:
        columns["nested"] = [event.get("nested") for event in documents]
    if schema is not None or not any(isinstance(d.get(n), int) for d in documents for n in NAMES):
        table = pa.table({name: column for name, column in columns.items() if any(column)})
        assert [sorted(ids) for ids in engine.match_batch(table)] == wanted


@pytest.mark.parametrize("width", [1, 50])
def test_arrow_columns_that_hold_no_texts_are_ignored(width: int) -> None:
    engine = Engine()
    engine.add("any", 'any contains "a"')
    engine.add("n", "n1 > 0")
    table = pa.table(
        {
            "bytes": pa.array([b"a", b"b"], pa.binary()),
            "map": pa.array([[("a", "a")], None], pa.map_(pa.string(), pa.string())),
            "coded": pa.array(["x", "a"], pa.string()).dictionary_encode(),
            "s": pa.array([{"t": ["a"], "u": b"a"}, None]),
            **{f"n{number}": pa.array([0, 1]) for number in range(1, width + 1)},
        }
    )
    assert [*engine.match_batch(table)] == [["any"], ["any", "n"]]
    assert [*engine.match_batch(table.drop_columns(["coded"]))] == [["any"], ["n"]]


def _listed(value: object) -> object:
    return value if value is None or isinstance(value, list) else [value]


@pytest.mark.parametrize("seed", seeds(600, by_default=12))
def test_every_way_into_the_engine_tests_all_texts(seed: int) -> None:
    rng = Random(seed)
    for _ in range(4):
        compare_ways_in(rng)
