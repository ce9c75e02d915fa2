"""Queries in a world of subscriptions: they share its links, and break when those do.

The sources, and what is drawn and expected, are those of `query_world`; messages go over the cables
of the world, beside filters, events and letters.
"""

from __future__ import annotations

import msgspec

from routing.broker import ModelBroker, QueryFrame
from routing.query_world import (
    ModelQuery,
    ModelSource,
    QueryWorld,
    check_complete,
    check_partial,
    decode_query,
)
from routing.world import World
from tamis.routing.queries import QueryRouter
from tamis.routing.query_messages import (
    AskSource,
    CreditSource,
    DeliverRows,
    QueryInstruction,
    SendToPeer,
)
from tamis.routing.running_query import QueryBounds

# Links take seconds here, and readers are slow; the clock of queries is slower still, so that they
# end early only where they are meant to.
SECONDS_OF_WORLD = 100.0
SECONDS = (0.02, 0.2)
ENOUGH_SECONDS = 1_000.0


class OverlayQueries(QueryWorld):
    """Data sources at the brokers of a world, and who asks them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.now = 0.0
        window = self.rng.choice((40, 1024 * 1024))
        self._bounds = QueryBounds(
            window=window, least_window=min(window, 1024), most_seconds=ENOUGH_SECONDS
        )
        self.links = {}
        self.sources: dict[int, ModelSource] = {}
        self.queries: dict[tuple[int, int], ModelQuery] = {}
        self.asked = []
        self.removed: set[str] = set()
        self.messages = 0
        self._numbers = 0
        self._working: set[int] = set()
        self._ticks: set[tuple[int, float]] = set()
        self.routers = [self._new_router(n) for n in range(len(world.brokers))]
        for number, broker in enumerate(world.brokers.values()):
            broker.queries = BrokerQueries(self, number, broker)

    def _new_router(self, number: int) -> QueryRouter:
        return QueryRouter(f"b{number}", self._bounds)

    # --- brokers -----------------------------------------------------------------------------

    def router(self, number: int) -> QueryRouter:
        """Return the router of a broker, which knows what time it is."""
        router = self.routers[number]
        self.do(number, router.time_passed(self.world.now / SECONDS_OF_WORLD))
        return router

    def crash(self, number: int) -> None:
        """Let a broker forget everything; its clients lose their queries."""
        self.routers[number] = self._new_router(number)
        for (broker, _), query in self.queries.items():
            if broker == number and query.report is None:
                query.is_cancelled = True
        for source in self.sources.values():
            if source.broker == number:
                source.answering.clear()
        # What was known only to that broker is neither answered nor known to be missing.
        self.removed.update(source.name for source in self.sources.values())

    def restart(self, number: int) -> None:
        """Let the sources of a broker come back."""
        for source in self.sources.values():
            if source.broker == number:
                self.advertise(source)

    # --- instructions ------------------------------------------------------------------------

    def do(self, broker: int, todo: list[QueryInstruction]) -> None:
        for one in todo:
            match one:
                case SendToPeer(peer=peer, message=message):
                    end = self.world.brokers[f"b{broker}"].links.get(peer)
                    if end is not None and end.wire is not None:
                        self.messages += 1
                        end.wire.send(QueryFrame(msgspec.json.encode(message)))
                case DeliverRows(query=number):
                    if not self.queries[broker, number].is_cancelled:
                        super().do(broker, [one])
                        self._give_later(broker, number)
                case AskSource(source=number) | CreditSource(source=number):
                    super().do(broker, [one])
                    self._work_later(self.sources[number])
                case _:
                    super().do(broker, [one])
        deadline = self.routers[broker].next_deadline
        if deadline is not None and (broker, deadline) not in self._ticks:
            self._ticks.add((broker, deadline))
            after = deadline * SECONDS_OF_WORLD - self.world.now
            self.world.later(lambda: self._tick(broker), max(0.0, after) + 0.001)

    def _tick(self, broker: int) -> None:
        if self.world.brokers[f"b{broker}"].is_up:
            self.router(broker)

    def _give_later(self, broker: int, number: int) -> None:
        query = self.queries[broker, number]
        if query.credit <= 0:
            self.world.later(lambda: self._give(broker, number, query))

    def _give(self, broker: int, number: int, query: ModelQuery) -> None:
        if query.report is None and not query.is_cancelled and query.credit <= 0:
            more = self.rng.choice((20, 500))
            query.credit += more
            self.do(broker, self.router(broker).credit(number, more))
            self._give_later(broker, number)

    def _work_later(self, source: ModelSource) -> None:
        can_work = any(not rows or credit > 0 for rows, credit in source.answering.values())
        if can_work and source.number not in self._working:
            self._working.add(source.number)
            self.world.later(lambda: self._work_on(source))

    def _work_on(self, source: ModelSource) -> None:
        self._working.discard(source.number)
        if source.answering and source.number in self.sources:
            self.work(source)
            self._work_later(source)

    # --- what may happen ---------------------------------------------------------------------

    def add_source(self) -> None:
        rows = [self.random_row() for _ in range(self.rng.choice((0, 1, 3, 10)))]
        self._numbers += 1
        broker = self.rng.randrange(len(self.routers))
        source = ModelSource(broker, self._numbers, rows, self.summary(rows))
        self.sources[source.number] = source
        self.advertise(source)

    def ask_somewhere(self, seconds: float | None = None) -> None:
        """Ask anything at a broker that is there."""
        up = [n for n in range(len(self.routers)) if self.world.brokers[f"b{n}"].is_up]
        if not up:
            return
        broker = self.rng.choice(up)
        self.router(broker)
        query = self.ask_for(
            broker,
            self.random_filter(),
            aggregate=self.random_aggregate(),
            limit=self.rng.choice((None, None, 1, 4)),
            seconds=seconds or self.rng.choice(SECONDS),
            credit=self.rng.choice((0, 30, 1_000_000)),
        )
        [number] = [key[1] for key, one in self.queries.items() if one is query]
        self._give_later(broker, number)

    def act(self) -> None:
        """Ask something, leave a query, or let a source go."""
        draw = self.rng.random()
        running = [key for key, query in self.queries.items() if query.report is None]
        up = [key for key in running if self.world.brokers[f"b{key[0]}"].is_up]
        if draw < 0.1 and self.sources:
            number = self.rng.choice([*self.sources])
            if self.world.brokers[f"b{self.sources[number].broker}"].is_up:
                self.remove_source(number)
        elif draw < 0.2 and up:
            key = self.rng.choice(up)
            if not self.queries[key].is_cancelled:
                self.cancel(*key)
        else:
            self.ask_somewhere()

    # --- checks ------------------------------------------------------------------------------

    def check(self, *, is_complete: bool) -> None:
        """Check all queries since the last time, which must have ended."""
        for query in self.queries.values():
            try:
                if query.is_cancelled:
                    continue
                assert query.report is not None, "a query never ends"
                if is_complete:
                    check_complete(query)
                else:
                    check_partial(query, self.removed)
            except AssertionError as error:
                self.world.violations.append(f"a query for {query.filter}: {error!s:.500}")
        if any(source.answering for source in self.sources.values()):
            self.world.violations.append("a source still answers when all queries are over")
        self.queries.clear()
        self.removed.clear()

    def leave(self) -> None:
        """Let all sources go."""
        for number in [*self.sources]:
            self.remove_source(number)

    def check_gone(self) -> None:
        """Check that nothing is left."""
        for number, router in enumerate(self.routers):
            if not router.is_idle:
                self.world.violations.append(f"b{number} still knows of queries or data")


class BrokerQueries:
    """The queries of one broker."""

    def __init__(self, overlay: OverlayQueries, number: int, broker: ModelBroker) -> None:
        self._overlay = overlay
        self._number = number
        self._broker = broker

    def link_opened(self, peer: str) -> None:
        self._do(self._router.link_opened(peer))

    def link_closed(self, peer: str) -> None:
        self._do(self._router.link_closed(peer))

    def link_removed(self, peer: str) -> None:
        self._do(self._router.link_removed(peer))

    def receive(self, peer: str, message: bytes) -> None:
        self._do(self._router.receive(peer, decode_query(message)))

    def crash(self) -> None:
        self._overlay.crash(self._number)

    def restart(self) -> None:
        self._overlay.restart(self._number)

    @property
    def _router(self) -> QueryRouter:
        return self._overlay.router(self._number)

    def _do(self, todo: list[QueryInstruction]) -> None:
        self._overlay.do(self._number, todo)
