"""The ways of one event through the client are short.

At a low rate, every call of a Python function costs a few microseconds, whatever it does: nothing
of it is in the caches of the processor.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tamis
from broker.server import ServerProcess
from tamis.client import Bus, Consumer
from tamis.client.direct_websocket import DirectWebSocket

from .buses import run, topic

MAX_CALLS_TO_PUBLISH = 18
MAX_CALLS_TO_RECEIVE = 15

# What asyncio does is not ours, and differs between loops; nor is what the tests do.
NOT_OURS = (str(Path(asyncio.__file__).parent), selectors.__file__, str(Path(__file__).parent))


class CallRecorder:
    """The calls of Python functions on a way, those of libraries included, each time it is gone."""

    def __init__(self, begin: CodeType) -> None:
        self._begin = begin
        self._calls: list[str] | None = None
        self.ways: list[list[str]] = []

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code is self._begin:
            self._calls = []
        if self._calls is None:
            return
        if self._is_end(code, event, argument):
            self.ways.append(self._calls)
            self._calls = None
        elif event == "call" and not code.co_filename.startswith(NOT_OURS):
            self._calls.append(f"{code.co_filename}: {code.co_qualname}")

    def _is_end(self, code: CodeType, event: str, argument: Any) -> bool:
        """Return whether a transport is given bytes, or an application an event."""
        if event == "call":
            return code.co_qualname == "_SelectorSocketTransport.write"
        is_next = event == "return" and code is Consumer.__anext__.__code__
        return is_next and isinstance(argument, tamis.Message)


@contextmanager
def recorded(begin: CodeType) -> Iterator[CallRecorder]:
    recorder = CallRecorder(begin)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(None)


def shortest(recorder: CallRecorder) -> list[str]:
    """Return the shortest of some ways: a timer may have run in the middle of another."""
    assert len(recorder.ways) >= 5
    return min(recorder.ways, key=len)


def test_an_event_goes_a_short_way_from_publish_to_the_transport(server: ServerProcess) -> None:
    async def main() -> None:
        async with tamis.connect(server.url) as bus:
            await bus.publish(b'{"price": 5}')
            with recorded(Bus.publish.__code__) as recorder:
                for _ in range(5):
                    await bus.publish(b'{"price": 5}')
            way = shortest(recorder)
            assert len(way) <= MAX_CALLS_TO_PUBLISH, "\n".join(way)

    run(main(), strictly=False)


def test_an_event_goes_a_short_way_from_the_transport_to_the_application(
    server: ServerProcess,
) -> None:
    word = topic()

    async def main(publisher: tamis.SyncBus) -> None:
        async with (
            tamis.connect(server.url) as bus,
            bus.subscribe(f"topic = '{word}'") as events,
        ):
            with recorded(DirectWebSocket.get_buffer.__code__) as recorder:
                for _ in range(5):
                    # A thread of its own, so that nothing but the event comes to this one.
                    thread = threading.Thread(target=publisher.publish, args=[{"topic": word}])
                    thread.start()
                    assert (await anext(events)).text
                    thread.join()
            way = shortest(recorder)
            assert len(way) <= MAX_CALLS_TO_RECEIVE, "\n".join(way)

    with tamis.connect_sync(server.url) as publisher:
        run(main(publisher), strictly=False)
