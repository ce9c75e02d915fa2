"""Asking and answering, over the network and within one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

import tamis
from tamis import Constraint
from tamis.broker.local import LocalBus
from tamis.client import SourceRequest
from tamis.protocol import Code
from waiting import eventually_async

from .buses import Connect, on_every_bus, run, topic

BOOKS: list[dict[str, Any]] = [
    {"author": "John Steinbeck", "title": "Grapes of Wrath", "edition": 1, "price": 9.5},
    {"author": "John Steinbeck", "title": "Cannery Row", "edition": 2, "price": 4},
    {"author": "Gertrude Stein", "title": "Three Lives", "edition": 1, "price": 12.25},
    {"author": "Jane Austen", "title": "Emma", "edition": 3},
]


def shelf(name: str, rows: Iterable[dict[str, Any]] = BOOKS) -> list[dict[str, Any]]:
    return [{**row, "shelf": name} for row in rows]


def serving(rows: list[dict[str, Any]]) -> Any:
    async def handler(request: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        for row in rows:
            if request.filter.matches(row):
                yield row

    return handler


def titles(rows: Iterable[dict[str, Any]]) -> list[str]:
    return sorted(row["title"] for row in rows)


@on_every_bus
async def test_rows_that_match_come_from_all_sources(connect: Connect) -> None:
    name = topic()
    rows = shelf(name)
    async with connect() as one, connect() as two, connect() as asker:
        here = f"shelf = '{name}'"
        async with (
            one.serve(here, serving(rows[:2]), name="left"),
            two.serve(here, serving(rows[2:]), name="right"),
        ):
            result = asker.query(f"{here} and author contains 'Stein'")
            found = [row async for row in result]
    assert titles(found) == ["Cannery Row", "Grapes of Wrath", "Three Lives"]
    assert all(row in rows for row in found)
    assert sorted(one.split("/")[-1] for one in result.answered) == ["left", "right"]
    assert result.missing == {}
    assert result.is_complete


@on_every_bus
async def test_only_sources_that_may_have_rows_are_asked(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        here = f"shelf = '{name}'"
        async with (
            bus.serve(f"{here} and price < 10", serving(shelf(name)[:2])) as cheap,
            bus.serve(f"{here} and price > 10", serving(shelf(name)[2:3])) as dear,
        ):
            assert titles(await bus.query(f"{here} and price > 11").all()) == ["Three Lives"]
            assert (cheap.asked, dear.asked) == (0, 1)
            assert await bus.query(f"{here} and price = 10").all() == []
            assert (cheap.asked, dear.asked) == (0, 1)
            await dear.advertise(f"{here} and price > 12")
            assert await bus.query(f"{here} and price between 10.5 and 11").all() == []
            assert (cheap.asked, dear.asked) == (0, 1)


@on_every_bus
async def test_a_message_with_constraints_is_a_query(connect: Connect) -> None:
    name = topic()
    requests: list[SourceRequest] = []

    def handler(request: SourceRequest) -> list[dict[str, Any]]:
        requests.append(request)
        return shelf(name)

    async with connect() as bus, bus.serve(f"shelf = '{name}'", handler):
        wanted = {"shelf": name, "author": Constraint("*", "Stein"), "edition": Constraint("<", 2)}
        found = await bus.query(wanted).all()
        assert titles(found) == ["Grapes of Wrath", "Three Lives"]
        assert requests[0].constraints == {
            "shelf": [Constraint("=", name)],
            "author": [Constraint("*", "Stein")],
            "edition": [Constraint("<", 2)],
        }
        triples = f'(shelf, =, "{name}") (edition, >, 2)'
        assert titles(await bus.query(triples, language="siena").all()) == ["Emma"]


@on_every_bus
async def test_rows_are_aggregated(connect: Connect) -> None:
    name = topic()
    rows = shelf(name)
    async with connect() as bus:
        here = f"shelf = '{name}'"
        async with bus.serve(here, serving(rows)), bus.serve(here, serving(rows[:1])):

            async def value(aggregate: str) -> Any:
                return await bus.query(here, aggregate=aggregate).value()

            assert await value("count") == 5
            assert await value("sum price") == 9.5 + 4 + 12.25 + 9.5
            assert await value("min price") == 4
            assert await value("max title") == "Three Lives"
            assert await value("sum nothing") is None
            union = await bus.query(here, aggregate="union").all()
            assert titles(union) == titles(rows)
            top = await bus.query(here, aggregate="top 2 price").all()
            assert [row["price"] for row in top] == [12.25, 9.5]
            bottom = await bus.query(here, aggregate="bottom 1 price").all()
            assert titles(bottom) == ["Cannery Row"]


@on_every_bus
async def test_a_limit_ends_the_query_and_stops_the_sources(connect: Connect) -> None:
    name, stopped = topic(), asyncio.Event()

    async def endless(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        try:
            n = 0
            while True:
                n += 1
                yield {"shelf": name, "n": n}
        finally:
            stopped.set()

    async with connect() as bus, bus.serve(f"shelf = '{name}'", endless):
        result = bus.query(f"shelf = '{name}'", limit=700)
        found = await result.all()
        assert [row["n"] for row in found] == [*range(1, 701)]
        assert result.cut
        assert not result.is_complete
        await asyncio.wait_for(stopped.wait(), 20)


@on_every_bus
async def test_leaving_the_loop_ends_the_query(connect: Connect) -> None:
    name, stopped = topic(), asyncio.Event()

    async def endless(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        try:
            while True:
                yield {"shelf": name}
                await asyncio.sleep(0)  # a turn for the others
        finally:
            stopped.set()

    async with connect() as bus, bus.serve(f"shelf = '{name}'", endless):
        async for row in bus.query(f"shelf = '{name}'"):
            assert row == {"shelf": name}
            break
        await asyncio.wait_for(stopped.wait(), 20)


@on_every_bus
async def test_what_is_late_is_missing_and_named(connect: Connect) -> None:
    name, stopped = topic(), asyncio.Event()

    async def slow(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        yield {"shelf": name, "n": 1}
        try:
            await asyncio.sleep(600)  # longer than anybody waits
        finally:
            stopped.set()

    async with connect() as bus:
        here = f"shelf = '{name}'"
        async with bus.serve(here, slow, name="slow"), bus.serve(here, serving([]), name="quick"):
            result = bus.query(here, timeout=0.5)
            found = await result.all()
        assert found == [{"shelf": name, "n": 1}]
        assert [one.split("/")[-1] for one in result.answered] == ["quick"]
        assert {key.split("/")[-1]: reason for key, reason in result.missing.items()} == {
            "slow": "it did not answer in time"
        }
        assert not result.is_complete
        assert stopped.is_set()


@on_every_bus
async def test_a_source_that_fails_is_missing_and_the_rest_comes(connect: Connect) -> None:
    name = topic()

    def broken(_: SourceRequest) -> Iterator[dict[str, Any]]:
        yield {"shelf": name}
        raise ValueError("a secret")

    async with connect() as bus:
        here = f"shelf = '{name}'"
        async with bus.serve(here, broken, name="broken"), bus.serve(here, serving(shelf(name))):
            result = bus.query(here)
            found = await result.all()
    assert len(found) == 4
    [reason] = result.missing.values()
    assert reason == "its function raised ValueError"


@on_every_bus
async def test_a_source_that_meets_the_cancellation_of_something_else_has_failed(
    connect: Connect,
) -> None:
    name = topic()

    async def broken(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        helper = asyncio.create_task(asyncio.sleep(60))  # something to wait for
        helper.cancel()
        await helper
        yield {"shelf": name}

    async with connect() as bus:
        here = f"shelf = '{name}'"
        async with bus.serve(here, broken, name="broken"), bus.serve(here, serving(shelf(name))):
            result = bus.query(here, timeout=20)
            found = await result.all()
    assert len(found) == 4
    assert [*result.missing.values()] == ["its function raised CancelledError"]


@on_every_bus
async def test_rows_that_do_not_match_are_left_out(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        many = [{"shelf": name, "n": n, "text": "x" * 1000} for n in range(3000)]

        async def everything(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
            for row in many:
                yield row

        async with bus.serve(f"shelf = '{name}'", everything):
            # More than the window of what may be on its way: what is left out is paid for, too.
            found = await bus.query(f"shelf = '{name}' and n > 2990").all()
    assert [row["n"] for row in found] == [*range(2991, 3000)]


@on_every_bus
async def test_many_rows_come_through_a_small_window(connect: Connect) -> None:
    name = topic()

    def rows(_: SourceRequest) -> Iterator[dict[str, Any]]:
        return ({"shelf": name, "n": n, "text": "x" * 2000} for n in range(2000))

    async with connect() as bus, bus.serve(f"shelf = '{name}'", rows):
        found = [row["n"] async for row in bus.query(f"shelf = '{name}'")]
    assert found == [*range(2000)]


@on_every_bus
async def test_without_sources_the_answer_is_empty_and_complete(connect: Connect) -> None:
    async with connect() as bus:
        result = bus.query(f"shelf = '{topic()}'")
        assert await result.all() == []
        assert result.is_complete
        assert await bus.query(f"shelf = '{topic()}'", aggregate="count").value() == 0


@on_every_bus
async def test_a_misspelt_attribute_is_guessed_if_no_row_comes(connect: Connect) -> None:
    name = topic().replace("-", "_")
    async with connect() as bus:
        advertised = f"shelf_{name} = 1 and edition between 1 and 3"
        rows = [{f"shelf_{name}": 1, **row} for row in BOOKS]
        async with bus.serve(advertised, serving(rows)):
            for asked, rows_found, hint in [
                ("editon = 1", 0, "no data is advertised that has 'editon'; did you mean "),
                ("edition = 7", 0, ""),
                # It is right, although nobody says so.
                ("title = 'Emma'", 1, ""),
                ("color = 'red'", 0, ""),
                ("any contains 'nothing'", 0, ""),
            ]:
                result = bus.query(f"shelf_{name} = 1 and {asked}")
                assert len(await result.all()) == rows_found
                assert result.hint.startswith(hint)
                assert bool(result.hint) is bool(hint)
            counted = bus.query(f"shelf_{name} = 1 and editon = 1", aggregate="count")
            assert await counted.value() == 0
            assert "'editon'" in counted.hint
        # What is advertised no more is not guessed.
        result = bus.query(f"shelf_{name}x = 1")
        assert (await result.all(), result.hint) == ([], "")


@on_every_bus
async def test_mistakes_are_answered_with_a_sentence(connect: Connect) -> None:
    async with connect() as bus:
        with pytest.raises(tamis.RefusedError, match="a condition or value is missing at the end"):
            await bus.query("price <").all()
        with pytest.raises(tamis.OptionError, match="it must be union, count, sum X"):
            bus.query("true", aggregate="average price")
        with pytest.raises(tamis.OptionError, match="limit is 0"):
            bus.query("true", limit=0)
        with pytest.raises(tamis.OptionError, match="timeout is None"):
            bus.query("true", timeout=None)  # type: ignore[arg-type]
        with pytest.raises(tamis.FilterTypeError, match="not an operator of Siena"):
            bus.query({"price": Constraint("~", 5)})
        with pytest.raises(tamis.RefusedError) as refused:
            await bus.serve("price <", serving([])).start()
        assert refused.value.code == Code.BAD_FILTER
        with pytest.raises(tamis.OptionError, match="handler is 5"):
            bus.serve("true", 5)  # type: ignore[arg-type]


@on_every_bus
async def test_a_principal_has_only_so_many_queries_at_once(connect: Connect) -> None:
    name = topic()

    async def silent(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        await asyncio.sleep(600)  # longer than anybody waits
        yield {}

    async with connect() as bus, bus.serve(f"shelf = '{name}'", silent):
        running = [bus.query(f"shelf = '{name}'") for _ in range(16)]
        for result in running:
            await result.__aenter__()
        with pytest.raises(tamis.RefusedError, match="16 queries running, which is the limit"):
            await bus.query(f"shelf = '{name}'").all()
        for result in running:
            result.close()
        await eventually_async(lambda: can_ask(bus))


async def can_ask(bus: tamis.Bus) -> bool:
    try:
        await bus.query("shelf = 'none'").all()
    except tamis.RefusedError:
        return False
    return True


def test_nothing_is_left_of_clients_that_have_gone() -> None:
    async def main() -> None:
        async with tamis.open_bus() as bus:
            assert isinstance(bus, LocalBus)
            async with bus.connect() as source, bus.connect() as asker:

                async def silent(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
                    yield {"a": 1}
                    await asyncio.sleep(600)  # longer than anybody waits

                await source.serve("a = 1", silent).start()
                result = await asker.query("a = 1").__aenter__()
                await eventually_async(lambda: result.id)
            await eventually_async(lambda: bus.broker.queries.is_idle)

    run(main())


def test_the_synchronous_bus_asks_and_answers() -> None:
    with tamis.open_bus_sync() as bus:
        with bus.serve("price > 0", lambda _: BOOKS, name="books") as source:
            result = bus.query("price < 10")
            assert titles(result) == ["Cannery Row", "Grapes of Wrath"]
            assert result.is_complete
            assert result.answered == ("anonymous/books",)
            assert bus.query("price > 0", aggregate="count").value() == 3
            source.advertise("price > 100")
            assert bus.query("price < 10").all() == []
        assert source.is_closed
