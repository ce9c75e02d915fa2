"""The frames of queries on one connection: requests handled in order, replies sent by a task."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.sessions import Session
from tamis.errors import DisconnectedError
from tamis.protocol.frames import QueryReply, QueryRequest, Reply
from tamis.protocol.queries import (
    CancelQuery,
    Query,
    Querying,
    QueryMore,
    ResultRows,
    Serve,
    ServedAll,
    ServedRows,
    Serving,
    Withdraw,
    Withdrawn,
)

MAX_UNSENT_BYTES: Final = 1024 * 1024
"""Of rows. A client that grants credit without reading gets no more until it reads."""

MAX_UNSENT_REPLIES: Final = 1_000
"""With more, a client's requests about queries wait until it reads."""


class QueryFrames:
    """Handles the requests of one client about queries, and sends it what follows."""

    def __init__(
        self,
        send: Callable[[Reply], Awaitable[None]],
        supervisor: Supervisor,
        fail: Callable[[Exception], None],
    ) -> None:
        self._send = send
        self._supervisor = supervisor
        self._fail = fail
        self._replies: deque[QueryReply] = deque()
        self._unsent = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._credits: dict[str, int] = {}
        """Credit for queries that counts once the client has read more."""
        self._sender: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._is_closed = False

    async def handle(self, session: Session, frame: QueryRequest) -> None:
        """Do what a client requests, once it has read most of the replies before."""
        await self._has_room.wait()
        self._session = session
        match frame:
            case Serve(ref=ref):
                self.offer(Serving(ref=ref, source=await session.serve(frame, self)))
            case Withdraw(ref=ref, source=source):
                await session.withdraw(source)
                self.offer(Withdrawn(ref=ref, source=source))
            case ServedRows(ask=ask, rows=rows):
                await session.serve_rows(ask, rows)
            case ServedAll(ask=ask, error=error):
                await session.finish_serving(ask, error)
            case Query(ref=ref):
                await session.ask(
                    frame, self, lambda query: self.offer(Querying(ref=ref, query=query))
                )
            case QueryMore(query=query, bytes=size):
                self._give_credit(session, query, size)
            case CancelQuery(query=query):
                self._credits.pop(query, None)
                session.cancel_query(query)

    def _give_credit(self, session: Session, query: str, size: int) -> None:
        if self._unsent <= MAX_UNSENT_BYTES:
            session.give_query_credit(query, size)
        elif len(self._credits) < 1_000:
            self._credits[query] = min(self._credits.get(query, 0) + max(0, size), 2**40)

    def offer(self, frame: QueryReply) -> None:
        """Send a frame as soon as the client takes it."""
        if self._is_closed:
            return
        self._replies.append(frame)
        self._unsent += _size(frame)
        self._note_room()
        if self._sender is None or self._sender.done():
            self._sender = self._supervisor.start("query sender", self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._replies:
                frame = self._replies.popleft()
                self._note_room()
                await self._send(frame)
                self._unsent -= _size(frame)
                if self._credits and self._unsent <= MAX_UNSENT_BYTES:
                    self._pay()
        except DisconnectedError:
            self._forget_replies()
        except Exception as error:
            self._fail(error)

    def _note_room(self) -> None:
        if len(self._replies) <= MAX_UNSENT_REPLIES:
            self._has_room.set()
        else:
            self._has_room.clear()

    def _forget_replies(self) -> None:
        self._is_closed = True
        self._replies.clear()
        self._has_room.set()

    def _pay(self) -> None:
        waiting, self._credits = self._credits, {}
        for query, size in waiting.items():
            if self._session is not None:
                self._session.give_query_credit(query, size)

    async def close(self) -> None:
        """Send nothing more."""
        self._forget_replies()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)


def _size(frame: QueryReply) -> int:
    return sum(len(memoryview(row)) for row in frame.rows) if isinstance(frame, ResultRows) else 0
