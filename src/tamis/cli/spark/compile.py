"""`tamis spark compile`: a table of subscriptions becomes a version of a library."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tamis.analysis.lint import MAX_FILTERS, MAX_PAIRS
from tamis.cli.console import say, stderr
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import ModeOption, SchemaFile, argument, no_default, read_schema
from tamis.cli.spark.jobs import spark_job, write_summary
from tamis.cli.spark.options import LibraryFolder, Master
from tamis.filters import Mode
from tamis.units import count

if TYPE_CHECKING:
    from tamis.spark import CompileReport

EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark compile subscriptions.parquet --library subscriptions/
tamis spark compile subscriptions.csv --library subscriptions/ --schema schema.json --key symbol

[bold]Exit code[/bold]

0 all rows compiled
1 a row was rejected
2 a mistake; no version was written"""

_MAX_SHOWN: Final = 20


def compile_(
    subscriptions: Annotated[
        Path,
        argument("SUBSCRIPTIONS", "Parquet, CSV or JSON lines."),
    ],
    *,
    library: LibraryFolder,
    schema: SchemaFile = None,
    mode: ModeOption = Mode.SQL,
    shards: Annotated[int | None, no_default(min=1, metavar="N", help="How many.")] = None,
    key: Annotated[
        str | None,
        no_default(metavar="NAME", help="A text attribute to shard subscriptions by."),
    ] = None,
    lint: Annotated[bool, typer.Option("--lint", help="Look for mistakes in filters.")] = False,
    lint_filters: Annotated[
        int, typer.Option(min=0, metavar="N", help="Of each shard, examine at most N filters.")
    ] = MAX_FILTERS,
    lint_pairs: Annotated[
        int, typer.Option(min=0, metavar="N", help="Of each shard, compare at most N pairs.")
    ] = MAX_PAIRS,
    format_: Annotated[
        str | None,
        no_default("--format", help="parquet, csv or json, if file names do not say."),
    ] = None,
    master: Master = "local[*]",
) -> int:
    """Compile a table of subscriptions to a new version of a library.

    Rejected rows are reported, and written to a table with the reasons.
    """
    from tamis.spark import (  # noqa: PLC0415 - pyspark is an extra
        compile_subscriptions,
        local_session,
    )

    declared = read_schema(schema)
    spark = local_session(master)
    with spark_job(spark, "compiling"):
        report = compile_subscriptions(
            subscriptions,
            library,
            schema=declared,
            mode=mode,
            shards=shards,
            key=key,
            lint={"filters": lint_filters, "pairs": lint_pairs} if lint else False,
            format_=format_,
            spark=spark,
        )
    _report_rejected(report)
    write_summary(_facts(report, lint=lint))
    return FINDING if report.rejected else FINE


def _report_rejected(report: CompileReport) -> None:
    rows = report.version.rejected_rows().sort_by("row").slice(0, _MAX_SHOWN).to_pylist()
    for row in rows:
        id_ = "" if row["id"] is None else f", {row['id']}"
        say(stderr(), f"rejected: row {row['row']}{id_}: {row['reason']}")
    if report.rejected > _MAX_SHOWN:
        more = count(report.rejected - _MAX_SHOWN, "more row")
        say(stderr(), f"and {more} in {report.rejected_path}")


def _facts(report: CompileReport, *, lint: bool) -> dict[str, int | float | str]:
    version = report.version
    facts: dict[str, int | float | str] = {
        "version": version.number,
        "rows": report.rows,
        "subscriptions": report.subscriptions,
        "rejected": report.rejected,
        "shards": len(version.manifest.shards),
        "megabytes": version.size / 1e6,
        "seconds": report.seconds,
        "written to": version.location,
    }
    return facts | ({"findings": report.findings} if lint else {})
