"""Simulated clients: connections that speak frames, and requests that stand alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.credentials import Credential
from simulation.network import Link
from tamis.broker import Session
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Deliver, Delivery, Dropped, Ended, Hello, Refused, Welcome
from tamis.protocol.frames import Request, decode_reply, encode_frame

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")

PATIENCE_SECONDS = 40.0
"""How long a client waits for an answer before it gives the connection up."""

Push = Deliver | Dropped | Ended


class FrameClient:
    """A connection to the broker."""

    def __init__(self, world: World, credential: Credential) -> None:
        self._world = world
        self.credential = credential
        self._answers: dict[int | None, asyncio.Future[Any]] = {}
        self._last_ref = 0
        self.inbox: asyncio.Queue[Push | None] = asyncio.Queue()
        """What subscriptions get; None: the connection has gone."""
        self.may_read = asyncio.Event()
        self.may_read.set()
        self._link: Link | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and authenticate."""
        await self._world.travel()
        link = self._link = self._world.server.require().connect(self.credential)
        await link.to_broker.put(encode_frame(Hello(token=self.credential.text)))
        welcome = decode_reply(await link.to_client.get())
        if isinstance(welcome, Refused):
            raise RefusedError(welcome.code, welcome.message)
        if not isinstance(welcome, Welcome):
            self._world.checker.fail(f"{welcome} instead of a welcome")
        self._reader = asyncio.create_task(self._read(link))

    async def send(self, frame: Request) -> None:
        """Send a frame that has no answer."""
        if self._link is None:
            raise DisconnectedError("not connected")
        await self._link.to_broker.put(encode_frame(frame))

    async def ask(self, frame: Any) -> asyncio.Future[Any]:
        """Send a frame, and return the future of its answer."""
        self._last_ref += 1
        frame.ref = self._last_ref
        answer = self._answers[frame.ref] = self._world.loop.create_future()
        await self.send(frame)
        return answer

    async def call(self, frame: Any) -> Any:
        """Return the answer to a frame; raise a refusal."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await (await self.ask(frame))

    async def _read(self, link: Link) -> None:
        try:
            while True:
                await self.may_read.wait()
                self._take(decode_reply(await link.to_client.get()))
        except DisconnectedError as error:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)
                    # Nobody may be interested any more.
                    answer.exception()
            self.inbox.put_nowait(None)

    def _take(self, frame: Any) -> None:
        match frame:
            case Deliver() | Dropped() | Ended():
                self.inbox.put_nowait(frame)
            case Refused():
                answer = self._answers.pop(frame.ref, None)
                if answer is not None and not answer.done():
                    answer.set_exception(
                        RefusedError(frame.code, frame.message, retry_after=frame.retry_after)
                    )
                    answer.exception()
            case _:
                answer = self._answers.pop(frame.ref, None)
                if answer is not None and not answer.done():
                    answer.set_result(frame)

    def die(self) -> None:
        """Vanish without a word."""
        if self._link is not None:
            self._link.cut()
        if self._reader is not None:
            self._reader.cancel()

    async def next(self, seconds: float) -> Push | None:
        """Return the next frame of a subscription; None if there is none in time."""
        try:
            async with asyncio.timeout(seconds):
                frame = await self.inbox.get()
        except TimeoutError:
            return None
        if frame is None:
            raise DisconnectedError("the connection has gone")
        return frame


async def request(world: World, credential: Credential, do: Callable[[Session], Awaitable[T]]) -> T:
    """Return the answer to a request that stands alone; it may be lost on its way back."""
    await world.travel()
    process = world.server.require()
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await process.request(credential, do)
    except TimeoutError:
        world.checker.waited_too_long(f"a request of {credential}")
        raise DisconnectedError("no answer") from None
    await world.travel()
    if world.loses_answers and world.random.random() < 0.05:
        raise DisconnectedError("the answer was lost")
    return result


async def fetch(
    world: World, credential: Credential, name: str, limit: int = 1, wait: float = 0.0
) -> list[Delivery]:
    """Return events of a subscription, as the broker lends them."""

    async def fetching(session: Session) -> list[Delivery]:
        events = await session.fetch(name, limit=limit, wait=wait)
        world.checker.fetched(credential, name, events, events.dropped)
        return events

    asked = world.checker.subscriptions.get((credential.principal, name))
    try:
        return await request(world, credential, fetching)
    except RefusedError:
        raise
    except BaseException:
        if asked is not None:
            # The broker may have lent events, and the answer was lost.
            asked.unseen_fetches += 1
        raise
