"""`tamis spark`: compile subscriptions and match events in bulk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from tamis.cli.options import ModeOption, SchemaFile, read_schema
from tamis.filters import Mode
from tamis.lazy import require_extra

COMPILE_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark compile subscriptions.parquet --library subscriptions/
tamis spark compile subscriptions.csv --library subscriptions/ --schema schema.json --key symbol

[bold]Exit code[/bold]

0 every row was taken
1 a row was rejected
2 a mistake; no version was written"""

MATCH_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark match events/ --library subscriptions/ --to matches/
tamis spark match events.jsonl --library subscriptions/ --to matches/ --output pairs
tamis spark match events/ --library subscriptions/ --to matches/ --report report.html

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a mistake, or Spark gave up"""

STREAM_EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark stream events/ --library subscriptions/ --to matches/ --checkpoint checkpoint/
tamis spark stream events/ -L subscriptions/ --to matches/ --checkpoint checkpoint/ --every 10s
tamis spark stream http://broker:8765 -L subscriptions/ --to matches/ --checkpoint at/

[bold]Exit code[/bold]

0 an event matched
1 no event matched
2 a mistake, or Spark gave up"""

spark = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Compile and match in bulk, on Spark."
)

LibraryFolder = Annotated[
    Path,
    typer.Option(
        "--library",
        "-L",
        metavar="FOLDER",
        help="The library of subscriptions.",
        show_default=False,
    ),
]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: local[*] is all of this machine.")
]
Target = Annotated[
    Path, typer.Option("--to", metavar="FOLDER", help="Where results go.", show_default=False)
]
OutputForm = Annotated[str, typer.Option(help="ids, pairs, packed, bitmap or counts.")]
KeptColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column to keep; may be repeated.", show_default=False),
]
OnlyMatched = Annotated[
    bool, typer.Option("--only-matched", help="Leave out events that match nothing.")
]
PlanName = Annotated[
    str | None,
    typer.Option(help="single, keyed or grid, rather than what fits.", show_default=False),
]
EventFormat = Annotated[
    str | None,
    typer.Option("--format", help="parquet or json, if no name tells.", show_default=False),
]


@spark.command(name="compile", epilog=COMPILE_EXAMPLES, no_args_is_help=True)
def compile_(
    subscriptions: Annotated[
        Path,
        typer.Argument(
            metavar="SUBSCRIPTIONS", help="Parquet, CSV or JSON lines.", show_default=False
        ),
    ],
    *,
    library: LibraryFolder,
    schema: SchemaFile = None,
    mode: ModeOption = Mode.SQL,
    shards: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Into how many.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A text attribute to shard subscriptions by.", show_default=False
        ),
    ] = None,
    lint: Annotated[bool, typer.Option("--lint", help="Look for mistakes in filters.")] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="parquet, csv or json, if no name tells.", show_default=False
        ),
    ] = None,
    master: Master = "local[*]",
) -> int:
    """Compile a table of subscriptions to a new version of a library.

    A row that cannot be taken is told, and written to a table with the reason; the rest goes on.
    """
    require_extra("spark")
    from tamis.cli.spark.compile import Order, run_compile  # noqa: PLC0415 - pyspark is an extra

    given = Order(subscriptions, library, read_schema(schema), mode, shards, key, lint, format_)
    return run_compile(given, master)


@spark.command(name="match", epilog=MATCH_EXAMPLES, no_args_is_help=True)
def match(
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS", help="Parquet or JSON lines, a file or a folder.", show_default=False
        ),
    ],
    *,
    library: LibraryFolder,
    to: Target,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", help="A version other than the newest.", show_default=False),
    ] = None,
    output: OutputForm = "ids",
    keep: KeptColumns = None,
    only_matched: OnlyMatched = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    plan: PlanName = None,
    format_: EventFormat = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report, as HTML.", show_default=False),
    ] = None,
    master: Master = "local[*]",
) -> int:
    """Match the events in files against a library, and write what each satisfies.

    Results are Parquet, with a folder for each outcome: matched, unmatched and rejected.
    """
    require_extra("spark")
    from tamis.cli.spark.match import Order, run_match  # noqa: PLC0415 - pyspark is an extra

    columns = tuple(keep or ())
    kept = only_matched, overwrite, plan, format_
    given = Order(events, library, to, version, output, columns, *kept, report)
    return run_match(given, master)


@spark.command(name="stream", epilog=STREAM_EXAMPLES, no_args_is_help=True)
def stream(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENTS",
            help="A folder of Parquet or JSON lines, or a broker's URL.",
            show_default=False,
        ),
    ],
    *,
    library: LibraryFolder,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Where results go: a folder, or a broker's URL.",
            show_default=False,
        ),
    ],
    checkpoint: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Where the stream notes how far it is.", show_default=False
        ),
    ],
    once: Annotated[
        bool, typer.Option("--once", help="End when all that is there is done.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="How often to look: 500ms, 10s, 5m, 1h.", show_default=False
        ),
    ] = None,
    files_per_batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The most files in a batch.", show_default=False),
    ] = None,
    events_per_batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The most events of a broker in a batch.",
            show_default=False,
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of reading a broker; may be repeated.",
            show_default=False,
        ),
    ] = None,
    to_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of writing to a broker; may be repeated.",
            show_default=False,
        ),
    ] = None,
    output: OutputForm = "ids",
    keep: KeptColumns = None,
    only_matched: OnlyMatched = False,
    plan: PlanName = None,
    format_: EventFormat = None,
    master: Master = "local[*]",
) -> int:
    """Match the files in a folder, and those that are moved into it, until Ctrl-C.

    Each batch goes by the newest version of the library, and is written to a folder exactly once,
    whatever happens: started again with the same checkpoint, the stream goes on where it was.
    """
    require_extra("spark")
    from tamis.cli.spark.stream import (  # noqa: PLC0415 - as above
        Order,
        options_of,
        run_stream,
        seconds_of,
    )

    given = Order(
        events=events,
        library=library,
        to=to,
        checkpoint=checkpoint,
        output=output,
        keep=tuple(keep or ()),
        only_matched=only_matched,
        once=once,
        every=seconds_of(every),
        files_per_batch=files_per_batch,
        events_per_batch=events_per_batch,
        plan=plan,
        format=format_,
        options=options_of(option or ()),
        to_options=options_of(to_option or ()),
    )
    return run_stream(given, master)
