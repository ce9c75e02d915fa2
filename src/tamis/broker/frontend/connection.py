"""One client's connection, as frames in ASGI messages.

Publications are answered when they are on disk, and the next frames are read meanwhile. All other
requests are handled in order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from importlib.metadata import version
from math import isinf
from typing import Any, Final, Protocol

from tamis.broker.broker import Broker
from tamis.broker.deliver.attachments import Attachment
from tamis.broker.frontend.advertisement_frames import AdvertisementFrames
from tamis.broker.frontend.connection_ends import (
    CLOSED_ABNORMALLY,
    INTERNAL_ERROR,
    MAX_REASON_BYTES,
    SERVICE_RESTART,
    ConnectionEnd,
    end_after,
    refusal_end,
)
from tamis.broker.frontend.query_frames import QueryFrames
from tamis.broker.frontend.streams import DirectSocket
from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.pacing import FRAME_SECONDS, SECONDS_PER_BYTE
from tamis.broker.publish.batches import MAX_SMALL_BYTES, decode_large_request
from tamis.broker.sessions import Session
from tamis.errors import DisconnectedError, ProtocolError, RefusedError, StorageError
from tamis.protocol import (
    Acknowledge,
    Code,
    Credit,
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
)
from tamis.protocol.advertising import Advertise, WithdrawAdvertisement
from tamis.protocol.codes import RETRYABLE
from tamis.protocol.frames import (
    ENCODER,
    FRAME_ERRORS,
    REQUEST_DECODER,
    AdvertisingRequest,
    QueryRequest,
    Reply,
    Request,
    frame_mismatch,
)
from tamis.protocol.queries import Query, Serve, Withdraw
from tamis.protocol.refs import find_request

VERSION: Final = version("tamis")

MAX_PENDING_PUBLICATIONS: Final = 256
# Larger frames wait for the task of their connection, and share it with those of others.
MAX_BYTES_AT_ONCE: Final = 4 * 1024
# A principal that goes on sending is noted as active so often.
NOTED_SECONDS: Final = 0.5
MAX_PENDING_FLUSHES: Final = 256

# A subscription may end, or move away, while a client still acknowledges its events, and an outcome
# that cannot be stored only means another delivery.
FORGIVEN: Final = RETRYABLE | {Code.NOT_FOUND, Code.CONFLICT}

ASGIMessage = MutableMapping[str, Any]
"""An ASGI message of a WebSocket."""


class FrameTransport(Protocol):
    """Carries frames without a network."""

    async def receive(self) -> bytes:
        """Return the next frame; raise DisconnectedError when there are no more."""

    async def send(self, frame: bytes) -> None:
        """Send a frame; wait while the peer does not take it."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection and give the reason."""


class Connection:
    """Serves one client, from its hello to the end.

    It is the sink of its subscriptions, too: the notifier sends their frames through it.
    """

    def __init__(
        self,
        broker: Broker,
        receive: Callable[[], Awaitable[ASGIMessage]],
        send: Callable[[ASGIMessage], Awaitable[None]],
        *,
        session: Session | None = None,
        on_welcome: Callable[[], None] | None = None,
        direct: DirectSocket | None = None,
    ) -> None:
        """Make a connection over ASGI; `session` is given if the client is authenticated.

        `on_welcome` is called when it is. `direct` is the way past ASGI, if there is one.
        """
        self._direct = direct
        self._broker = broker
        self._settings = broker.settings
        self._receive = receive
        self._send = send
        self._session = session
        self._on_welcome = on_welcome
        self._attachments: dict[str, Attachment] = {}
        self._publications: dict[asyncio.Future[None], asyncio.Task[None] | None] = {}
        """Those without an answer, until then not done, and the tasks that go on with them."""
        self._publication_bytes = 0
        self._queries = QueryFrames(self.send, broker.supervisor, self._fail)
        self._advertisements = AdvertisementFrames(self.send, broker.supervisor, self._fail)
        self._flushes: list[int] = []
        """Pings that wait until acknowledgements are on disk."""
        self._flusher: asyncio.Task[None] | None = None
        self._end: ConnectionEnd | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._reader: asyncio.Task[object] | None = None
        """The task of `run` while it waits for a frame, and may be cancelled."""
        self._is_receiving = False
        """Whether it waits for one to arrive, so that none has arrived before the next."""
        if direct is not None:
            direct.hand_on(self._handle_now)

    @classmethod
    def over(cls, broker: Broker, transport: FrameTransport) -> Connection:
        """Make a connection over a transport of frames."""
        messages = _FrameMessages(transport)
        direct = transport if isinstance(transport, DirectSocket) else None
        return cls(broker, messages.receive, messages.send, direct=direct)

    @property
    def principal(self) -> str | None:
        """Return the name of the principal, once it is authenticated."""
        return None if self._session is None else self._session.principal.name

    @property
    def end_reason(self) -> str:
        """Return why the connection has ended."""
        return "" if self._end is None else self._end.reason

    # --- from hello to the end -------------------------------------------------------------------

    async def run(self) -> None:
        """Serve the client until it goes or is disconnected."""
        pacing, task = self._broker.pacing, asyncio.current_task()
        try:
            await self._begin()
            while self._end is None:
                self._reader, self._is_receiving = task, True
                message = await self._receive()
                self._reader, self._is_receiving = None, False
                if message["type"] == "websocket.disconnect":
                    self._finish(ConnectionEnd(CLOSED_ABNORMALLY, "the client has gone"))
                    break
                data: bytes = message["bytes"]
                if (session := self._session) is not None and (
                    session.principal.name != pacing.latest
                    or not pacing.paced_until < pacing.clock() < pacing.latest_at + NOTED_SECONDS
                ):
                    self._reader = task
                    await pacing.wait_for_frame(session.principal.name, session.closed, len(data))
                    self._reader = None
                elif session is not None:
                    pacing.unnoted_seconds += FRAME_SECONDS + len(data) * SECONDS_PER_BYTE
                if len(data) > self._settings.largest_frame:
                    self._finish(refusal_end(self._too_large(data)))
                    break
                try:
                    if len(data) <= MAX_SMALL_BYTES:
                        frame = REQUEST_DECODER.decode(data)
                    else:
                        frame = decode_large_request(data, self._settings.largest_batch)
                except (RefusedError, *FRAME_ERRORS) as error:
                    await self._refuse_wrong(data, error)
                    continue
                await self._handle(frame)
        except asyncio.CancelledError:
            if self._end is None or self._reader is None:
                raise
            # It was cancelled to end the wait for a frame.
            self._reader.uncancel()
        except Exception as error:
            self._reader = None
            self._finish(end_after(error))
        finally:
            self._reader, self._is_receiving = None, False
            await self._close()

    def stop(self) -> None:
        """End, because the broker stops; pending publications are still answered."""
        self._finish(ConnectionEnd(SERVICE_RESTART, "the broker stops"))

    async def _begin(self) -> None:
        if self._session is not None:
            await self._welcome(self._session)
            return
        timeout = self._settings.hello_timeout
        message = f"there was no hello within {timeout:g} seconds"
        end = refusal_end(RefusedError(Code.UNAUTHENTICATED, message))
        self._hello_timer = asyncio.get_running_loop().call_later(timeout, self._finish, end)

    async def _log_in(self, first: Request) -> None:
        if not isinstance(first, Hello):
            raise RefusedError(Code.UNAUTHENTICATED, "the first frame must be hello")
        try:
            session = await self._broker.authenticate(first.token)
        except RefusedError:
            await self._broker.pacing.wait_as_stranger()
            raise
        self._session = session
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        if self._on_welcome is not None:
            self._on_welcome()
        await self._welcome(session)

    async def _welcome(self, session: Session) -> None:
        session.closed.add_done_callback(self._on_revoked)
        await self.send(self._welcome_frame(session))

    async def _welcome_again(self, session: Session, hello: Hello) -> None:
        if hello.token is not None:
            raise ProtocolError("the client is already authenticated")
        await self.send(self._welcome_frame(session))

    def _welcome_frame(self, session: Session) -> Welcome:
        limits = session.rights.limits
        return Welcome(
            principal=session.principal.name,
            version=VERSION,
            largest_frame=self._settings.largest_frame,
            largest_event=self._settings.largest_event,
            largest_batch=int(min(self._settings.largest_batch, limits.largest_batch)),
            largest_batch_bytes=None if isinf(limits.bytes) else int(limits.bytes),
        )

    def _on_revoked(self, closed: asyncio.Future[str]) -> None:
        if not self._broker.health.is_open:
            self.stop()
        elif not closed.cancelled():
            self._finish(refusal_end(RefusedError(Code.UNAUTHENTICATED, closed.result())))

    def _fail(self, error: Exception) -> None:
        self._finish(end_after(error))

    def _finish(self, end: ConnectionEnd) -> None:
        if self._end is None:
            self._end = end
            if self._reader is not None:
                self._reader.cancel()

    async def _close(self) -> None:
        end = self._end or ConnectionEnd(INTERNAL_ERROR, "the connection was cancelled")
        self._end = end
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        await asyncio.gather(*self._publications, return_exceptions=True)
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.gather(self._flusher, return_exceptions=True)
        # First of all: deleting many subscriptions takes a while.
        if self._session is not None:
            self._session.stop()
        await self._queries.close()
        await self._advertisements.close()
        await self._say_goodbye(end)
        if self._session is not None:
            await self._session.close()

    async def _say_goodbye(self, end: ConnectionEnd) -> None:
        with contextlib.suppress(DisconnectedError, OSError):
            if end.refusal is not None:
                self._broker.metrics.refused.labels(end.refusal.code).inc()
                await self.send(end.refusal)
            if end.code != CLOSED_ABNORMALLY:
                reason = end.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
                await self._send({"type": "websocket.close", "code": end.code, "reason": reason})

    def _too_large(self, data: bytes) -> RefusedError:
        limit = self._settings.largest_frame
        return RefusedError(
            Code.TOO_LARGE, f"a frame of {len(data):,} bytes exceeds the limit of {limit:,}"
        )

    async def send(self, frame: Reply) -> None:
        """Send a frame; wait while the client does not take it."""
        if isinstance(frame, Ended):
            self._attachments.pop(frame.subscription, None)
        try:
            await self._send({"type": "websocket.send", "bytes": ENCODER.encode(frame)})
        except OSError:
            raise DisconnectedError("the client has gone") from None

    def send_now(self, frame: Reply) -> bool:
        """Send a frame if it need not wait; return whether it was sent."""
        if self._direct is None or self._end is not None:
            return False
        return self._direct.send_now(ENCODER.encode(frame))

    # --- requests --------------------------------------------------------------------------------

    def _handle_now(self, data: bytes) -> bool:
        """Handle a frame where it is read; return False if it has to wait for `run`."""
        session, pacing = self._session, self._broker.pacing
        if (
            not self._is_receiving
            or session is None
            or self._end is not None
            or session.principal.name != pacing.latest
            or not pacing.paced_until < pacing.clock() < pacing.latest_at + NOTED_SECONDS
            or len(data) > min(MAX_BYTES_AT_ONCE, self._settings.largest_frame)
            or len(self._publications) >= MAX_PENDING_PUBLICATIONS - 1
            or self._publication_bytes > self._settings.largest_frame - len(data)
        ):
            return False
        try:
            frame = REQUEST_DECODER.decode(data)
        except FRAME_ERRORS:
            return False
        if type(frame) is Publish:
            self._begin_publication(session, frame)
        elif (
            type(frame) is not Acknowledge
            or frame.up_to
            or not session.acknowledge_now(frame.subscription, frame.sequences)
        ):
            return False
        pacing.unnoted_seconds += FRAME_SECONDS + len(data) * SECONDS_PER_BYTE
        return True

    def _begin_publication(self, session: Session, frame: Publish) -> None:
        """Store events as far as that need not wait, without the turn of a task.

        When what it waits for has come, a task does the rest.
        """
        size = sum([len(memoryview(event)) for event in frame.events])
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publications[done] = None
        self._publication_bytes += size
        work = self._publish(session, frame, size, done)
        try:
            awaited = work.send(None)
        except StopIteration:
            return
        if awaited is None:
            # It only lets others take a turn.
            awaited = asyncio.get_running_loop().create_future()
            awaited.set_result(None)
        awaited.add_done_callback(lambda _: self._go_on(work, done))

    def _go_on(self, work: Coroutine[Any, Any, None], done: asyncio.Future[None]) -> None:
        task = asyncio.create_task(work)
        # With an eager factory of tasks it may have ended already.
        if done in self._publications:
            self._publications[done] = task

    async def _handle(self, frame: Request) -> None:
        session = self._session
        if session is None:
            await self._log_in(frame)
            return
        match frame:
            case Publish():
                self._begin_publication(session, frame)
                while (
                    len(self._publications) >= MAX_PENDING_PUBLICATIONS
                    or self._publication_bytes > self._settings.largest_frame
                ):
                    await asyncio.wait(self._publications, return_when=asyncio.FIRST_COMPLETED)
            case Acknowledge():
                try:
                    await session.acknowledge(frame.subscription, frame.sequences, frame.up_to)
                except RefusedError as error:
                    if error.code not in FORGIVEN:
                        raise
            case Reject():
                await self._reject(session, frame)
            case Credit():
                self._give_credit(frame)
            case Subscribe():
                await self._answer(frame.ref, self._subscribe(session, frame))
            case Unsubscribe():
                await self._answer(frame.ref, self._unsubscribe(session, frame))
            case _:
                await self._handle_other(session, frame)

    async def _handle_other(
        self, session: Session, frame: Hello | Ping | QueryRequest | AdvertisingRequest
    ) -> None:
        match frame:
            case Ping():
                await self._ping(session, frame)
            case Hello():
                await self._welcome_again(session, frame)
            case Serve() | Withdraw() | Query():
                await self._answer(frame.ref, self._queries.handle(session, frame))
            case Advertise() | WithdrawAdvertisement():
                await self._answer(frame.ref, self._advertisements.handle(session, frame))
            case _:
                await self._queries.handle(session, frame)

    async def _ping(self, session: Session, frame: Ping) -> None:
        if not frame.flush:
            await self.send(Pong(ref=frame.ref))
        elif len(self._flushes) < MAX_PENDING_FLUSHES:
            self._flushes.append(frame.ref)
            if self._flusher is None or self._flusher.done():
                self._flusher = self._broker.supervisor.start("flush", self._flush(session))
        else:
            error = RefusedError(Code.TOO_MANY, "earlier pings still wait for the disk")
            await self._refuse(frame.ref, error)

    async def _flush(self, session: Session) -> None:
        """Answer pings once what came before them is on disk, while the next frames are read."""
        try:
            while self._flushes:
                refs, self._flushes = self._flushes, []
                await session.flush()
                for ref in refs:
                    await self.send(Pong(ref=ref))
        except Exception as error:
            self._finish(end_after(error))

    async def _publish(
        self, session: Session, frame: Publish, size: int, done: asyncio.Future[None]
    ) -> None:
        """Store events and answer, in the order of the frames, while the next ones are read."""
        try:
            refusal = None
            try:
                receipt = await session.publish(
                    frame.events,
                    format=frame.format,
                    publisher=frame.publisher,
                    sequence=frame.sequence,
                    skip=frame.skip,
                )
            except RefusedError as error:
                refusal = error
            if next(iter(self._publications)) is not done:
                await self._wait_for_earlier(done)
            if refusal is not None:
                await self._refuse(frame.ref, refusal)
            else:
                answer = Published(
                    ref=frame.ref,
                    count=receipt.count,
                    duplicates=receipt.duplicates,
                    first=receipt.first,
                )
                if not self.send_now(answer):
                    await self.send(answer)
        except Exception as error:
            # What is left of it when the loop has closed fails, and nobody is to hear of it.
            if not done.get_loop().is_closed():
                self._finish(end_after(error))
        finally:
            self._publication_bytes -= size
            del self._publications[done]
            # Nor does that wake anybody.
            with contextlib.suppress(RuntimeError, asyncio.InvalidStateError):
                done.set_result(None)

    async def _wait_for_earlier(self, done: asyncio.Future[None]) -> None:
        """Return when all publications before one are answered."""
        while (first := next(iter(self._publications))) is not done:
            await asyncio.wait([first])

    async def _answer(self, ref: int, answering: Coroutine[Any, Any, None]) -> None:
        try:
            await answering
        except DisconnectedError:
            raise
        except RefusedError as error:
            await self._refuse(ref, error)
        except StorageError as error:
            await self._refuse(ref, storage_refusal(error))

    async def _refuse_wrong(self, data: bytes, error: Exception) -> None:
        """Refuse what is not a frame: alone if it has a number, else with the connection."""
        session = self._session
        request = None if session is None else find_request(data)
        if not isinstance(error, RefusedError):
            error = RefusedError(Code.BAD_REQUEST, frame_mismatch(error, Request, data))
        if session is None or request is None:
            raise error
        if request.sequence:
            session.note_refusal(request.publisher, request.sequence)
        await self._refuse(request.ref, error)

    async def _refuse(self, ref: int, error: RefusedError) -> None:
        self._broker.metrics.refused.labels(error.code).inc()
        await self.send(
            Refused(
                code=error.code,
                message=str(error),
                ref=ref,
                retry_after=error.retry_after,
                index=error.index,
                expected=error.expected,
            )
        )

    async def _subscribe(self, session: Session, frame: Subscribe) -> None:
        if frame.credit < 0:
            raise RefusedError(Code.BAD_REQUEST, "credit is not negative")
        subscription, is_resumed = await session.open_subscription(frame)
        view = subscription.view(pending=0, dead=0)
        if len(advertising := self._broker.advertising):
            # Whoever hears that it is in force may publish at once, here or elsewhere.
            await advertising.settle()
            await self._advertisements.flush()
        await self.send(
            Subscribed(
                ref=frame.ref,
                subscription=view.id,
                resumed=is_resumed,
                expires_at=view.expires_at,
                start=view.start,
            )
        )
        try:
            self._attachments[view.id] = await session.attach(
                view.id,
                self,
                credit=frame.credit,
                acknowledge=frame.acknowledge,
                member=frame.member,
            )
        except RefusedError as error:
            # The request has its answer.
            await self.send(Ended(subscription=view.id, reason=str(error)))

    async def _unsubscribe(self, session: Session, frame: Unsubscribe) -> None:
        view = await session.subscription(frame.subscription)
        attachment = self._attachments.pop(frame.subscription, None)
        if attachment is not None:
            await session.detach(attachment)
        if frame.delete or not view.durable:
            await session.delete(frame.subscription)
        await self.send(Unsubscribed(ref=frame.ref, subscription=frame.subscription))

    async def _reject(self, session: Session, frame: Reject) -> None:
        try:
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


class _FrameMessages:
    """A transport of frames, as ASGI messages."""

    def __init__(self, transport: FrameTransport) -> None:
        self._transport = transport

    async def receive(self) -> ASGIMessage:
        return {"type": "websocket.receive", "bytes": await self._transport.receive()}

    async def send(self, message: ASGIMessage) -> None:
        if message["type"] == "websocket.send":
            await self._transport.send(message["bytes"])
        else:
            await self._transport.close(message["code"], message["reason"])
