"""Queries over links: asked at one broker, answered at others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import tamis
from tamis import Constraint
from tamis.client import SourceRequest
from tamis.errors import FilterTypeError
from tamis.languages.siena import OPERATORS, intersects
from waiting import eventually_async

from .brokers import QUICK, LinkedBrokers, linked

NORTH = [{"shelf": "north", "n": n} for n in range(5)]
SOUTH = [{"shelf": "south", "n": n} for n in range(3, 9)]
CONSTANTS: tuple[Any, ...] = (1, 2.5, "a", "ab", True)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkedBrokers]:
    """Three brokers in a line: north, hub and south."""
    links = [("north", "hub"), ("south", "hub")]
    with linked(tmp_path_factory.mktemp("line"), links, **QUICK) as brokers:
        yield brokers


async def settled(bus: tamis.Bus, filter_: str, sources: int) -> None:
    """Wait until a broker knows of so many sources."""

    async def are_known() -> bool:
        result = bus.query(filter_, timeout=5)
        await result.all()
        return len(result.answered) == sources

    await eventually_async(are_known)


def test_queries_go_two_hops_to_those_who_may_answer(line: LinkedBrokers) -> None:
    async def main() -> None:
        async with (
            tamis.connect(line["north"].url) as north,
            tamis.connect(line["hub"].url) as hub,
            tamis.connect(line["south"].url) as south,
            north.serve("n between 0 and 4", lambda _: NORTH, name="up") as up,
            south.serve("n between 3 and 8", lambda _: SOUTH, name="down") as down,
        ):
            await settled(hub, "n >= 0", 2)
            await settled(north, "n >= 0", 2)
            await settled(south, "n >= 0", 2)
            before = up.asked, down.asked
            result = south.query("n < 3")
            assert await result.all() == NORTH[:3]
            assert result.answered == ("north/anonymous/up",)
            assert (up.asked, down.asked) == (before[0] + 1, before[1])
            both = await north.query("n between 3 and 4").all()
            assert sorted(row["shelf"] for row in both) == ["north"] * 2 + ["south"] * 2
            assert await hub.query("n > 100").all() == []
            assert await south.query("n >= 0", aggregate="count").value() == 11
            assert await south.query("n >= 0", aggregate="sum n").value() == 10 + 33
            top = await north.query("n >= 0", aggregate="top 3 n").all()
            assert [row["n"] for row in top] == [8, 7, 6]
            some = north.query("n >= 0", limit=2)
            assert len(await some.all()) == 2
            assert some.cut
        seen = line.peers("hub")
        assert seen["north"]["queries_sent"] > 0
        assert seen["south"]["queries_pruned"] > 0

    asyncio.run(main())


def test_a_late_source_far_away_is_named_and_told_to_stop(line: LinkedBrokers) -> None:
    async def main() -> None:
        stopped = asyncio.Event()

        async def slow(_: SourceRequest) -> Any:
            try:
                await asyncio.sleep(600)  # longer than anybody waits
            finally:
                stopped.set()

        async with (
            tamis.connect(line["north"].url) as north,
            tamis.connect(line["south"].url) as south,
            north.serve("slow = 1", slow, name="slow") as source,
        ):

            async def is_named() -> bool:
                result = south.query("slow = 1", timeout=1.0)
                await result.all()
                expected = {"north/anonymous/slow": "it did not answer in time"}
                return result.missing == expected

            await eventually_async(is_named)
            await asyncio.wait_for(stopped.wait(), 20)
            asked = source.asked
            async with south.query("slow = 1", timeout=60):
                await eventually_async(lambda: source.asked > asked)
                stopped.clear()
            await asyncio.wait_for(stopped.wait(), 20)

    asyncio.run(main())


def constraints(constants: tuple[Any, ...]) -> list[Constraint]:
    found = [Constraint("any")]
    for op in OPERATORS:
        for constant in constants:
            try:
                found.append(Constraint(op, constant))
            except FilterTypeError:
                continue
    return found


@pytest.mark.parametrize(
    "constants", [(1,), pytest.param(CONSTANTS, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_every_pair_of_operators_decides_who_is_asked(
    line: LinkedBrokers, constants: tuple[Any, ...]
) -> None:
    async def main() -> None:
        async with (
            tamis.connect(line["north"].url) as north,
            tamis.connect(line["south"].url) as south,
            north.serve("pairs is present", lambda _: []) as source,
        ):
            for ours in constraints(constants):
                await source.advertise(ours.on("pairs"))
                # The answer comes after the withdrawal of what was advertised before.
                await settled(south, str(ours.on("pairs")), int(bool(meets(ours, ours))))
                for theirs in constraints(constants):
                    asked = source.asked
                    await south.query({"pairs": theirs}).all()
                    assert (source.asked > asked) is meets(ours, theirs), (ours, theirs)

    asyncio.run(main())


def meets(one: Constraint, other: Constraint) -> bool:
    return bool(intersects(one.op, one.value, other.op, other.value))
