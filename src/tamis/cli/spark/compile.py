"""What `tamis spark compile` does, once it is known that Spark is there."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq

from tamis.cli.console import count, say, stderr
from tamis.cli.exits import FINDING, FINE
from tamis.cli.spark.progress import following
from tamis.cli.spark.summary import write_summary
from tamis.events import Schema
from tamis.spark import CompileReport, compile_subscriptions, local_session
from tamis.spark.runtime.failures import readable_errors

SHOWN: Final = 20


class Order(NamedTuple):
    """What the command line asked for."""

    subscriptions: Path
    library: Path
    schema: Schema | None
    mode: str
    shards: int | None
    key: str | None
    lint: bool
    format: str | None


def run_compile(order: Order, master: str) -> int:
    """Compile, and say what came of it."""
    spark = local_session(master)
    with readable_errors(), following(spark, "compiling"):
        report = compile_subscriptions(
            order.subscriptions,
            order.library,
            schema=order.schema,
            mode=order.mode,
            shards=order.shards,
            key=order.key,
            lint=order.lint,
            format_=order.format,
            spark=spark,
        )
    _say_rejected(report)
    write_summary(_facts(report, lint=order.lint))
    return FINDING if report.rejected else FINE


def _say_rejected(report: CompileReport) -> None:
    rows = pq.read_table(report.rejected_path).sort_by("row").slice(0, SHOWN).to_pylist()
    for row in rows:
        id_ = "" if row["id"] is None else f", {row['id']}"
        say(stderr(), f"rejected: row {row['row']}{id_}: {row['reason']}")
    if report.rejected > SHOWN:
        more = count(report.rejected - SHOWN, "more row")
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
        "written to": str(version.path),
    }
    return facts | ({"findings": report.findings} if lint else {})
