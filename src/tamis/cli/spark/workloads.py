"""`tamis spark generate` and `tamis spark experiment`: random data, and measurements with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from tamis.cli.console import say, stdout
from tamis.cli.exits import FINE
from tamis.cli.options import argument, no_default
from tamis.cli.spark.jobs import spark_job, write_summary
from tamis.cli.spark.options import Master, Overwrite, TargetFolder, require_new

if TYPE_CHECKING:
    from tamis.spark import Generated

GENERATE_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark generate market --subscriptions 100000 --events 2000000 --to market/
tamis spark generate my.toml --subscriptions 1000 --events 5000 --to data/ --format jsonl"""

EXPERIMENT_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark experiment paper --filters 25000 --filters 100000 --events 200000 --to density/"""

WorkloadName = Annotated[
    str,
    argument("WORKLOAD", "A workload file, or the name of one that comes with Tamis."),
]
Seed = Annotated[int, typer.Option(metavar="S", help="A different seed gives different data.")]


def generate(
    workload: WorkloadName,
    *,
    subscriptions: Annotated[int, no_default(min=0, metavar="N", help="How many.")],
    events: Annotated[int, no_default(min=0, metavar="M", help="How many.")],
    to: TargetFolder,
    seed: Seed = 1,
    density: Annotated[
        float | None,
        no_default(min=0, max=1, metavar="D", help="The fraction of attributes that an event has."),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    overwrite: Overwrite = False,
    master: Master = "local[*]",
) -> int:
    """Write subscriptions and events of a workload, and its schema.

    The same seed gives the same data on any machine, with any number of tasks.
    """
    from tamis import spark as tamis_spark  # noqa: PLC0415 - pyspark is an extra
    from tamis.workloads import Workload  # noqa: PLC0415 - slow to import

    require_new(to, overwrite=overwrite)
    source = Workload.load(workload)
    spark = tamis_spark.local_session(master)
    with spark_job(spark, "generating"):
        generated = tamis_spark.generate(
            spark,
            source,
            to,
            subscriptions=subscriptions,
            events=events,
            seed=seed,
            density=density,
            format_=format_,
            overwrite=overwrite,
        )
    write_summary(_facts(generated))
    return FINE


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


def experiment(
    workload: WorkloadName,
    *,
    filters: Annotated[
        list[int],
        no_default(min=1, metavar="N", help="How many; repeatable."),
    ],
    events: Annotated[int, typer.Option(min=1, metavar="M", help="For each density.")] = 200_000,
    to: TargetFolder,
    seed: Seed = 1,
    repeat: Annotated[int, typer.Option(min=1, metavar="R", help="Measurements of each case.")] = 5,
    overwrite: Overwrite = False,
    master: Master = "local[*]",
) -> int:
    """Match events of growing density against filters, as section 8 of the paper does.

    The folder gets a table (CSV, Parquet and Markdown) and a plot.
    """
    from tamis.spark import density_experiment, local_session  # noqa: PLC0415 - as above
    from tamis.spark.report.experiment_tables import COLUMNS, cells  # noqa: PLC0415 - as above
    from tamis.workloads import Workload  # noqa: PLC0415 - as above

    require_new(to, overwrite=overwrite)
    source = Workload.load(workload)
    spark = local_session(master)
    with spark_job(spark, "measuring"):
        measurements = density_experiment(
            spark, source, to, filters=filters, events=events, seed=seed, repeat=repeat
        )
    _print_table(COLUMNS, map(cells, measurements))
    say(stdout(), f"written to {to}")
    return FINE


def _print_table(names: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    stdout().print(table)
