"""Queries over links: comparing the filters of peers and clients does not delay anybody else."""

from __future__ import annotations

import threading

import msgspec
import pytest

import tamis
from broker.authorization_fixture import run_async
from tamis.access.roles import ANONYMOUS
from tamis.broker.queries.link_queries import LinkQueries
from tamis.filters import Filter, attr
from tamis.filters.structure import to_structure
from tamis.routing.data_advertisements import DataAdvertisement
from tamis.routing.query_messages import DataAdvertised, DataHeld, QueryAsked, QueryMessage


@run_async
async def test_filters_are_compared_beside_the_event_loop() -> None:
    threads: dict[str, set[int]] = {"covers": set(), "meets": set()}
    covers, meets = DataAdvertisement.covers, DataAdvertisement.meets

    def note_covers(self: DataAdvertisement, other: DataAdvertisement) -> bool:
        threads["covers"].add(threading.get_ident())
        return covers(self, other)

    def note_meets(self: DataAdvertisement, query: Filter) -> bool:
        threads["meets"].add(threading.get_ident())
        return meets(self, query)

    sent: list[str] = []
    async with tamis.open_bus() as bus:
        broker = bus.broker
        peers = LinkQueries(
            broker.queries,
            broker.decoder,
            broker._services.decode_executor,
            post=lambda peer, _: sent.append(peer),
            end=lambda _, reason: pytest.fail(reason),
            rights_of=lambda _: broker.access_control.rights(ANONYMOUS),
            title_of=str,
        )

        async def say(peer: str, message: QueryMessage) -> None:
            await peers.take(peer, msgspec.json.encode(message))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DataAdvertisement, "covers", note_covers)
            patch.setattr(DataAdvertisement, "meets", note_meets)
            for peer in ("east", "west"):
                peers.link_opened(peer)
                await say(peer, DataHeld())
            for n in range(5):
                one = DataAdvertisement.of(attr("x") < n)
                structure = to_structure(one.filter)
                await say("east", DataAdvertised(digest=one.digest, filter=structure))
            async with bus.serve("x > 3", lambda _: []):
                wanted = to_structure(attr("x") == 3)
                await say("west", QueryAsked(query=1, filter=wanted, seconds=9, credit=0))
    assert "east" in sent
    for where in threads.values():
        assert where
        assert threading.get_ident() not in where
