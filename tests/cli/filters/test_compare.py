"""`tamis compare`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis


@pytest.mark.parametrize(
    ("a", "b", "sentence", "events"),
    [
        ("x < 10", "x between 5 and 20", "A overlaps with B.", ("x = 0", "x = 10", "x = 5")),
        ("x < 10", "x < 5", "A covers B.", ("x = 5", "no event", "x = 0")),
        ("x < 5", "x < 10", "A is covered by B.", ("no event", "x = 5", "x = 0")),
        ("x in (1)", "x = 1", "A matches the same events as B.", ("no event", "no event", "x = 1")),
        (
            "x is absent",
            "x = 1",
            "A is disjoint from B.",
            ("an event without attributes", "x = 1", "no event"),
        ),
        (
            "false",
            "x = 1",
            "A is covered by B. No event matches A.",
            ("no event", "x = 1", "no event"),
        ),
    ],
)
def test_the_relation_is_said_and_events_show_it(
    a: str, b: str, sentence: str, events: tuple[str, str, str]
) -> None:
    done = tamis("compare", a, b)
    only_a, only_b, both = events
    assert done.code == 0
    assert f"{sentence}\n  only A  {only_a}\n  only B  {only_b}\n  both    {both}\n" in done.out


def test_what_holds_only_for_single_values_is_shown_for_several_too() -> None:
    out = tamis("compare", 'tag = "a"', 'tag = "b"').out
    assert "A is disjoint from B." in out
    assert 'With several:\nA overlaps with B.\n  only A  tag = "a"\n' in out
    assert 'both    tag = "a" "b"\n' in out
    assert "several" not in tamis("compare", 'tag = "a"', 'tag = "b"', "--many").out


def test_a_schema_says_which_attributes_hold_several_values(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"tag": {"type": "str", "many": true}, "x": "int"}')
    out = tamis("compare", 'tag = "a" and x < 2', 'tag = "b" and x <= 1', "-s", schema).out
    assert "A overlaps with B.\n" in out
    assert "several" not in out


def test_an_answer_that_is_not_certain_says_so() -> None:
    out = tamis("compare", 'name contains "ab"', 'name matches "a.*b"').out
    assert "A overlaps with B (not certain).\n  only A  not certain: " in out


def test_modes_make_a_difference() -> None:
    one, other = "x < 5 or x is absent", "not (x >= 5)"
    assert "A covers B." in tamis("compare", one, other).out
    assert "A is covered by B." in tamis("compare", one, other, "--mode", "default").out


def test_programs_get_json_even_of_events_that_json_cannot_express() -> None:
    (found,) = tamis(
        "compare", "x is present", "x is a number or x is text", "--format", "json"
    ).json
    assert found["relationship"] == "covers"
    assert found["exact"] is True
    assert found["only_b"] is None
    several = tamis("compare", 'x = "a"', 'x = "b"', "--format", "json").json[0]
    assert several["both"] is None
    assert several["with_several_values"]["both"] == {"x": ["a", "b"]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("x =", "x = 1"),
            "error: A: a condition or value is missing at the end (line 1, column 4)\n  x =\n",
        ),
        (("x = 1", "x ="), "error: B: a condition or value is missing"),
        (("x = 1", "1 = 'a'"), "error: B: "),
        (("x = 1", "y = 1", "-l", "jmss"), 'did you mean "jms"?'),
    ],
)
def test_a_wrong_filter_is_named(arguments: tuple[str, ...], words: str) -> None:
    done = tamis("compare", *arguments)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
