"""The log, the engine and the frames of Tamis, without a broker around them.

`python -m benchmarks.broker.bare PORT FOLDER`. Each publication is appended to the log and matched
by a thread, delivered and acknowledged. There are no rights, quotas, limits, numbers, queues,
retries, pacing or metrics, and nobody is asked whether the network takes what is sent. How much
longer an event takes in the broker is about what all of these cost. It is no bound: publications
are stored one by one here, and the library that reads the frames is not the fastest way to do it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

from tamis import Engine
from tamis.broker.publish.payloads import NUMBER_OF
from tamis.ports import ThreadExecutor
from tamis.protocol import (
    Deliver,
    Delivery,
    Hello,
    Publish,
    Published,
    Subscribe,
    Subscribed,
    Welcome,
)
from tamis.protocol.frames import ENCODER, REQUEST_DECODER, Reply
from tamis.storage import EventLog, NewRecord

MAX_FRAME_BYTES: Final = 4 << 20

Send = Callable[[Reply], None]


class BareServer:
    """Brings events from publishers to subscribers."""

    def __init__(self, folder: Path) -> None:
        self._log = EventLog(folder)
        self._engine = Engine()
        self._executor = ThreadExecutor("store")
        self._subscribers: dict[str, Send] = {}

    async def serve(self, connection: ServerConnection) -> None:
        """Answer the frames of a client."""

        def send(frame: Reply) -> None:
            broadcast([connection], ENCODER.encode(frame), text=True)

        while True:
            frame = REQUEST_DECODER.decode(await connection.recv(decode=False))
            match frame:
                case Publish():
                    await self._publish(frame, send)
                case Hello():
                    send(Welcome("anybody", "bare", MAX_FRAME_BYTES, MAX_FRAME_BYTES))
                case Subscribe():
                    name = f"subscription-{len(self._subscribers)}"
                    self._subscribers[name] = send
                    self._engine.add(name, frame.filter)
                    send(Subscribed(ref=frame.ref, subscription=name))
                case _:
                    # Acknowledgements and credit do not change anything.
                    pass

    async def _publish(self, frame: Publish, send: Send) -> None:
        first, deliveries = await self._executor.run(self._store, frame)
        for name, events in deliveries.items():
            self._subscribers[name](Deliver(subscription=name, events=events))
        send(Published(ref=frame.ref, count=len(frame.events), duplicates=0, first=first))

    def _store(self, frame: Publish) -> tuple[int, dict[str, list[Delivery]]]:
        """Append events to the log and match them; for a thread."""
        texts = [bytes(event) for event in frame.events]
        publisher, format_ = frame.publisher, NUMBER_OF[frame.format]
        records = [
            NewRecord(publisher, number, format_, text)
            for number, text in enumerate(texts, frame.sequence)
        ]
        sequences, found = self._log.append(records), dict[str, list[Delivery]]()
        for sequence, text in zip(sequences, texts, strict=True):
            for name in map(str, self._engine.match_json(text)):
                delivery = Delivery(
                    sequence, self._log.last_time, publisher, msgspec.Raw(text), 1, frame.format
                )
                found.setdefault(name, []).append(delivery)
        return sequences[0], found


async def main(port: int, folder: Path) -> None:
    """Serve until the process ends."""
    server = BareServer(folder)
    listening = serve(server.serve, "127.0.0.1", port, compression=None, max_size=MAX_FRAME_BYTES)
    async with listening:
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(partial(main, int(sys.argv[1]), Path(sys.argv[2]))())
