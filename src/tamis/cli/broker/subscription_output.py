"""Subscriptions and their dead letters, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from rich import box
from rich.table import Table
from rich.text import Text

from tamis.cli.broker.connection import moment
from tamis.cli.console import printable, say, stdout, write_json
from tamis.protocol.views import DeadLetterView, SubscriptionView


def write_views(views: Iterable[msgspec.Struct]) -> None:
    """Write each as a line of JSON."""
    for view in views:
        data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(view))
        write_json(data)


def subscription_table(views: Iterable[SubscriptionView]) -> Table:
    """Return subscriptions as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("id", style="green", overflow="fold")
    for name in ("durable", "connected"):
        table.add_column(name)
    for name in ("pending", "in flight", "dropped", "dead"):
        table.add_column(name, justify="right")
    table.add_column("expires")
    table.add_column("filter", overflow="fold")
    for view in views:
        table.add_row(
            printable(view.id),
            _yes(view.durable),
            _yes(view.connected),
            *(f"{number:,}" for number in (view.pending, view.in_flight, view.dropped)),
            Text(f"{view.dead:,}", "red" if view.dead else ""),
            moment(view.expires_at),
            Text(printable(view.filter)),
        )
    return table


def letter_table(letters: Iterable[DeadLetterView]) -> Table:
    """Return dead letters as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("sequence", justify="right", style="dim")
    table.add_column("attempts", justify="right")
    table.add_column("reason", overflow="fold")
    table.add_column("event", overflow="fold")
    for letter in letters:
        data = Text(printable(bytes(letter.data).decode()))
        table.add_row(str(letter.sequence), str(letter.attempts), printable(letter.reason), data)
    return table


def say_fields(view: SubscriptionView) -> None:
    """Write all that is known of a subscription."""
    fields = msgspec.structs.asdict(view)
    fields["created_at"] = moment(view.created_at)
    fields["expires_at"] = moment(view.expires_at)
    width = max(map(len, fields))
    for name, value in fields.items():
        shown = _yes(value) if isinstance(value, bool) else value
        say(stdout(), f"{name.replace('_', ' '):<{width}}  {shown}")


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"
