"""Documents over links: filters from above find the way, and the last broker checks exactly."""

from __future__ import annotations

from pathlib import Path

from broker.authorization_fixture import encoded, run_async, subscribe
from broker.document_cases import (
    CHAIRS,
    ITEMS,
    MANY_CHAIRS,
    RIGHT_ITEMS,
    TABLES,
    WRONG_ITEMS,
    order,
    publish_documents,
    texts_of,
)
from broker.peers.local_links import LocalBrokers, local_brokers
from tamis.broker import Session
from waiting import eventually_async

LINE = [("a", "b"), ("b", "c")]
SOFAS = order(("sofa", 9))


async def knows_filters(brokers: LocalBrokers, name: str, count: int) -> None:
    """Wait until a broker has this many filters of its neighbours."""
    await eventually_async(lambda: len(brokers[name].subscription_index.routes) == count)


async def take(session: Session, name: str, count: int) -> list[object]:
    """Fetch and acknowledge events until there are this many."""
    got: list[object] = []
    while len(got) < count:
        some = await session.fetch(name, wait=20)
        got += texts_of(some)
        await session.acknowledge(name, [one.sequence for one in some])
    return got


@run_async
async def test_the_last_of_three_brokers_checks_exactly(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE) as brokers:
        here, there = await brokers.session("a"), await brokers.session("c")
        await subscribe(there, MANY_CHAIRS, "s", language="xql")
        await subscribe(there, ITEMS, "t")
        await knows_filters(brokers, "a", 2)
        await knows_filters(brokers, "b", 2)
        await publish_documents(here, SOFAS, TABLES, CHAIRS, SOFAS)
        await here.publish(encoded([WRONG_ITEMS, RIGHT_ITEMS]))
        assert await take(there, "s", 1) == [CHAIRS]
        assert await take(there, "t", 1) == [RIGHT_ITEMS]
        assert [(await there.subscription(name)).residue for name in "st"] == [1, 1]
        # What the filters from above exclude did not travel; documents came as they were sent.
        arrived = texts_of((await there.history("true")).events)
        assert arrived == [TABLES, CHAIRS, WRONG_ITEMS, RIGHT_ITEMS]


@run_async
async def test_a_query_that_another_covers_from_above_is_checked_by_itself(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE) as brokers:
        here, there = await brokers.session("a"), await brokers.session("c")
        # On attributes, the first covers the second.
        await subscribe(there, "order/line[0]/sku = 'chair'", "wide", language="xql")
        await subscribe(there, MANY_CHAIRS, "narrow", language="xql")
        await knows_filters(brokers, "a", 1)
        last = order(("table", 1), ("chair", 7))
        await publish_documents(here, TABLES, last, CHAIRS)
        assert await take(there, "narrow", 2) == [last, CHAIRS]
        assert await take(there, "wide", 2) == [TABLES, CHAIRS]


@run_async
async def test_a_query_roams_with_what_waits_for_it(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE) as brokers:
        here, there = await brokers.session("a"), await brokers.session("c")
        await subscribe(there, MANY_CHAIRS, "s", language="xql")
        await knows_filters(brokers, "a", 1)
        await publish_documents(here, TABLES, CHAIRS)
        await eventually_async(lambda: brokers["c"].store.log.next_sequence == 3)
        await subscribe(here, MANY_CHAIRS, "s", language="xql", roaming=True)
        await publish_documents(here, TABLES, CHAIRS)
        assert await take(here, "s", 2) == [CHAIRS, CHAIRS]
