"""Stored events that the schema or the limits no longer allow: counted, shown and told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, patch

import pytest

from broker.authorization_clients import Collector, Data
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    encoded,
    fetched,
    run_async,
    subscribe,
)
from broker.log_lines import log_lines
from tamis.broker.operations.health import Health
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.unmatchable_events import MOST_KNOWN, UnmatchableEvents
from tamis.filters import Mode
from waiting import eventually_async

READER = "[roles.reader]\nsee = true\n"
EVENTS: list[Data] = [{"n": 1}, {"n": "a text" * 10}, {"n": 3}]
PROBLEM = "stored events cannot be matched: 1 since the start; event 2: "


@pytest.fixture(params=["the schema", "the limits"])
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Settings that the second of three stored events, which wait for `s`, does not conform to."""

    @run_async
    async def fill() -> None:
        async with broker_fixture(tmp_path, READER) as fixture:
            await subscribe(await fixture.login("ann", "reader"), "true", "s")
            for event in EVENTS:
                await fixture.publish(event)

    fill()
    if request.param == "the limits":
        return {"largest_event": 20}
    schema = tmp_path / "schema.json"
    schema.write_text('{"n": "int"}')
    return {"schema_file": schema}


def unmatched(fixture: BrokerFixture) -> tuple[list[str], int]:
    status = fixture.broker.status()
    return [one[: len(PROBLEM)] for one in status["problems"]], status["unmatched"]


@run_async
async def test_a_subscriber_learns_of_a_pending_event_that_is_invalid_now(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    with log_lines() as lines:
        async with broker_fixture(tmp_path, READER, **changed) as fixture:
            ann, collector = await fixture.login("ann", "reader"), Collector()
            await ann.attach("s", collector, credit=100, acknowledge="manual")
            await eventually_async(lambda: len(collector.got) == 2 and collector.lost)
            assert collector.lost == [(1, "invalid")]
            assert unmatched(fixture) == ([PROBLEM], 1)
            dropped = fixture.broker.metrics.registry.get_sample_value(
                "tamis_dropped_events_total", {"reason": "invalid"}
            )
            assert dropped == 1
            await ann.acknowledge("s", up_to=3)
            await fixture.broker.acknowledgement_writer.settled()
            assert (await ann.subscription("s")).pending == 0
    warned = [one for one in lines if one.getMessage() == "events cannot be matched"]
    assert [one.levelname for one in warned] == ["WARNING"]
    async with broker_fixture(tmp_path, READER, **changed) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await ann.fetch("s")).dropped == 0
        assert (await ann.subscription("s")).dropped == 1


@run_async
async def test_a_fetch_tells_of_an_invalid_event(tmp_path: Path, changed: dict[str, Any]) -> None:
    async with broker_fixture(tmp_path, READER, **changed) as fixture:
        ann = await fixture.login("ann", "reader")
        assert await fetched(ann, "s") == [{"n": 1}, {"n": 3}]
        await fixture.broker.acknowledgement_writer.settled()
        assert (await ann.fetch("s")).dropped == 1
        assert [one.reason for one in fixture.broker.store.state.dropped()] == ["invalid"]


@run_async
async def test_a_replay_tells_how_many_events_are_invalid(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with broker_fixture(tmp_path, READER, **changed) as fixture:
        ann, collector = await fixture.login("ann", "reader"), Collector()
        await subscribe(ann, "true", "replayed", start="earliest")
        await ann.attach("replayed", collector, credit=100, acknowledge="manual")
        await eventually_async(lambda: len(collector.got) == 2 and collector.lost)
        assert collector.lost == [(1, "invalid")]
        assert (await ann.subscription("replayed")).dropped == 1
        assert unmatched(fixture) == ([PROBLEM], 1)


@run_async
async def test_history_says_how_many_events_are_invalid(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    async with broker_fixture(tmp_path, READER, **changed) as fixture:
        ann = await fixture.login("ann", "reader")
        for _ in range(2):
            page = await ann.history("true")
            assert ([one.sequence for one in page.events], page.invalid) == ([1, 3], 1)
            assert page.damaged == 0
            # However often it is read, the operator sees one event.
            assert unmatched(fixture) == ([PROBLEM], 1)
        assert (await ann.history("true", start=3)).invalid == 0
        page = await ann.history("true", end=2)
        assert (page.next, page.invalid) == (2, 0)
        page = await ann.history("true", limit=1)
        assert (page.next, page.invalid) == (3, 1)


@run_async
async def test_an_event_that_lacks_a_new_attribute_is_sent_but_not_matched(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"a": "int"}')
    settings: dict[str, Any] = {"schema_file": schema, "mode": Mode.TOTAL}
    async with broker_fixture(tmp_path, READER, **settings) as fixture:
        await subscribe(await fixture.login("ann", "reader"), "a > 0", "s")
        await fixture.publish({"a": 1})
    schema.write_text('{"a": "int", "b": "int"}')
    async with broker_fixture(tmp_path, READER, **settings) as fixture:
        await fixture.publish({"a": 2, "b": 2})
        ann = await fixture.login("ann", "reader")
        assert await fetched(ann, "s") == [{"a": 1}, {"a": 2, "b": 2}]
        page = await ann.history("a > 0")
        assert ([one.sequence for one in page.events], page.invalid) == ([2], 1)
        await subscribe(ann, "a > 0", "replayed", start="earliest")
        await eventually_async(fixture.broker.store.state.dropped)
        # The first answer may have nothing but the loss.
        replayed = await fetched(ann, "replayed", wait=10.0)
        assert (replayed or await fetched(ann, "replayed", wait=10.0)) == [{"a": 2, "b": 2}]
        assert (await ann.subscription("replayed")).dropped == 1


@pytest.mark.parametrize(
    ("mode", "changed_schema"),
    [
        (Mode.SQL, '{"a": "int", "b": "int"}'),
        (Mode.TOTAL, '{"a": "int", "b": "str", "c": "int"}'),
    ],
)
@run_async
async def test_invalid_events_that_were_never_matched_are_told_to_all_once(
    tmp_path: Path, mode: Mode, changed_schema: str
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"a": "int", "b": "str"}')
    settings: dict[str, Any] = {"schema_file": schema, "mode": mode}
    async with broker_fixture(tmp_path, READER, **settings) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "a > 0", "early")
        # The matcher never learns of them, as if the broker died.
        with patch.object(fixture.broker.event_cache, "put", AsyncMock()):
            feed = await fixture.login("feed", "feed")
            await feed.publish(encoded([{"a": 1, "b": "x"}]))
            await subscribe(ann, "a > 0", "late")
            await feed.publish(encoded([{"a": 2, "b": "x"}]))
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "crashed").rename(tmp_path / "data")
    schema.write_text(changed_schema)
    for _ in range(2):
        async with broker_fixture(tmp_path, READER, **settings) as fixture:
            ann = await fixture.login("ann", "reader")
            assert (await ann.subscription("early")).dropped == 2
            assert (await ann.subscription("late")).dropped == 1


def test_an_event_is_counted_once_and_the_log_stays_short() -> None:
    health, metrics = Health(), Metrics()
    events = UnmatchableEvents(health, metrics)
    with log_lines() as lines:
        for _ in range(2):
            for first in range(1, MOST_KNOWN + 1001, 1000):
                events.report(dict.fromkeys(range(first, first + 1000), "why"))
    assert metrics.totals()["unmatched"] == MOST_KNOWN
    [problem] = health.problems
    assert problem.startswith(f"stored events cannot be matched: at least {MOST_KNOWN:,} since")
    assert 0 < len(lines) < 20
