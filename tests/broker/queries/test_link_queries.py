"""Queries over links: rows of peers are checked, and comparing filters does not delay others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import tamis
from broker.authorization_fixture import run_async
from tamis.access.roles import ANONYMOUS
from tamis.broker import Broker
from tamis.broker.queries.link_queries import LinkQueries
from tamis.broker.queries.row_checks import RowChecker
from tamis.errors import ProtocolError
from tamis.filters import Filter, attr
from tamis.filters.structure import to_structure
from tamis.routing.data_advertisements import DataAdvertisement
from tamis.routing.query_messages import (
    MAX_ROWS_PER_MESSAGE,
    DataAdvertised,
    DataHeld,
    QueryAsked,
    QueryDone,
    QueryMessage,
    QueryRows,
)


def linked(broker: Broker, post: Callable[[str, bytes], None]) -> LinkQueries:
    return LinkQueries(
        broker.queries,
        broker.decoder,
        broker._services.decode_executor,
        RowChecker(broker.decoder, None, 1_000),
        post=post,
        end=lambda _, reason: pytest.fail(reason),
        rights_of=lambda _: broker.access_control.rights(ANONYMOUS),
        title_of=str,
    )


@pytest.mark.parametrize(
    ("rows", "seen", "missing"),
    [
        ([{"x": 1}, {"x": 5}, {"y": 7}, {"x": 6}], [5, 6], {}),
        (
            [{"x": 5}, {"": 1}, {"x": 6}],
            [5],
            {"east": "one of its rows is not valid"},
        ),
        (
            [{"x": 5}, {"x": 6, "y": "y" * 1_000}],
            [5],
            {"east": "a row of 1,014 bytes exceeds the limit of 1,000"},
        ),
    ],
)
@run_async
async def test_rows_of_peers_are_checked_where_they_are_asked_for(
    rows: list[Any], seen: list[int], missing: dict[str, str]
) -> None:
    asked: asyncio.Queue[Any] = asyncio.Queue()

    def post(_peer: str, message: bytes) -> None:
        if json.loads(message)["type"] == "queryasked":
            asked.put_nowait(json.loads(message))

    async with tamis.open_bus() as bus:
        peers = linked(bus.broker, post)
        peers.link_opened("east")
        one = DataAdvertisement.of(attr("x") < 10)
        said: list[QueryMessage] = [
            DataHeld(),
            DataAdvertised(digest=one.digest, filter=to_structure(one.filter)),
        ]
        for message in said:
            await peers.take("east", msgspec.json.encode(message))
        result = bus.query("x > 3")
        asking = asyncio.create_task(result.all())
        number = (await asked.get())["query"]
        texts = [msgspec.Raw(msgspec.json.encode(row)) for row in rows]
        for answer in (QueryRows(query=number, rows=texts), QueryDone(query=number)):
            await peers.take("east", msgspec.json.encode(answer))
        assert [row["x"] for row in await asking] == seen
        assert result.missing.keys() == missing.keys()
        assert all(result.missing[name].startswith(reason) for name, reason in missing.items())


@run_async
async def test_a_message_has_no_more_rows_than_are_taken() -> None:
    async with tamis.open_bus() as bus:
        peers = linked(bus.broker, lambda _peer, _message: None)
        peers.link_opened("east")
        many = QueryRows(query=1, rows=[msgspec.Raw(b"{}")] * (MAX_ROWS_PER_MESSAGE + 1))
        with pytest.raises(ProtocolError, match="10000"):
            await peers.take("east", msgspec.json.encode(many))


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
        peers = linked(bus.broker, lambda peer, _: sent.append(peer))

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
