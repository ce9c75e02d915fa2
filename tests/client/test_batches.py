"""The bad event of a batch is located."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import tamis
from tamis.protocol import Code

from .buses import Connect, on_every_bus

# The broker refuses the first two, the client the others.
BAD: list[tuple[Any, str, str | None]] = [
    (b"[1]", "events[777]: top level: an event is a JSON object", Code.BAD_EVENT),
    ({"a": 2**70}, "events[777]: a: an integer of 22 digits does not fit", Code.BAD_EVENT),
    ({"a": {1: 2}}, "events[777].a: 1 is not an attribute name", None),
    ("{", "events[777], line 1, column 2: this is not JSON", None),
    (5, "events[777]: 'int' is not an event", None),
    ({"a": "x" * 300_000}, "events[777]: an event of 300,008 bytes exceeds", Code.TOO_LARGE),
]


def batch(bad: Any) -> list[Any]:
    events: list[Any] = [{"n": n} for n in range(1_200)]
    events[777] = bad
    return events


def check(error: tamis.TamisError, sentence: str, code: str | None) -> None:
    assert sentence in str(error)
    assert getattr(error, "index", None) == 777
    assert getattr(error, "code", None) == code


@on_every_bus
async def test_the_bad_event_of_a_batch_is_located(connect: Connect) -> None:
    async def one_by_one(events: list[Any]) -> AsyncIterator[Any]:
        for event in events:
            yield event

    async with connect() as bus:
        for bad, sentence, code in BAD:
            for events in (batch(bad), one_by_one(batch(bad))):
                with pytest.raises(tamis.TamisError) as caught:
                    await bus.publish_many(events)
                check(caught.value, sentence, code)
        assert (await bus.publish_many([{"a": 1}])).count == 1


@on_every_bus
async def test_a_single_event_needs_no_index(connect: Connect) -> None:
    async with connect() as bus:
        with pytest.raises(tamis.RefusedError, match=r"^top level: an event is a JSON object"):
            await bus.publish(b"[1]")


def test_a_synchronous_bus_locates_it_too() -> None:
    with tamis.open_bus_sync() as bus:
        for bad, sentence, code in BAD:
            with pytest.raises(tamis.TamisError) as caught:
                bus.publish_many(iter(batch(bad)))
            check(caught.value, sentence, code)
