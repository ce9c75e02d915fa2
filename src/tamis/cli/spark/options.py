"""The options that the commands of `tamis spark` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tamis.cli.options import mistake, no_default

LibraryFolder = Annotated[
    str,
    no_default("--library", "-L", metavar="FOLDER", help="The library of subscriptions."),
]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs: local[*] is all of this machine.")
]
TargetFolder = Annotated[Path, no_default("--to", metavar="FOLDER", help="Where to write.")]
OutputForm = Annotated[str, typer.Option(help="ids, pairs, packed, bitmap or counts.")]
KeptColumns = Annotated[
    list[str] | None,
    no_default(metavar="COLUMN", help="A column to keep; repeatable."),
]
OnlyMatched = Annotated[
    bool, typer.Option("--only-matched", help="Leave out events that match nothing.")
]
PlanName = Annotated[
    str | None,
    no_default(help="single, keyed or grid; by default what fits."),
]
FileFormat = Annotated[
    str | None,
    no_default("--format", help="parquet, json or xml, if file names do not say."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing data.")]


def require_new(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with content, unless it may be replaced."""
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise mistake(f"{folder} exists already; name another folder, or --overwrite it")
