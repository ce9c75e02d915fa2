"""The report of a match run: its figures are those of the results, and it shows text as text."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark.contract import Sub, compiled
from tamis.cli.app import app
from tamis.spark import CompileReport, MatchRun, Output, Tally, match_files, write, write_report
from tamis.spark.report.figures import gather_figures
from tamis.spark.report.markup import joined, shortened, tag

EVIL = '<script>alert("1")</script>'
SUBS = [Sub(f"s{n}", f"n < {n}") for n in range(1, 40)] + [
    Sub(EVIL, f'n < 100 and not x = "{EVIL.replace(chr(34), "")}" '),
    Sub("typo", f"n << {EVIL}"),
]


@pytest.fixture(scope="module")
def library(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    return compiled(spark, SUBS, tmp_path_factory.mktemp("library"), mode="strict", shards=2)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("events") / "events.jsonl"
    rows = [json.dumps({"n": n % 45, "x": "y"}) for n in range(200)]
    path.write_text("\n".join([*rows, '{"n": "<b>broken</b>', f'{{"n": "{EVIL}"']))
    return path


EXPECTED = Counter(
    {f"s{k}": sum(n % 45 < k for n in range(200)) for k in range(1, 40)} | {EVIL: 200}
)


@pytest.mark.parametrize("output", Output)
def test_every_output_gives_the_same_figures(
    spark: SparkSession, library: CompileReport, events: Path, output: Output, tmp_path: Path
) -> None:
    tally = Tally()
    results = match_files(spark, library.version, events, output=output, tally=tally)
    write(results, str(tmp_path / "out"))
    figures = gather_figures(spark, tmp_path / "out", library.version, output)
    assert figures.rejected_events.total == tally.counts().rejected == 2
    assert figures.rejected_subscriptions.total == 1
    if output is not Output.PAIRS:
        assert sum(bar.height for bar in figures.by_event) == 200
        assert figures.by_event[0].about == "24 events with 1 match"
    if output is Output.COUNTS:
        assert not figures.by_subscription
        return
    assert sum(bar.height for bar in figures.by_subscription) == 40
    assert figures.silent == 0
    assert [(one.id, one.matches) for one in figures.top[:2]] == EXPECTED.most_common(2)
    assert figures.top[1].filter == "n < 39"


class Reader(HTMLParser):
    """Reads a page as a browser does: what are elements, what is text, what is fetched."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.fetched: list[str] = []
        self.shown: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        self.text = " ".join(self.shown)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags[tag] += 1
        if tag != "meta":
            self._open.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.shown += [data.strip()] if data.strip() and self._open[-1] != "style" else []


def test_the_command_writes_a_page_that_needs_nothing_else(
    library: CompileReport, events: Path, tmp_path: Path
) -> None:
    folder = library.version.path.parent.parent
    page = tmp_path / "new" / "report.html"
    given = ("spark", "match", events, "-L", folder, "--to", tmp_path / "out", "--report", page)
    result = CliRunner().invoke(app, [*map(str, given)])
    assert result.exit_code == 0, result.output
    # A long path is broken over lines, and these are indented.
    assert str(page) in "".join(result.stdout.split())
    read = Reader(page.read_text("utf-8"))
    assert not read.fetched
    assert "http" not in page.read_text("utf-8")
    assert (read.tags["script"], read.tags["b"], read.tags["svg"]) == (0, 8, 2)
    assert EVIL in read.shown
    assert "202 events = 200 matched + 0 unmatched + 2 rejected" in read.text
    assert "The plan is single: it was" not in read.text
    assert "The plan is single: 40 subscriptions need" in read.text
    assert f"n << {EVIL}" in read.shown


def test_a_run_that_matched_nothing_has_a_report_too(
    spark: SparkSession, library: CompileReport, tmp_path: Path
) -> None:
    lines, tally = tmp_path / "events.jsonl", Tally()
    lines.write_text('{"n": 1000}\n')
    write(match_files(spark, library.version, lines, tally=tally), str(tmp_path / "out"))
    run = MatchRun(tmp_path / "out", library.version, tally.counts(), 0.5)
    read = Reader(write_report(spark, run, tmp_path / "report.html").read_text("utf-8"))
    assert "1 events = 0 matched + 1 unmatched + 0 rejected" in read.text
    assert "40 of 40 matched nothing." in read.text


def test_markup_escapes_what_is_not_markup() -> None:
    assert tag("a", "<", title='"') == '<a title="&quot;">&lt;</a>'
    assert joined(tag("b", "x"), "<\x1b") == "<b>x</b>&lt;\\x1b"
    assert shortened("x" * 1000) == "x" * 400 + "…"
