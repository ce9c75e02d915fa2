"""One network connection of a link, from both sides' hello to its end.

The connection may be lost at any time. What it carried is sent again on the next one: events until
they are stored, and what the routers need to know of each other when a link opens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from tamis.access import RateLimiter
from tamis.client.transport import Transport
from tamis.errors import DisconnectedError, ProtocolError, RefusedError
from tamis.protocol import Code, Refused
from tamis.protocol.peering import (
    Forward,
    ForwardedEvent,
    Heartbeat,
    LinkFrame,
    LinkHello,
    QueryFrame,
    RoutingFrame,
    Stored,
    TopologyReply,
    TopologyRequest,
    decode_link_frame,
    decode_link_hello,
    encode_link_frame,
)

# A frame that carries nothing costs little, so a peer that sends more of them is at fault.
MAX_EMPTY_FRAMES_PER_SECOND: Final = 100
# Messages of the router that wait for the peer; with more, the link opens anew, by difference.
MAX_WAITING_BYTES: Final = 64 * 1024**2
CLOSING_SECONDS: Final = 1.0
SECOND_LOOK_SECONDS: Final = 0.2
"""So long after a peer seemed to be silent, it is looked whether it was."""


class LinkHandler(Protocol):
    """What happens with what comes over a connection."""

    async def take_message(self, message: bytes) -> None:
        """Take a message of the peer's router."""

    async def take_query_message(self, message: bytes) -> None:
        """Take a message about queries and data."""

    async def store(self, events: Sequence[ForwardedEvent]) -> None:
        """Store events; return when they are on disk."""

    async def settle(self, up_to: int) -> None:
        """Forget the events that the peer has stored."""

    async def take_topology_request(self, request: TopologyRequest) -> None:
        """Begin to answer which brokers are on this side of the link."""

    def take_topology_reply(self, reply: TopologyReply) -> None:
        """Take the peer's answer."""


class LinkTiming(Protocol):
    """When a connection counts as dead."""

    @property
    def peer_ping_interval(self) -> float:
        """Return the seconds between signs of life."""

    @property
    def peer_timeout(self) -> float:
        """Return the seconds without one after which the peer is taken for dead."""

    @property
    def peer_window(self) -> int:
        """Return how many events may be on their way from the peer."""


class LinkConnection:
    """A connection on which both sides have said hello."""

    def __init__(
        self, transport: Transport, theirs: LinkHello, handler: LinkHandler, timing: LinkTiming
    ) -> None:
        self.theirs = theirs
        self._transport = transport
        self._handler = handler
        self._timing = timing
        self._loop = asyncio.get_running_loop()
        self._limiter = RateLimiter(self._loop.time)
        self._sending = asyncio.Lock()
        self._waiting: deque[bytes] = deque()
        """Frames that nobody waits for: the router's, and acknowledgements."""
        self._waiting_bytes = 0
        self._has_waiting = asyncio.Event()
        self._arrived: deque[Sequence[ForwardedEvent]] = deque()
        """Events that are not stored yet."""
        self._arrived_count = 0
        self._has_arrived = asyncio.Event()
        self._last_arrived = 0
        self._last_sent = 0
        self._silent_since: float | None = None
        """Since when this side has been waiting for a frame; None while it handles one."""
        self._end: asyncio.Future[RefusedError] = self._loop.create_future()
        self.ended = asyncio.Event()
        """Set when whoever held the connection has done all that follows from its end."""

    # --- its life --------------------------------------------------------------------------------

    async def run(self) -> RefusedError | ProtocolError:
        """Carry frames until the connection is lost or ended; return why."""
        parts = [self._receive_all, self._store_all, self._send_all, self._beat, self._watch]
        tasks = [asyncio.create_task(part()) for part in parts]
        try:
            either: list[asyncio.Future[Any]] = [*tasks, self._end]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        reason = self._end.result() if self._end.done() else _most_telling(results)
        if not isinstance(reason, DisconnectedError):
            await self._take_leave(reason)
        return reason

    @property
    def is_ending(self) -> bool:
        """Return whether the connection is to end."""
        return self._end.done()

    def end(self, reason: RefusedError) -> None:
        """End the connection, and tell the peer why."""
        if not self._end.done():
            self._end.set_result(reason)

    async def _take_leave(self, reason: RefusedError | ProtocolError) -> None:
        """Send what the router had to say, and why the connection ends, if the peer reads."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                while self._waiting:
                    await self._transport.send(self._waiting.popleft())
        except (TimeoutError, DisconnectedError):
            return
        await say_refused(self._transport, reason)

    # --- sending ---------------------------------------------------------------------------------

    def post(self, frame: LinkFrame) -> None:
        """Send a frame as soon as possible."""
        data = encode_link_frame(frame)
        if len(data) > self.theirs.largest_frame:
            self.end(_too_large(len(data), self.theirs.largest_frame))
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._has_waiting.set()
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.end(DisconnectedError("the peer does not take what the router sends"))

    async def forward(self, events: Sequence[ForwardedEvent]) -> None:
        """Send events, in frames that the peer takes; wait while it does not take them."""
        waiting = [events]
        while waiting:
            some = waiting.pop()
            data, most = encode_link_frame(Forward(events=[*some])), self.theirs.largest_frame
            if len(data) <= most:
                self._last_sent = max(self._last_sent, some[-1].sequence)
                await self._send(data)
            elif len(some) > 1:
                middle = len(some) // 2
                waiting += [some[middle:], some[:middle]]
            else:
                reason = _too_large(len(data), most)
                self.end(reason)
                raise DisconnectedError(str(reason))

    async def _send(self, data: bytes) -> None:
        timeout = self._timing.peer_timeout
        async with self._sending:
            try:
                async with asyncio.timeout(timeout):
                    await self._transport.send(data)
            except TimeoutError:
                error = DisconnectedError(f"the peer took nothing for {timeout:g} seconds")
                self.end(error)
                raise error from None

    async def _send_all(self) -> None:
        while True:
            self._has_waiting.clear()
            while self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                await self._send(data)
            await self._has_waiting.wait()

    async def _beat(self) -> None:
        heartbeat = encode_link_frame(Heartbeat())
        while True:
            await asyncio.sleep(self._timing.peer_ping_interval)
            await self._send(heartbeat)

    # --- receiving -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Raise an error when nothing has come for too long."""
        timeout = self._timing.peer_timeout
        while True:
            since = self._silent_since
            quiet = 0.0 if since is None else self._loop.time() - since
            if quiet < timeout:
                await asyncio.sleep(timeout - quiet)
                continue
            # If this broker itself stood still, what the peer sent meanwhile comes in now.
            await asyncio.sleep(SECOND_LOOK_SECONDS)
            if self._silent_since == since:
                raise DisconnectedError(f"nothing came from the peer for {timeout:g} seconds")

    async def _receive_all(self) -> None:
        while True:
            self._silent_since = self._loop.time()
            data = await self._transport.receive()
            self._silent_since = None
            await self._handle(decode_link_frame(data))

    async def _handle(self, frame: LinkFrame) -> None:
        match frame:
            case Forward():
                self._note_arrival(frame.events)
            case Stored():
                if frame.up_to > self._last_sent:
                    raise ProtocolError(
                        f"the peer has stored event {frame.up_to}, but the last that it was sent "
                        f"on this connection is {self._last_sent}"
                    )
                await self._handler.settle(frame.up_to)
            case RoutingFrame():
                await self._handler.take_message(bytes(frame.message))
            case QueryFrame():
                await self._handler.take_query_message(bytes(frame.message))
            case Heartbeat():
                self._limit_empty_frames()
            case TopologyRequest():
                self._limit_empty_frames()
                await self._handler.take_topology_request(frame)
            case TopologyReply():
                self._handler.take_topology_reply(frame)
            case Refused():
                raise RefusedError(frame.code, f"the peer ended the link: {frame.message}")

    def _limit_empty_frames(self) -> None:
        if self._limiter.take("empty", rate=MAX_EMPTY_FRAMES_PER_SECOND):
            raise ProtocolError(
                f"the peer sends more than {MAX_EMPTY_FRAMES_PER_SECOND} frames without content a "
                "second"
            )

    def _note_arrival(self, events: Sequence[ForwardedEvent]) -> None:
        for event in events:
            if event.sequence <= self._last_arrived:
                raise ProtocolError(
                    f"the peer forwards its event {event.sequence} after {self._last_arrived}: the "
                    "events of a connection come in the order of the sender's log"
                )
            self._last_arrived = event.sequence
        self._arrived.append(events)
        self._arrived_count += len(events)
        window = self._timing.peer_window
        if self._arrived_count > window:
            raise ProtocolError(
                f"the peer forwards more than the {window:,} events that may be on their way"
            )
        self._has_arrived.set()

    async def _store_all(self) -> None:
        """Store what has arrived, all that waits at once, and acknowledge it."""
        while True:
            await self._has_arrived.wait()
            self._has_arrived.clear()
            batches, self._arrived = self._arrived, deque()
            events = [event for batch in batches for event in batch]
            await self._handler.store(events)
            self._arrived_count -= len(events)
            self.post(Stored(up_to=events[-1].sequence))


async def exchange_hellos(transport: Transport, ours: LinkHello, seconds: float) -> LinkHello:
    """Say hello, and return the other side's."""
    try:
        async with asyncio.timeout(seconds):
            await transport.send(encode_link_frame(ours))
            theirs = decode_link_hello(await transport.receive())
    except TimeoutError:
        raise DisconnectedError(f"the peer did not say hello within {seconds:g} seconds") from None
    if isinstance(theirs, Refused):
        raise RefusedError(theirs.code, f"the peer refused the link: {theirs.message}")
    return theirs


async def say_refused(transport: Transport, reason: RefusedError | ProtocolError) -> None:
    """Send the other side the reason why the connection ends, without waiting long."""
    code = reason.code if isinstance(reason, RefusedError) else Code.BAD_REQUEST
    frame = encode_link_frame(Refused(code=code, message=str(reason)))
    try:
        async with asyncio.timeout(CLOSING_SECONDS):
            await transport.send(frame)
    except (TimeoutError, DisconnectedError):
        # The log of this broker has the reason as well.
        return


def _too_large(size: int, limit: int) -> RefusedError:
    return RefusedError(
        Code.TOO_LARGE,
        f"a frame of {size:,} bytes exceeds what the peer takes, {limit:,}: raise its setting "
        "largest_frame",
    )


def _most_telling(results: Sequence[BaseException | None]) -> RefusedError | ProtocolError:
    """Return why a connection ended; a bug is raised."""
    errors = [one for one in results if isinstance(one, Exception)]
    for error in errors:
        if not isinstance(error, (RefusedError, ProtocolError)):
            raise error
    told = [one for one in errors if not isinstance(one, DisconnectedError)]
    first = (told or errors)[0]
    assert isinstance(first, (RefusedError, ProtocolError))  # noqa: S101 - checked above
    return first
