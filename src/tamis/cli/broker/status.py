"""`tamis status`: the state of a broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from rich.table import Table

from tamis.cli.broker.connection import BrokerTarget, with_broker
from tamis.cli.console import Format, printable, stdout, write_json, yes_or_no
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import FormatOption

EXAMPLES: Final = """[bold]Examples[/bold]

tamis status
tamis status --url https://broker.example --token-file admin-token
tamis status --format json | jq .log.bytes

[bold]Exit code[/bold]

0 the broker accepts publications
1 it does not; its problems are shown
2 a mistake, or the broker cannot be reached"""


@with_broker
def status(target: BrokerTarget, *, format_: FormatOption = Format.TEXT) -> int:
    """Show the broker's state and its main counters; for administrators."""
    found = target.call(lambda bus: bus.status())
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
                yield title, _format_value(name, value)


def _format_value(name: str, value: object) -> str:
    match value:
        case bool():
            return yes_or_no(value)
        case float() if name == "uptime":
            return str(timedelta(seconds=int(value)))
        case int() | float():
            return f"{value:,}"
        case _:
            return printable(str(value))
