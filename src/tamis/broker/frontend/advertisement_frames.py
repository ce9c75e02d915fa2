"""The frames of advertising on one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.sessions import Session
from tamis.errors import DisconnectedError
from tamis.protocol.advertising import (
    Advertise,
    Advertised,
    AdvertisementWithdrawn,
    WantedChange,
    WithdrawAdvertisement,
)
from tamis.protocol.frames import AdvertisingRequest, Reply


class AdvertisementFrames:
    """Handles what one client advertises, and tells it whether that is wanted.

    Of several changes that the client has not taken, it is told the last one.
    """

    def __init__(
        self,
        send: Callable[[Reply], Awaitable[None]],
        supervisor: Supervisor,
        fail: Callable[[Exception], None],
    ) -> None:
        self._send = send
        self._supervisor = supervisor
        self._fail = fail
        self._untold: dict[str, WantedChange] = {}
        self._telling = asyncio.Lock()
        self._teller: asyncio.Task[None] | None = None
        self._is_closed = False

    async def handle(self, session: Session, frame: AdvertisingRequest) -> None:
        """Do what a client requests."""
        match frame:
            case Advertise(ref=ref):
                made = await session.advertise(frame, self)
                # Nothing may be told of it before.
                async with self._telling:
                    await self._send(
                        Advertised(
                            ref=ref,
                            advertisement=made.id,
                            wanted=made.confirm(),
                            exact=session.reads_alike(frame),
                        )
                    )
            case WithdrawAdvertisement(ref=ref, advertisement=id_):
                await session.withdraw_advertisement(id_)
                self._untold.pop(id_, None)
                await self._send(AdvertisementWithdrawn(ref=ref, advertisement=id_))

    def offer(self, frame: WantedChange) -> None:
        """Send a frame as soon as the client takes it, in place of an earlier one."""
        if self._is_closed:
            return
        self._untold[frame.advertisement] = frame
        if self._teller is None or self._teller.done():
            self._teller = self._supervisor.start("advertisements", self._tell_all())

    async def flush(self) -> None:
        """Return when the client has been sent everything."""
        async with self._telling:
            while self._untold:
                await self._send(self._untold.pop(next(iter(self._untold))))

    async def _tell_all(self) -> None:
        try:
            await self.flush()
        except DisconnectedError:
            self._is_closed = True
        except Exception as error:
            self._fail(error)

    async def close(self) -> None:
        """Send nothing more."""
        self._is_closed = True
        self._untold.clear()
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.gather(self._teller, return_exceptions=True)
