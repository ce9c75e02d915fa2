"""`tamis advertise`: say what will be published, and show whether anybody wants it."""

from __future__ import annotations

from typing import Annotated, Final

from tamis.cli.broker.connection import BrokerTarget, run, with_broker
from tamis.cli.console import say, stdout
from tamis.cli.exits import FINE
from tamis.cli.options import Language, argument

EXAMPLES: Final = """[bold]Examples[/bold]

tamis advertise "symbol = 'ACME'"
tamis pub '{"symbol": "ACME", "price": 4}'

[bold]What it is for[/bold]

Brokers whose setting advertisements is 'require' forward filters only towards publishers that
advertise what they ask for. Advertise as long as you publish. The command prints a line whenever
somebody begins to ask for any of it, or nobody does any longer.

[bold]Exit code[/bold]

2 a mistake, or the broker refused
130 interrupted"""

_SAYS: Final = {True: "wanted", False: "unwanted", None: "not connected"}


@with_broker
def advertise(
    target: BrokerTarget,
    filter_: Annotated[str, argument("FILTER", "What will be published.")],
    *,
    language: Language = "tamis",
) -> int:
    """Say what will be published, until you interrupt it, and show whether anybody wants it."""
    run(_advertise(target, filter_, language))
    return FINE


async def _advertise(target: BrokerTarget, filter_: str, language: str) -> None:
    def show(wanted: bool | None) -> None:
        say(stdout(), _SAYS[wanted])

    async with target.bus() as bus:
        made = await bus.advertise(filter_, language=language, on_wanted=show)
        if made.wanted is None:
            say(stdout(), "advertised; your roles do not tell whether anybody wants it")
        await made.run()
