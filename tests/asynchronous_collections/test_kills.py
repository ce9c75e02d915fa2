"""Collections keep what they promise while brokers and watchers are killed."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

import tamis
from broker.server import ServerProcess
from tamis.client.options import GROUP_WINDOW_EVENTS
from tamis.collections import DABag, DACertifiedBag, DAList, DAQueue, DASet, DAStrongSet
from waiting import eventually_async

from .shop_floor import Job
from .test_collections import until

WORKERS = 3
# A kill of the broker may lose what the workers have just acknowledged.
MOST_AT_WORK = WORKERS * GROUP_WINDOW_EVENTS


@asynccontextmanager
async def killable(folder: Path) -> AsyncIterator[ServerProcess]:
    server = await asyncio.to_thread(ServerProcess(folder / "broker").start)
    server.settings["port"] = server.port
    try:
        yield server
    finally:
        server.kill()


async def kill(server: ServerProcess) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


async def check_kinds(folder: Path, members: int, kills: int, rng: Random) -> None:
    """Add members, some equal, to a collection of each kind, while the broker is killed."""
    deadly = {*rng.sample(range(members), kills)}
    words = ["", "again"]
    async with (
        killable(folder) as server,
        tamis.connect(server.url, patient=True) as adding,
        tamis.connect(server.url) as watching,
    ):
        seen: dict[Any, list[Job]] = {}
        kinds: tuple[Any, ...] = (DASet, DAStrongSet, DABag, DAList, DACertifiedBag, DAQueue)
        for kind in kinds:
            collection = kind[Job](f"/{kind.__name__}", watching)
            seen[kind] = []
            named = {"name": "eve"} if kind is DACertifiedBag else {}
            await collection.contains(None, seen[kind].append, **named)
        added: list[Job] = []
        for number in range(members):
            if number in deadly:
                await kill(server)
            added.append(Job(rng.randrange(members // 2), rng.choice(words)))
            for kind in seen:
                await kind[Job](f"/{kind.__name__}", adding).add(added[-1])
        distinct = [*dict.fromkeys(added)]
        assert len(distinct) < len(added)
        await until(lambda: len(seen[DABag]) == len(seen[DAList]) == len(added))
        await until(lambda: len(seen[DAStrongSet]) == len(distinct))
        # At least once: what was handled before a kill may come again.
        await until(lambda: not Counter(added) - Counter(seen[DACertifiedBag]))
        await until(lambda: not Counter(added) - Counter(seen[DAQueue]))
        assert seen[DABag] == seen[DAList] == added
        assert seen[DAStrongSet] == distinct
        # Best effort: perhaps not all, but in order, and none twice.
        in_order = iter(added)
        assert all(job in in_order for job in seen[DASet])
        assert 0 < len(seen[DASet]) == len({*seen[DASet]})
        assert [job async for job in DAList[Job]("/DAList", adding)] == added


async def check_certified(folder: Path, members: int, kills: int, rng: Random) -> int:
    """Add jobs while their watcher, or the broker, is killed; return how often any was repeated."""
    deadly = {*rng.sample(range(1, members), kills)}
    handled = folder / "handled"
    async with killable(folder) as server:
        watcher = await start_watcher(server, handled)
        try:
            async with tamis.connect(server.url, patient=True) as bus:
                await until_subscribed(bus)
                jobs = DACertifiedBag[Job]("/jobs", bus)
                for number in range(members):
                    if number in deadly:
                        if rng.random() < 0.5:
                            await kill(server)
                        else:
                            watcher.send_signal(signal.SIGKILL)
                            await watcher.wait()
                            watcher = await start_watcher(server, handled)
                    await jobs.add(Job(number))
                all_members = {*range(members)}
                await eventually_async(lambda: {*numbers_in(handled)} == all_members, timeout=60)
        finally:
            watcher.kill()
            await watcher.wait()
    return len(numbers_in(handled)) - members


async def check_queue(folder: Path, members: int, kills: int, rng: Random) -> list[int]:
    """Add jobs while their workers, or the broker, are killed; return how many each handled."""
    deadly = {*rng.sample(range(1, members), kills)}
    files = [folder / f"handled-{number}" for number in range(WORKERS)]

    def handled() -> Counter[int]:
        return Counter(number for file in files for number in numbers_in(file))

    async with killable(folder) as server:
        workers = [await start_watcher(server, file, "queue") for file in files]
        try:
            async with tamis.connect(server.url, patient=True) as bus:
                await until_subscribed(bus)
                jobs = DAQueue[Job]("/jobs", bus)
                for number in range(members):
                    if number in deadly:
                        victim = rng.randrange(WORKERS + 1)
                        if victim == WORKERS:
                            await kill(server)
                        else:
                            workers[victim].send_signal(signal.SIGKILL)
                            await workers[victim].wait()
                            workers[victim] = await start_watcher(server, files[victim], "queue")
                    await jobs.add(Job(number))
                everything = {*range(members)}
                await eventually_async(lambda: {*handled()} == everything, timeout=60)
        finally:
            for worker in workers:
                worker.kill()
                await worker.wait()
    # Only what was at work when somebody was killed may come twice.
    assert handled().total() - members <= kills * MOST_AT_WORK
    return [len(numbers_in(file)) for file in files]


async def until_subscribed(bus: tamis.Bus) -> None:
    await eventually_async(bus.subscriptions, timeout=60)


async def start_watcher(
    server: ServerProcess, handled: Path, kind: str = "certified"
) -> asyncio.subprocess.Process:
    tests = Path(__file__).parents[1]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"{tests.joinpath(__package__ or '').name}.shop_floor"),
        *(server.url, str(handled), kind),
        cwd=tests,
        env={"PYTHONPATH": str(tests), "PATH": ""},
    )


def numbers_in(handled: Path) -> list[int]:
    if not handled.exists():
        return []
    return [int(line) for line in handled.read_text().split("\n")[:-1]]


def test_members_come_over_a_kill_of_the_broker(tmp_path: Path) -> None:
    asyncio.run(check_kinds(tmp_path, 8, 1, Random(1)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_members_come_over_many_kills_of_the_broker(tmp_path: Path, seed: int) -> None:
    asyncio.run(check_kinds(tmp_path, 200, 12, Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_certified_members_come_over_many_kills(tmp_path: Path, seed: int) -> None:
    asyncio.run(check_certified(tmp_path, 200, 12, Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_members_of_a_queue_come_to_some_worker_over_many_kills(tmp_path: Path, seed: int) -> None:
    each = asyncio.run(check_queue(tmp_path, 200, 12, Random(seed)))
    assert min(each) > 0
