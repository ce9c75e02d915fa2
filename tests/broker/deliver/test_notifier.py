"""The notifier: a subscriber that can get nothing more is told."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from broker.authorization_fixture import run_async, subscribe
from broker.log_lines import log_lines
from tamis.broker import Broker, BrokerSettings
from tamis.broker.publish.event_cache import EventCache
from tamis.protocol import Deliver, Dropped, Ended
from waiting import eventually_async


class CollectingSink:
    """Keeps all frames."""

    def __init__(self) -> None:
        self.frames: list[Deliver | Dropped | Ended] = []

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        self.frames.append(frame)


@run_async
async def test_a_delivery_that_fails_ends_with_a_reason_and_a_log_line(tmp_path: Path) -> None:
    async with await Broker.open(BrokerSettings(data=tmp_path)) as broker:
        session, sink = await broker.authenticate(None), CollectingSink()
        await subscribe(session, "true", "all")
        await session.publish([b"{}"])
        await broker.matcher.drained()
        broker.event_cache.recent.clear()
        fault = RuntimeError("a planted fault")
        with patch.object(EventCache, "find", side_effect=fault), log_lines() as lines:
            await session.attach("all", sink, credit=10)
            await eventually_async(lambda: sink.frames)
            await eventually_async(lambda: lines)
        [ended] = sink.frames
        assert isinstance(ended, Ended)
        assert "the broker cannot send its events" in ended.reason
        assert lines[0].exc_info is not None
        # Nothing is lost: the next connection gets it.
        await session.attach("all", sink, credit=10)
        await eventually_async(lambda: len(sink.frames) == 2)
        assert isinstance(sink.frames[1], Deliver)
