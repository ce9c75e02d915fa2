"""What `tamis spark experiment` does, once it is known that Spark is there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from tamis.cli.console import say, stdout
from tamis.cli.exits import FINE
from tamis.cli.spark.generate import refuse_to_replace
from tamis.cli.spark.progress import following
from tamis.spark import local_session
from tamis.spark.report.experiment import density_experiment
from tamis.spark.report.experiment_tables import COLUMNS, cells
from tamis.spark.runtime.failures import readable_errors
from tamis.workloads import Workload


class Order(NamedTuple):
    """What the command line asked for."""

    workload: str
    filters: list[int]
    events: int
    to: Path
    seed: int
    repeat: int
    overwrite: bool


def run_experiment(order: Order, master: str) -> int:
    """Measure, and show the table."""
    refuse_to_replace(order.to, overwrite=order.overwrite)
    workload = Workload.load(order.workload)
    spark = local_session(master)
    with readable_errors(), following(spark, "measuring"):
        found = density_experiment(
            spark,
            workload,
            order.to,
            filters=order.filters,
            events=order.events,
            seed=order.seed,
            repeat=order.repeat,
        )
    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for one in found:
        table.add_row(*cells(one))
    stdout().print(table)
    say(stdout(), f"written to {order.to}")
    return FINE
