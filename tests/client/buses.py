"""Buses for tests: of a real server process, or in this process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import tamis
from broker.server import ServerProcess
from tamis.broker.local import LocalBus

Connect = Callable[..., tamis.Bus]
OpenBuses = Callable[[], AbstractAsyncContextManager[Connect]]

_numbers = itertools.count(1)


def topic() -> str:
    """Return a word that no other test uses."""
    return f"topic-{next(_numbers)}"


def buses_of_server(server: ServerProcess) -> OpenBuses:
    @asynccontextmanager
    async def open_buses() -> AsyncIterator[Connect]:
        def connect(**options: Any) -> tamis.Bus:
            return tamis.connect(server.url, **options)

        yield connect

    return open_buses


@asynccontextmanager
async def local_buses() -> AsyncIterator[Connect]:
    async with tamis.open_bus() as bus:
        assert isinstance(bus, LocalBus)
        yield bus.connect


def run(main: Awaitable[None], *, strictly: bool = True) -> None:
    """Run a test, if `strictly` as strictly as asyncio can, which takes several times as long."""

    async def awaiting() -> None:
        async with asyncio.timeout(180):
            await main

    asyncio.run(awaiting(), debug=strictly)


def on_every_bus(test: Callable[[Connect], Awaitable[None]]) -> Callable[[OpenBuses], None]:
    """Make a test of a coroutine function that is given what connects."""

    async def main(open_buses: OpenBuses) -> None:
        async with open_buses() as connect:
            await test(connect)

    def run_test(open_buses: OpenBuses) -> None:
        # With buses of this process, the broker would be debugged as well.
        run(main(open_buses), strictly=open_buses is not local_buses)

    run_test.__name__ = test.__name__
    run_test.__doc__ = test.__doc__
    return run_test


async def events_of(
    subscription: tamis.client.Consumer, count: int, timeout: float = 20
) -> list[tamis.Message]:
    """Return the next events."""
    return [await subscription.next(timeout) for _ in range(count)]
