"""Of several decisions about one event the last one counts, written together or not."""

from __future__ import annotations

from pathlib import Path

from broker.authorization_fixture import broker_fixture, fetched, run_async, subscribe

READER = "[roles.reader]\nsee = true\n"


@run_async
async def test_an_event_that_is_rejected_and_then_acknowledged_at_once_stays_away(
    tmp_path: Path,
) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "true", "x")
        await fixture.publish({"n": 1}, {"n": 2})
        assert await fetched(ann, "x") == [{"n": 1}, {"n": 2}]
        for sequence in (1, 2):
            await ann.reject("x", sequence, delay=0.0)
        assert await fetched(ann, "x") == [{"n": 1}, {"n": 2}]
        await ann.acknowledge("x", [1])
        await ann.reject("x", 2, delay=0.0)
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await ann.subscription("x")).pending == 1
        [again] = await ann.fetch("x")
        assert (again.sequence, again.attempt) == (2, 3)
