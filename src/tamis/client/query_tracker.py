"""The sources and queries of a bus, and the frames about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tamis.client.data_source import DataSource
from tamis.client.query_results import QueryResult
from tamis.errors import DisconnectedError, RefusedError, TamisError
from tamis.protocol.frames import QueryReply, QueryRequest
from tamis.protocol.queries import (
    Ask,
    AskMore,
    AskStopped,
    CancelQuery,
    Querying,
    ResultEnd,
    ResultRows,
    Serving,
    Withdraw,
    Withdrawn,
)


class FrameSender(Protocol):
    """The part of a connection that sends requests about queries."""

    def send_frame(self, frame: QueryRequest) -> None:
        """Send a frame soon."""

    def next_ref(self) -> int:
        """Return a number for a request."""


class QueryTracker:
    """Knows the sources and queries of a bus, whichever connection it has."""

    def __init__(self, check: Callable[[], None], timeout: Callable[[], float | None]) -> None:
        self._check = check
        self._timeout = timeout
        self._sender: FrameSender | None = None
        self._sources: dict[DataSource, None] = {}
        self._results: dict[QueryResult, None] = {}
        self._waiting: dict[int, DataSource | QueryResult] = {}
        """What each request was about, until it is answered."""

    @property
    def timeout(self) -> float | None:
        """Return the seconds to wait for an answer."""
        return self._timeout()

    # --- for sources and queries -----------------------------------------------------------------

    def start_source(self, source: DataSource) -> None:
        """Advertise, now and after every reconnect."""
        self._check()
        self._sources[source] = None
        if self._sender is not None:
            self._request(self._sender, source)

    async def end_source(self, source: DataSource) -> None:
        """Withdraw a source; without a connection, there is none to withdraw."""
        self._sources.pop(source, None)
        if self._sender is not None and source.id:
            self._sender.send_frame(Withdraw(ref=self._sender.next_ref(), source=source.id))

    def start_query(self, result: QueryResult) -> None:
        """Send a query; without a connection, it fails."""
        self._check()
        if self._sender is None:
            raise DisconnectedError("there is no connection to the broker; ask again later")
        self._results[result] = None
        self._request(self._sender, result)

    def end_query(self, result: QueryResult) -> None:
        """Forget a query."""
        self._results.pop(result, None)

    def send_query(self, frame: QueryRequest) -> None:
        """Send a frame, if there is a connection."""
        if self._sender is not None:
            self._sender.send_frame(frame)

    # --- for connections -------------------------------------------------------------------------

    def connected(self, sender: FrameSender) -> None:
        """Advertise all sources on a new connection."""
        self._sender = sender
        for source in self._sources:
            self._request(sender, source)

    def disconnected(self) -> None:
        """Note that the connection is lost: queries fail, sources wait for the next one."""
        self._sender = None
        self._waiting.clear()
        for source in self._sources:
            source.disconnected()
        error = DisconnectedError("the connection was lost while the query ran; ask again")
        for result in [*self._results]:
            result.fail(error)
        self._results.clear()

    def fail(self, error: TamisError) -> None:
        """End everything: the bus is closed, or lost for good."""
        self.disconnected()
        for source in [*self._sources]:
            source.fail(error)
        self._sources.clear()

    def knows(self, ref: int) -> bool:
        """Return whether a request was about a source or a query."""
        return ref in self._waiting

    def refused(self, ref: int, error: RefusedError) -> None:
        """Fail a source or query that the broker refuses."""
        about = self._waiting.pop(ref)
        if isinstance(about, DataSource):
            about.refused(error)
            if about.is_closed:
                self._sources.pop(about, None)
        else:
            about.fail(error)
            self._results.pop(about, None)

    def handle(self, reply: QueryReply) -> None:
        """Hand a reply to the source or query that it is about."""
        match reply:
            case ResultRows() | ResultEnd():
                self._hand_to_query(reply)
            case Querying(ref=ref):
                self._began(self._waiting.pop(ref, None), reply)
            case Serving(ref=ref):
                source = self._waiting.pop(ref, None)
                if isinstance(source, DataSource):
                    source.confirmed(reply)
            case Ask() | AskMore() | AskStopped():
                self._hand_to_source(reply)
            case Withdrawn():
                pass

    def _hand_to_query(self, reply: ResultRows | ResultEnd) -> None:
        result = next((one for one in self._results if one.id == reply.query), None)
        if result is None:
            # It was closed meanwhile.
            return
        if isinstance(reply, ResultRows):
            result.rows_came(reply)
        else:
            result.ended(reply)
            self._results.pop(result, None)

    def _hand_to_source(self, reply: Ask | AskMore | AskStopped) -> None:
        for source in self._sources:
            match reply:
                case Ask(source=id_):
                    if source.id == id_:
                        source.ask(reply)
                case AskMore(ask=ask, bytes=size):
                    source.give_credit(ask, size)
                case AskStopped(ask=ask):
                    source.stop(ask)

    def _began(self, result: DataSource | QueryResult | None, reply: Querying) -> None:
        if isinstance(result, QueryResult) and not result.is_closed:
            result.began(reply)
        else:
            # It was closed before the broker had answered.
            self.send_query(CancelQuery(query=reply.query))

    def _request(self, sender: FrameSender, about: DataSource | QueryResult) -> None:
        ref = sender.next_ref()
        self._waiting[ref] = about
        sender.send_frame(about.request(ref))
