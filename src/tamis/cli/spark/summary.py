"""The table at the end of a Spark command."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from tamis.cli.console import printable, stdout


def write_summary(facts: Mapping[str, int | float | str]) -> None:
    """Write facts, one to a line, numbers aligned."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="left", overflow="fold")
    for name, value in facts.items():
        table.add_row(name, Text(_shown(value)))
    stdout().print(table)


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
