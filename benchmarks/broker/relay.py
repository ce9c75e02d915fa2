"""The least that a broker in Python does: `python -m benchmarks.broker.relay PORT FILE`.

Each event is appended to a file and synced by a thread, acknowledged, tested, and sent to the
subscriber if it passes. There are no rights, quotas, numbers, queues, retries or metrics, and the
test is a comparison in Python. How much longer Tamis takes is what all of these cost.
"""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from typing import Final

import msgspec
import uvloop
from websockets.asyncio.server import ServerConnection, serve

from tamis.ports import ThreadExecutor

SUBSCRIBE: Final = "/subscribe"
ACKNOWLEDGED: Final = b"+"


class _Event(msgspec.Struct):
    f0: int


class Relay:
    """Brings events from publishers to subscribers."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._executor = ThreadExecutor("relay")
        self._subscribers: set[ServerConnection] = set()
        self._decoder = msgspec.json.Decoder(_Event)

    async def serve(self, connection: ServerConnection) -> None:
        """Serve a client, which subscribes by the path that it asks for, or publishes."""
        if connection.request is not None and connection.request.path == SUBSCRIBE:
            self._subscribers.add(connection)
            await connection.wait_closed()
            self._subscribers.discard(connection)
            return
        while True:
            texts = [await connection.recv(decode=False)]
            await self._executor.run(self._store, texts)
            await connection.send(ACKNOWLEDGED)
            for text in texts:
                if self._decoder.decode(text).f0 < 10:
                    for subscriber in self._subscribers:
                        await subscriber.send(text, text=True)

    def _store(self, texts: list[bytes]) -> None:
        os.write(self._file, b"".join(texts))
        os.fdatasync(self._file)


async def main(port: int, path: str) -> None:
    """Serve until the process ends."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    relay = Relay(file)
    async with serve(relay.serve, "127.0.0.1", port, compression=None):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(partial(main, int(sys.argv[1]), sys.argv[2])())
