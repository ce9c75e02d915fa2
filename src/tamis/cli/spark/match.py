"""`tamis spark match`: the events in files, matched against a library."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tamis.cli.console import stdout
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import argument, mistake, no_default
from tamis.cli.spark.jobs import spark_job, write_summary
from tamis.cli.spark.options import (
    FileFormat,
    KeptColumns,
    LibraryFolder,
    Master,
    OnlyMatched,
    OutputForm,
    Overwrite,
    PlanName,
)

if TYPE_CHECKING:
    from tamis.spark import Counts, Forecast, Version

EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark match events/ --library subscriptions/ --to matches/
tamis spark match events.jsonl --library subscriptions/ --to matches/ --output pairs
tamis spark match events/ --library subscriptions/ --to matches/ --report report.html
tamis spark match events/ --library subscriptions/ --explain

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a mistake, or an error of Spark"""


def match(
    events: Annotated[
        Path,
        argument("EVENTS", "Parquet or JSON lines, a file or a folder."),
    ],
    *,
    library: LibraryFolder,
    to: Annotated[Path | None, no_default("--to", metavar="FOLDER", help="Where to write.")] = None,
    version: Annotated[
        int | None,
        no_default(metavar="N", help="A version other than the newest."),
    ] = None,
    output: OutputForm = "ids",
    keep: KeptColumns = None,
    only_matched: OnlyMatched = False,
    overwrite: Overwrite = False,
    plan: PlanName = None,
    format_: FileFormat = None,
    report: Annotated[
        Path | None,
        no_default(metavar="FILE", help="Write a report, as HTML."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Say what it will take, and match only a sample."),
    ] = False,
    master: Master = "local[*]",
) -> int:
    """Match the events in files against a library, and write the matches of each.

    The results are Parquet, with a folder for each outcome: matched, unmatched and rejected.
    """
    from tamis.spark import (  # noqa: PLC0415 - pyspark is an extra
        Library,
        MatchRun,
        Tally,
        forecast_files,
        local_session,
        match_files,
        write,
        write_report,
    )
    from tamis.spark.matching.live_counts import LiveCounts  # noqa: PLC0415 - as above
    from tamis.spark.report.notes import collect_notes  # noqa: PLC0415 - as above

    versions = Library(library)
    pinned = versions.latest() if version is None else versions.version(version)
    if explain:
        return _explain(
            forecast_files(
                pinned,
                events,
                output=output,
                format_=format_,
                plan=plan,
                cores=_cores(master),
            )
        )
    if to is None:
        raise mistake("name a folder for the results with --to, or --explain what it will take")
    if to.exists() and not overwrite:
        raise mistake(f"{to} exists already; name another folder, or --overwrite it")
    spark = local_session(master)
    live = LiveCounts(spark.sparkContext)
    started, tally = time.monotonic(), Tally(live)
    with spark_job(spark, "matching", live.so_far), collect_notes() as notes:
        results = match_files(
            spark,
            pinned,
            events,
            output=output,
            keep=keep or (),
            format_=format_,
            unmatched=False if only_matched else None,
            tally=tally,
            plan=plan,
        )
        write(results, str(to), mode="overwrite" if overwrite else "error")
    counts, seconds = tally.counts(), time.monotonic() - started
    facts = _facts(counts, pinned, to, seconds)
    if report is not None:
        run = MatchRun(to, pinned, counts, seconds, output, str(events), tuple(notes))
        with spark_job(spark, "reporting"):
            facts["report"] = str(write_report(spark, run, report).absolute())
    write_summary(facts)
    return FINE if counts.matched else FINDING


def _facts(
    counts: Counts, version: Version, to: Path, seconds: float
) -> dict[str, int | float | str]:
    return {
        "version": version.number,
        "subscriptions": version.subscriptions,
        **counts._asdict(),
        "seconds": seconds,
        "events per second": round(counts.events / seconds),
        "written to": str(to),
    }


def _cores(master: str) -> int | None:
    """Return the cores that a master on this machine uses; None if it does not tell."""
    found = re.match(r"local(?:-cluster)?\[(\d+)(?:,(\d+))?", master)
    if found is None:
        return 1 if master == "local" else None
    of_each = found[2] if master.startswith("local-cluster") else None
    return int(found[1]) * int(of_each or 1)


def _explain(forecast: Forecast) -> int:
    write_summary(
        {
            "plan": f"{forecast.plan.strategy}: {forecast.plan.reason}",
            "events": forecast.events,
            "tasks": forecast.tasks,
            "cores": forecast.cores,
            "seconds of matching": forecast.seconds,
            "matches per event": forecast.matches_per_event,
            "rejected": f"{forecast.rejected:.1%}",
            "memory of a machine": f"{forecast.shared_bytes / 1e6:,.0f} MB",
            "and of each worker": f"{forecast.worker_bytes / 1e6:,.0f} MB",
            "sample": forecast.sample,
        }
    )
    for advice in forecast.advice or ("nothing is known that would make it cheaper",):
        stdout().print(f"cheaper: {advice}" if forecast.advice else advice, highlight=False)
    return FINE
