"""What `tamis spark match` does, once it is known that Spark is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import mistake
from tamis.cli.spark.progress import following
from tamis.cli.spark.summary import write_summary
from tamis.spark import (
    Counts,
    Library,
    MatchRun,
    Tally,
    Version,
    local_session,
    match_files,
    write,
    write_report,
)
from tamis.spark.report.notes import collect_notes
from tamis.spark.runtime.failures import readable_errors


class Order(NamedTuple):
    """What the command line asked for."""

    events: Path
    library: Path
    to: Path
    version: int | None
    output: str
    keep: tuple[str, ...]
    only_matched: bool
    overwrite: bool
    plan: str | None
    format: str | None
    report: Path | None = None


def run_match(order: Order, master: str) -> int:
    """Match, and say what came of it."""
    if order.to.exists() and not order.overwrite:
        raise mistake(f"{order.to} is there already; name another folder, or --overwrite it")
    library = Library(order.library)
    version = library.latest() if order.version is None else library.version(order.version)
    spark = local_session(master)
    started, tally = time.monotonic(), Tally()
    with readable_errors(), following(spark, "matching"), collect_notes() as notes:
        results = match_files(
            spark,
            version,
            order.events,
            output=order.output,
            keep=order.keep,
            format_=order.format,
            unmatched=False if order.only_matched else None,
            tally=tally,
            plan=order.plan,
        )
        write(results, str(order.to), mode="overwrite" if order.overwrite else "error")
    counts, seconds = tally.counts(), time.monotonic() - started
    facts = _facts(counts, version, order.to, seconds)
    if order.report is not None:
        run = MatchRun(
            order.to, version, counts, seconds, order.output, str(order.events), tuple(notes)
        )
        with readable_errors(), following(spark, "reporting"):
            facts["report"] = str(write_report(spark, run, order.report).absolute())
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
