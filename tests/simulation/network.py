"""A network of frames: in order, delayed, bounded, and gone at any moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from simulation.loop import SimulationLoop
from tamis.errors import DisconnectedError
from tamis.protocol import Publish, decode_request

MAX_FRAMES_ON_THE_WAY = 8
COMMON_SECONDS = 0.003
RARE_SECONDS = 0.4
RARE_SHARE = 0.02


class Watch(Protocol):
    """Looks at the frames of a connection, at the broker's end."""

    def received(self, text: bytes) -> None:
        """Look at a frame that the broker gets."""

    def sending(self, text: bytes) -> None:
        """Look at a frame that the broker hands to the connection."""

    def sent(self, text: bytes) -> None:
        """Look at a frame that the connection has taken."""

    def closing(self, code: int) -> None:
        """Look at the end of the connection."""


class Lane:
    """Frames in one direction."""

    def __init__(self, loop: SimulationLoop, random: Random) -> None:
        self._loop = loop
        self._random = random
        self._frames: deque[bytes] = deque()
        self._arrived = 0
        self._last = 0.0
        self.is_closed = False
        self._change = asyncio.Event()
        self.taker: Callable[[bytes], bool] | None = None
        """Asked with a frame before which none waits; returns whether it has taken it."""

    async def put(self, frame: bytes) -> None:
        while len(self._frames) >= MAX_FRAMES_ON_THE_WAY and not self.is_closed:
            self._change.clear()
            await self._change.wait()
        if self.is_closed:
            raise DisconnectedError("the other side has gone")
        self.put_now(frame)

    @property
    def has_room(self) -> bool:
        return len(self._frames) < MAX_FRAMES_ON_THE_WAY and not self.is_closed

    def put_now(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._last = max(self._last, self._loop.time() + self._delay())
        self._loop.call_exactly(self._last, self._arrive)

    async def get(self) -> bytes:
        while not self._arrived:
            if self.is_closed:
                raise DisconnectedError("the other side has gone")
            self._change.clear()
            await self._change.wait()
        self._arrived -= 1
        self._change.set()
        return self._frames.popleft()

    def _arrive(self) -> None:
        if self.is_closed:
            return
        is_taken = not self._arrived and self.taker is not None and self.taker(self._frames[0])
        if is_taken and self._frames:
            # Unless its reader has ended its process.
            self._frames.popleft()
        elif not is_taken:
            self._arrived += 1
        self._change.set()

    def close(self, *, lose: bool) -> None:
        """Take no more frames; what is on the way is lost, or still arrives."""
        self.is_closed = True
        if lose:
            self._frames.clear()
            self._arrived = 0
        elif self._frames:
            # Those on the way arrive now: nobody would wait for them after the end.
            self._arrived = len(self._frames)
        self._change.set()

    def _delay(self) -> float:
        most = RARE_SECONDS if self._random.random() < RARE_SHARE else COMMON_SECONDS
        return self._random.random() * most


class Link:
    """A connection between a client and the broker."""

    def __init__(self, loop: SimulationLoop, random: Random) -> None:
        self.to_broker = Lane(loop, random)
        self.to_client = Lane(loop, random)
        self.is_cut = False

    def cut(self) -> None:
        """Lose the connection, and everything that is on the way."""
        self.is_cut = True
        self.to_broker.close(lose=True)
        self.to_client.close(lose=True)


class BrokerEnd:
    """The broker's end of a connection, watched by the checker."""

    def __init__(self, link: Link, watch: Watch) -> None:
        self._link = link
        self._watch = watch

    def hand_on(self, handler: Callable[[bytes], bool]) -> None:
        def take(frame: bytes) -> bool:
            # It may be answered before it is taken; one that is not taken is looked at twice.
            is_publication = isinstance(decode_request(frame), Publish)
            if is_publication:
                self._watch.received(frame)
            is_taken = handler(frame)
            if is_taken and not is_publication:
                self._watch.received(frame)
            return is_taken

        self._link.to_broker.taker = take

    async def send(self, frame: bytes) -> None:
        if not self._link.to_client.is_closed:
            self._watch.sending(frame)
        await self._link.to_client.put(frame)
        self._watch.sent(frame)

    def send_now(self, frame: bytes) -> bool:
        if not self._link.to_client.has_room:
            return False
        self._watch.sending(frame)
        self._link.to_client.put_now(frame)
        self._watch.sent(frame)
        return True

    async def receive(self) -> bytes:
        frame = await self._link.to_broker.get()
        self._watch.received(frame)
        return frame

    async def close(self, code: int, reason: str) -> None:  # noqa: ARG002 - as the port says
        self._watch.closing(code)
        self._link.to_broker.close(lose=True)
        self._link.to_client.close(lose=False)
