"""Very many subscriptions are no work for the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from broker.authorization_fixture import run_async
from tamis.broker.frontend import server
from tamis.broker.operations.health import Health
from waiting import eventually_async, let_others_run


@run_async
async def test_subscriptions_are_frozen_as_they_grow_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "FREEZE_SECONDS", 0.0)
    subscriptions, frozen_at = list[int](range(10)), list[int]()
    monkeypatch.setattr(gc, "freeze", lambda: frozen_at.append(len(subscriptions)))
    task = asyncio.create_task(server.freeze_as_they_grow(subscriptions))
    await let_others_run(10)
    assert frozen_at == []
    subscriptions.extend(range(20_000))
    await eventually_async(lambda: frozen_at == [20_010])
    # They come and go, which makes garbage each time.
    del subscriptions[10_000:]
    await let_others_run(10)
    subscriptions.extend(range(12_000))
    await let_others_run(10)
    assert frozen_at == [20_010]
    subscriptions.extend(range(2_000))
    await eventually_async(lambda: frozen_at == [20_010, 24_000])
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@run_async
async def test_what_the_kernels_bring_is_frozen_when_they_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: steps.append("frozen"))
    monkeypatch.setattr(server, "load_kernels", lambda **_: steps.append("loaded"))
    await server._load_kernels(Health())
    assert steps == ["loaded", "frozen"]
