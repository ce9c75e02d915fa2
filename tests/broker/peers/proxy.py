"""A TCP proxy between two brokers, which can drop connections, or carry nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from threading import Thread
from typing import Any, Self, TypeVar

T = TypeVar("T")


class LinkProxy:
    """Carries connections to a port, from a thread of its own; it survives what it leads to."""

    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self.bytes = 0
        """Carried in both directions."""
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._is_cut = False
        self._carries = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Drop all connections, and every new one at once."""
        self._run(self._set(is_cut=True, carries=True))

    def blackhole(self) -> None:
        """Keep all connections and accept new ones, but carry nothing."""
        self._run(self._set(is_cut=False, carries=False))

    def heal(self) -> None:
        """Carry everything again, also what waits."""
        self._run(self._set(is_cut=False, carries=True))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> None:
        self._carries.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._set(is_cut=True, carries=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set(self, *, is_cut: bool, carries: bool) -> None:
        self._is_cut = is_cut
        if carries:
            self._carries.set()
        else:
            self._carries.clear()
        if is_cut:
            for writer in self._writers:
                writer.transport.abort()
            self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        writers = {writer}
        self._writers.add(writer)
        try:
            await self._carries.wait()
            other_reader, other = await asyncio.open_connection("127.0.0.1", self.target_port)
            writers.add(other)
            self._writers.add(other)
            await asyncio.gather(self._carry(reader, other), self._carry(other_reader, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers -= writers
            for one in writers:
                one.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self._carries.wait()
            self.bytes += len(data)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()
