"""`tamis check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis


def test_a_filter_is_shown_as_it_reads_and_simplified() -> None:
    done = tamis("check", "PRICE = 1 OR PRICE == 2")
    assert done == (
        0,
        "reads as    PRICE = 1 or PRICE = 2\nsimplified  PRICE in (1, 2)\n",
        "no problems found\n",
    )


@pytest.mark.parametrize(
    ("filter_", "options", "words"),
    [
        ("false", (), "warning: no event can match it\n"),
        ("x < 1 and x > 2", ("--many",), None),
        (
            "x < 1 and x > 2",
            (),
            "warning: no event can match it, unless an attribute holds several",
        ),
        ("x is present or x is absent", (), "warning: every event matches it\n"),
        ("x < 1 or x >= 1 or x is absent", ("-m", "default"), None),
        ("x < 5", (), None),
    ],
)
def test_filters_that_no_event_or_every_event_matches_are_suspicious(
    filter_: str, options: tuple[str, ...], words: str | None
) -> None:
    done = tamis("check", filter_, *options)
    assert done.code == (1 if words else 0)
    assert (words or "reads as") in done.out
    assert ("warning" in done.out) is bool(words)


@pytest.mark.parametrize(
    ("filter_", "words"),
    [
        (
            "symbol = ACME",
            'ACME is read as an attribute; a text needs quotes, as in symbol = "ACME"',
        ),
        ("x = null", 'null is read as an attribute; write "x is absent"'),
        ("x != None", 'None is read as an attribute; write "x is present"'),
        ("x = NaN", "NaN is read as an attribute; no constant stands for it"),
        ("x < Infinity", "Infinity is read as an attribute; no constant stands for it"),
        ("x = 1 -- comment", "a filter has no comments"),
        (
            "unit-price < 5",
            "unit-price subtracts: write `unit-price` if it is one name, and unit - ",
        ),
        (
            "price < 10 or price < 20",
            "price < 10 adds nothing: whenever it is true, so is price < 20",
        ),
        (
            "price < 10 and price < 20",
            "price < 20 adds nothing: whenever price < 10 is true, so is it",
        ),
        (
            "a = 1 or b < 1 and b > 2",
            "b < 1 and b > 2 adds nothing: it can never be true, unless an",
        ),
        ("a = 1 and (b is present or b is absent)", "adds nothing: it is always true"),
        ("a = 1 or b = 2 or a = 1", "a = 1 adds nothing: it is written twice"),
        ("a > b or b < a or c = 1", "a > b adds nothing: whenever it is true, so is b < a"),
        ('ip in ("10.0.0.0/8")', "no address equals a text with a slash; did you mean ip in 10."),
        ('ip = "10.1.2.3/8"', "did you mean ip in 10.0.0.0/8?"),
        ('ip != "10.0.0.0/8"', "did you mean ip not in 10.0.0.0/8?"),
        ('any = "::1/128"', "did you mean any in ::1/128?"),
        (
            'ip ~in ("10.0.0.0/8", "a", "fe80::/10")',
            "did you mean ip in (10.0.0.0/8, fe80::/10)?",
        ),
        ("x like '*a?'", "the wildcards of like are % and _, not * and ?"),
        ("x = 'a%'", "% stands for itself here; write like for a pattern"),
        ("x in ('b', 'a%')", "% stands for itself here; write like for a pattern"),
        ("x ~like '*a?'", 'x ~like "*a?": the wildcards of like are % and _, not * and ?'),
        ("x ~= 'a%'", 'x ~= "a%": % stands for itself here; write ~like for a pattern'),
        ("x ~!= '%a'", "% stands for itself here; write ~like for a pattern"),
        ("x ~in ('a%', 'b')", "% stands for itself here; write ~like for a pattern"),
    ],
)
def test_what_parses_but_cannot_be_meant_is_a_warning(filter_: str, words: str) -> None:
    done = tamis("check", filter_)
    assert done.code == 1
    assert words in done.out.replace("\n", " ")
    assert done.out.count("warning: ") == 1


@pytest.mark.parametrize(
    "filter_",
    [
        "bid < ask",
        "price * quantity > budget",
        "high - low > 5",
        "x = 'a-b' and `unit-price` < 5",
        "x like '%a_'",
        'x = "1/2" and y in ("a/8", "10.0.0.1") and ip in 10.0.0.0/8',
        "price < 10 or price > 20",
        "price < 10 and (size > 5 or price < 5)",
        "home = away and away = 'Lyon'",
        "not (x in (1, 2)) and y = 3",
        "x < 5 xor y < 5",
        "x = 1 - -2",
    ],
)
def test_what_may_well_be_meant_is_no_warning(filter_: str) -> None:
    done = tamis("check", filter_)
    assert (done.code, "warning" in done.out, "note" in done.out) == (0, False, False)


def test_a_word_that_something_equals_may_be_a_text_without_quotes() -> None:
    done = tamis("check", "topics = energy")
    assert (done.code, done.out.count("warning: ")) == (1, 1)
    assert (
        'energy is read as an attribute; a text needs quotes, as in topics = "energy"' in done.out
    )


def test_a_schema_or_another_filter_shows_what_is_an_attribute(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"symbol": "str", "ACME": "str", "a": "int", "b": "int"}')
    assert tamis("check", "symbol = ACME or a-b = 1", "-s", schema).code == 0
    done = tamis("check", "symbol = OTHER", "-s", schema)
    assert (done.code, done.err) == (
        2, "error: the schema has no attribute 'OTHER'; a text needs quotes\n"
    )  # fmt: skip
    code, _, _ = check_file(tmp_path, "ACME = 'x'\nsymbol = ACME\n")
    assert code == 0


def test_a_sample_shows_attributes_that_no_event_has_and_values_of_another_kind(
    tmp_path: Path,
) -> None:
    sample = tmp_path / "events.jsonl"
    sample.write_text(
        '{"symbol": "ACME", "price": 5, "unit-price": 3}\n{"symbol": "BOLT", "tag": ["a", 1]}\nno\n'
    )
    done = tamis("check", "symbl = 'x' and price = '5' and tag = 1", "--sample", sample)
    assert done.code == 1
    assert [line for line in done.out.splitlines() if line.startswith("warning")] == [
        'warning: no event of the sample has symbl; did you mean "symbol"?',
        'warning: price = "5" asks for text, but in the sample price is always a number',
    ]
    assert f"rejected: {sample}: line 3, column 1" in done.err
    assert "sample: 2 events, 1 rejected" in done.err
    assert tamis("check", "symbol = 'x' and price < 5", "--sample", sample).code == 0
    hyphen = tamis("check", "unit-price < 5", "--sample", sample).out
    assert "unit-price subtracts; write `unit-price` for the attribute of that name" in hyphen
    assert tamis("check", "a = 1", "--sample", tmp_path / "no").code == 2


def test_what_a_selector_is_translated_to_is_not_blamed_on_its_author() -> None:
    done = tamis("check", "-l", "jms", "NOT (x = 5 AND x = 5) AND price < 10 AND price < 20")
    warnings = [line for line in done.out.splitlines() if line.startswith("warning")]
    assert len(warnings) == 2
    assert not [line for line in warnings if "is absent adds" in line or "number adds" in line]


def check_file(tmp_path: Path, text: str, *options: object) -> tuple[int, list[str], str]:
    path = tmp_path / "f.txt"
    path.write_text(text, encoding="utf-8")
    done = tamis("check", "--file", path, *options)
    return done.code, done.out.replace(f"{tmp_path}/", "").splitlines(), done.err


def test_a_file_is_checked_filter_by_filter_and_in_pairs(tmp_path: Path) -> None:
    code, out, err = check_file(
        tmp_path,
        "wide: price < 10\nnarrow: price < 5\n"
        "again: not (price >= 10)\ntwice: price < 5 or price < 5\n",
    )
    proviso = ", unless an attribute holds several values"
    assert code == 1
    assert out == [
        "note: f.txt:2: narrow: every event that matches it matches wide as well",
        f"note: f.txt:2: narrow: every event that matches it matches again as well{proviso}",
        f"warning: f.txt:3: again: it matches the same events as wide{proviso}",
        "warning: f.txt:4: twice: it matches the same events as narrow",
    ]
    assert err == "4 filters: 2 warnings, 2 notes\n"


def test_notes_alone_do_not_fail_a_check(tmp_path: Path) -> None:
    code, out, _ = check_file(tmp_path, "price < 10\nprice < 5\n")
    assert (code, len(out)) == (0, 1)


def test_filters_of_different_modes_are_not_compared(tmp_path: Path) -> None:
    text = '{"filter": "x < 1"}\n{"filter": "x < 1", "mode": "strict"}\n'
    assert check_file(tmp_path, text) == (0, [], "2 filters: no problems found\n")


def test_too_many_pairs_are_left_out_and_it_is_said(tmp_path: Path) -> None:
    text = "x < 1\nx < 2\nx < 3\nx < 3 or x < 3\n"
    code, out, err = check_file(tmp_path, text, "--pairs", 2)
    assert code == 1
    assert "warning: f.txt:4: 4: it matches the same events as 3" in out
    assert len(out) == 3
    assert "1 pair beyond 2 was not compared, so 2 may be covered by others" in err
    assert "--pairs 3 includes them" in err
    assert len(check_file(tmp_path, text, "--pairs", 3)[1]) == 4


def test_a_question_may_be_given_fewer_steps(tmp_path: Path) -> None:
    _, _, err = check_file(tmp_path, "x < 1 and y < 1\nx < 2 or y > 3\n", "--steps", 1)
    assert "could not be decided, so there may be more to find" in err


@pytest.mark.slow
def test_a_thousand_filters_are_compared_by_what_their_examples_match(tmp_path: Path) -> None:
    text = "".join(f'company = "c{n}" and price < {m}\n' for n in range(500) for m in (5, 9))
    code, out, err = check_file(tmp_path, text)
    assert (code, len(out)) == (0, 500)
    assert "not compared" not in err


def test_questions_that_stay_open_are_counted(tmp_path: Path) -> None:
    _, _, err = check_file(tmp_path, 'x matches "a[bc]*d"\nx matches "a[bc]*[de]"\n')
    assert "could not be decided, so there may be more to find" in err


def test_every_line_that_holds_no_filter_is_named_with_its_place(tmp_path: Path) -> None:
    text = (
        'ok: price < 1\n  bad: price << 1\nok: price < 2\n{"filter": 5}\n'
        '{"id": "a b", "filter": "x = 1"}\n{"filter": "x = 1", "mod": "sql"}\n'
        '{"id": "j", "filter": "x ="}\n{"filter": "x = 1", "mode": "maybe"}\nempty:\n'
    )
    code, out, err = check_file(tmp_path, text)
    assert code == 2
    assert [line for line in out if line.startswith("error")] == [
        'error: f.txt:2:15: expected a condition or value, found "<"',
        "error: f.txt:3: the id 'ok' is already used on line 1",
        'error: f.txt:4: "filter" is a text, not a number',
        "error: f.txt:5: the id 'a b' has other characters than letters, digits, _ . / and -",
        'error: f.txt:6: "mod" is not a key of a filter; did you mean "mode"?',
        "error: f.txt:7: a condition or value is missing at the end",
        "error: f.txt:8: 'maybe' is not a mode; the modes are 'total', 'strict', 'default', 'sql'",
        "error: f.txt:9:7: the filter is empty",
    ]
    assert "  price << 1\n         ^" in "\n".join(out)
    assert err == "9 filters: 8 errors\n"


def test_each_filter_may_have_its_language_and_a_colon_in_a_text_is_no_id(tmp_path: Path) -> None:
    text = (
        '{"id": "j", "language": "jms", "filter": "x BETWEEN 1 AND 2"}\n'
        'x = "a: b"\n"a: b" = y\nurn/3.a-b: z = 1\n'
    )
    path = tmp_path / "f.txt"
    path.write_text(text, encoding="utf-8-sig")
    filters = {
        line["id"]: line["filter"] for line in tamis("check", "-f", path, "--format", "json").json
    }
    assert filters == {
        "j": "x between 1 and 2",
        "2": 'x = "a: b"',
        "3": 'y = "a: b"',
        "urn/3.a-b": "z = 1",
    }


def test_a_siena_filter_in_braces_is_not_taken_for_json(tmp_path: Path) -> None:
    code, out, _ = check_file(
        tmp_path, '{(author, *, "Stein")}\ns: {(edition, >, 1)}\n', "-l", "siena"
    )
    assert (code, out) == (0, [])


def test_the_schema_is_held_against_filters(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"price": "float", "at": "timestamp"}')
    code, out, _ = check_file(tmp_path, "prize < 1\nprice = 'x'\nat < '2026-01-01'\n", "-s", schema)
    assert code == 2
    assert out == [
        "error: f.txt:1: the schema has no attribute 'prize'; did you mean \"price\"?",
        "error: f.txt:2: price = \"x\" asks for text, but the schema declares price as 'float'",
    ]


def test_programs_get_one_line_of_json_per_filter(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("a: x < 1 and true\nb: x <\n")
    done = tamis("check", "-f", path, "--format", "json")
    assert done.code == 2
    good, bad = done.json
    assert good == {
        "line": 1,
        "id": "a",
        "filter": "x < 1 and true",
        "simplified": "x < 1",
        "findings": [
            {
                "level": "warning",
                "rule": "redundant",
                "message": "true adds nothing: it is always true",
            }
        ],
    }
    assert (bad["id"], bad["findings"][0]["level"]) == ("b", "error")


def test_two_hundred_filters_are_compared_in_pairs_in_seconds(tmp_path: Path) -> None:
    text = "".join(f'company = "c{n % 17}" and price < {n}\n' for n in range(200))
    code, out, err = check_file(tmp_path, text)
    assert code == 0
    assert len(out) > 500
    assert "left out" not in err
