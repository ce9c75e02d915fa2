"""The options that the commands of `tamis spark` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tamis.cli.options import mistake

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
TargetFolder = Annotated[
    Path, typer.Option("--to", metavar="FOLDER", help="Where to write.", show_default=False)
]
OutputForm = Annotated[str, typer.Option(help="ids, pairs, packed, bitmap or counts.")]
KeptColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="A column to keep; repeatable.", show_default=False),
]
OnlyMatched = Annotated[
    bool, typer.Option("--only-matched", help="Leave out events that match nothing.")
]
PlanName = Annotated[
    str | None,
    typer.Option(help="single, keyed or grid; by default what fits.", show_default=False),
]
EventFormat = Annotated[
    str | None,
    typer.Option("--format", help="parquet or json, if file names do not say.", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing data.")]


def require_new(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with content, unless it may be replaced."""
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise mistake(f"{folder} exists already; name another folder, or --overwrite it")
