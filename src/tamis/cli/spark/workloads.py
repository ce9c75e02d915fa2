"""`tamis spark generate` and `tamis spark experiment`: data by chance, and figures from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tamis.cli.spark.commands import Master, spark
from tamis.lazy import require_extra

GENERATE_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark generate market --subscriptions 100000 --events 2000000 --to market/
tamis spark generate my.toml --subscriptions 1000 --events 5000 --to data/ --format jsonl"""

EXPERIMENT_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark experiment paper --filters 25000 --filters 100000 --events 200000 --to density/"""

WorkloadName = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help="A workload file, or the name of one that comes with Tamis.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(metavar="S", help="Another seed gives other data.")]
Folder = Annotated[
    Path,
    typer.Option("--to", metavar="FOLDER", help="Where what is written goes.", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


@spark.command(epilog=GENERATE_EXAMPLES, no_args_is_help=True)
def generate(
    workload: WorkloadName,
    *,
    subscriptions: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many.", show_default=False)
    ],
    events: Annotated[int, typer.Option(min=0, metavar="M", help="How many.", show_default=False)],
    to: Folder,
    seed: Seed = 1,
    density: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            metavar="D",
            help="The share of attributes that an event has, from 0 to 1.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="parquet or jsonl.")] = "parquet",
    overwrite: Overwrite = False,
    master: Master = "local[*]",
) -> int:
    """Write subscriptions and events of a workload, and its schema.

    The same seed gives the same data, on any machine and however the work is cut.
    """
    require_extra("spark")
    from tamis.cli.spark.generate import Order, run_generate  # noqa: PLC0415 - pyspark is an extra

    given = Order(workload, subscriptions, events, to, seed, density, format_, overwrite)
    return run_generate(given, master)


@spark.command(epilog=EXPERIMENT_EXAMPLES, no_args_is_help=True)
def experiment(
    workload: WorkloadName,
    *,
    filters: Annotated[
        list[int],
        typer.Option(min=1, metavar="N", help="How many; may be repeated.", show_default=False),
    ],
    events: Annotated[int, typer.Option(min=1, metavar="M", help="For each density.")] = 200_000,
    to: Folder,
    seed: Seed = 1,
    repeat: Annotated[int, typer.Option(min=1, metavar="R", help="Times to measure each.")] = 5,
    overwrite: Overwrite = False,
    master: Master = "local[*]",
) -> int:
    """Match events of growing density against filters, as section 8 of the paper does.

    The folder gets a table (CSV, Parquet and Markdown) and a plot.
    """
    require_extra("spark")
    from tamis.cli.spark.experiment import (  # noqa: PLC0415 - pyspark is an extra
        Order,
        run_experiment,
    )

    return run_experiment(Order(workload, filters, events, to, seed, repeat, overwrite), master)
