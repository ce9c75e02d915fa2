"""Nothing acknowledged is lost, invented or out of order, however often the broker is killed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import Counter, defaultdict, deque
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

import tamis
from broker.killed_server import DEATHS, LYING, POINTS
from broker.server import ServerProcess
from tamis.client.connection import Backoff
from waiting import eventually_async

PUBLISHERS = 3
KEPT = 5
BATCH = 20
END = "end"
SCRIPT = Path(__file__).with_name("killed_server.py")


class Plan(NamedTuple):
    """When the server dies: at a point, or by a signal from outside after some seconds."""

    point: str
    turns: int
    seconds: float


class Fetched(NamedTuple):
    """An event that the late worker got."""

    sequence: int
    publisher: str
    number: int
    attempt: int


class KillRecord(NamedTuple):
    """What clients saw: numbers by publisher, and what became of subscriptions."""

    sent: dict[str, set[int]]
    acknowledged: dict[str, set[int]]
    received: dict[str, list[int]]
    subscribed: set[str]
    """Those that were granted, and never asked to be deleted."""
    deleted: set[str]
    """Those whose deletion was answered."""
    left: set[str]
    """Those that the broker has in the end."""
    fetched: list[Fetched]
    """What the late worker got, in order."""
    settled: dict[int, int]
    """How many events it had fetched when the acknowledgement of one was on disk, by sequence."""
    late: Counter[str]
    """How often it acknowledged events that were sent before a death."""
    deaths: Counter[str]
    """How often the power went at each point."""


class Killing:
    """Clients that go on through all that happens to their server."""

    def __init__(self, folder: Path, seed: int, *, pace: float = 0.0) -> None:
        """Prepare clients; publishers wait for `pace` seconds after each batch."""
        self.server = ServerProcess(folder, {"window": 5_000})
        self.pace = pace
        self.rng = Random(seed)
        self.found = KillRecord(
            sent=defaultdict(set),
            acknowledged=defaultdict(set),
            received=defaultdict(list),
            subscribed=set(),
            deleted=set(),
            left=set(),
            fetched=[],
            settled={},
            late=Counter(),
            deaths=Counter(),
        )
        self.is_over = False
        self.deaths = 0
        self.connected = asyncio.Semaphore(0)

    async def run(self, plans: list[Plan], patience: float = 120.0) -> KillRecord:
        self._start(Plan("never", 0, 0))
        self.server.settings["port"] = self.server.port
        receiving = asyncio.create_task(self._receive())
        working = asyncio.create_task(LateWorker(self).run(patience))
        async with asyncio.TaskGroup() as group:
            for number in range(PUBLISHERS):
                group.create_task(self._publish(f"publisher-{number}"))
            group.create_task(self._subscribe())
            for _ in range(PUBLISHERS + 3):
                await self.connected.acquire()
            for plan in plans:
                await self._die(plan)
            await asyncio.to_thread(self._restart, Plan("never", 0, 0))
            self.is_over = True
        async with tamis.connect(self.server.url) as bus:
            # All that was acknowledged is before this one in the log.
            await bus.publish({"publisher": END, "number": 1})
            self.found.left.update(one.id for one in await bus.subscriptions())
        with contextlib.suppress(TimeoutError):
            # What has not come by then is lost.
            await asyncio.wait_for(receiving, patience)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(working, patience)
        await asyncio.to_thread(self.server.stop)
        deaths = self.server.folder / DEATHS
        self.found.deaths.update(deaths.read_text().splitlines() if deaths.exists() else ())
        return self.found

    def _start(self, plan: Plan) -> None:
        self.server.command = (str(SCRIPT), plan.point, str(plan.turns))
        self.server.start()

    def _restart(self, plan: Plan) -> None:
        self.server.kill()
        self.deaths += 1
        self._start(plan)

    async def _die(self, plan: Plan) -> None:
        try:
            await asyncio.to_thread(self._restart, plan)
        except AssertionError:
            # It died before it could say that it listens.
            return
        if plan.seconds:
            await asyncio.sleep(plan.seconds)  # a random moment
        else:
            # Somebody does all the time what leads there.
            with contextlib.suppress(AssertionError):
                await eventually_async(lambda: not self.server.is_running, timeout=10)
        await asyncio.to_thread(self.server.kill)

    async def _publish(self, name: str) -> None:
        numbers = itertools.count(1)
        url = self.server.url
        async with tamis.connect(url, publisher=name, sequence=1, timeout=120) as bus:
            self.connected.release()
            while not self.is_over:
                batch = [next(numbers) for _ in range(BATCH)]
                self.found.sent[name].update(batch)
                try:
                    await bus.publish_many([{"publisher": name, "number": n} for n in batch])
                except tamis.RefusedError:
                    # The broker misses earlier ones: what the test will say.
                    return
                self.found.acknowledged[name].update(batch)
                await asyncio.sleep(self.pace)  # volume is in the slow suite

    async def _subscribe(self) -> None:
        """Make subscriptions, one after the other, and delete all but the last few."""
        kept: deque[str] = deque()
        async with tamis.connect(self.server.url, timeout=120) as bus:
            self.connected.release()
            for name in map("s{}".format, itertools.count()):
                if self.is_over:
                    return
                subscription = await bus.subscribe("number < 0", durable=name)
                self.found.subscribed.add(name)
                await subscription.close()
                kept.append(name)
                if len(kept) > KEPT:
                    await self._delete(bus, kept.popleft())
                await asyncio.sleep(0.01)  # a pace that leaves time for the others

    async def _delete(self, bus: tamis.Bus, name: str) -> None:
        self.found.subscribed.discard(name)
        # Whether it is gone nobody knows, if the server has.
        with contextlib.suppress(tamis.DisconnectedError, tamis.RefusedError):
            await bus.delete(name)
            self.found.deleted.add(name)

    async def _receive(self) -> None:
        async with tamis.connect(self.server.url, timeout=120) as bus:
            self.connected.release()
            async for event in bus.subscribe("number > 0", durable="all", start="earliest"):
                self.found.received[event["publisher"]].append(event["number"])
                if END in self.found.received and self._has_all():
                    return

    def _has_all(self) -> bool:
        return all(
            numbers <= set(self.found.received[name])
            for name, numbers in self.found.acknowledged.items()
        )


class LateWorker:
    """Fetches events, and acknowledges most of them only after the server has died and come back.

    It acknowledges single events or all up to one, and takes an acknowledgement for certain once
    the broker says that it is on disk.
    """

    def __init__(self, killing: Killing) -> None:
        self._killing = killing
        self._found = killing.found
        self._http = httpx.AsyncClient(base_url=killing.server.url, timeout=10)

    async def run(self, patience: float) -> None:
        subscription = {"id": "late", "filter": "number > 0", "start": "earliest"}
        async with self._http:
            await self._post("/v1/subscriptions", **subscription)
            self._killing.connected.release()
            while not self._killing.is_over:
                with contextlib.suppress(httpx.HTTPError, OSError, WebSocketException):
                    await self._work()
            async with asyncio.timeout(patience):
                # A busy broker may have nothing for a moment; it has all once it has the last one.
                while not self._has_end():
                    await self._work()

    def _has_end(self) -> bool:
        return any(one.publisher == END for one in reversed(self._found.fetched[-1_000:]))

    async def _work(self) -> None:
        """Fetch events, perhaps wait for a death, and acknowledge."""
        limit = 250 if self._killing.is_over else BATCH
        fetched = await self._post("/v1/subscriptions/late/fetch", limit=limit, wait=0.2)
        events = fetched["events"]
        self._found.fetched.extend(
            Fetched(
                one["sequence"],
                one["data"]["publisher"],
                one["data"]["number"],
                one.get("attempt", 1),
            )
            for one in events
        )
        if not events:
            return
        sequences = [one["sequence"] for one in events]
        deaths = self._killing.deaths
        await self._wait_for_a_death(deaths)
        if self._killing.deaths > deaths and self._killing.rng.random() < 0.3:
            # It forgets them, so they come again.
            return
        while not await self._has_acknowledged(sequences):
            await asyncio.sleep(0.05)  # the server may be dead for a while
        if self._killing.deaths > deaths:
            self._found.late["events"] += len(sequences)

    async def _wait_for_a_death(self, deaths: int) -> None:
        if self._killing.is_over or self._killing.rng.random() < 0.3:
            return
        with contextlib.suppress(AssertionError):
            await eventually_async(
                lambda: self._killing.deaths > deaths or self._killing.is_over, timeout=5
            )

    async def _has_acknowledged(self, sequences: list[int]) -> bool:
        url = "/v1/subscriptions/late/acknowledge"
        by_one = self._killing.rng.random() < 0.5
        try:
            if by_one:
                await self._post(url, sequences=sequences)
            else:
                await self._post(url, up_to=max(sequences))
            await self._flush()
        except (httpx.HTTPError, OSError, WebSocketException):
            return False
        had = len(self._found.fetched)
        all_of_them = {
            one.sequence for one in self._found.fetched if one.sequence <= max(sequences)
        }
        for sequence in sequences if by_one else all_of_them:
            self._found.settled.setdefault(sequence, had)
        return True

    async def _flush(self) -> None:
        """Return when the acknowledgements so far are on the broker's disk."""
        async with connect(self._killing.server.websocket_url, open_timeout=10) as socket:
            for frame in ({"type": "hello"}, {"type": "ping", "ref": 1, "flush": True}):
                await socket.send(json.dumps(frame))
                reply = json.loads(await asyncio.wait_for(socket.recv(), 10))
        assert reply["type"] == "pong", reply

    async def _post(self, url: str, **body: object) -> dict[str, Any]:
        answer = await self._http.post(url, json=body)
        answer.raise_for_status()
        said: dict[str, Any] = answer.json() if answer.content else {}
        return said


@pytest.fixture(autouse=True)
def _impatient_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make clients reconnect at once: the server does not live long."""
    monkeypatch.setattr(Backoff, "next", lambda _: 0.05)


def check(found: KillRecord) -> None:
    for name, acknowledged in found.acknowledged.items():
        received = found.received[name]
        assert acknowledged <= set(received), f"{name}: lost"
        assert set(received) <= found.sent[name], f"{name}: invented"
        firsts = list(dict.fromkeys(received))
        assert firsts == sorted(firsts), f"{name}: out of order"
    check_late(found)
    assert found.subscribed <= found.left, "a subscription is lost"
    assert not found.deleted & found.left, "a subscription has come back"


def check_late(found: KillRecord) -> None:
    """Check that the late worker got all, and nothing after it had acknowledged it for certain."""
    for name, acknowledged in found.acknowledged.items():
        got = {one.number for one in found.fetched if one.publisher == name}
        assert acknowledged <= got, f"{name}: lost to the late worker"
    again = [
        one
        for place, one in enumerate(found.fetched)
        if place >= found.settled.get(one.sequence, len(found.fetched))
    ]
    assert not again, "acknowledged, and sent again"


def plans(count: int, seed: int) -> list[Plan]:
    """Return half of the deaths at named points, in turn, and half at any moment."""
    rng = Random(seed)
    points = itertools.cycle(POINTS)
    return [
        Plan(next(points), rng.randint(1, 12), 0.0)
        if number % 2
        else Plan("never", 0, rng.uniform(0.02, 0.4))
        for number in range(count)
    ]


def test_nothing_is_lost_by_a_kill_at_each_point(tmp_path: Path) -> None:
    at_any_moment, *_ = plans(1, 1)
    at_points = [Plan(point, 1 + 3 * number % 8, 0.0) for number, point in enumerate(POINTS)]
    killing = Killing(tmp_path, 1, pace=0.02).run([*at_points, at_any_moment])
    found = asyncio.run(asyncio.wait_for(killing, 300))
    check(found)
    assert sum(map(len, found.acknowledged.values())) > 200
    assert found.deleted
    assert found.late["events"] > 5
    assert len(found.deaths.keys() & {*POINTS}) >= len(POINTS) - 2


@pytest.mark.slow
def test_an_acknowledgement_before_the_sync_is_found_out(tmp_path: Path) -> None:
    killing = Killing(tmp_path, 2, pace=0.02)
    found = asyncio.run(killing.run([Plan(LYING, 8, 0.0)] * 2, patience=3.0))
    with pytest.raises(AssertionError, match="lost"):
        check(found)


@pytest.mark.slow
def test_nothing_is_lost_by_five_hundred_kills(tmp_path: Path) -> None:
    kills, acknowledged, deaths, late = 0, 0, Counter[str](), 0
    for round_ in range(5):
        killing = Killing(tmp_path / str(round_), round_)
        found = asyncio.run(killing.run(plans(100, round_ + 10), patience=600.0))
        check(found)
        # Over so many kills chance leaves none of these out.
        assert any(one.attempt > 1 for one in found.fetched)
        kills += 100
        acknowledged += sum(map(len, found.acknowledged.values()))
        deaths += found.deaths
        late += found.late["events"]
    print(
        f"\nkills: {kills}, {deaths.total()} of them at named points, {acknowledged:,} "
        f"acknowledged events, 0 lost, 0 invented, 0 disordered; {late:,} acknowledged by their "
        "receiver after a kill, 0 of them sent again"
    )
    assert deaths.keys() == {*POINTS}
    assert acknowledged >= 100_000
