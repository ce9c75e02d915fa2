"""A report of a match run: one self-contained HTML page."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from tamis.filters.printing import show_name
from tamis.spark.library.library import Version
from tamis.spark.matching.counts import Counts
from tamis.spark.matching.outputs import Output
from tamis.spark.report.charts import STYLE
from tamis.spark.report.figures import Figures, gather_figures
from tamis.spark.report.markup import Markup, joined, tag
from tamis.spark.report.sections import (
    charts_section,
    facts_section,
    outcome_section,
    rejected_events_section,
    rejected_subscriptions_section,
    sheet,
    top_section,
)

_PAGE: Final = files("tamis.spark.report") / "report.html"


class MatchRun(NamedTuple):
    """A finished match run, whose results `write` has written."""

    results: Path
    version: Version
    counts: Counts
    seconds: float
    output: str = Output.IDS
    events: str = ""
    """A description of where the events came from."""
    notes: Sequence[str] = ()
    """Log messages about the plan, and about who read the events."""
    timing: Mapping[str, float] = {}
    """The seconds of earlier steps, by name."""


def write_report(spark: SparkSession, run: MatchRun, path: str | PathLike[str]) -> Path:
    """Gather the figures of a run from its results, and write the report."""
    figures = gather_figures(spark, run.results, run.version, Output(run.output))
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page_of(run, figures), encoding="utf-8")
    return target


def page_of(run: MatchRun, figures: Figures) -> str:
    """Return the report as HTML."""
    body = joined(
        _header(run),
        facts_section(run.counts, run.version.subscriptions, run.seconds),
        outcome_section(run.counts),
        charts_section(figures, run.version.subscriptions),
        top_section(figures.top, run.counts.matches),
        rejected_events_section(figures.rejected_events),
        rejected_subscriptions_section(figures.rejected_subscriptions),
        _how_it_ran(run),
        _timing(run, figures),
        _library(run.version),
        _footer(),
    )
    template = Template(_PAGE.read_text("utf-8"))
    return template.substitute(title="Tamis: matching report", chart_style=STYLE, body=body)


def _header(run: MatchRun) -> Markup:
    events = run.events or "the events"
    subtitle = f"{events} against version {run.version.number} of {run.version.library}"
    return tag("header", tag("h1", "Matching report"), tag("p", subtitle))


def _how_it_ran(run: MatchRun) -> Markup:
    notes = [tag("p", f"{note[:1].upper()}{note[1:]}.") for note in run.notes]
    results = tag("p", "The results are in ", tag("code", str(run.results)), f", as {run.output}.")
    return joined(tag("h2", "How it ran"), *notes, results)


def _timing(run: MatchRun, figures: Figures) -> Markup:
    phases = {
        **run.timing,
        "matching and writing the results": run.seconds,
        "gathering this report": figures.seconds,
    }
    rows = [(name, f"{seconds:,.1f}") for name, seconds in phases.items()]
    return joined(tag("h2", "Time"), sheet(("", "seconds"), rows, numbers={1}))


def _library(version: Version) -> Markup:
    manifest = version.manifest
    rows = [
        ("version", f"{version.number:,}, compiled {manifest.created_at}"),
        ("subscriptions", f"{version.subscriptions:,} of {manifest.rows:,} rows"),
        ("shards", f"{len(manifest.shards):,}, of {version.size / 1e6:,.1f} MB in all"),
        ("mode", manifest.mode),
        ("key", manifest.key or "none"),
        ("attributes in filters", ", ".join(map(show_name, sorted(version.attributes))) or "none"),
    ]
    return joined(tag("h2", "The library"), sheet((), rows))


def _footer() -> Markup:
    now = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    machine = f"Spark {pyspark.__version__}, Python {platform.python_version()}"
    return tag("footer", f"Written by Tamis on {now}; {machine} on {platform.platform()}.")
