"""What advertisements save queries: `python -m benchmarks.queries`.

Stars, lines and random trees of brokers, each with one data source such as
`x between 40 and 60`, of which few, some or most intersect a query. The query routers are the
product's; their messages are handed over in memory. Counted is how many messages one query takes,
with its answers, and how many sources are asked. With flooding, as in Gnutella, every broker is
asked and answers.

Up to `--simulated` brokers, the routers must take exactly as many messages as the definition says:
one there and one back for each link on the way to a source that may answer. Larger overlays are
counted by the definition alone.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from statistics import mean
from typing import Final, NamedTuple

from benchmarks.harness import RESULTS, DisagreementError
from benchmarks.reporting import Panels, Point, Sheet, file_name, lines, report
from benchmarks.workloads.overlay import SHAPES, OverlayWorkload
from tamis.filters import Filter, attr
from tamis.filters.atoms import Between
from tamis.routing.data_advertisements import DataAdvertisement, DataAdvertisements
from tamis.routing.queries import QueryRouter
from tamis.routing.query_messages import (
    AskSource,
    DataAdvertised,
    FinishQuery,
    QueryInstruction,
    SendToPeer,
)

TITLE = "Messages per query"
SIZES: Final = (10, 30, 100, 300, 1000)
# Up to this size the routers run.
SIMULATED: Final = 100
DOMAIN: Final = 10_000
QUERIES: Final = 50
# How much of the domain a source has on average, and a query asks for.
OVERLAPS: Final = {"little overlap": 0.01, "some overlap": 0.1, "much overlap": 0.3}


class Span(NamedTuple):
    """The values from one to another."""

    low: int
    high: int

    def filter(self) -> Filter:
        """Return it as a filter."""
        return attr("x").between(self.low, self.high)

    def meets(self, other: Span) -> bool:
        """Return whether they have a value in common."""
        return self.low <= other.high and other.low <= self.high


class QueryFigure(NamedTuple):
    """What was counted in one overlay."""

    shape: str
    overlap: str
    brokers: int
    concerned: float
    """The share of the sources that a query intersects."""
    advertisements: float | None
    """That a broker sends to its peers; None if no routers ran."""
    messages: float
    """Of one query and its answers."""
    asked: float
    """Sources that one query is asked of."""


class SpanAdvertisements(DataAdvertisements):
    """The product's, except that ranges are compared by their ends, which is quick."""

    def _covers(self, wide: DataAdvertisement, narrow: DataAdvertisement) -> bool:
        outer, inner = span_of(wide.filter), span_of(narrow.filter)
        return outer.low <= inner.low and inner.high <= outer.high

    def _meets(self, advertisement: DataAdvertisement, query: Filter) -> bool:
        return span_of(advertisement.filter).meets(span_of(query))


def span_of(filter_: Filter) -> Span:
    """Return the range that a filter asks for."""
    assert isinstance(filter_, Between)  # noqa: S101 - all of them are
    return Span(filter_.low, filter_.high)


class QueryOverlay:
    """Query routers in a tree, whose messages are handed over in memory; sources answer at once."""

    def __init__(self, edges: Sequence[tuple[int, int]], spans: Sequence[Span]) -> None:
        self.routers: Final = [
            QueryRouter(str(n), advertisements=SpanAdvertisements()) for n in range(len(spans))
        ]
        self._waiting: deque[tuple[int, SendToPeer]] = deque()
        self.messages = 0
        self.advertised = 0
        self.asked: list[int] = []
        self.is_finished = False
        for number, span in enumerate(spans):
            advertisement = DataAdvertisement.of(span.filter())
            self._do(number, self.routers[number].source_added(1, str(number), advertisement))
        for near, far in edges:
            self._do(near, self.routers[near].link_opened(str(far)))
            self._do(far, self.routers[far].link_opened(str(near)))
            self._run()

    def ask(self, broker: int, query: Filter) -> None:
        """Ask a query at a broker, and wait for the answer."""
        self.messages, self.asked, self.is_finished = 0, [], False
        _, todo = self.routers[broker].ask(query, seconds=60, credit=1_000_000)
        self._do(broker, todo)
        self._run()
        if not self.is_finished:
            raise DisagreementError("a query was not answered")

    def _run(self) -> None:
        while self._waiting:
            sender, sent = self._waiting.popleft()
            receiver = int(sent.peer)
            self._do(receiver, self.routers[receiver].receive(str(sender), sent.message))

    def _do(self, broker: int, todo: Iterable[QueryInstruction]) -> None:
        for one in todo:
            match one:
                case SendToPeer():
                    self.messages += 1
                    self.advertised += isinstance(one.message, DataAdvertised)
                    self._waiting.append((broker, one))
                case AskSource(source=source, query=query):
                    self.asked.append(broker)
                    self._do(broker, self.routers[broker].source_finished(source, query))
                case FinishQuery():
                    self.is_finished = True


def drawn(rng: Random, share: float) -> Span:
    """Return a part of the domain."""
    size = max(1, round(rng.uniform(0.2, 1.8) * share * DOMAIN))
    low = rng.randrange(DOMAIN - size)
    return Span(low, low + size)


class QueryTree:
    """What an overlay should do, by definition: a query goes where something intersects it."""

    def __init__(self, edges: Sequence[tuple[int, int]], spans: Sequence[Span]) -> None:
        self._spans = spans
        self._neighbours: list[list[int]] = [[] for _ in spans]
        for near, far in edges:
            self._neighbours[near].append(far)
            self._neighbours[far].append(near)

    def asked(self, query: Span) -> list[int]:
        """Return the brokers whose sources may answer."""
        return [n for n, span in enumerate(self._spans) if span.meets(query)]

    def messages(self, broker: int, query: Span) -> int:
        """Return how many messages there are: one over each link on the way, and one back."""
        order, parent = [broker], {broker: broker}
        for here in order:
            for there in self._neighbours[here]:
                if there not in parent:
                    parent[there] = here
                    order.append(there)
        passed = {*self.asked(query)}
        # Those behind come first, so that each tells the broker before it.
        for here in reversed(order):
            if here in passed:
                passed.add(parent[here])
        return 2 * len(passed - {broker})


def counted(shape: str, overlap: str, brokers: int, *, simulated: bool) -> QueryFigure:
    """Count by the definition, and simulate the overlay, which must agree."""
    rng, share = Random(brokers), OVERLAPS[overlap]
    edges = OverlayWorkload(shape, brokers, 1, 1, seed=brokers).edges
    spans = [drawn(rng, share) for _ in range(brokers)]
    tree = QueryTree(edges, spans)
    overlay = QueryOverlay(edges, spans) if simulated else None
    advertised = None if overlay is None else overlay.advertised / brokers
    messages, asked = [], []
    for _ in range(QUERIES):
        query, broker = drawn(rng, share), rng.randrange(brokers)
        right, needed = tree.asked(query), tree.messages(broker, query)
        if overlay is not None:
            overlay.ask(broker, query.filter())
            if sorted(overlay.asked) != right:
                raise DisagreementError("other sources were asked than those that intersect")
            if overlay.messages != needed:
                raise DisagreementError(f"{overlay.messages} messages are not {needed}")
        messages.append(needed)
        asked.append(len(right))
    return QueryFigure(
        shape, overlap, brokers, mean(asked) / brokers, advertised, mean(messages), mean(asked)
    )


def sheet(figures: Iterable[QueryFigure]) -> Sheet:
    """Return a line for each overlay."""
    return Sheet(
        (
            "overlay",
            "sources concerned",
            "advertisements sent per broker",
            "sources asked per query",
            "flooding",
            "messages per query",
            "flooding",
        ),
        [
            (
                f"{one.shape} of {one.brokers:,}, {one.overlap}",
                f"{one.concerned:.0%}",
                "" if one.advertisements is None else f"{one.advertisements:,.1f}",
                f"{one.asked:,.1f}",
                f"{one.brokers:,}",
                f"{one.messages:,.1f}",
                f"{2 * (one.brokers - 1):,}",
            )
            for one in figures
        ],
    )


def panels_of(figures: Sequence[QueryFigure]) -> Panels:
    """Return the messages of a query, by shape, beside flooding."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for shape in dict.fromkeys(one.shape for one in figures):
        of_shape = [one for one in figures if one.shape == shape]
        sizes = dict.fromkeys(one.brokers for one in of_shape)
        panels[shape] = {"flooding": [at(size, 2 * (size - 1)) for size in sizes]}
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
    """Count, print and write the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, nargs="+", default=SIZES, help="sizes of overlays")
    parser.add_argument(
        "--simulated", type=int, default=SIMULATED, help="up to how many brokers the routers run"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    given = parser.parse_args(arguments)
    figures = [
        counted(shape, overlap, size, simulated=size <= given.simulated)
        for shape in SHAPES
        for overlap in OVERLAPS
        for size in given.brokers
    ]
    name = "queries" if (*given.brokers,) == SIZES else file_name("queries", given.brokers)
    notes = [f"{QUERIES} queries, one source at each broker; counted, not timed."]
    figure = lines(TITLE, panels_of(figures), "brokers", "messages per query")
    report(name, TITLE, [sheet(figures)], figure, notes=notes, folder=given.out, repeats=1)


if __name__ == "__main__":
    main()
