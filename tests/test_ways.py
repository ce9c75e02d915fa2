"""The ways through the package are short, and docs/architecture.md lists them as they are."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tamis import Engine, Subscription
from tamis.broker import Broker, BrokerSettings
from tamis.broker import broker as broker_module
from tamis.broker.frontend import server
from tamis.broker.frontend.app import create_app
from tamis.broker.frontend.streams import OpenStreams
from tamis.broker.match import matcher
from tamis.broker.operations import pacing
from tamis.broker.publish import committer
from tamis.storage import StateStore
from tracing import Trace, tracing
from waiting import eventually_async

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
MAX_FUNCTIONS = 35
MAX_FILES = 20

# Too many nodes for a diagram, so it is evaluated as a graph.
WIDE = " or ".join(
    f"(x{n} < 1 and x{(7 * n + 3) % 30} > 2 and x{(11 * n + 5) % 30} > {n})" for n in range(60)
)


def listed(heading: str) -> list[str]:
    """Return the functions that the page lists under a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block, f"docs/architecture.md has no list under {heading!r}"
    return block[1].splitlines()


def subscriptions() -> Iterator[Subscription]:
    yield Subscription("wide", WIDE)
    # So many that posting lists are worthwhile.
    for n in range(4_000):
        yield Subscription(f"{n}", f'symbol = "S{n}" and price < {n}')
    for n in range(300):
        yield Subscription(f"{n} up", f"price between {n} and {n + 3} or volume > {n}")
        yield Subscription(f"{n} news", f'headline contains "c{n}" and not volume = {n}')
        yield Subscription(f"{n} early", f'headline starts with "a{n}" or price is absent')


def trace_batch() -> Trace:
    """Follow the second batch through an engine whose kernels and indexes the first has loaded."""
    engine = Engine()
    engine.add_many(subscriptions())
    rows = range(200)
    table = pa.table(
        {
            "symbol": [f"S{n}" for n in rows],
            "price": [n * 1.5 for n in rows],
            "volume": [n % 7 for n in rows],
            "headline": [f"a{n} b{n} c{n}" for n in rows],
            "x1": [n % 3 for n in rows],
        }
    )
    first = engine.match_batch(table).to_arrow()
    with tracing() as trace:
        trace.recording = True
        second = engine.match_batch(table).to_arrow()
        trace.recording = False
    assert second == first
    assert "10 news" in first[10].as_py()
    return trace


def test_a_batch_goes_a_short_way_from_arrow_to_ids() -> None:
    trace = trace_batch()
    assert len(trace.functions) <= MAX_FUNCTIONS, "\n".join(trace.functions)
    assert len(trace.files) <= MAX_FILES, "\n".join(trace.files)
    assert listed("One Arrow batch, from `match_batch` to ids") == trace.functions


# --- one publication -----------------------------------------------------------------------------


class PublicationClient:
    """A WebSocket that publishes, receives and acknowledges; it is no client of ours."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def ask(self, **frame: object) -> dict[str, Any]:
        await self._socket.send(json.dumps(frame))
        return await self.reply()

    async def reply(self) -> dict[str, Any]:
        reply: dict[str, Any] = json.loads(await asyncio.wait_for(self._socket.recv(), 10))
        return reply

    async def publish_and_acknowledge(self, number: int) -> None:
        event = {"price": 5.5, "name": "x"}
        frame = {"type": "publish", "ref": number, "publisher": "p", "sequence": number}
        replies = [await self.ask(**frame, events=[event]), await self.reply()]
        [delivery] = [reply for reply in replies if reply["type"] == "deliver"]
        sequences = [one["sequence"] for one in delivery["events"]]
        acknowledgement = {"type": "ack", "subscription": "d", "sequences": sequences}
        await self._socket.send(json.dumps(acknowledgement))


def is_settled(state: StateStore, matched: int) -> bool:
    return state._counters.matched_up_to == matched and not state._counters.pending


async def publish_over_a_socket(folder: Path, trace: Trace) -> None:
    """Follow the last of some publications to a durable subscription with one subscriber."""
    settings = BrokerSettings(data=folder, port=0)
    with server._bind(settings) as bound:
        async with await Broker.open(settings) as broker:
            streams = OpenStreams()
            config = server._config(create_app(broker, streams), settings)
            listening = server.Server(config, streams, "a port")
            serving = asyncio.create_task(listening.serve([bound]))
            await eventually_async(lambda: listening.started)
            host, port = bound.getsockname()
            async with connect(f"ws://{host}:{port}/v1/connect") as socket:
                client = PublicationClient(socket)
                await client.ask(type="hello")
                asked = {"filter": "price < 10", "durable": "d", "acknowledge": "manual"}
                await client.ask(type="subscribe", ref=0, credit=100, **asked)
                before = broker.store.state._counters.matched_up_to
                for number in range(1, 6):
                    trace.recording = number == 5
                    await client.publish_and_acknowledge(number)
                    # Not by a method: it would be one of the functions. The event is sent before
                    # its row is written, and is settled after that.
                    await eventually_async(partial(is_settled, broker.store.state, before + number))
                trace.recording = False
            listening.should_exit = True
            await serving


def test_a_publication_goes_a_short_way_to_its_acknowledged_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for interval in ("CHORE_SECONDS", "POSITION_SECONDS", "RETENTION_SECONDS"):
        monkeypatch.setattr(broker_module, interval, 3600.0)
    monkeypatch.setattr(pacing, "LOOK_SECONDS", 3600.0)
    # Matching takes long while it is traced, and nobody is to pay for that.
    monkeypatch.setattr(matcher, "COSTLY_SECONDS", 3600.0)
    # The disk is quick, and there is little to do.
    monkeypatch.setattr(committer, "MAX_SECONDS_AWAITED", 10.0)
    monkeypatch.setattr(committer, "PAUSES_PER_WAIT", 0)
    with tracing() as trace:
        asyncio.run(publish_over_a_socket(tmp_path, trace))
    assert len(trace.functions) <= MAX_FUNCTIONS, "\n".join(trace.functions)
    assert len(trace.files) <= MAX_FILES, "\n".join(trace.files)
    # Threads and tasks take turns, so the order differs from run to run.
    heading = "One publication, from the socket to its acknowledged delivery"
    assert sorted(listed(heading)) == sorted(trace.functions)
