"""The supervisor: no task of a broker fails silently."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

import tamis.broker
from broker.authorization_fixture import refusal, run_async
from broker.log_lines import log_lines
from tamis.broker import Broker, BrokerSettings
from tamis.broker.frontend import server
from tamis.broker.operations import supervisor as module
from tamis.broker.operations.health import Health
from tamis.broker.operations.metrics import Metrics
from tamis.broker.operations.supervisor import Supervisor
from tamis.broker.publish.committer import Committer
from tamis.errors import BrokerFailedError
from waiting import eventually_async


def new_supervisor() -> Supervisor:
    return Supervisor(Health(), Metrics())


async def broken() -> None:
    raise RuntimeError("a planted fault")


@run_async
async def test_a_task_that_fails_is_logged_with_its_cause() -> None:
    supervisor = new_supervisor()
    with log_lines() as lines:
        task = supervisor.start("end notice", broken())
        await asyncio.wait([task])
        await eventually_async(lambda: lines)
    assert lines[0].getMessage() == "a task failed"
    assert lines[0].exc_info is not None
    assert not supervisor.failed.done()


@run_async
async def test_a_part_that_fails_is_started_again_and_shown_until_it_is_sound() -> None:
    supervisor, starts = new_supervisor(), 0
    health = supervisor._health

    async def fail_twice() -> None:
        nonlocal starts
        starts += 1
        if starts < 3:
            await broken()
        await asyncio.Event().wait()

    with patch.object(module, "SOUND_SECONDS", 0.05), log_lines() as lines:
        supervisor.restart("housekeeping", fail_twice)
        await eventually_async(lambda: health.problems)
        assert health.problems == [
            "the housekeeping fails and is started again: RuntimeError('a planted fault')"
        ]
        await eventually_async(lambda: starts == 3)
        await eventually_async(lambda: not health.problems)
    assert len(lines) == 2
    await supervisor.close()


@run_async
async def test_what_waits_for_a_failed_part_is_told() -> None:
    supervisor = new_supervisor()
    waiting = asyncio.create_task(supervisor.unless_failed(asyncio.Event().wait()))
    supervisor.depend_on("matcher", broken)
    with pytest.raises(BrokerFailedError, match="the matcher has failed"):
        await waiting
    assert supervisor.failed.result().part == "matcher"
    with pytest.raises(BrokerFailedError):
        await supervisor.unless_failed(asyncio.Event().wait())


@run_async
async def test_a_server_whose_committer_fails_refuses_and_stops(tmp_path: Path) -> None:
    settings = BrokerSettings(data=tmp_path, port=0)
    opened: list[Broker] = []
    real = Broker.open

    async def remember(settings: BrokerSettings) -> Broker:
        opened.append(await real(settings))
        return opened[0]

    with (
        patch.object(Broker, "open", remember),
        patch.object(Committer, "_accept", side_effect=RuntimeError("a planted fault")),
    ):
        serving = asyncio.create_task(server._serve(settings))
        await eventually_async(lambda: opened and opened[0].health.ready)
        session = await opened[0].authenticate(None)
        assert "send them again" in await refusal(session.publish([b"{}"]))
        with pytest.raises(BrokerFailedError, match="the committer has failed"):
            await serving


@run_async
async def test_a_part_that_is_cancelled_has_failed_unless_the_broker_closes() -> None:
    supervisor, starts = new_supervisor(), 0

    async def cancelled() -> None:
        nonlocal starts
        starts += 1
        never = asyncio.get_running_loop().create_future()
        never.cancel()
        await never

    supervisor.restart("housekeeping", cancelled)
    await eventually_async(lambda: starts > 1)
    supervisor.depend_on("matcher", cancelled)
    await eventually_async(supervisor.failed.done)
    closing = new_supervisor()
    closing.depend_on("matcher", asyncio.Event().wait)  # type: ignore[arg-type]
    await closing.close()
    assert not closing.failed.done()


@run_async
async def test_work_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    supervisor = new_supervisor()
    work = asyncio.sleep(0.1)  # never begun
    waiting = asyncio.create_task(supervisor.finish("deletion", work))
    await asyncio.sleep(0)  # until it waits
    await supervisor.close()
    await asyncio.wait([waiting])
    # A coroutine that was closed cannot be awaited; one that was not is an error of its own.
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await work


# Each of these is awaited where it is started, or handles all errors itself.
AWAITED_AT_ONCE = {
    "broker/sessions/base.py": 1,
    "broker/frontend/connection.py": 1,
    "broker/frontend/protocols.py": 1,
    "broker/frontend/server.py": 1,
    "broker/frontend/streams.py": 3,
    "broker/frontend/http/sse.py": 1,
    "broker/operations/supervisor.py": 2,
    "broker/peers/connection.py": 1,
    "broker/subscribe/manager.py": 1,
}


def test_no_task_is_started_without_the_supervisor() -> None:
    root = Path(tamis.broker.__file__).parent
    found: dict[str, int] = {}
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "create_task":
                name = str(path.relative_to(root.parent))
                found[name] = found.get(name, 0) + 1
    assert found == AWAITED_AT_ONCE
