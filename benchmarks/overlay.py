"""What an overlay of brokers saves: `python -m benchmarks.overlay`.

Stars, lines and random trees of brokers, each with some subscriptions such as
`symbol = "s7" and price < 40`, of which few, some or most are covered by another. The routers are
the product's; their messages are handed over in memory. Counted are the filters that a broker keeps
of its peers, and how often a subscription and an event are sent over a link. With flooding,
brokers know nothing of each other's subscriptions, and every event goes everywhere.

Up to `--simulated` brokers, the routers must agree with the definition of what they should have;
larger overlays are counted by the definition alone. A thousand routers take some minutes.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple

import msgspec

from benchmarks.harness import RESULTS, DisagreementError
from benchmarks.reporting import Panels, Point, Sheet, file_name, lines, report
from benchmarks.workloads.overlay import SHAPES, LookupIndex, Names, OverlayWorkload
from tamis.filters import Filter
from tamis.filters.structure import Structure
from tamis.routing import (
    FilterChanges,
    LinkOpened,
    LocalFilterAdded,
    MessageReceived,
    Router,
    RouterInput,
    SendMessage,
)

TITLE = "Filters per broker"
SIZES: Final = (10, 30, 100, 300, 1000)
# Symbols for each subscription: the fewer, the more subscriptions are about the same one.
OVERLAPS: Final = {"little overlap": 2.0, "some overlap": 0.4, "much overlap": 0.04}
# Up to this size, routers without covering run, too, and must agree with the definition.
COMPARED: Final = 30


class Figure(NamedTuple):
    """What was counted in one overlay."""

    shape: str
    overlap: str
    brokers: int
    share: float
    """Of the subscriptions that another one covers."""
    filters: float
    """That a broker has of its peers, with covering."""
    most_filters: int
    plain_filters: float
    """The same without covering."""
    sent: float | None
    """How many links a subscription crosses, with covering; None if routers were not simulated."""
    plain_sent: float
    messages: float
    """How many links an event crosses; with flooding, all."""


class SharingRouter(Router):
    """The product's router; a filter is read once for all brokers, which takes half of the time."""

    names: Names

    def _read_filters(self, structures: Iterable[Structure]) -> dict[str, Filter]:
        return dict(self.names.read[msgspec.json.encode(one)] for one in structures)


class SimulatedOverlay:
    """Routers of a workload, whose messages are handed over in memory."""

    def __init__(self, work: OverlayWorkload, names: Names, *, covers: bool) -> None:
        make_index = partial(LookupIndex, names, covers=covers)
        self.routers: Final = [
            SharingRouter(f"{n:04}", make_index=make_index) for n in range(work.brokers)
        ]
        for router in self.routers:
            router.names = names
        self._waiting: deque[tuple[int, RouterInput]] = deque()
        self.sent = 0
        for near, far in work.edges:
            self._waiting.append((near, LinkOpened(f"{far:04}")))
            self._waiting.append((far, LinkOpened(f"{near:04}")))
            self._run()
        for broker, interests in enumerate(work.interests):
            for number, one in enumerate(interests):
                added = LocalFilterAdded(f"s{number}", names.filters[one])
                self._waiting.append((broker, added))
                self._run()

    def _run(self) -> None:
        while self._waiting:
            broker, happened = self._waiting.popleft()
            router = self.routers[broker]
            for one in router.handle(happened):
                if isinstance(one, SendMessage):
                    if isinstance(one.message, FilterChanges):
                        self.sent += len(one.message.add)
                    received = MessageReceived(router.broker, one.message)
                    self._waiting.append((int(one.peer), received))

    def tables(self) -> dict[tuple[int, int], int]:
        """Return how many filters each broker has of each peer."""
        return {
            (broker, int(link.peer)): link.routes
            for broker, router in enumerate(self.routers)
            for link in router.links()
        }


def behind(work: OverlayWorkload) -> dict[tuple[int, int], set[int]]:
    """Return for each direction of each link the brokers that it leads to."""
    # Every edge leads from a broker to one with a greater number, which was added after it.
    below = {broker: {broker} for broker in range(work.brokers)}
    for one, other in reversed(work.edges):
        below[one] |= below[other]
    every = set(range(work.brokers))
    found = {}
    for one, other in work.edges:
        found[one, other] = below[other]
        found[other, one] = every - below[other]
    return found


def defined(
    work: OverlayWorkload, sides: dict[tuple[int, int], set[int]], *, covers: bool
) -> dict[tuple[int, int], int]:
    """Return how many filters each broker has of each peer, by definition."""
    counts = {}
    for link, side in sides.items():
        asked = {one for broker in side for one in work.interests[broker]}
        counts[link] = len({one.symbol for one in asked} if covers else asked)
    return counts


def crossed(work: OverlayWorkload, sides: dict[tuple[int, int], set[int]]) -> float:
    """Return how many links an event crosses on average: those that lead to a subscriber."""
    highest: dict[tuple[int, int], dict[int, int]] = {}
    for link, side in sides.items():
        tops = highest[link] = {}
        for one in (one for broker in side for one in work.interests[broker]):
            tops[one.symbol] = max(one.below, tops.get(one.symbol, 0))
    return mean(
        sum(
            trade.price < tops.get(trade.symbol, 0) and trade.broker not in sides[link]
            for link, tops in highest.items()
        )
        for trade in work.trades
    )


def counted(
    shape: str, overlap: str, brokers: int, subscriptions: int, *, simulated: bool
) -> Figure:
    """Count in one overlay."""
    symbols = max(1, round(OVERLAPS[overlap] * brokers * subscriptions))
    work = OverlayWorkload(shape, brokers, symbols, subscriptions, seed=brokers)
    names = Names(one for interests in work.interests for one in interests)
    sides = behind(work)
    plain, tables = defined(work, sides, covers=False), defined(work, sides, covers=True)
    sent, count = None, brokers * subscriptions
    if simulated:
        overlay = SimulatedOverlay(work, names, covers=True)
        check("with covering", overlay.tables(), tables)
        sent = overlay.sent / count
    if simulated and brokers <= COMPARED:
        check("without", SimulatedOverlay(work, names, covers=False).tables(), plain)
    sizes = per_broker(tables)
    return Figure(
        shape,
        overlap,
        brokers,
        work.overlap,
        mean(sizes.values()),
        max(sizes.values()),
        mean(per_broker(plain).values()),
        sent,
        sum(plain.values()) / count,
        crossed(work, sides),
    )


def per_broker(tables: dict[tuple[int, int], int]) -> dict[int, int]:
    """Return the sizes of tables, of all links of a broker together."""
    sizes: dict[int, int] = {}
    for (broker, _), size in tables.items():
        sizes[broker] = sizes.get(broker, 0) + size
    return sizes


def check(what: str, found: dict[tuple[int, int], int], right: dict[tuple[int, int], int]) -> None:
    """Refuse figures of routers that forward other filters than they should."""
    if found != right:
        raise DisagreementError(f"{what}, the routers have other filters than by definition")


def sheet(figures: Iterable[Figure]) -> Sheet:
    """Return a line for each overlay."""
    return Sheet(
        (
            "overlay",
            "subscriptions covered",
            "filters per broker, covering",
            "most",
            "without",
            "links per subscription, covering",
            "without",
            "links per event",
            "flooding",
        ),
        [
            (
                f"{one.shape} of {one.brokers:,}, {one.overlap}",
                f"{one.share:.0%}",
                f"{one.filters:,.1f}",
                f"{one.most_filters:,}",
                f"{one.plain_filters:,.1f}",
                "" if one.sent is None else f"{one.sent:,.1f}",
                f"{one.plain_sent:,.1f}",
                f"{one.messages:,.2f}",
                f"{one.brokers - 1:,}",
            )
            for one in figures
        ],
    )


def filter_panels(figures: Sequence[Figure]) -> Panels:
    """Return the filters per broker, by shape."""
    return {
        shape: {
            f"{overlap}, {word}": [
                at(one.brokers, one.filters if word == "covering" else one.plain_filters)
                for one in figures
                if (one.shape, one.overlap) == (shape, overlap)
            ]
            for overlap in OVERLAPS
            for word in ("covering", "without")
        }
        for shape in dict.fromkeys(one.shape for one in figures)
    }


def message_panels(figures: Sequence[Figure]) -> Panels:
    """Return the links that an event crosses, by shape, beside all links."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for shape in dict.fromkeys(one.shape for one in figures):
        of_shape = [one for one in figures if one.shape == shape]
        sizes = dict.fromkeys(one.brokers for one in of_shape)
        panels[shape] = {"flooding": [at(size, size - 1) for size in sizes]}
        for overlap in OVERLAPS:
            panels[shape][overlap] = [
                # Nothing is not on a logarithmic scale.
                at(one.brokers, max(one.messages, 0.01))
                for one in of_shape
                if one.overlap == overlap
            ]
    return panels


def at(x: float, y: float) -> Point:
    return Point(x, y, y, y)


def main(arguments: Sequence[str] | None = None) -> None:
    """Count, print and write the table and the plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, nargs="+", default=SIZES, help="sizes of overlays")
    parser.add_argument("--subscriptions", type=int, default=2, help="of each broker")
    parser.add_argument("--simulated", type=int, default=300, help="run routers up to this size")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    given = parser.parse_args(arguments)
    figures = [
        counted(shape, overlap, size, given.subscriptions, simulated=size <= given.simulated)
        for shape in SHAPES
        for overlap in OVERLAPS
        for size in given.brokers
    ]
    name = "overlay" if (*given.brokers,) == SIZES else file_name("overlay", given.brokers)
    notes = [f"{given.subscriptions} subscriptions at each broker; counted, not timed."]
    panels = filter_panels(figures)
    figure = lines(TITLE, panels, "brokers", "filters per broker")
    report(name, TITLE, [sheet(figures)], figure, notes=notes, folder=given.out, repeats=1)
    figure = lines("Links per event", message_panels(figures), "brokers", "links per event")
    figure.savefig(given.out / f"{name}-messages.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
