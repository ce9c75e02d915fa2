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
    assert out == ["warning: f.txt:4: 4: it matches the same events as 3"]
    assert "3 filters make 3 pairs, more than 2" in err
    assert "--pairs 3 includes it" in err


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
        'error: f.txt:4: this is not a filter as JSON: Expected "str", got "int" - at "$.filter"',
        "error: f.txt:5: the id 'a b' has other characters than letters, digits, _ . / and -",
        'error: f.txt:6: this is not a filter as JSON: Object contains unknown field "mod"',
        "error: f.txt:7: a condition or value is missing at the end",
        "error: f.txt:8: this is not a filter as JSON: Invalid enum value 'maybe' - at \"$.mode\"",
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
        "findings": [],
    }
    assert (bad["id"], bad["findings"][0]["level"]) == ("b", "error")


def test_two_hundred_filters_are_compared_in_pairs_in_seconds(tmp_path: Path) -> None:
    text = "".join(f'company = "c{n % 17}" and price < {n}\n' for n in range(200))
    code, out, err = check_file(tmp_path, text)
    assert code == 0
    assert len(out) > 500
    assert "left out" not in err
