"""The query service: carries out what the query router says, for the clients of this broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

import msgspec

from tamis.access import Rights
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import RefusedError
from tamis.filters import Filter
from tamis.protocol import Code
from tamis.protocol.frames import QueryReply
from tamis.protocol.queries import (
    Ask,
    AskMore,
    AskStopped,
    ResultEnd,
    ResultRows,
)
from tamis.routing.aggregates import Aggregate
from tamis.routing.data_advertisements import DataAdvertisement
from tamis.routing.queries import QueryRouter
from tamis.routing.query_messages import (
    AskSource,
    CreditSource,
    DeliverRows,
    FinishQuery,
    QueryInstruction,
    QueryMessage,
    RefusePeer,
    RowSight,
    SendToPeer,
    StopSource,
)
from tamis.routing.running_query import PeerTerms, QueryBounds

LOG: Final = get_logger("tamis.queries")

OTHER_RIGHTS: Final = "your rights have changed while the query ran; ask again"


class QuerySink(Protocol):
    """Where frames for one client go; they are sent in order, and nobody waits for that."""

    def offer(self, frame: QueryReply) -> None:
        """Send a frame as soon as the client takes it."""


class QueryClient(Protocol):
    """The session of a client that asks or answers."""

    @property
    def rights(self) -> Rights:
        """Return what it may do at the moment."""


class ServedSource(NamedTuple):
    """A data source of a client."""

    number: int
    id: str
    owner: str
    client: QueryClient
    sink: QuerySink


class AskedQuery(NamedTuple):
    """A query of a client."""

    number: int
    id: str
    owner: str
    client: QueryClient
    sink: QuerySink
    rights: Rights
    """By which it was asked; by others, it gets no more rows."""
    is_aggregate: bool
    """Whether there is a row in any case."""


class PeerPort(Protocol):
    """How messages reach other brokers."""

    def send(self, peer: str, message: QueryMessage) -> None:
        """Send a message in order, or drop it if the peer is not connected."""

    def refuse(self, peer: str, reason: str) -> None:
        """Cut off a peer that says what makes no sense."""


class NoPeers:
    """A broker on its own."""

    def send(self, peer: str, message: QueryMessage) -> None:
        """Drop it: there is no peer."""

    def refuse(self, peer: str, reason: str) -> None:
        """Do nothing: there is no peer."""


class QueryService:
    """The sources and queries of a broker's clients.

    All methods run on the event loop. The router is told the time with every call, and woken at its
    next deadline.
    """

    def __init__(self, settings: BrokerSettings, name: str = "") -> None:
        self._settings = settings
        self._name = name
        self.router: Final = QueryRouter(
            name,
            QueryBounds(
                overdraft=settings.largest_frame,
                largest_row=settings.largest_event,
                most_seconds=settings.query_seconds,
                most_rows=settings.query_rows,
            ),
        )
        self.peers: PeerPort = NoPeers()
        self._last_source = 0
        self._sources: dict[int, ServedSource] = {}
        self._source_ids: dict[tuple[QueryClient, str], int] = {}
        self._asks: dict[tuple[QueryClient, str], tuple[int, int, Filter]] = {}
        """Source, query and filter of what clients are asked, by the id they know."""
        self._queries: dict[int, AskedQuery] = {}
        self._query_ids: dict[tuple[QueryClient, str], int] = {}
        self._hints: dict[int, str] = {}
        """What may be wrong with queries to which no row was the answer yet."""
        self._queries_of: Counter[str] = Counter()
        self._sources_of: Counter[str] = Counter()
        self._has_new_deadline = asyncio.Event()

    # --- figures ---------------------------------------------------------------------------------

    @property
    def sources(self) -> int:
        """Return how many sources there are."""
        return len(self._sources)

    @property
    def queries(self) -> int:
        """Return how many queries run."""
        return len(self._queries)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is left of any client."""
        return self.router.is_idle and not (self._sources or self._queries or self._asks)

    # --- sources ---------------------------------------------------------------------------------

    def serve(
        self,
        client: QueryClient,
        owner: str,
        sink: QuerySink,
        *,
        name: str,
        advertisement: DataAdvertisement,
        id_: str = "",
    ) -> str:
        """Advertise the data of a source, a new one or one that exists; return its id."""
        number = self._source_ids.get((client, id_), 0)
        if id_ and not number:
            raise RefusedError(Code.NOT_FOUND, f"there is no source {id_!r:.80}")
        if not number:
            most = self._settings.sources_per_principal
            if self._sources_of[owner] >= most:
                raise RefusedError(
                    Code.TOO_MANY, f"{owner} has {most:,} data sources, which is the limit"
                )
            number, id_ = self._add_source(client, owner, sink)
        shown = "/".join(part for part in (self._name, owner, name) if part)
        self._do(self.router.source_added(number, shown, advertisement))
        return id_

    def _add_source(self, client: QueryClient, owner: str, sink: QuerySink) -> tuple[int, str]:
        self._last_source += 1
        number = self._last_source
        id_ = f"source-{number}"
        self._sources[number] = ServedSource(number, id_, owner, client, sink)
        self._source_ids[client, id_] = number
        self._sources_of[owner] += 1
        return number, id_

    def withdraw(self, client: QueryClient, id_: str) -> None:
        """End a source."""
        number = self._source_ids.get((client, id_))
        if number is None:
            raise RefusedError(Code.NOT_FOUND, f"there is no source {id_!r:.80}")
        self._remove_source(number)

    def _remove_source(self, number: int) -> None:
        source = self._sources.pop(number)
        del self._source_ids[source.client, source.id]
        _decrement(self._sources_of, source.owner)
        for key in [key for key, (asked, _, _) in self._asks.items() if asked == number]:
            del self._asks[key]
        self._do(self.router.source_removed(number))

    def filter_of(self, client: QueryClient, ask: str) -> Filter | None:
        """Return what a client is asked for; None if nobody waits for it any longer."""
        found = self._asks.get((client, ask))
        return None if found is None else found[2]

    def take(self, client: QueryClient, ask: str, rows: list[bytes], skipped: int) -> None:
        """Take rows of a source that match; `skipped` bytes of others did not."""
        found = self._asks.get((client, ask))
        if found is not None:
            source, query, _ = found
            self._do(self.router.source_rows(source, query, rows, skipped=skipped))

    def finish(self, client: QueryClient, ask: str, problem: str = "") -> None:
        """Note that a source has no more rows, or why it cannot go on."""
        found = self._asks.pop((client, ask), None)
        if found is not None:
            self._do(self.router.source_finished(found[0], found[1], problem))

    # --- queries ---------------------------------------------------------------------------------

    def ask(
        self,
        client: QueryClient,
        owner: str,
        sink: QuerySink,
        filter_: Filter,
        *,
        seconds: float,
        credit: int,
        limit: int | None,
        aggregate: Aggregate | None,
        sight: RowSight | None,
        hint: str,
        begun: Callable[[str], None],
    ) -> None:
        """Begin a query; `begun` is told its id before there is anything to say about it."""
        rights = client.rights
        most = min(self._settings.queries_per_principal, rights.limits.queries)
        if self._queries_of[owner] >= most:
            raise RefusedError(
                Code.TOO_MANY, f"{owner} has {most:,.0f} queries running, which is the limit"
            )
        self._tell_time()
        number, todo = self.router.ask(
            filter_, seconds=seconds, credit=credit, limit=limit, aggregate=aggregate, sight=sight
        )
        query = AskedQuery(
            number, f"query-{number}", owner, client, sink, rights, aggregate is not None
        )
        self._queries[number] = query
        self._query_ids[client, query.id] = number
        self._queries_of[owner] += 1
        if hint:
            self._hints[number] = hint
        begun(query.id)
        self._do(todo)

    def credit(self, client: QueryClient, id_: str, bytes_: int) -> None:
        """Grant a client more bytes of rows of its query, if it still runs."""
        number = self._query_ids.get((client, id_))
        if number is not None:
            self._do(self.router.credit(number, bytes_))

    def cancel(self, client: QueryClient, id_: str) -> None:
        """End a query early, if it still runs."""
        number = self._query_ids.get((client, id_))
        if number is not None:
            self._forget_query(number)
            self._do(self.router.cancel(number))

    def end_client(self, client: QueryClient) -> None:
        """End everything of a client that has gone."""
        for number in [n for n, source in self._sources.items() if source.client is client]:
            self._remove_source(number)
        for number in [n for n, query in self._queries.items() if query.client is client]:
            self._forget_query(number)
            self._do(self.router.cancel(number))

    def _forget_query(self, number: int) -> AskedQuery | None:
        query = self._queries.pop(number, None)
        self._hints.pop(number, None)
        if query is not None:
            del self._query_ids[query.client, query.id]
            _decrement(self._queries_of, query.owner)
        return query

    # --- peers -----------------------------------------------------------------------------------

    def link_opened(self, peer: str, terms: PeerTerms) -> None:
        """Begin to exchange advertisements and queries with a peer."""
        self._do(self.router.link_opened(peer, terms))

    def link_closed(self, peer: str) -> None:
        """Note that a peer cannot be reached."""
        self._do(self.router.link_closed(peer))

    def link_removed(self, peer: str) -> None:
        """Forget a peer and all that is behind it."""
        self._do(self.router.link_removed(peer))

    def receive(
        self, peer: str, message: QueryMessage, *, skipped: int = 0, problem: str = ""
    ) -> None:
        """Take a message of a peer; of its rows, some may have been left out."""
        self._tell_time()
        self._do(self.router.receive(peer, message, skipped=skipped, problem=problem))

    # --- instructions ----------------------------------------------------------------------------

    def _do(self, todo: Iterable[QueryInstruction]) -> None:
        for one in todo:
            match one:
                case DeliverRows(query=number, rows=rows):
                    self._deliver(number, rows)
                case FinishQuery():
                    self._report(one)
                case AskSource():
                    self._ask_source(one)
                case CreditSource(source=number, query=query, bytes=size):
                    self._sources[number].sink.offer(
                        AskMore(ask=_ask_id(number, query), bytes=size)
                    )
                case StopSource(source=number, query=query):
                    self._stop_source(number, _ask_id(number, query))
                case SendToPeer(peer=peer, message=message):
                    self.peers.send(peer, message)
                case RefusePeer(peer=peer, reason=reason):
                    LOG.warning("peer refused", peer=peer, reason=reason)
                    self.peers.refuse(peer, reason)
        self._has_new_deadline.set()

    def _ask_source(self, one: AskSource) -> None:
        source = self._sources[one.source]
        ask = _ask_id(one.source, one.query)
        self._asks[source.client, ask] = (one.source, one.query, one.filter)
        source.sink.offer(Ask(source=source.id, ask=ask, filter=str(one.filter), credit=one.credit))

    def _stop_source(self, number: int, ask: str) -> None:
        source = self._sources[number]
        if self._asks.pop((source.client, ask), None) is not None:
            source.sink.offer(AskStopped(ask=ask))

    def _deliver(self, number: int, rows: list[bytes]) -> None:
        query = self._queries.get(number)
        if query is None:
            return
        if query.client.rights is not query.rights:
            self._forget_query(number)
            query.sink.offer(ResultEnd(query=query.id, missing={"": OTHER_RIGHTS}, cut=True))
            self._do(self.router.cancel(number))
            return
        if not query.is_aggregate:
            self._hints.pop(number, None)
        query.sink.offer(ResultRows(query=query.id, rows=[msgspec.Raw(row) for row in rows]))

    def _report(self, one: FinishQuery) -> None:
        hint = self._hints.get(one.query, "")
        query, report = self._forget_query(one.query), one.report
        if query is not None:
            query.sink.offer(
                ResultEnd(
                    query=query.id,
                    answered=[*report.answered],
                    missing=report.missing,
                    unnamed=report.unnamed,
                    cut=report.cut,
                    hint=hint,
                )
            )

    # --- time ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End queries at their deadlines."""
        now = asyncio.get_running_loop().time
        while True:
            self._has_new_deadline.clear()
            deadline = self.router.next_deadline
            if deadline is None:
                await self._has_new_deadline.wait()
                continue
            try:
                async with asyncio.timeout(max(0.0, deadline - now())):
                    await self._has_new_deadline.wait()
            except TimeoutError:
                self._tell_time()

    def _tell_time(self) -> None:
        self._do(self.router.time_passed(asyncio.get_running_loop().time()))


def _ask_id(source: int, query: int) -> str:
    return f"ask-{source}-{query}"


def _decrement(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
