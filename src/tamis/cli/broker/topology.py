"""`tamis topology`: the overlay of brokers, printed or drawn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec
from rich.tree import Tree

from tamis.cli.broker.connection import BrokerTarget, with_broker
from tamis.cli.broker.topology_drawing import draw_topology, title_of
from tamis.cli.console import Format, printable, say, stderr, stdout, write_json
from tamis.cli.exits import FINDING, FINE
from tamis.cli.options import FormatOption, no_default
from tamis.errors import OptionError
from tamis.protocol.management import ReadTopology
from tamis.protocol.views import BrokerView, PeerView, TopologyView
from tamis.units import count

EXAMPLES: Final = """[bold]Examples[/bold]

tamis topology
tamis topology --svg overlay.svg
tamis topology --format json | jq '.brokers[].links[].sent'

[bold]Exit code[/bold]

0 all brokers that are linked have answered
1 some have not, or a link has no connection
2 a mistake, or the broker cannot be reached"""

MAX_WIDTH: Final = 10_000
"""Of a line: more than any sentence about a link has."""

SvgFile = Annotated[
    Path | None, no_default("--svg", metavar="FILE", help="Draw the overlay to an SVG file.")
]


@with_broker
def topology(
    target: BrokerTarget, *, svg: SvgFile = None, format_: FormatOption = Format.TEXT
) -> int:
    """Show all brokers that are linked, and what passes between them; for administrators."""
    found = target.call(lambda bus: bus.call(ReadTopology()))
    if svg is not None:
        _write(svg, draw_topology(found))
        say(stderr(), f"{count(len(found.brokers), 'broker')} drawn to {svg}")
    elif format_ is Format.JSON:
        write_json(msgspec.json.decode(msgspec.json.encode(found)))
    else:
        _print(found)
        for name in found.missing:
            say(stderr(), f"warning: {name} is linked, but did not answer in time")
    is_whole = not found.missing and all(
        link.connected for broker in found.brokers for link in broker.links
    )
    return FINE if is_whole else FINDING


def _print(found: TopologyView) -> None:
    console = stdout()
    # Rich crops a tree to the width of its console, even if nothing else is wrapped.
    console.width = MAX_WIDTH
    console.print(_tree(found), soft_wrap=True)


def _write(file: Path, drawing: str) -> None:
    try:
        file.write_text(drawing, encoding="utf-8")
    except OSError as error:
        raise OptionError("--svg", f"{file} cannot be written: {error.strerror}") from None


def _tree(found: TopologyView) -> Tree:
    """Return the brokers as a tree, with the one that was asked at its root."""
    brokers = {broker.id: broker for broker in found.brokers}
    root = Tree(_line(brokers[found.broker]), guide_style="dim")
    waiting = [(root, brokers[found.broker], "")]
    while waiting:
        branch, broker, parent = waiting.pop()
        for link in broker.links:
            if link.broker == parent and link.broker:
                continue
            other = brokers.get(link.broker)
            shown = branch.add(_link_lines(link, other, broker.id))
            if other is not None:
                waiting.append((shown, other, broker.id))
    return root


def _line(broker: BrokerView) -> str:
    subscriptions = count(broker.subscriptions, "subscription")
    stored = count(broker.published, "event")
    return f"{printable(title_of(broker))}: {subscriptions}, {stored} stored"


def _link_lines(link: PeerView, other: BrokerView | None, parent: str) -> str:
    name = link.name or link.broker[:8] or link.url
    lines = [_line(other) if other is not None else printable(name)]
    if not link.connected:
        lines.append(f"no connection: {printable(link.problem)}")
    lines += [f"→ {_counters(link)}"]
    back = _back(other, parent)
    if back is not None:
        lines += [f"← {_counters(back)}"]
    return "\n".join(lines)


def _back(other: BrokerView | None, parent: str) -> PeerView | None:
    """Return the other side of a link, as the other broker sees it."""
    links: Iterator[PeerView] = iter(() if other is None else other.links)
    return next((link for link in links if link.broker == parent), None)


def _counters(link: PeerView) -> str:
    """Return what one side of a link has sent, and what it has kept back."""
    always = [
        f"{count(link.sent, 'event')} sent",
        f"{link.stopped:,} stopped",
        f"{count(link.forwarded, 'filter')} forwarded",
        f"{link.suppressed:,} covered",
    ]
    sometimes = {
        f"{link.waiting:,} waiting": link.waiting,
        f"{link.unadvertised:,} not advertised": link.unadvertised,
        f"{_queries(link.queries_sent)} sent": link.queries_sent,
        f"{_queries(link.queries_pruned)} pruned": link.queries_pruned,
    }
    return ", ".join([*always, *(what for what, many in sometimes.items() if many)])


def _queries(many: int) -> str:
    return f"{many:,} {'query' if many == 1 else 'queries'}"
