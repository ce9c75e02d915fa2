"""Server-Sent Events: a subscription as an endless response, for browsers and curl."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tamis.broker.deliver.attachments import Attachment
from tamis.broker.frontend.http.operations import OperationCall
from tamis.broker.frontend.streams import cancel_all, disconnected
from tamis.errors import DisconnectedError
from tamis.protocol import Deliver, Delivery, Dropped, Ended

EVENT_STREAM: Final = "text/event-stream"

# Events that may be on their way to the client, and the bytes that are written at once.
CREDIT_EVENTS: Final = 256
WRITE_BYTES: Final = 64 * 1024
# The interval between two checks for what has arrived.
ARRIVAL_CHECK_SECONDS: Final = 0.1
RETRY_FIELD: Final = b"retry: 2000\n\n"
HEARTBEAT: Final = b": still here\n\n"


class EventStream(Response):
    """The response; it lasts until the client, the broker or the subscription ends it."""

    def __init__(
        self, call: OperationCall, subscription: str, *, acknowledge: str, on_arrival: bool = False
    ) -> None:
        """Stream a subscription; with `on_arrival`, events count as received once they arrive."""
        super().__init__(headers={"Cache-Control": "no-store"}, media_type=EVENT_STREAM)
        del self.headers["content-length"]
        self._call = call
        self._id = subscription
        self._manual = acknowledge == "manual" or on_arrival
        transport = call.request.scope.get("state", {}).get("transport")
        self._arrivals = ArrivalTracker(transport) if on_arrival and acknowledge == "auto" else None
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._has_begun = asyncio.Event()
        self._attachment: Attachment | None = None
        self._send: Send | None = None

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,  # noqa: ARG002 - the signature is given
        send: Send,
    ) -> None:
        """Send events until the stream ends."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        if scope["method"] == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        session = self._call.session
        session.closed.add_done_callback(lambda reason: self._finish(str(reason.result())))
        with self._call.frontend.streams.holding(self):
            self._attachment = await session.attach(
                self._id,
                self,
                credit=CREDIT_EVENTS,
                acknowledge="manual" if self._manual else "auto",
            )
            try:
                await send(start)
                self._send = send
                await self._write(RETRY_FIELD)
                self._has_begun.set()
                await self._stay()
            finally:
                self._finish("")
                await session.detach(self._attachment)
        await self._say_goodbye(send)

    def stop(self) -> None:
        """End because the broker is stopping."""
        self._finish("the broker stops")

    def _finish(self, reason: str) -> None:
        if not self._over.done():
            self._over.set_result(reason)

    async def _stay(self) -> None:
        client = asyncio.create_task(disconnected(self._call.request.receive))
        client.add_done_callback(lambda _: self._finish(""))
        loop = asyncio.get_running_loop()
        interval = self._call.settings.ping_interval
        heartbeat = loop.time() + interval
        try:
            while not self._over.done():
                pause = heartbeat - loop.time()
                await asyncio.wait([self._over], timeout=min(pause, self._next_look()))
                self._acknowledge_arrivals()
                if loop.time() >= heartbeat:
                    heartbeat = loop.time() + interval
                    await self._write(HEARTBEAT)
        finally:
            await cancel_all([client])

    def _next_look(self) -> float:
        return ARRIVAL_CHECK_SECONDS if self._arrivals is not None else float("inf")

    def _acknowledge_arrivals(self) -> None:
        arrived = self._arrivals.take() if self._arrivals is not None else {}
        if arrived and self._attachment is not None:
            self._call.session.acknowledge_arrived(self._attachment, arrived)

    async def _say_goodbye(self, send: Send) -> None:
        reason = self._over.result()
        last = _message("ended", {"reason": reason}) if reason else b""
        await send({"type": "http.response.body", "body": last})

    async def _write(self, data: bytes) -> None:
        if self._over.done() or self._send is None:
            raise DisconnectedError("the event stream has ended")
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except OSError:
            raise DisconnectedError("the client has gone") from None

    # --- the sink of the notifier ----------------------------------------------------------------

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        """Write a frame; return when the system has taken it."""
        if isinstance(frame, Ended):
            self._finish(frame.reason)
            return
        await self._has_begun.wait()
        if isinstance(frame, Dropped):
            lost = {"count": frame.count, "reason": frame.reason}
            await self._write(_message("dropped", lost))
            return
        for piece in _pieces(map(_event, frame.events)):
            await self._write(piece)
        if self._arrivals is not None:
            self._arrivals.sent(frame.events)
        if self._attachment is not None:
            self._attachment.give_credit(len(frame.events))


def _event(delivery: Delivery) -> bytes:
    # Line breaks occur only between JSON tokens, where they have no meaning.
    data = msgspec.json.encode(delivery).replace(b"\r", b" ").replace(b"\n", b" ")
    return b"id: %d\ndata: %s\n\n" % (delivery.sequence, data)


def _message(kind: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(data))


def _pieces(texts: Iterable[bytes]) -> Iterator[bytes]:
    """Join texts, and yield them in pieces of about `WRITE_BYTES`."""
    piece = bytearray()
    for text in texts:
        piece += text
        if len(piece) >= WRITE_BYTES:
            yield bytes(piece)
            piece.clear()
    if piece:
        yield bytes(piece)


try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover - elsewhere, sent counts as arrived
    fcntl = None  # type: ignore[assignment]


def has_all_arrived(transport: asyncio.Transport) -> bool:
    """Return whether the peer has confirmed every byte; False if the connection is closing."""
    if transport.is_closing() or transport.get_write_buffer_size():
        return False
    return not _unconfirmed(transport)


def _unconfirmed(transport: asyncio.Transport) -> int:
    socket = transport.get_extra_info("socket")
    if fcntl is None or socket is None:
        return 0
    try:
        answer = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        # Not every system provides this.
        return 0
    return int(struct.unpack("i", answer)[0])


class ArrivalTracker:
    """Events in flight to a client, acknowledged once everything sent has arrived."""

    def __init__(self, transport: asyncio.Transport | None) -> None:
        self._transport = transport
        self._on_the_way: dict[int, int] = {}
        """The attempts, by sequence."""

    def sent(self, events: Iterable[Delivery]) -> None:
        """Record events that the system has accepted."""
        self._on_the_way.update((one.sequence, one.attempt) for one in events)

    def take(self) -> dict[int, int]:
        """Return the attempts that have newly arrived, by sequence."""
        if not self._on_the_way or not self._is_quiet():
            return {}
        arrived, self._on_the_way = self._on_the_way, {}
        return arrived

    def _is_quiet(self) -> bool:
        return self._transport is None or has_all_arrived(self._transport)
