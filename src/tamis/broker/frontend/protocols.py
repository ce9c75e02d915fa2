"""Uvicorn's protocols, hardened against misbehaving peers.

- A peer that sends no request, or sends it byte by byte, is disconnected in time (slowloris). So is
  one that goes on sending a body after the answer, or that does not finish its TLS handshake.
- Until its client is authenticated, a connection holds little memory, and makes room for others.
- A peer that does not read is disconnected after a while without progress; until then it holds no
  more than the transport's buffer.
- Bytes that are not HTTP are answered with a problem, like every other refusal.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame, apply_mask  # type: ignore[attr-defined] # compiled
from websockets.protocol import State

from tamis.broker.frontend.admission import ConnectionAdmission, ConnectionTicket
from tamis.broker.frontend.http.problems import (
    HTTPRefusedError,
    head_too_large,
    problem_response,
)
from tamis.broker.operations.settings import BrokerSettings
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.websocket_frames import (
    EIGHT_BYTE_LENGTH,
    LONG_HEADER,
    MASK_BYTES,
    MASKED,
    MAX_TWO_BYTE_LENGTH,
    MEDIUM_HEADER,
    SHORT_HEADER,
    TWO_BYTE_LENGTH,
    WHOLE_TEXT,
    FrameFollower,
)

LINGER_SECONDS: Final = 2.0
# A peer that has sent nothing for this long reads what it was sent.
QUIET_SECONDS: Final = 0.2
# How long a WebSocket is parsed in one turn of the event loop, and how much of it: some ten small
# frames, or much of a large one, which is only copied.
PIECE_SECONDS: Final = 0.0003
FIRST_PIECE_BYTES: Final = 2 * 1024
MIN_PIECE_BYTES: Final = 256
MAX_PIECE_BYTES: Final = 32 * 1024
# However quickly a peer's last frames were parsed, its next ones may be small.
MAX_FRAMES_PER_PIECE: Final = 64
# How many fragments of a message wait for the rest; their bytes have a limit, but may be none.
MAX_FRAGMENTS: Final = 1024
# How many frames of one read are handled where they are read; the others take turns with those of
# other connections.
MAX_HANDLED_AT_ONCE: Final = 4
# After a piece without a whole message, such as pings, the pause is a multiple of what it took.
PAUSES_PER_PIECE: Final = 9
# The headers of a client's short and medium frames, with the mask.
SHORT_MASKED_BYTES: Final = 2 + MASK_BYTES
MEDIUM_MASKED_BYTES: Final = 4 + MASK_BYTES
# A client whose credential is revoked may ignore that the connection is closed.
REVOKED: Final = 4401
REVOKED_SECONDS: Final = 0.5


def linger(transport: asyncio.Transport) -> asyncio.TimerHandle:
    """Half-close, and close soon; the protocol must ignore what it receives."""
    transport.resume_reading()
    if transport.can_write_eof():
        transport.write_eof()
    return asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.close)


class LingeringTransport:
    """A transport whose `close` lingers, for a limited time, if the peer is still sending."""

    def __init__(
        self, transport: asyncio.Transport, is_peer_sending: Callable[[], bool], abort_after: float
    ) -> None:
        self.inner = transport
        self._is_peer_sending = is_peer_sending
        self._abort_after = abort_after
        self._is_lingering = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._is_lingering or self.inner.is_closing()

    def write(self, data: bytes) -> None:
        """Send, unless the transport is closing."""
        if not self._is_lingering:
            self.inner.write(data)

    def close(self) -> None:
        """Close, now or soon."""
        if self.is_closing():
            return
        if self._is_peer_sending():
            self._is_lingering = True
            linger(self.inner)
        else:
            self.inner.close()
        if self.inner.get_write_buffer_size():
            # A peer that never reads would keep the connection as long as it likes.
            asyncio.get_running_loop().call_later(self._abort_after, self.inner.abort)


class ServerConfig(uvicorn.Config):
    """Uvicorn's configuration, with the broker's settings for the protocols."""

    def __init__(self, app: Any, settings: BrokerSettings, **options: Any) -> None:
        self.settings = settings
        self.admission = ConnectionAdmission(settings.connections)
        self.tls: ssl.SSLContext | None = None
        super().__init__(app, **options)

    def load(self) -> None:
        """Load; TLS is left to `TLSGate`, since Uvicorn neither counts nor limits handshakes."""
        super().load()
        self.tls, self.ssl = self.ssl, None


class WriteStallTimer:
    """Disconnects a peer that has accepted no data for a while."""

    def __init__(self, transport: asyncio.Transport, seconds: float) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def begin(self) -> None:
        """Start the timer, because the peer does not keep up."""
        self.end()
        self._unsent = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._look)

    def end(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        # More data may have been added since, but then the peer has accepted some before.
        if self._transport.get_write_buffer_size() < self._unsent:
            self.begin()
        else:
            self._transport.abort()


class HTTPProtocol(H11Protocol):
    """HTTP from an untrusted peer."""

    config: ServerConfig

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._stall_timer: WriteStallTimer | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._rest_timer: asyncio.TimerHandle | None = None
        self.ticket: ConnectionTicket | None = None
        """The place among all connections; given back by whoever handles the connection last."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the peer, which must send a request soon."""
        settings = self.config.settings
        lingering = LingeringTransport(transport, self._is_peer_sending, settings.send_timeout)
        super().connection_made(cast("asyncio.Transport", lingering))
        self.ticket = self.ticket or self.config.admission.enter(transport)
        if self.ticket is not None:
            self.ticket.dismiss = self._make_room
        # For callers that need to know what has arrived, or who know the client.
        self.app_state = {**self.app_state, "transport": transport, "ticket": self.ticket}
        self._stall_timer = WriteStallTimer(transport, settings.send_timeout)
        self._head_timer = self.loop.call_later(settings.hello_timeout, self._close_silent)
        if self.ticket is None:
            self._answer(RefusedError(Code.UNAVAILABLE, "the broker has too many connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all timers, and make room."""
        self._end_timers()
        if self.ticket is not None:
            self.ticket.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; the request head must be complete soon after its first byte."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._rest_timer is not None and self.conn.our_state is not h11.DONE:
            # The rest has come; whatever is being sent now belongs to the next request.
            self._rest_timer.cancel()
            self._rest_timer = None
        is_waiting = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if is_waiting and self._head_timer is None:
            timeout = self.config.settings.hello_timeout
            self._head_timer = self.loop.call_later(timeout, self._close_silent)
        elif not is_waiting and self.conn.their_state is not h11.IDLE:
            self._end_head_timer()

    def on_response_complete(self) -> None:
        """Expect the next request; discard the rest of a body for a short time only."""
        super().on_response_complete()
        if self._is_peer_sending() and self._rest_timer is None:
            self._rest_timer = self.loop.call_later(LINGER_SECONDS, self._close_unread)

    def _close_unread(self) -> None:
        self._rest_timer = None
        if self._is_peer_sending():
            self.transport.close()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Hand the connection over, without the transport that only HTTP needs."""
        self._end_timers()
        self.transport = cast("LingeringTransport", self.transport).inner
        super().handle_websocket_upgrade(event)
        protocol = cast("WebSocketProtocol", self.transport.get_protocol())
        if not protocol.handshake_initiated:
            # Uvicorn would wait for a handshake, but the request was none.
            self.transport.close()

    def pause_writing(self) -> None:
        """Watch a peer that does not read."""
        super().pause_writing()
        if self._stall_timer is not None:
            self._stall_timer.begin()

    def resume_writing(self) -> None:
        """Stop watching it."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.end()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; Uvicorn also calls this if the head is too long."""
        limit = self.config.settings.largest_header
        if len(self.conn.trailing_data[0]) > limit:
            self._answer(head_too_large(limit))
        else:
            self._answer(RefusedError(Code.BAD_REQUEST, msg))

    def _answer(self, error: RefusedError, *, is_last_word: bool = False) -> None:
        """Send a problem, unless a response has begun, and close; the last word, at once."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = problem_response(error, "")
            response.headers["connection"] = "close"
            phrase = HTTPStatus(response.status_code).phrase.encode()
            for event in (
                h11.Response(
                    status_code=response.status_code,
                    headers=response.raw_headers,
                    reason=phrase,
                ),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        if is_last_word:
            transport = cast("LingeringTransport", self.transport).inner
            (transport.abort if transport.get_write_buffer_size() else transport.close)()
        else:
            self.transport.close()
        if self.cycle is not None:
            # Code that waits for the rest of the request need not wait any longer.
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _make_room(self) -> None:
        """Say why, and close without waiting for the peer."""
        reason = "the broker has too many connections; say sooner who you are"
        self._answer(RefusedError(Code.UNAVAILABLE, reason), is_last_word=True)

    def _is_peer_sending(self) -> bool:
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    def _close_silent(self) -> None:
        if not self.transport.is_closing():
            self._answer(
                HTTPRefusedError(
                    HTTPStatus.REQUEST_TIMEOUT,
                    f"no request arrived within {self.config.settings.hello_timeout:g} seconds",
                )
            )

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_timers(self) -> None:
        self._end_head_timer()
        if self._stall_timer is not None:
            self._stall_timer.end()
        if self._rest_timer is not None:
            self._rest_timer.cancel()


class TLSGate(asyncio.Protocol):
    """A TCP connection until its TLS handshake is done."""

    def __init__(self, config: ServerConfig, *args: Any, **options: Any) -> None:
        self._config = config
        self._http = HTTPProtocol(config, *args, **options)
        self._early: list[bytes] = []
        """What arrived in the moment after the handshake."""
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place among all connections, and begin the handshake."""
        ticket = self._config.admission.enter(cast("asyncio.Transport", transport))
        if ticket is None:
            cast("asyncio.Transport", transport).abort()
            return
        self._http.ticket = ticket
        self._handshake = asyncio.create_task(self._shake_hands(ticket))

    def data_received(self, data: bytes) -> None:
        """Keep what arrives before the protocol is ready for it."""
        self._early.append(data)

    async def _shake_hands(self, ticket: ConnectionTicket) -> None:
        loop = asyncio.get_running_loop()
        try:
            transport = await loop.start_tls(
                ticket.transport,
                self,
                cast("ssl.SSLContext", self._config.tls),
                server_side=True,
                ssl_handshake_timeout=self._config.settings.hello_timeout,
                ssl_shutdown_timeout=LINGER_SECONDS,
            )
        except OSError:
            # The peer has gone, is too slow, or does not speak TLS.
            transport = None
        if transport is None or transport.is_closing():
            ticket.leave()
            return
        transport.set_protocol(self._http)
        self._http.connection_made(transport)
        if self._early:
            self._http.data_received(b"".join(self._early))


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket from a peer that may stop reading, or send more frames than it should.

    One read may bring thousands of small frames. They are parsed piece by piece, a piece in each
    turn of the event loop, when those before are handled; until then nothing more is read.
    """

    config: ServerConfig
    _parsing: asyncio.Handle | None = None
    _stall_timer: WriteStallTimer | None = None
    _quiet_timer: asyncio.TimerHandle | None = None
    _handler: Callable[[bytes], bool] | None = None
    _is_paused = False
    """Whether the peer does not keep up with what is sent."""
    _handled = 0
    """How many frames of this piece were handled where they were read."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over a connection; large messages are for clients that are known."""
        super().connection_made(transport)
        self._unparsed = bytearray()
        self._frames = FrameFollower()
        self._piece_bytes = FIRST_PIECE_BYTES
        self._ticket: ConnectionTicket | None = self.app_state.get("ticket")
        if self._ticket is not None:
            self._ticket.dismiss = self.transport.abort
        self.app_state = {**self.app_state, "ticket": self}
        self.conn.max_message_size = self.config.settings.largest_header
        self._stall_timer = WriteStallTimer(self.transport, self.config.settings.send_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers when the connection is lost, and make room."""
        if self._ticket is not None:
            self._ticket.leave()
        self._watch(WriteStallTimer.end)
        # Nothing waits to be taken any longer.
        self._is_paused = False
        for timer in (self._quiet_timer, self._parsing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def make_known(self) -> None:
        """Note that the client is authenticated."""
        self.conn.max_message_size = self.config.ws_max_size
        if self._ticket is not None:
            self._ticket.make_known()

    def data_received(self, data: bytes) -> None:
        """Take a read that is one text, as most are, and have the others parsed."""
        # As `payload_at`, without a call: this is on the way of every publication.
        length = data[1] ^ MASKED if len(data) > SHORT_MASKED_BYTES else EIGHT_BYTE_LENGTH
        begin, size = SHORT_MASKED_BYTES, length
        if length == TWO_BYTE_LENGTH:
            begin, size = MEDIUM_MASKED_BYTES, data[2] << 8 | data[3]
        if (
            # In eight bytes, or not masked.
            length >= EIGHT_BYTE_LENGTH
            or begin + size != len(data)
            or data[0] != WHOLE_TEXT
            or not self._frames.is_between
            or self._unparsed
            or self.frames
            or self.close_sent
            or self.conn.state is not State.OPEN
            or len(data) > min(MAX_PIECE_BYTES, self.conn.max_message_size or 0)
        ):
            self._parse(data)
            return
        text = apply_mask(data[begin:], data[begin - MASK_BYTES : begin])
        if self._handler is None or not self.queue.empty() or not self._handler(text):
            self.frames, self.curr_msg_data_type = [text], "bytes"
            self.send_receive_event_to_app()

    def _parse(self, data: bytes = b"") -> None:
        """Parse the next piece of what a peer has sent; without data, of what is left."""
        if not self.handshake_initiated:
            # The request has a limit of its own, and Uvicorn expects it to be parsed at once.
            super().data_received(data)
            self._frames.follow(data.partition(b"\r\n\r\n")[2], len(data))
            return
        self._unparsed += data
        if 0 < len(data) < len(self._unparsed):
            return
        self._parsing = None
        piece = bytes(self._unparsed[: self._piece_bytes])
        # Not by the loop's clock: uvloop's counts milliseconds.
        begun, self._handled = time.thread_time(), 0
        if not self.close_sent:
            # What comes after the end is discarded, and need not be followed.
            piece = piece[: self._frames.follow(piece, MAX_FRAMES_PER_PIECE)]
        del self._unparsed[: len(piece)]
        super().data_received(piece)
        seconds = time.thread_time() - begun
        if not self._handled:
            fitting = int(len(piece) * PIECE_SECONDS / (seconds + 1e-6))
            self._piece_bytes = min(max(fitting, MIN_PIECE_BYTES), MAX_PIECE_BYTES)
        if self._unparsed:
            self.transport.pause_reading()
            # Otherwise Uvicorn would go on reading as soon as this piece is handled.
            self.read_paused = False
            if self.queue.empty() or self.close_sent:
                pause = PAUSES_PER_PIECE * seconds
                self._parsing = self.loop.call_later(pause, self._parse)
        elif not data:
            self.read_paused = not (self.queue.empty() or self.close_sent)
            if not self.read_paused:
                self.transport.resume_reading()

    def hand_on(self, handler: Callable[[bytes], bool]) -> None:
        """Call a function with each message where it is read; it may take it."""
        self._handler = handler

    def handle_text(self, event: Frame) -> None:
        """Take a message, or its first part, as bytes: the decoder of frames checks the text."""
        # While more is to be parsed, all of it waits, and so do many: no turn may take long.
        if (
            self._handler is not None
            and self._handled < MAX_HANDLED_AT_ONCE
            and event.fin
            and self.queue.empty()
            and not (self._unparsed or self.close_sent)
            and self._handler(cast("bytes", event.data))
        ):
            self._handled += 1
        else:
            self.handle_bytes(event)

    def handle_cont(self, event: Frame) -> None:
        """Take a fragment; many take no more memory than their bytes."""
        if len(self.frames) >= MAX_FRAGMENTS:
            self.frames = [b"".join(self.frames)]
        super().handle_cont(event)

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next message; after the last one of a piece, parse the next piece."""
        message = await super().receive()
        if self._unparsed and self._parsing is None and self.queue.empty():
            self._parsing = self.loop.call_soon(self._parse)
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; bytes go out as a text frame, since frames are encoded already.

        After the end, or a refused handshake, raise an error, where Uvicorn would log one.
        """
        if self.close_sent:
            raise ClientDisconnected
        if message["type"] != "websocket.send":
            await super().send(message)
            self.handshake_complete |= self.initial_response is not None and self.close_sent
            if message["type"] == "websocket.close":
                self._parse_the_rest()
                if message["code"] == REVOKED:
                    self.loop.call_later(REVOKED_SECONDS, self.transport.abort)
            return
        # Whoever else waited may have filled the buffer again.
        while self._is_paused:
            await self.writable.wait()
        if not self.send_now(message["bytes"] or b""):
            raise ClientDisconnected

    def send_now(self, data: bytes) -> bool:
        """Send a message if it is open and the peer keeps up; return whether it was sent."""
        if (
            self._is_paused
            or self.disconnected
            or self.close_sent
            or self.conn.state is not State.OPEN
        ):
            return False
        # As `text_header`, without a call: this is on the way of every event and answer, which has
        # as many functions as it may have.
        size = len(data)
        if size < TWO_BYTE_LENGTH:
            header = SHORT_HEADER(WHOLE_TEXT, size)
        elif size <= MAX_TWO_BYTE_LENGTH:
            header = MEDIUM_HEADER(WHOLE_TEXT, TWO_BYTE_LENGTH, size)
        else:
            header = LONG_HEADER(WHOLE_TEXT, EIGHT_BYTE_LENGTH, size)
        self.transport.write(header + data)
        return True

    def _parse_the_rest(self) -> None:
        """Go on without anybody who receives: the peer's answer to the end may be in it."""
        if self._unparsed and self._parsing is None:
            self._parsing = self.loop.call_soon(self._parse)

    def pause_writing(self) -> None:
        """Watch a peer that does not read."""
        super().pause_writing()
        self._is_paused = True
        self._watch(WriteStallTimer.begin)

    def resume_writing(self) -> None:
        """Stop watching it."""
        self._is_paused = False
        super().resume_writing()
        self._watch(WriteStallTimer.end)

    def handle_parser_exception(self) -> None:
        """End the connection and send the reason; from then on, ignore what arrives."""
        if self.close_sent:
            self._close_when_quiet()
            return
        closing = self.conn.close_sent
        if closing is None:
            # It was not a handshake.
            self.transport.close()
            return
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": closing.code, "reason": closing.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = linger(self.transport)
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        """Over TLS, which has no half-close to notify the peer, close once it sends no more."""
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        if not self.transport.can_write_eof():
            self._quiet_timer = self.loop.call_later(QUIET_SECONDS, self.transport.close)

    def _watch(self, change: Callable[[WriteStallTimer], None]) -> None:
        if self._stall_timer is not None:
            change(self._stall_timer)
