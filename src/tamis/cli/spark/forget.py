"""`tamis spark forget`: old versions of a library go, and the files that only they have."""

from __future__ import annotations

from typing import Annotated, Final

from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import mistake, no_default
from tamis.cli.spark.jobs import write_summary
from tamis.cli.spark.options import LibraryFolder
from tamis.units import seconds

EXAMPLES: Final = """[bold]Examples[/bold]

tamis spark forget --library subscriptions/ --keep 10
tamis spark forget --library s3a://bucket/library --keep 10 --replaced-for 1d

[bold]Exit code[/bold]

0 versions were removed
1 there were no more than those to keep
2 a mistake; nothing was removed"""


def forget(
    *,
    library: LibraryFolder,
    keep: Annotated[int, no_default(min=1, metavar="N", help="How many versions stay.")],
    replaced_for: Annotated[
        str,
        no_default(
            metavar="TIME",
            help="How long a version must have been replaced to go, since jobs may read it; 1h.",
        ),
    ] = "1h",
) -> int:
    """Remove all versions of a library but the newest, and the files that only they have."""
    from tamis.spark import Library, forget_versions  # noqa: PLC0415 - pyspark is an extra

    try:
        age = seconds(replaced_for)
    except ValueError as error:
        raise mistake(f"--replaced-for: {error}") from None
    versions = Library(library)
    forgotten = forget_versions(versions, keep=keep, replaced_for=age)
    write_summary(
        {
            "removed": ", ".join(map(str, forgotten.versions)) or "none",
            "kept": ", ".join(map(str, versions.versions())) or "none",
            "files": forgotten.files,
            "bytes": forgotten.size,
        }
    )
    return FINE if forgotten.versions else FINDING
