"""The other end of a link, played by a test, without a network."""

from __future__ import annotations

import asyncio

import msgspec

from tamis.client.transport import Transport
from tamis.errors import DisconnectedError
from tamis.protocol.peering import LINK_VERSION, LinkHello, RoutingFrame, encode_link_frame
from tamis.routing.messages import Greeting, Holdings, RouterMessage

PEER = "f" * 32


class Wires(Transport):
    """A transport that keeps what is sent, and says what a test wants."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.said: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    async def receive(self) -> bytes:
        data = await self.said.get()
        if data is None:
            raise DisconnectedError("the peer has gone")
        return data

    async def close(self) -> None:
        """Nothing is to be closed."""

    def say_as_router(self, message: RouterMessage) -> None:
        frame = RoutingFrame(message=msgspec.Raw(msgspec.json.encode(message)))
        self.said.put_nowait(encode_link_frame(frame))

    def begin(self, peer: str = PEER) -> None:
        """Say what a peer says at the beginning of a connection."""
        self.said.put_nowait(encode_link_frame(a_hello(peer)))
        self.say_as_router(Greeting("Them", 1))
        self.say_as_router(Holdings())


def a_hello(peer: str, largest_frame: int = 100_000) -> LinkHello:
    return LinkHello(version=LINK_VERSION, broker=peer, window=9, largest_frame=largest_frame)
