"""One client's connection, as a sequence of frames; a transport carries them.

Publications are answered once they are on disk, and the next ones are read meanwhile. Everything
else is processed in the order of arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final, NamedTuple, Protocol

from tamis.broker.broker import Broker
from tamis.broker.deliver.notifier import Attachment
from tamis.broker.operations.logs import get_logger
from tamis.broker.sessions import Session
from tamis.errors import DisconnectedError, ProtocolError, RefusedError
from tamis.protocol import (
    Acknowledge,
    Code,
    Credit,
    Deliver,
    Delivery,
    Dropped,
    Ended,
    Hello,
    Ping,
    Pong,
    Publish,
    Published,
    Refused,
    Reject,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    Welcome,
    decode_request,
    encode,
)
from tamis.protocol.codes import RETRYABLE, STATUS
from tamis.protocol.frames import Reply, Request

LOG: Final = get_logger("tamis.connection")
VERSION: Final = version("tamis")

# Publications that may wait to be stored, and bytes of events sent in one frame.
MOST_PUBLICATIONS: Final = 256
PIECE: Final = 256 * 1024

GONE: Final = 1006
MISHAP: Final = 1011
STOPPING: Final = 1012
OWN_CODES: Final = 4000
"""The close code after a refusal is this plus the HTTP status: 4401 means unauthenticated."""

# A subscription may end while a client still acknowledges its events; an outcome that cannot be
# stored causes a redelivery.
FORGIVEN: Final = RETRYABLE | {Code.NOT_FOUND}


class FrameTransport(Protocol):
    """Carries frames."""

    async def receive(self) -> str | bytes:
        """Return the next frame; raise DisconnectedError if there are no more."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; wait while the peer does not accept it."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection and give the reason."""


class ConnectionEnd(NamedTuple):
    """How a connection ends."""

    code: int
    reason: str
    refusal: Refused | None = None


class ConnectionSink:
    """Sends the events of a subscription over a connection."""

    def __init__(self, connection: Connection, subscription: str) -> None:
        self._connection = connection
        self._id = subscription

    async def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Send events."""
        for some in _pieces(deliveries):
            await self._connection.send(Deliver(subscription=self._id, events=some))

    async def dropped(self, count: int, reason: str) -> None:
        """Report events that will not arrive."""
        await self._connection.send(Dropped(subscription=self._id, count=count, reason=reason))

    async def ended(self, reason: str) -> None:
        """Report that the subscription has ended."""
        self._connection.forget(self._id)
        await self._connection.send(Ended(subscription=self._id, reason=reason))


class Connection:
    """Serves one client, from hello to the end."""

    def __init__(
        self, broker: Broker, transport: FrameTransport, *, session: Session | None = None
    ) -> None:
        """Create a connection, with a session if the client has already identified itself."""
        self._broker = broker
        self._settings = broker.settings
        self._transport = transport
        self._session = session
        self._attachments: dict[str, Attachment] = {}
        self._publications: dict[asyncio.Task[None], int] = {}
        self._end: ConnectionEnd | None = None
        self._reader: asyncio.Task[object] | None = None
        """The task of `run` while it waits for a frame and may be interrupted."""

    @property
    def principal(self) -> str | None:
        """Return the principal, once it is known."""
        return None if self._session is None else self._session.principal.name

    def is_over(self) -> bool:
        """Return whether the connection is ending."""
        return self._end is not None

    @property
    def end_reason(self) -> str:
        """Return why the connection ended."""
        return "" if self._end is None else self._end.reason

    # --- from hello to the end -------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client until it disconnects or is disconnected."""
        try:
            session = await self._welcomed()
            session.closed.add_done_callback(self._on_revoked)
            while not self.is_over():
                await self._handle(session, await self._next())
        except _Interrupted:
            pass
        except Exception as error:
            self._finish(_end(error))
        finally:
            await self._close()

    def stop(self) -> None:
        """End because the broker is stopping; publications are still answered."""
        self._finish(ConnectionEnd(STOPPING, "the broker stops"))

    def _on_revoked(self, closed: asyncio.Future[str]) -> None:
        if not self._broker.health.is_open:
            self.stop()
        elif not closed.cancelled():
            self._finish(_refusal(RefusedError(Code.UNAUTHENTICATED, closed.result())))

    def _finish(self, end: ConnectionEnd) -> None:
        if self._end is None:
            self._end = end
            if self._reader is not None:
                self._reader.cancel()

    async def _close(self) -> None:
        end = self._end or ConnectionEnd(MISHAP, "the connection was cancelled")
        self._end = end
        await asyncio.gather(*self._publications, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
        with contextlib.suppress(DisconnectedError):
            if end.refusal is not None:
                self._broker.metrics.refused.labels(end.refusal.code).inc()
                await self._transport.send(encode(end.refusal))
            if end.code != GONE:
                await self._transport.close(end.code, end.reason)

    async def _welcomed(self) -> Session:
        if self._session is None:
            timeout = self._settings.hello_timeout
            try:
                async with asyncio.timeout(timeout):
                    first = await self._next()
                    self._session = await self._authenticated(first)
            except TimeoutError:
                message = f"there was no hello within {timeout:g} seconds"
                raise RefusedError(Code.UNAUTHENTICATED, message) from None
        await self._welcome(self._session)
        return self._session

    async def _authenticated(self, first: Request) -> Session:
        if not isinstance(first, Hello):
            raise RefusedError(Code.UNAUTHENTICATED, "the first frame must be hello")
        return await self._broker.authenticate(first.token)

    async def _welcome(self, session: Session) -> None:
        await self.send(
            Welcome(
                principal=session.principal.name,
                version=VERSION,
                largest_frame=self._settings.largest_frame,
                largest_event=self._settings.largest_event,
            )
        )

    async def _next(self) -> Request:
        """Return the next frame; the only place where the connection can be told to end."""
        if self.is_over():
            raise _Interrupted
        self._reader = reader = asyncio.current_task()
        try:
            frame = await self._transport.receive()
        except asyncio.CancelledError:
            if not self.is_over() or reader is None:
                raise
            reader.uncancel()
            raise _Interrupted from None
        finally:
            self._reader = None
        if len(frame) > self._settings.largest_frame:
            raise RefusedError(
                Code.TOO_LARGE,
                f"a frame of {len(frame):,} bytes exceeds the limit of "
                f"{self._settings.largest_frame:,}",
            )
        return decode_request(frame)

    async def send(self, frame: Reply) -> None:
        """Send a frame; wait while the client does not accept it."""
        await self._transport.send(encode(frame))

    def forget(self, subscription: str) -> None:
        """Record that a subscription has ended."""
        self._attachments.pop(subscription, None)

    # --- what the client asks for ----------------------------------------------------------------

    async def _handle(self, session: Session, frame: Request) -> None:
        match frame:
            case Publish():
                await self._publish(session, frame)
            case Subscribe():
                await self._answer(frame.ref, self._subscribe(session, frame))
            case Unsubscribe():
                await self._answer(frame.ref, self._unsubscribe(session, frame))
            case Credit() | Acknowledge() | Reject():
                await self._settle(session, frame)
            case Ping():
                await self.send(Pong(ref=frame.ref))
            case Hello() if frame.token is None:
                await self._welcome(session)
            case Hello():
                raise ProtocolError("the client has said already who it is")

    async def _answer(self, ref: int, answering: Coroutine[Any, Any, None]) -> None:
        try:
            await answering
        except DisconnectedError:
            raise
        except RefusedError as error:
            self._broker.metrics.refused.labels(error.code).inc()
            await self.send(
                Refused(code=error.code, message=str(error), ref=ref, retry_after=error.retry_after)
            )

    async def _publish(self, session: Session, frame: Publish) -> None:
        size = sum(len(memoryview(event)) for event in frame.events)
        task = asyncio.create_task(self._answer(frame.ref, self._store(session, frame)))
        self._publications[task] = size
        task.add_done_callback(self._on_answered)
        while self._are_enough_waiting():
            await asyncio.wait(self._publications, return_when=asyncio.FIRST_COMPLETED)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        del self._publications[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._finish(_end(error))

    def _are_enough_waiting(self) -> bool:
        waiting = self._publications
        return (
            len(waiting) >= MOST_PUBLICATIONS
            or sum(waiting.values()) > self._settings.largest_frame
        )

    async def _store(self, session: Session, frame: Publish) -> None:
        receipt = await session.publish(
            frame.events,
            format=frame.format,
            publisher=frame.publisher,
            sequence=frame.sequence,
        )
        await self.send(
            Published(
                ref=frame.ref,
                count=receipt.count,
                duplicates=receipt.duplicates,
                first=receipt.first,
            )
        )

    async def _subscribe(self, session: Session, frame: Subscribe) -> None:
        if frame.credit < 0:
            raise RefusedError(Code.BAD_REQUEST, "credit is not negative")
        was_known = frame.durable is not None and await _is_known(session, frame.durable)
        view = await session.subscribe(frame)
        await self.send(
            Subscribed(
                ref=frame.ref,
                subscription=view.id,
                resumed=was_known,
                expires_at=view.expires_at,
                start=view.start,
            )
        )
        self._attachments[view.id] = await session.attach(
            view.id,
            ConnectionSink(self, view.id),
            credit=frame.credit,
            acknowledge=frame.acknowledge,
        )

    async def _unsubscribe(self, session: Session, frame: Unsubscribe) -> None:
        view = await session.subscription(frame.subscription)
        attachment = self._attachments.pop(frame.subscription, None)
        if attachment is not None:
            await session.detach(attachment)
        if frame.delete or not view.durable:
            await session.delete(frame.subscription)
        await self.send(Unsubscribed(ref=frame.ref, subscription=frame.subscription))

    async def _settle(self, session: Session, frame: Credit | Acknowledge | Reject) -> None:
        try:
            match frame:
                case Credit():
                    self._give_credit(frame)
                case Acknowledge():
                    await session.acknowledge(frame.subscription, frame.sequences, frame.up_to)
                case Reject():
                    await session.reject(
                        frame.subscription, frame.sequence, delay=frame.delay, reason=frame.reason
                    )
        except RefusedError as error:
            if error.code not in FORGIVEN:
                raise

    def _give_credit(self, frame: Credit) -> None:
        if frame.events < 0:
            raise RefusedError(Code.BAD_REQUEST, "credit is not negative")
        attachment = self._attachments.get(frame.subscription)
        if attachment is not None:
            attachment.give_credit(frame.events)


class _Interrupted(Exception):  # noqa: N818 - it is no error
    """The connection must end."""


def _end(error: BaseException) -> ConnectionEnd:
    """Return how the connection ends after an error."""
    match error:
        case DisconnectedError():
            return ConnectionEnd(GONE, str(error))
        case RefusedError():
            return _refusal(error)
        case ProtocolError():
            return _refusal(RefusedError(Code.BAD_REQUEST, str(error)))
        case _:
            LOG.error("something went wrong", exc_info=error)
            return ConnectionEnd(
                MISHAP, "something went wrong in the broker, and its log says what"
            )


def _refusal(error: RefusedError) -> ConnectionEnd:
    said = Refused(code=error.code, message=str(error))
    return ConnectionEnd(OWN_CODES + STATUS[Code(error.code)], str(error), said)


async def _is_known(session: Session, name: str) -> bool:
    try:
        await session.subscription(name)
    except RefusedError:
        return False
    return True


def _pieces(deliveries: Iterable[Delivery]) -> Iterator[list[Delivery]]:
    """Yield the events in lists that hardly exceed the size limit."""
    some: list[Delivery] = []
    size = 0
    for delivery in deliveries:
        length = len(memoryview(delivery.data))
        if some and size + length > PIECE:
            yield some
            some, size = [], 0
        some.append(delivery)
        size += length
    if some:
        yield some
