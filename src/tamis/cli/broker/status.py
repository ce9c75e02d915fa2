"""`tamis status`: how does the broker do?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from rich.table import Table

from tamis.cli.broker.connection import CaFile, Place, TokenFile, Url, run
from tamis.cli.broker.subscriptions import FormatOption
from tamis.cli.console import Format, printable, stdout, write_json
from tamis.cli.exits import FINDING, FINE
from tamis.client.address import DEFAULT_URL

EXAMPLES: Final = """[bold]Examples[/bold]

tamis status
tamis status --url https://broker.example --token-file admin-token
tamis status --format json | jq .log.bytes

[bold]Exit code[/bold]

0 the broker takes publications
1 it does not; its problems are shown
2 a mistake, or the broker cannot be reached"""


def status(
    *,
    url: Url = DEFAULT_URL,
    token_file: TokenFile = None,
    ca: CaFile = None,
    format_: FormatOption = Format.TEXT,
) -> int:
    """Show a few numbers that tell how the broker does; for administrators."""
    found = run(Place(url, token_file, ca).bus().status())
    if format_ is Format.JSON:
        write_json(found)
    else:
        stdout().print(_table(found))
    return FINE if found.get("ready") else FINDING


def _table(found: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def _rows(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        title = f"{before}{name.replace('_', ' ')}"
        match value:
            case dict():
                yield from _rows(value, f"{title} ")
            case list():
                yield title, printable("; ".join(map(str, value))) or "none"
            case _:
                yield title, _shown(name, value)


def _shown(name: str, value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float() if name == "uptime":
            return str(timedelta(seconds=int(value)))
        case int() | float():
            return f"{value:,}"
        case _:
            return printable(str(value))
