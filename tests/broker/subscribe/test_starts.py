"""Where a subscription may start: in the past or now, at a time that has a zone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    fetched,
    refusal,
    run_async,
)
from tamis.protocol import Subscribe

READER = "[roles.reader]\nsee = true\n"


def at(fixture: BrokerFixture, seconds: float) -> str:
    """Return a time so long after now."""
    return datetime.fromtimestamp(fixture.clock.now + seconds, UTC).isoformat()


def starting(start: int | str) -> Subscribe:
    return Subscribe(ref=1, filter="true", durable="x", start=start)


@run_async
async def test_a_start_in_the_future_is_refused(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        await fixture.publish({"n": 1}, {"n": 2})
        said = await refusal(ann.open_subscription(starting(at(fixture, 3600))))
        assert said.startswith("conflict: ")
        assert "in the future" in said
        assert "latest" in said
        said = await refusal(ann.open_subscription(starting(4)))
        assert "sequence 4" in said
        assert "the next event is 3" in said


@run_async
async def test_what_comes_next_is_no_future(tmp_path: Path) -> None:
    """The next event, and the time of a client whose clock is a little ahead."""
    for name, start in (("next", 3), ("ahead", 30.0)):
        async with broker_fixture(tmp_path / name, READER) as fixture:
            ann = await fixture.login("ann", "reader")
            await fixture.publish({"n": 1}, {"n": 2})
            given = at(fixture, start) if isinstance(start, float) else start
            await ann.open_subscription(starting(given))
            await fixture.publish({"n": 3})
            assert await fetched(ann, "x") == [{"n": 3}]


@pytest.mark.parametrize("start", ["1970-01-12T13:46:40", "1970-01-12", "19700112T134640"])
@run_async
async def test_a_time_without_a_zone_is_refused(tmp_path: Path, start: str) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        said = await refusal(ann.open_subscription(starting(start)))
        assert "has no time zone" in said
        assert "Z" in said
