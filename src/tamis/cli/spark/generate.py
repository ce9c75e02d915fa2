"""What `tamis spark generate` does, once it is known that Spark is there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tamis.cli.exits import FINE
from tamis.cli.options import mistake
from tamis.cli.spark.progress import following
from tamis.cli.spark.summary import write_summary
from tamis.spark import Generated, generate, local_session
from tamis.spark.runtime.failures import readable_errors
from tamis.workloads import Workload


class Order(NamedTuple):
    """What the command line asked for."""

    workload: str
    subscriptions: int
    events: int
    to: Path
    seed: int
    density: float | None
    format: str
    overwrite: bool


def run_generate(order: Order, master: str) -> int:
    """Generate, and say what was written."""
    refuse_to_replace(order.to, overwrite=order.overwrite)
    workload = Workload.load(order.workload)
    spark = local_session(master)
    with readable_errors(), following(spark, "generating"):
        generated = generate(
            spark,
            workload,
            order.to,
            subscriptions=order.subscriptions,
            events=order.events,
            seed=order.seed,
            density=order.density,
            format_=order.format,
            overwrite=order.overwrite,
        )
    write_summary(_facts(generated))
    return FINE


def refuse_to_replace(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that has something in it, unless it may be replaced."""
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise mistake(f"{folder} is there already; name another folder, or --overwrite it")


def _facts(generated: Generated) -> dict[str, int | float | str]:
    rows = generated.subscriptions + generated.events
    return {
        "subscriptions": generated.subscriptions,
        "events": generated.events,
        "seconds": generated.seconds,
        "rows per second": round(rows / generated.seconds),
        "subscriptions in": str(generated.subscriptions_path),
        "events in": str(generated.events_path),
        "schema in": str(generated.schema_path),
    }
