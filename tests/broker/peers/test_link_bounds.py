"""What a link may take: frames of the size that the peer takes, and so many links."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.authorization_fixture import run_async
from broker.links.pairs import opened
from tamis.access.roles import ANONYMOUS
from tamis.broker import BrokerSettings
from tamis.broker.links import LinkEvent
from tamis.broker.peers import overlay
from tamis.broker.peers.connection import LinkConnection
from tamis.broker.peers.link import PeerLink
from tamis.errors import DisconnectedError
from tamis.protocol.peering import Heartbeat, RoutingFrame, encode_link_frame
from tamis.routing.messages import Greeting
from tamis.storage import EventOrigin
from waiting import eventually_async, let_others_run

from .wires import PEER, Wires, a_hello


def an_event(sequence: int, size: int) -> LinkEvent:
    data = json.dumps({"text": "x" * size}).encode()
    return LinkEvent(sequence, EventOrigin("e" * 32, sequence, 1.0, ""), "me", 0, "json", data)


@run_async
async def test_events_go_in_frames_that_the_peer_takes() -> None:
    wires, link = Wires(), PeerLink(PEER, None, is_known=True)  # type: ignore[arg-type]
    connection = LinkConnection(wires, a_hello(PEER, 5_000), link, BrokerSettings())
    link.connection = connection
    await link.send([an_event(n, 1_000) for n in range(1, 21)])
    assert max(map(len, wires.sent)) <= 5_000
    frames: list[dict[str, Any]] = [*map(json.loads, wires.sent)]
    assert [one["sequence"] for frame in frames for one in frame["events"]] == [*range(1, 21)]
    with pytest.raises(DisconnectedError, match="raise its setting largest_frame"):
        await link.send([an_event(21, 6_000)])
    assert connection.is_ending


@run_async
async def test_a_broker_that_stood_still_does_not_blame_its_peer() -> None:
    wires, link = Wires(), PeerLink(PEER, None, is_known=True)  # type: ignore[arg-type]
    settings = BrokerSettings(peer_timeout=0.3, peer_ping_interval=0.05)
    connection = LinkConnection(wires, a_hello(PEER), link, settings)
    running = asyncio.create_task(connection.run())
    heartbeat = encode_link_frame(Heartbeat())
    wires.said.put_nowait(heartbeat)
    await eventually_async(wires.said.empty)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        # What the peer sends while this broker stands still comes in when it goes on.
        loop.call_later(0.35, wires.said.put_nowait, heartbeat)
        time.sleep(0.4)  # as a machine that sleeps
        await let_others_run(10)
        assert not running.done()
    # One that is really silent is found out.
    reason = await asyncio.wait_for(running, 20)
    assert str(reason) == "nothing came from the peer for 0.3 seconds"


@run_async
async def test_a_peer_cannot_open_links_without_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "MAX_LINKS", 2)
    async with opened(tmp_path, accept_peers=True) as broker:
        wires = [Wires() for _ in range(3)]
        revoked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        holding = []
        for number, one in enumerate(wires):
            one.said.put_nowait(encode_link_frame(a_hello(f"{number:032x}")))
            work = broker.overlay.hold_accepted(one, ANONYMOUS, revoked)
            holding.append(asyncio.create_task(work))
            await asyncio.wait(holding, timeout=0.2)
        assert [one.done() for one in holding] == [False, False, True]
        assert "2 links" in str(holding[2].result())
        assert b"2 links" in wires[2].sent[-1]
        # Those that are there may come again.
        wires[0].said.put_nowait(None)
        await holding[0]
        assert len(broker.links.all()) == 1
        wires[1].said.put_nowait(None)
        await holding[1]
        assert not broker.links.all()


@run_async
async def test_a_connection_that_ends_badly_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(_: object) -> None:
        raise OSError("the disk is full")

    async with opened(tmp_path, accept_peers=True) as broker:
        monkeypatch.setattr(broker.links, "detach", fail)
        wires = Wires()
        greeting = RoutingFrame(message=msgspec.Raw(msgspec.json.encode(Greeting("Them", 1))))
        for frame in (a_hello(PEER), greeting):
            wires.said.put_nowait(encode_link_frame(frame))
        revoked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        holding = asyncio.create_task(broker.overlay.hold_accepted(wires, ANONYMOUS, revoked))
        links = broker.overlay.traffic.links
        await eventually_async(lambda: PEER in links and links[PEER].attachment is not None)
        wires.said.put_nowait(None)
        with pytest.raises(OSError, match="disk is full"):
            await holding
        # Whoever dials next would wait for its end again and again, and nobody else would run.
        assert links[PEER].connection is None


@run_async
async def test_a_peer_that_dials_again_before_it_greets_is_greeted(tmp_path: Path) -> None:
    async with opened(tmp_path, accept_peers=True) as broker:
        first, second = Wires(), Wires()
        revoked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        holding = []
        for wires in (first, second):
            wires.said.put_nowait(encode_link_frame(a_hello(PEER)))
            work = broker.overlay.hold_accepted(wires, ANONYMOUS, revoked)
            holding.append(asyncio.create_task(work))
            await eventually_async(lambda one=wires: len(one.sent) > 1)  # type: ignore[misc]
        await holding[0]
        assert [json.loads(one)["type"] for one in second.sent[:2]] == ["link", "routing"]
        assert [one.peer for one in broker.links.all()] == [PEER]
        second.said.put_nowait(None)
        await holding[1]
