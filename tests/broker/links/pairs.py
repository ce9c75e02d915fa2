"""Brokers in this process, joined by hand: what one sends over a link, the other stores."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.authorization_clients import Data
from tamis.access import Principal
from tamis.access.roles import ANONYMOUS
from tamis.broker import Broker, BrokerSettings
from tamis.broker.links import LinkEvent, Links
from tamis.filters import Filter
from tamis.filters.structure import digest
from tamis.languages import parse
from waiting import eventually_async


class Wire:
    """A sink that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[LinkEvent] = []
        self.lost: list[tuple[int, str]] = []
        self.ended = ""

    async def send(self, events: Sequence[LinkEvent]) -> None:
        self.sent += events

    async def note_lost(self, count: int, reason: str) -> None:
        self.lost.append((count, reason))

    async def note_ended(self, reason: str) -> None:
        self.ended = reason

    @property
    def numbers(self) -> list[int]:
        return [json.loads(one.data)["n"] for one in self.sent]


def by_digest(*filters: str) -> dict[str, Filter]:
    return {digest(one): one for one in map(parse, filters)}


@asynccontextmanager
async def opened(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    wanted = BrokerSettings(data=folder, **settings)
    async with await Broker.open(wanted) as broker:
        yield broker


async def linked(
    broker: Broker, peer: str, *filters: str, principal: Principal = ANONYMOUS
) -> Links:
    """Return the links of a broker, with one to a peer that has forwarded filters."""
    await broker.links.open(peer, principal)
    await broker.links.set_routes(peer, by_digest(*filters))
    return broker.links


async def publish(broker: Broker, *documents: Data, publisher: str = "", first: int = 0) -> None:
    session = await broker.authenticate(None)
    await session.publish(
        [json.dumps(one).encode() for one in documents], publisher=publisher, sequence=first
    )
    await session.close()
    await broker.matcher.drained()


async def pending(broker: Broker, peer: str) -> list[int]:
    """Return the sequences that wait for a peer."""
    number = broker.links.find(peer).number
    await broker.acknowledgement_writer.settled()
    return [one.sequence for one in broker.store.state.pending(number, 0, 1e300, 1_000)]


async def sent(broker: Broker, peer: str, count: int) -> Wire:
    """Return what a peer is sent on a new connection, so many events at least."""
    wire = Wire()
    attachment = await broker.links.attach(peer, wire, 1_000)
    await eventually_async(lambda: len(wire.sent) >= count)
    await broker.links.detach(attachment)
    return wire


async def carry(sender: Broker, receiver: Broker, *, acknowledges: bool = True) -> int:
    """Carry what waits for a neighbour to it; return how many events were new there."""
    here, there = sender.links.broker_id, receiver.links.broker_id
    waiting = await pending(sender, there)
    if not waiting:
        return 0
    wire = await sent(sender, there, len(waiting))
    receipt = await receiver.links.store(here, wire.sent)
    if acknowledges:
        await sender.links.acknowledge(there, wire.sent[-1].sequence)
    await receiver.matcher.drained()
    return receipt.stored


def logged(broker: Broker) -> list[Data]:
    return [json.loads(one.payload) for one in broker.store.log.read(1, 10_000)]
