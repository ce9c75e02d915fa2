"""Functions that a bus calls with events, over the network and within one process."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import tamis
from waiting import eventually_async, let_others_run

from .buses import Connect, on_every_bus, topic


@on_every_bus
async def test_functions_are_called_with_events(connect: Connect) -> None:
    name = topic()
    seen: list[tuple[str, int]] = []
    bus = connect()

    @bus.on(f"topic = '{name}' and n < 3")
    async def few(event: tamis.Message) -> None:
        await let_others_run()
        seen.append(("few", event["n"]))

    @bus.on(f"topic = '{name}'", start="earliest")
    def all_of_them(event: tamis.Message) -> None:
        seen.append(("all", event["n"]))
        if event["n"] == 4:
            done.set()

    done = asyncio.Event()
    async with bus:
        running = asyncio.create_task(bus.run())
        await eventually_async(lambda: len(bus._reconnector.consumers) == 2)
        await bus.flush()
        await bus.publish_many({"topic": name, "n": n} for n in range(5))
        await done.wait()
        await eventually_async(lambda: len(seen) == 8)
    await running
    assert [n for kind, n in seen if kind == "all"] == [0, 1, 2, 3, 4]
    assert [n for kind, n in seen if kind == "few"] == [0, 1, 2]


async def _until_nothing_waits(bus: tamis.Bus, name: str) -> None:
    # Acknowledgements reach the broker's disk a little later.
    async def is_settled() -> bool:
        return not (await bus.subscription(name)).pending

    await eventually_async(is_settled)


async def meet_a_cancellation() -> None:
    """Found by a stranger: the function got no more events, and nobody was told."""
    helper = asyncio.create_task(asyncio.sleep(60))  # something to wait for
    helper.cancel()
    await helper


@on_every_bus
async def test_an_event_on_which_a_function_failed_is_redelivered(connect: Connect) -> None:
    name = topic()
    attempts: list[int] = []
    logging.getLogger("tamis.client").disabled = True
    try:
        async with connect() as bus:
            done = asyncio.Event()

            @bus.on(f"topic = '{name}'", durable=name, start="earliest")
            async def fragile(event: tamis.Message) -> None:
                attempts.append(event.attempt)
                if event.attempt == 1:
                    raise ValueError("the first time it fails")
                if event.attempt == 2:
                    await meet_a_cancellation()
                done.set()

            await bus.publish({"topic": name})
            async with asyncio.timeout(20):
                await done.wait()
        async with connect() as bus:
            await _until_nothing_waits(bus, name)
            await bus.delete(name)
    finally:
        logging.getLogger("tamis.client").disabled = False
    assert attempts == [1, 2, 3]


@on_every_bus
async def test_closing_waits_for_a_running_function(connect: Connect) -> None:
    name = topic()
    begun, finished = asyncio.Event(), asyncio.Event()
    async with connect() as bus:

        @bus.on(f"topic = '{name}'", durable=name, start="earliest")
        async def slow(_: tamis.Message) -> None:
            begun.set()
            await asyncio.sleep(0.1)  # until the bus is closing
            finished.set()

        await bus.publish({"topic": name})
        await begun.wait()
    assert finished.is_set()
    async with connect() as bus:
        await _until_nothing_waits(bus, name)
        await bus.delete(name)


@on_every_bus
async def test_a_function_may_close_the_bus(connect: Connect) -> None:
    async with connect() as bus:

        @bus.on("last = true", start="earliest")
        async def stop(_: tamis.Message) -> None:
            await bus.close()

        await bus.publish({"last": True})
        await bus.run()


@on_every_bus
async def test_run_raises_what_is_wrong_with_a_filter(connect: Connect) -> None:
    logging.getLogger("tamis.client").disabled = True
    try:
        async with connect() as bus:
            bus.on("price <")(print)
            with pytest.raises(tamis.RefusedError, match="a condition or value is missing"):
                await bus.run()
    finally:
        logging.getLogger("tamis.client").disabled = False


def test_a_function_without_parentheses_is_refused(tmp_path: Path) -> None:
    with tamis.open_bus_sync(tmp_path) as bus:
        for one in (bus, tamis.connect("http://localhost:1")):
            with pytest.raises(tamis.OptionError, match=r"write @bus.on\(\), with parentheses"):
                one.on(print)  # type: ignore[arg-type]
