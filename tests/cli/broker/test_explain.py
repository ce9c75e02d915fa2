"""`tamis explain` without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import tamis


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a broker that does not exist, in the environment."""
    monkeypatch.setenv("TAMIS_URL", "http://127.0.0.1:1")


def test_the_exit_code_says_whether_the_event_matches() -> None:
    matching = tamis("explain", "price < 5", '{"price": 4}')
    assert (matching.code, matching.out.splitlines()) == (
        0,
        [
            "The filter matches:",
            "- price is 4, so price < 5 is true",
            "With price = 5 it would not match.",
        ],
    )
    other = tamis("explain", "price < 5", '{"price": 7}')
    assert (other.code, other.out.splitlines()[0]) == (1, "The filter does not match:")


@pytest.mark.parametrize(
    ("event", "matched", "truth", "change"),
    [
        ('{"price": 4}', True, True, {"price": 5}),
        ('{"price": 7}', False, False, {"price": 4}),
        ('{"size": 7}', False, None, {"price": 0}),
    ],
)
def test_programs_get_the_outcome_as_fields(
    event: str, matched: bool, truth: bool | None, change: dict[str, object]
) -> None:
    done = tamis("explain", "price < 5", event, "--format", "json")
    [found] = done.json
    assert (found["matched"], found["truth"], found["change"]) == (matched, truth, change)
    assert found["explanation"].startswith("The filter ")
    [reason] = found["reasons"]
    assert (reason["test"], reason["truth"]) == ("price < 5", truth)
    assert done.code == (0 if matched else 1)


def test_the_event_may_be_in_a_file_or_piped_in(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"price": 7}\n{"price": 4}\n')
    assert tamis("explain", "price < 5", path).code == 1
    assert tamis("explain", "price < 5", path, "--line", 2).code == 0
    assert tamis("explain", "price < 5", "-", stdin='{"price": 4}').code == 0
    path.write_text('{\n  "price": 4\n}\n')
    assert tamis("explain", "price < 5", path).code == 0


def test_schema_mode_and_language_are_applied(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"at": "timestamp", "n": {"type": "int", "default": 7}}')
    assert tamis("explain", "n = 7", "{}", "-s", schema, "-m", "default").code == 0
    assert tamis("explain", "n = 7", "{}", "-s", schema).code == 1
    at = '{"at": "2026-01-01T00:00:00Z"}'
    assert tamis("explain", "at < '2026-02-01'", at, "-s", schema).code == 0
    assert tamis("explain", "n BETWEEN 1 AND 9", '{"n": 4}', "-l", "jms").code == 0


def test_documents_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "order.xml"
    text = "<?xml version='1.0' encoding='{}'?>\n<order><line><sku>ch\u00e4r</sku></line></order>\n"
    for encoding in ("UTF-8", "ISO-8859-1", "UTF-16"):
        path.write_bytes(text.format(encoding).encode(encoding))
        for language in ("xql", "xpath"):
            matching = tamis("explain", "//sku = 'ch\u00e4r'", path, "-l", language)
            assert (matching.code, matching.out.splitlines()[0]) == (0, "The filter matches:")
            other = tamis("explain", "//sku = 'table'", path, "-l", language, "--format", "json")
            assert (other.code, other.json[0]["matched"], other.json[0]["truth"]) == (
                1,
                False,
                False,
            )
        assert tamis("explain", "`//sku` = 'ch\u00e4r'", path).code == 0
    # What is exact only in the document itself.
    given = "<a><b>1</b><b>2</b></a>"
    assert tamis("explain", "//b[1] = '2'", given, "-l", "xql").code == 0
    assert tamis("explain", "//b[0] = '2'", "-", "-l", "xql", stdin=given).code == 1
    assert tamis("explain", "//b", '{"b": 1}', "-l", "xql").code == 1
    schema = tmp_path / "schema.json"
    schema.write_text('{"b": "int"}')
    refused = tamis("explain", "//b", given, "-l", "xql", "-s", schema)
    assert "--schema is for events in JSON" in refused.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("//b[", "<b/>", "-l", "xql"), "//b["),
        (("//b", "<b>", "-l", "xql"), "the event, line 1, column 4: this is not well-formed XML"),
        (("//b", "-", "-l", "xql", "--line", "1"), "standard input is one XML document"),
        (("<b/>", "//b", "-l", "xql"), "is an event, not a filter: the filter comes first"),
        (("//b", "<b/>", "-l", "xql", "-m", "strict"), "--mode is not for xql"),
        (("//b", "<b/>", "-l", "xqll"), "xqll"),
    ],
)
def test_a_mistake_with_documents_is_a_sentence(arguments: tuple[str, ...], words: str) -> None:
    done = tamis("explain", *arguments, stdin=" <b/>")
    assert (done.code, done.out) == (2, "")
    assert words in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("price <", "{}"), "a condition or value is missing at the end"),
        (("a = 1",), "give a filter and an event"),
        (("a = 1", "{}", "{}"), "give a filter and an event"),
        (("a = 1", "{"), "the event, line 1, column 2: this is not JSON"),
        (("a = 1", '{"a": NaN}'), "the event, a: NaN is not JSON"),
        (
            ("a = 1", "no-such-file"),
            "no-such-file is neither an event as JSON or XML nor a file that can be read: No such",
        ),
        (("a = 1", "[1,2]"), "an event is a JSON object, not an array"),
        (("a = 1", '"x"'), '"x" is neither an event as JSON or XML nor a file'),
        (("a = 1", "-", "--line", "3"), "there is no line 3"),
        (("a = 1", "{}", "--line", "3"), "--line is for events in a file"),
        (('{"a": 1}', "a = 1"), "is an event, not a filter: the filter comes first"),
        (("a = 1", "{}", "--mode", "some"), "'some' is not a mode"),
        (("a = 1", "{}", "--mode", "total"), "mode 'total' needs a schema"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    done = tamis("explain", *arguments, stdin="")
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_an_error_names_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n\n{"a": 1]\n{"b": NaN}\n')
    done = tamis("explain", "a = 1", path, "--line", 3)
    assert (done.code, done.err.startswith(f"error: {path}, line 3, column 8: ")) == (2, True)
    done = tamis("explain", "a = 1", path, "--line", 4)
    assert f"{path}, line 4, b: NaN is not JSON" in done.err
    path.write_text('{\n  "a": ]\n}\n')
    assert f"{path}, line 2, column 8: " in tamis("explain", "a = 1", path).err
    swapped = tamis("explain", path, "a = 1")
    assert "the filter comes first" in swapped.err


def test_a_probable_mistake_is_warned_of() -> None:
    done = tamis("explain", "symbol = ACME", '{"symbol": "ACME"}')
    assert done.code == 1
    assert done.err.startswith("warning: symbol = ACME: ACME is read as an attribute; a text needs")
    assert done.err.count("\n") == 1
