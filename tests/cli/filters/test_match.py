"""`tamis match`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli.commands import ROOT, tamis
from tamis.cli import event_input
from tamis.cli.event_input import progress, watched
from tamis.cli.filters.match import MAX_TABLE_ROWS
from tamis.filters import Filter

EVENTS = '{"price": 5}\n{"price": 50, "tag": ["a", "b"]}\n\n{"name": "x"}\n'


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_text(EVENTS)
    return path


def test_every_event_is_printed_with_the_filters_it_satisfies(events: Path) -> None:
    done = tamis("match", "price < 10", events)
    assert done.code == 0
    assert done.json == [
        {"line": 1, "filters": ["1"], "event": {"price": 5}},
        {"line": 2, "filters": [], "event": {"price": 50, "tag": ["a", "b"]}},
        {"line": 4, "filters": [], "event": {"name": "x"}},
    ]
    assert done.err == "3 events: 1 matched, 2 unmatched, 0 rejected\n"


@pytest.mark.parametrize(
    ("filter_", "hint"),
    [
        ('price > "100"', 'price > "100" asks for text, but in the input price is always a number'),
        ("prise > 1", 'no event of the input has prise; did you mean "price"?'),
        ("price > 100", ""),
        ("prise > 1 or price < 10", ""),
    ],
)
def test_if_no_event_matches_what_the_events_hold_says_why(
    filter_: str, hint: str, events: Path
) -> None:
    counts, *hints = tamis("match", filter_, events).err.splitlines()
    assert counts.startswith("3 events: ")
    assert hints == ([f"hint: {hint}"] if hint else [])


def test_of_many_filters_one_hint_is_enough(events: Path, tmp_path: Path) -> None:
    filters = tmp_path / "filters.txt"
    filters.write_text("prise < 10\nnaem is present\n")
    assert tamis("match", "--filters", filters, events).err.splitlines()[1:] == [
        'hint: no event of the input has prise; did you mean "price"?',
        "hint: tamis check --sample EVENTS says more",
    ]


def test_filters_come_from_a_file_with_their_ids(events: Path, tmp_path: Path) -> None:
    filters = tmp_path / "filters.txt"
    filters.write_text("cheap: price < 10\n# no comment\nname is present\nb: tag = 'b'\n")
    done = tamis("match", "--filters", filters, events)
    assert [line["filters"] for line in done.json] == [["cheap"], ["b"], ["3"]]


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_events_come_from_standard_input(arguments: tuple[str, ...]) -> None:
    assert len(tamis("match", "price < 10", *arguments, stdin=EVENTS).json) == 3


def test_events_that_match_nothing_can_be_left_out(events: Path) -> None:
    assert [
        line["line"] for line in tamis("match", "price < 10", events, "--only-matched").json
    ] == [1]


def test_where_nothing_matches_the_exit_code_is_1(events: Path) -> None:
    assert tamis("match", "price < 0", events).code == 1


def test_no_more_events_are_read_than_asked_for() -> None:
    done = tamis("match", "price < 10", "--limit", "1", stdin='{"price": 1}\nnot JSON')
    assert done.err == "1 event: 1 matched, 0 unmatched, 0 rejected\n"


def test_a_line_that_holds_no_event_is_rejected_and_the_rest_goes_on() -> None:
    done = tamis(
        "match", "price < 10", stdin='{"price": NaN}\n{"price": 1, "price": 2}\n{"price": 1}'
    )
    assert done.code == 0
    assert [line["line"] for line in done.json] == [3]
    assert done.err == (
        "rejected: line 1, price: NaN is not JSON; leave the attribute out\n"
        "rejected: line 2, price: the name is given twice in one object\n"
        "3 events: 1 matched, 0 unmatched, 2 rejected\n"
    )


def test_json_that_is_no_json_lines_gets_advice() -> None:
    done = tamis("match", "price < 10", stdin='{\n  "price": 1\n}\n')
    assert done.code == 1
    assert "jq -c . converts other JSON to such lines" in done.err


@pytest.mark.parametrize(
    "stdin",
    ['[{"price": 1}, {"price": 2}]', '[\n  {\n "price": 1\n }\n]', '[\n{"a": 1},\n{"a": 2}\n]'],
)
def test_an_array_gets_advice_of_its_own(stdin: str) -> None:
    err = tamis("match", "price < 10", stdin=stdin).err
    assert err.endswith("on one line; jq -c '.[]' converts an array to such lines\n")


@pytest.mark.parametrize(
    "stdin", ['{"price": 1,}', '{"price": NaN}\n', '{"a": "' + "x" * 2_000_000 + '"}']
)
def test_one_object_with_a_mistake_gets_no_advice_about_its_form(stdin: str) -> None:
    err = tamis("match", "price < 10", stdin=stdin).err
    assert "rejected: line 1" in err
    assert "jq" not in err


def test_a_line_that_is_much_too_long_has_more_bytes_than_the_limit() -> None:
    err = tamis("match", "a = 1", stdin='{"a": "' + "x" * 2_000_000 + '"}').err
    assert "bytes of JSON text: more than 1,048,576 exceeds the limit of 1,048,576\n" in err


def test_a_schema_gives_types_and_total_events_must_have_everything(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"at": "timestamp", "n": {"type": "int", "default": 7}}')
    stdin = '{"at": "2026-01-01T00:00:00Z", "n": 1}\n{"n": 7}\n{"n": "x"}\n'

    def ids(*options: str) -> list[bool]:
        lines = tamis(
            "match", 'n = 7 or at < "2026-02-01"', "-s", schema, *options, stdin=stdin
        ).json
        return [bool(line["filters"]) for line in lines]

    assert ids() == [True, True]
    assert ids("--mode", "strict") == [True, False]
    total = tamis("match", "n = 1", "-s", schema, "-m", "total", stdin=stdin)
    assert "rejected: line 2, at: the event lacks it" in total.err
    assert "jq" not in total.err


def test_cloudevents_come_one_per_line_or_in_batches() -> None:
    one = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold", "data": {"price": 9}}
    other = {**one, "id": "2", "time": "2026-01-01T00:00:00Z"}
    stdin = f"{json.dumps(one)}\n{json.dumps([one, other])}\n{json.dumps({'id': '3'})}\n"
    done = tamis("match", "data.price < 10", "--cloudevents", stdin=stdin)
    assert [(line["line"], line["event"]["id"]) for line in done.json] == [
        (1, "1"),
        (2, "1"),
        (2, "2"),
    ]
    assert done.json[2]["event"]["time"] == "2026-01-01T00:00:00Z"
    assert "rejected: line 3, specversion: it is missing" in done.err


def test_a_table_shows_events_and_filters(events: Path, tmp_path: Path) -> None:
    filters = tmp_path / "filters.txt"
    filters.write_text("cheap: price < 10\nb: tag = 'b'\n")
    rows = tamis("match", "-f", filters, events, "--format", "table").out.splitlines()
    cells = [row.split() for row in rows if row.strip()]
    assert ["1", "cheap", "price=5"] in cells
    assert ["2", "b", "price=50", "tag=a,b"] in cells
    assert ["4", "none", "name=x"] in cells
    assert ["cheap", "1", "price", "<", "10"] in cells
    assert all(len(row) <= 100 for row in rows)


def test_a_table_of_long_ids_and_events_keeps_all_columns() -> None:
    market = ROOT / "examples/market"
    done = tamis(
        "match", "-f", market / "subscriptions.txt", "-s", market / "schema.json", "--format",
        "table", market / "events.jsonl",
    )  # fmt: skip
    first = next(row for row in done.out.splitlines() if row.strip().startswith("1 "))
    assert first.split()[:4] == ["1", "acme", "acme-cheap", "first-minutes"]
    assert "kind=quote" in first


def test_a_table_is_cut_where_nobody_would_read_on() -> None:
    stdin = '{"price": 1}\n' * (MAX_TABLE_ROWS + 5)
    done = tamis("match", "price = 1", "--format", "table", stdin=stdin)
    assert "and 5 more events; --format json has them all" in done.out
    assert f"{MAX_TABLE_ROWS + 5:,} events" in done.err


def test_what_an_event_holds_cannot_control_the_terminal() -> None:
    done = tamis("match", "a = 1", "--format", "table", stdin='{"a": 1, "\\u009b31m": "\\u202e"}')
    assert "\x9b" not in done.out
    assert "\u202e" not in done.out
    assert "\\x9b31m" in done.out


def test_a_progress_bar_leaves_standard_output_to_the_results(
    monkeypatch: pytest.MonkeyPatch, events: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(event_input, "_SECONDS_BEFORE_BAR", 0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, force_interactive=True)
    with progress(str(events), console, visible=True) as advance:
        advance(20)
        sys.stdout.write("a result\n")
    assert capsys.readouterr().out == "a result\n"
    assert "━" in screen.getvalue()
    assert "a result" not in screen.getvalue()


def test_a_bar_counts_filters_while_they_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_input, "_SECONDS_BEFORE_BAR", 0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, force_interactive=True, width=80)
    assert list(watched(range(3), "filters", console, visible=True)) == [0, 1, 2]
    assert "filters 1 of 3" in screen.getvalue()


# --- original lines ------------------------------------------------------------------------------


def test_raw_gives_the_lines_of_matching_events_byte_by_byte(tmp_path: Path) -> None:
    lines = [
        b'{ "price" : 5.0 , "n":"\\u00e9" } \n',
        b'{"price": 50}\n',
        b"no event\n",
        b'{"price": 1}',
    ]
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(lines))
    done = tamis("match", "price < 10", path, "--raw")
    assert (done.code, done.out.encode()) == (0, lines[0] + lines[3] + b"\n")
    assert "3 events: 2 matched" not in done.err
    assert "4 events: 2 matched, 1 unmatched, 1 rejected" in done.err
    assert tamis("match", "price < 0", path, "--raw").code == 1
    assert tamis("match", "price < 10", "--raw", stdin=b"".join(lines)).out == done.out
    assert "leave --format out" in tamis("match", "a = 1", path, "--raw", "--format", "json").err


def test_raw_gives_a_batch_of_cloudevents_once() -> None:
    one = '{"specversion": "1.0", "id": "1", "source": "/shop", "type": "sold"}'
    stdin = f"[{one}, {one}]\n{one}\n"
    done = tamis("match", "type = 'sold'", "--cloudevents", "--raw", stdin=stdin)
    assert done.out == stdin


def test_a_rejected_line_is_named_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n{"a": NaN}\n')
    done = tamis("match", "a = 1", path)
    assert f"rejected: {path}: line 2, a: NaN is not JSON; leave the attribute out" in done.err


# --- many filters --------------------------------------------------------------------------------


def many_filters(tmp_path: Path) -> Path:
    path = tmp_path / "filters.txt"
    path.write_text(
        "".join(
            f"f{n}: price < {n} and not (tag = 't{n % 7}') or size is absent\n" for n in range(150)
        )
        + '{"id": "strict", "mode": "strict", "filter": "price < 5 or size > 3"}\n'
        + '{"id": "default", "mode": "default", "filter": "not (size > 3)"}\n'
        + '{"id": "jms", "language": "jms", "filter": "NOT (price = 5) AND tag LIKE \'t%\'"}\n'
    )
    return path


def events_for_many() -> str:
    rows = ({"price": n, "tag": f"t{n % 9}", "size": n % 5} for n in range(300))
    return "".join(
        json.dumps({k: v for k, v in row.items() if (n + len(k)) % 4}) + "\n"
        for n, row in enumerate(rows)
    )


def test_many_filters_are_matched_by_the_engine_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters, events = many_filters(tmp_path), tmp_path / "events.jsonl"
    events.write_text(events_for_many() + "no event\n" + '{"price": 3}\n')
    with monkeypatch.context() as patched:
        patched.setattr("tamis.cli.filters.outcomes.MIN_FILTERS_FOR_ENGINE", 10**9)
        expected = tamis("match", "-f", filters, events)

    def unused(*_: object) -> bool:
        raise AssertionError("many filters should not be tried one by one")

    monkeypatch.setattr(Filter, "matches", unused)
    monkeypatch.setattr("tamis.cli.filters.outcomes.MIN_PAIRS_FOR_ENGINE", 0)
    assert tamis("match", "-f", filters, events) == expected
    live = tamis("match", "-f", filters, stdin=events.read_text())
    assert live.json == expected.json
    monkeypatch.setattr("tamis.cli.filters.outcomes.MAX_BATCH_LINES", 7)
    assert tamis("match", "-f", filters, events) == expected


@pytest.mark.parametrize(
    "options", [("--raw",), ("--only-matched",), ("--limit", 7), ("--limit", 0), ("--limit", 99)]
)
def test_the_engine_reads_lines_as_the_reference_semantics_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[object, ...]
) -> None:
    filters, events = many_filters(tmp_path), tmp_path / "events.jsonl"
    lines = events_for_many().splitlines()[:60]
    lines[3:3] = ["", "  \t", "no event", '{"price": 1, "price": 2}', ' {"size": 4} ']
    events.write_bytes("\r\n".join(lines).encode() + b'\n{"tag": "\xff"}\n{"price": 1}')
    monkeypatch.setattr("tamis.cli.filters.outcomes.MIN_PAIRS_FOR_ENGINE", 0)
    monkeypatch.setattr("tamis.cli.filters.outcomes.MAX_BATCH_LINES", 7)
    found = tamis("match", "-f", filters, events, *options)
    monkeypatch.setattr("tamis.cli.filters.outcomes.MIN_FILTERS_FOR_ENGINE", 10**9)
    assert found == tamis("match", "-f", filters, events, *options)


def test_the_engine_refuses_what_the_reference_semantics_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"at": "timestamp", "n": {"type": "int", "default": 7}}')
    filters = tmp_path / "filters.txt"
    filters.write_text(
        "".join(f"n = {n}\n" for n in range(150)) + '{"filter": "n = 7", "mode": "sql"}'
    )
    stdin = '{"at": "2026-01-01T00:00:00Z", "n": 1}\n{"n": 7}\n{"n": "x"}\n'
    options = ("match", "-f", filters, "-s", schema, "-m", "total")
    found = tamis(*options, stdin=stdin)
    events = tmp_path / "events.jsonl"
    events.write_text(stdin)
    monkeypatch.setattr("tamis.cli.filters.outcomes.MIN_PAIRS_FOR_ENGINE", 0)
    from_file = tamis(*options, events)
    monkeypatch.setattr("tamis.cli.filters.outcomes.MIN_FILTERS_FOR_ENGINE", 10**9)
    assert found == tamis(*options, stdin=stdin)
    assert from_file == tamis(*options, events)
    assert "rejected: line 2, at: the event lacks it" in found.err


def test_a_probable_mistake_is_warned_of(tmp_path: Path) -> None:
    one = tamis("match", "day > 2026-01-01", stdin='{"day": 2025}\n')
    assert one.code == 0
    assert "warning: 2026-01-01 subtracts, and is 2024; write date" in one.err
    path = tmp_path / "filters.txt"
    path.write_text("symbol = ACME\nprice < 3\nstatus = open\n")
    several = tamis("match", "--filters", path, stdin="{}\n")
    assert f"warning: 2 filters may be mistaken: tamis check --filters {path} says why" in (
        several.err
    )
    assert "warning" not in tamis("match", 'symbol = "ACME"', stdin="{}\n").err


def test_a_filter_and_a_file_that_are_swapped_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"price": 3}\n')
    for arguments in ((path, "price < 5"), (path,)):
        done = tamis("match", *arguments, stdin="")
        assert (done.code, done.out) == (2, "")
        assert f"{path} is a file, not a filter: a file of filters goes with --filters" in done.err
