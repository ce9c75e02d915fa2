"""`tamis repair`: check the data folder of a stopped broker, and accept what it has lost."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tamis.cli.console import say, say_error, stdout
from tamis.cli.exits import FINDING, FINE, MISTAKE
from tamis.cli.options import no_default

if TYPE_CHECKING:
    from tamis.storage import Recovery

EXAMPLES: Final = """[bold]Examples[/bold]

tamis repair --data /var/lib/tamis
tamis repair --data /var/lib/tamis --accept-lost-changes

[bold]Lost changes[/bold]

A broker does not start if the last changes of its subscriptions and tokens are missing, because a
revoked token may be valid again. If the missing files cannot be put back, accept the loss, start
the broker, and revoke tokens that must not be valid: tamis token list, tamis token revoke.

[bold]Exit code[/bold]

0 nothing is damaged or lost
1 something is; it is listed
2 the folder cannot be opened, or changes are lost and were not accepted"""

AUDIT_NAME: Final = "tamis repair"

DataFolder = Annotated[
    Path,
    typer.Option("--data", metavar="FOLDER", help="The data folder of a stopped broker."),
]
AcceptLostChanges = Annotated[
    bool,
    no_default(
        "--accept-lost-changes", help="Go on without the last changes of subscriptions and tokens."
    ),
]


def repair(
    data: DataFolder = Path("tamis-data"), accept_lost_changes: AcceptLostChanges = False
) -> int:
    """Read the whole data folder of a stopped broker, and list what is damaged or lost.

    What a crash left unfinished is cut off, as a start of the broker does. Damaged events and rows
    stay as they are; the broker skips them.
    """
    from tamis.storage import Storage, is_store  # noqa: PLC0415 - takes a while to load

    if not data.is_dir():
        say_error(f"{data} is not a folder")
        return MISTAKE
    if not is_store(data):
        say_error(f"{data} is not the data folder of a broker")
        return MISTAKE
    with Storage.open(data, accept_lost_changes=accept_lost_changes) as store:
        store.log.verify()
        found = store.recovery._replace(damaged=store.log.damage.places)
        if accept_lost_changes and found.lost_changes:
            detail = f"{found.lost_changes:,} changes"
            store.state.add_audit(time.time(), AUDIT_NAME, "accept lost changes", detail)
    return _report(found)


def _report(found: Recovery) -> int:
    say(stdout(), str(found))
    if found.is_clean:
        say(stdout(), "Nothing is damaged or lost.")
        return FINE
    return FINDING
