"""Test clients of a broker: by a session, over HTTP with Server-Sent Events, and by frames.

All of them return results in the same form, so that they can be compared.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import httpx
import msgspec

from tamis.broker import Broker, Session
from tamis.broker.frontend.app import create_app
from tamis.broker.frontend.connection import Connection
from tamis.broker.frontend.streams import OpenStreams
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Deliver, Dropped, Ended, Hello, Subscribe, encode_frame

MAX_EVENTS = 10_000
EVENTS_PER_PAGE = 3

Data = dict[str, Any]


class Refusal(str):
    """The code and the message of a refusal."""

    __slots__ = ()


class Collector:
    """An outlet that keeps what it receives."""

    def __init__(self) -> None:
        self.got: list[Data] = []
        self.lost: list[tuple[int, str]] = []
        self.end = ""
        """Why the stream ended."""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        match frame:
            case Deliver():
                self.got += map(as_json, frame.events)
            case Dropped():
                self.lost.append((frame.count, frame.reason))
            case Ended():
                self.end = frame.reason


class Client(Protocol):
    """What every client can do."""

    async def subscribe(self, wanted: Subscribe) -> Any:
        """Return the subscription."""

    async def views(self) -> Any:
        """Return all subscriptions."""

    async def fetch(self, id_: str) -> Any:
        """Return pending events."""

    async def settle(self, id_: str, sequences: Sequence[int]) -> Any:
        """Acknowledge events."""

    async def reject(self, id_: str, sequence: int, reason: str) -> Any:
        """Reject an event for immediate redelivery."""

    async def letters(self, id_: str) -> Any:
        """Return dead letters."""

    async def requeue(self, id_: str, sequences: Sequence[int]) -> Any:
        """Requeue dead letters and return how many."""

    async def discard(self, id_: str, sequences: Sequence[int]) -> Any:
        """Delete dead letters and return how many."""

    async def try_filter(self, wanted: Subscribe, events: Sequence[bytes]) -> Any:
        """Return whether a filter matches sample events."""

    async def explain(self, wanted: Subscribe | str, event: bytes) -> Any:
        """Return why a filter, or a subscription, matches an event or not."""

    async def history(self, wanted: Subscribe) -> Any:
        """Return all readable past events, and where each page ended."""

    async def follow(self, wanted: Subscribe) -> Collector | Refusal:
        """Subscribe, and collect the events as they are sent."""

    async def close(self) -> None:
        """Disconnect."""


def as_json(data: object) -> Any:
    """Return data as a client reads it from JSON."""
    return json.loads(msgspec.json.encode(data))


async def all_pages(read: Callable[[int], Awaitable[Any]]) -> Any:
    """Return the events of all pages of history, and where each page ended."""
    events: list[Data] = []
    ends: list[tuple[int, int]] = []
    start = 1
    while not ends or start < ends[-1][1]:
        said = await read(start)
        if isinstance(said, Refusal):
            return said
        events += said["events"]
        start = said["next"]
        ends.append((start, said["end"]))
    return {"events": events, "ends": ends}


# --- by a session --------------------------------------------------------------------------------


class SessionClient:
    """A client in the same process as the broker."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def _said(self, answer: Awaitable[object] | Callable[[], object]) -> Any:
        try:
            return as_json(answer() if callable(answer) else await answer)
        except RefusedError as error:
            return Refusal(f"{error.code}: {error}")

    async def subscribe(self, wanted: Subscribe) -> Any:
        return await self._said(self._session.subscribe(wanted))

    async def views(self) -> Any:
        return sorted(await self._said(self._session.subscriptions()), key=lambda one: one["id"])

    async def fetch(self, id_: str) -> Any:
        return await self._said(self._session.fetch(id_, limit=MAX_EVENTS))

    async def settle(self, id_: str, sequences: Sequence[int]) -> Any:
        return await self._said(self._session.acknowledge(id_, sequences))

    async def reject(self, id_: str, sequence: int, reason: str) -> Any:
        return await self._said(self._session.reject(id_, sequence, delay=0.0, reason=reason))

    async def letters(self, id_: str) -> Any:
        return await self._said(self._session.dead_letters(id_, limit=1_000))

    async def requeue(self, id_: str, sequences: Sequence[int]) -> Any:
        return await self._said(self._session.requeue(id_, sequences))

    async def discard(self, id_: str, sequences: Sequence[int]) -> Any:
        return await self._said(self._session.delete_dead_letters(id_, sequences))

    async def try_filter(self, wanted: Subscribe, events: Sequence[bytes]) -> Any:
        return await self._said(
            self._session.try_filter(
                wanted.filter, language=wanted.language, mode=wanted.mode, events=events
            )
        )

    async def explain(self, wanted: Subscribe | str, event: bytes) -> Any:
        async def ask() -> str:
            asked: Data = {"id_": wanted}
            if isinstance(wanted, Subscribe):
                asked = {
                    "filter_": wanted.filter,
                    "language": wanted.language,
                    "mode": wanted.mode,
                }
            return (await self._session.explain(event=event, **asked)).explanation

        return await self._said(ask())

    async def history(self, wanted: Subscribe) -> Any:
        return await all_pages(
            lambda start: self._said(
                self._session.history(
                    wanted.filter, mode=wanted.mode, start=start, limit=EVENTS_PER_PAGE
                )
            )
        )

    async def follow(self, wanted: Subscribe) -> Collector | Refusal:
        collector = Collector()
        assert wanted.durable is not None
        said = await self.subscribe(wanted)
        if isinstance(said, Refusal):
            return said
        await self._session.attach(wanted.durable, collector, credit=MAX_EVENTS)
        return collector

    async def close(self) -> None:
        await self._session.close()


# --- over HTTP -----------------------------------------------------------------------------------


_APPS: WeakKeyDictionary[Broker, Any] = WeakKeyDictionary()


class HttpClient:
    """A client over HTTP that follows events as Server-Sent Events."""

    def __init__(self, broker: Broker, token: str) -> None:
        # All clients of a broker share one application.
        if broker not in _APPS:
            _APPS[broker] = create_app(broker, OpenStreams())
        self._app = _APPS[broker]
        self._token = token
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self._app),
            base_url="http://127.0.0.1",
            headers={"Authorization": f"Bearer {token}"},
        )
        self.streams: list[EventStream] = []

    async def ask(self, method: str, path: str, body: object = None, **query: Any) -> Any:
        response = await self._client.request(
            method, f"/v1/{path}", json=body, params=query or None
        )
        said: Any = response.json() if response.content else None
        if response.status_code >= 400:
            return Refusal(f"{said['code']}: {said['detail']}")
        return said

    async def subscribe(self, wanted: Subscribe) -> Any:
        body = {
            "id": wanted.durable,
            "filter": wanted.filter,
            "mode": wanted.mode,
            "start": wanted.start,
            "max_attempts": wanted.max_attempts,
        }
        return await self.ask("POST", "subscriptions", body)

    async def views(self) -> Any:
        return (await self.ask("GET", "subscriptions", limit=1000))["subscriptions"]

    async def fetch(self, id_: str) -> Any:
        said = await self.ask("POST", f"subscriptions/{id_}/fetch", {"limit": 1000})
        return said if isinstance(said, Refusal) else said["events"]

    async def settle(self, id_: str, sequences: Sequence[int]) -> Any:
        body = {"sequences": [*sequences]}
        return await self.ask("POST", f"subscriptions/{id_}/acknowledge", body)

    async def reject(self, id_: str, sequence: int, reason: str) -> Any:
        body = {"sequence": sequence, "delay": 0, "reason": reason}
        return await self.ask("POST", f"subscriptions/{id_}/reject", body)

    async def letters(self, id_: str) -> Any:
        said = await self.ask("GET", f"subscriptions/{id_}/dead-letters", limit=1000)
        return said if isinstance(said, Refusal) else said["dead_letters"]

    async def requeue(self, id_: str, sequences: Sequence[int]) -> Any:
        path, body = f"subscriptions/{id_}/dead-letters/requeue", {"sequences": [*sequences]}
        said = await self.ask("POST", path, body)
        return said if isinstance(said, Refusal) else said["count"]

    async def discard(self, id_: str, sequences: Sequence[int]) -> Any:
        path = f"subscriptions/{id_}/dead-letters"
        said = await self.ask("DELETE", path, sequence=[*sequences])
        return said if isinstance(said, Refusal) else said["count"]

    async def try_filter(self, wanted: Subscribe, events: Sequence[bytes]) -> Any:
        body = {
            "filter": wanted.filter,
            "mode": wanted.mode,
            "events": [json.loads(event) for event in events],
        }
        said = await self.ask("POST", "filters/try", body)
        return said if isinstance(said, Refusal) else said["results"]

    async def explain(self, wanted: Subscribe | str, event: bytes) -> Any:
        if isinstance(wanted, str):
            path, body = f"subscriptions/{wanted}/explain", {"event": json.loads(event)}
        else:
            path = "filters/explain"
            body = {
                "filter": wanted.filter,
                "mode": wanted.mode,
                "event": json.loads(event),
            }
        said = await self.ask("POST", path, body)
        return said if isinstance(said, Refusal) else said["explanation"]

    async def history(self, wanted: Subscribe) -> Any:
        return await all_pages(
            lambda start: self.ask(
                "GET",
                "history",
                filter=wanted.filter,
                mode=wanted.mode,
                start=start,
                limit=EVENTS_PER_PAGE,
            )
        )

    async def follow(self, wanted: Subscribe) -> Collector | Refusal:
        said = await self.subscribe(wanted)
        if isinstance(said, Refusal):
            return said
        stream = EventStream(self._app, f"/v1/subscriptions/{wanted.durable}/events", self._token)
        self.streams.append(stream)
        await stream.begun.wait()
        return stream.collector

    async def streams_end(self) -> None:
        """Return when the broker has ended all streams."""
        await asyncio.gather(*(stream.task for stream in self.streams))

    async def close(self) -> None:
        for stream in self.streams:
            await stream.close()
        await self._client.aclose()


class EventStream:
    """An endless response, which httpx cannot read from an ASGI application."""

    def __init__(self, app: Any, path: str, token: str) -> None:
        self.collector = Collector()
        self.begun = asyncio.Event()
        self._left = asyncio.Event()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {token}".encode())],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Data:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Data) -> None:
        self.begun.set()
        for block in message.get("body", b"").decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "id" in fields:
                self.collector.got.append(json.loads(fields["data"]))
            elif fields.get("event") == "ended":
                self.collector.end = json.loads(fields["data"])["reason"]

    async def close(self) -> None:
        self._left.set()
        await self.task


# --- by frames -----------------------------------------------------------------------------------


class FrameClient(HttpClient):
    """A client over HTTP that follows events as frames of a connection."""

    def __init__(self, broker: Broker, token: str) -> None:
        super().__init__(broker, token)
        self._broker = broker
        self._connections: list[MemoryConnection] = []

    async def follow(self, wanted: Subscribe) -> Collector | Refusal:
        connection = MemoryConnection(self._broker)
        self._connections.append(connection)
        await connection.send_frame(Hello(token=self._token))
        await connection.send_frame(wanted)
        said = await connection.answer(wanted.ref)
        if said["type"] == "refused":
            return Refusal(f"{said['code']}: {said['message']}")
        return connection.collector

    async def close(self) -> None:
        for connection in self._connections:
            await connection.disconnect()
        await super().close()


class MemoryConnection:
    """A connection in memory: the transport, and the replies sent over it."""

    def __init__(self, broker: Broker) -> None:
        self.collector = Collector()
        self.closed: tuple[int, str] | None = None
        self._asked: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[Data]] = {}
        self.task = asyncio.create_task(Connection.over(broker, self).run())

    async def send_frame(self, frame: Any) -> None:
        await self._asked.put(encode_frame(frame))

    async def answer(self, ref: int) -> Data:
        """Return the answer to a request."""
        return await asyncio.wait_for(self._answer(ref), 10)

    async def disconnect(self) -> None:
        await self._asked.put(None)
        await self.task

    def _answer(self, ref: int) -> asyncio.Future[Data]:
        return self._answers.setdefault(ref, asyncio.get_running_loop().create_future())

    async def receive(self) -> bytes:
        frame = await self._asked.get()
        if frame is None:
            raise DisconnectedError("the client has gone")
        return frame

    async def send(self, frame: bytes) -> None:
        said = json.loads(frame)
        match said["type"]:
            case "deliver":
                self.collector.got += said["events"]
            case "ended":
                self.collector.end = said["reason"]
            case "subscribed" | "refused" | "published" if "ref" in said:
                self._answer(said["ref"]).set_result(said)

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)
