"""`tamis explain`: why an event matches a filter, or why not."""

from __future__ import annotations

from typing import Annotated, Final

from tamis.cli.broker.connection import BrokerMode, BrokerTarget, with_broker
from tamis.cli.console import say, stdout
from tamis.cli.exits import FINE
from tamis.cli.options import Language, argument, mistake, no_default

EXAMPLES: Final = """[bold]Examples[/bold]

tamis explain 'price < 5 and symbol = "ACME"' '{"symbol": "ACME", "price": 7}'
tamis explain --subscription laptop-7 '{"symbol": "ACME", "price": 7}'

[bold]Exit code[/bold]

0 success
2 a mistake, or the broker refused"""


@with_broker
def explain(
    target: BrokerTarget,
    words: Annotated[
        list[str],
        argument(
            "[FILTER] EVENT", "A filter, unless --subscription names one, and an event as JSON."
        ),
    ],
    *,
    subscription: Annotated[
        str | None,
        no_default("--subscription", "-i", metavar="ID", help="One of your subscriptions."),
    ] = None,
    language: Language = "tamis",
    mode: BrokerMode = None,
) -> int:
    """Ask the broker why an event matches a filter or a subscription, or why not.

    The broker applies its schema, its mode and your rights. Nothing is published.
    """
    if len(words) != (2 if subscription is None else 1):
        raise mistake("give a filter and an event, or --subscription ID and an event")
    filter_ = words[0] if subscription is None else None
    explanation = target.call(
        lambda bus: bus.explain(
            words[-1], id=subscription, filter=filter_, language=language, mode=mode
        )
    )
    say(stdout(), explanation)
    return FINE
