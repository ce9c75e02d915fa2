"""Roaming: a durable subscription follows its client to another broker, with all that waits."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from seeds import seeds
from tamis.broker import Session
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.roaming import service, takeovers
from tamis.broker.roaming.departures import Departures
from tamis.broker.roaming.move_messages import FenceAnswer, FenceRequest
from tamis.errors import RefusedError
from tamis.protocol import Deliver, Delivery, Dropped, Ended, Subscribe
from waiting import eventually_async

from .local_links import LocalBrokers, local_brokers

P = ParamSpec("P")
LINE = [("north", "hub"), ("south", "hub")]
POLICY = """
[roles.link]
peer = true
see = true
publish = true

[roles.broad]
see = true
publish = true

[roles.narrow]
see = { filter = "n < 3" }
"""
WANTED = Subscribe(ref=1, filter="n >= 0", durable="laptop", roaming=True)


def run_async(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test in an event loop, for at most five minutes."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 300))

    return run


class Tickers:
    """Publish numbered events at every broker."""

    def __init__(self, brokers: LocalBrokers) -> None:
        self._brokers = brokers
        self.count = dict.fromkeys(brokers.names, 0)
        self.pause = 0.01
        self.is_over = False

    async def tick(self, name: str, times: int = 1) -> None:
        session = await self._brokers.session(name)
        for _ in range(times):
            n = self.count[name]
            event = json.dumps({"n": n, "from": name}).encode()
            # Numbered, so that it is stored once if a broker stops before it has answered.
            await session.publish([event], publisher="ticker", sequence=n + 1)
            self.count[name] += 1
        await session.close()

    async def run(self, name: str) -> None:
        is_known = True
        # What a broker that stopped did not answer is published again, so that it counts.
        while not (self.is_over and is_known):
            try:
                is_known = False
                if name in self._brokers:
                    await self.tick(name)
                    is_known = True
            except RefusedError as error:
                assert error.code == "unavailable", error  # noqa: PT017
            await asyncio.sleep(self.pause)  # the pace of a publisher


@asynccontextmanager
async def ticking(brokers: LocalBrokers, *, pause: float = 0.01) -> AsyncIterator[Tickers]:
    """Publish at all brokers until the end of the block."""
    tickers = Tickers(brokers)
    tickers.pause = pause
    tasks = [asyncio.create_task(tickers.run(name)) for name in brokers.names]
    try:
        yield tickers
    finally:
        tickers.is_over = True
        await asyncio.gather(*tasks)


class Collected:
    """Takes what a subscription is sent."""

    def __init__(self) -> None:
        self.events: list[tuple[int, dict[str, Any], int]] = []
        self.ended: list[str] = []

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        if isinstance(frame, Deliver):
            self.events += [
                (one.sequence, json.loads(bytes(one.data)), one.attempt) for one in frame.events
            ]
        elif isinstance(frame, Ended):
            self.ended.append(frame.reason)


class Traveller:
    """A client that takes events, now here, now there."""

    def __init__(self, brokers: LocalBrokers) -> None:
        self._brokers = brokers
        self.seen: dict[str, list[int]] = {name: [] for name in brokers.names}
        self.unacknowledged: set[tuple[str, int]] = set()
        self.place = ""

    async def visit(
        self, place: str, is_enough: Callable[[Collected], bool], acknowledged: float = 1.0
    ) -> None:
        """Take events at a broker until they are enough, and acknowledge the first part of them."""
        self.place = place
        session = await self._brokers.session(place)
        await subscribe_in_time(session.subscribe)
        collected = Collected()
        attachment = await session.attach("laptop", collected, credit=9999, acknowledge="manual")
        await eventually_async(
            lambda: is_enough(collected), partial(state_of, self._brokers), timeout=60
        )
        await session.detach(attachment)
        kept = collected.events[: round(len(collected.events) * acknowledged)]
        await session.acknowledge("laptop", [sequence for sequence, _, _ in kept])
        for _, event, _ in collected.events[len(kept) :]:
            self.unacknowledged.add((event["from"], event["n"]))
        for _, event, attempt in kept:
            place, n = event["from"], event["n"]
            expected = self.seen[place][-1] + 1 if self.seen[place] else 0
            # In order, none twice, none left out.
            assert n == expected, (place, n, expected)
            self.seen[place].append(n)
            # What may have been seen before says so.
            assert attempt > 1 or (place, n) not in self.unacknowledged, (place, n)
        await session.close()

    async def take_rest(self, place: str, tickers: Tickers) -> None:
        """Take everything that is left."""
        while self.total < sum(tickers.count.values()):
            await self.visit(place, lambda collected: bool(collected.events))
        for name, count in tickers.count.items():
            assert self.seen[name] == [*range(count)]

    @property
    def total(self) -> int:
        return sum(map(len, self.seen.values()))


async def subscribe_in_time(subscribe: Callable[[Subscribe], Awaitable[object]]) -> None:
    for _ in range(200):
        try:
            await subscribe(WANTED)
        except RefusedError as error:
            if error.code != "unavailable":
                raise
            await asyncio.sleep(0.1)  # a pace at which to look again
        else:
            return
    pytest.fail("the subscription did not come")


async def next_of(session: Session) -> Delivery:
    """Return the next event, however long that takes."""
    while not (events := await session.fetch("laptop", limit=1, wait=20)):
        pass
    return events[0]


async def settle(brokers: LocalBrokers, names: Sequence[str]) -> None:
    """Wait until each broker has a route to its neighbours for what is subscribed to."""
    for name in names:
        routes = brokers[name].subscription_index.routes
        await eventually_async(partial(len, routes), partial(state_of, brokers))


def state_of(brokers: LocalBrokers) -> str:
    """Return where the subscriptions are, and which links are open, for who waits in vain."""
    lines = []
    for name in brokers.names:
        broker = brokers[name]
        held = [
            f"{one.stored.name} (arrival {one.arrival}, departure {one.departure})"
            for one in broker.subscription_index.owned_by("anonymous")
        ]
        links = [
            f"{one.title}: {'open' if one.is_greeted else one.problem}, {one.unstored} unstored"
            for one in broker.overlay.traffic.links.values()
        ]
        lines.append(f"{name}: holds {held or 'nothing'}; links {links}")
    return "\n".join(lines)


def has_none(brokers: LocalBrokers, name: str) -> bool:
    return not brokers[name].subscription_index.owned_by("anonymous")


def at_least(count: int) -> Callable[[Collected], bool]:
    return lambda collected: len(collected.events) >= count


@run_async
async def test_what_waits_comes_in_order_and_once_wherever_the_client_goes(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE) as brokers:
        traveller, north = Traveller(brokers), await brokers.session("north")
        # Nobody has it, so it is made here.
        await north.subscribe(WANTED)
        await settle(brokers, ["hub", "south"])
        async with ticking(brokers) as tickers:
            await traveller.visit("north", at_least(20), acknowledged=0.5)
            await traveller.visit("south", at_least(20), acknowledged=0.7)
            await traveller.visit("hub", at_least(20), acknowledged=0.3)
            await traveller.visit("north", at_least(20))
        # So that something is left, however much the client has taken: it goes there for that.
        await tickers.tick("hub")
        await traveller.take_rest("south", tickers)
        told = partial(state_of, brokers)
        for name in ("north", "hub"):
            await eventually_async(partial(has_none, brokers, name), told)
        [moved] = brokers["south"].subscription_index.owned_by("anonymous")
        await eventually_async(lambda: moved.arrival is None, told)
        # What was handed over is nobody else's: the history has each event once.
        south = await brokers.session("south")
        page = await south.history("n >= 0", limit=1000)
        found = [(one.publisher, bytes(one.data)) for one in page.events]
        assert len(found) == len({*found})
        # An old connection is told.
        collected = Collected()
        await south.attach("laptop", collected, credit=1, acknowledge="manual")
        await (await brokers.session("hub")).subscribe(WANTED)
        await eventually_async(lambda: collected.ended == ["moved to another broker"], told)


@run_async
async def test_what_cannot_move_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SEARCH_SECONDS", 0.5)
    monkeypatch.setattr(service, "MOVE_SECONDS", 2.0)
    async with local_brokers(tmp_path, LINE[:1]) as brokers:
        north, hub = await brokers.session("north"), await brokers.session("hub")
        await north.subscribe(WANTED)

        async def refusal(**changes: Any) -> str:
            values = {"ref": 1, "filter": "n >= 0", "durable": "laptop", "roaming": True}
            with pytest.raises(RefusedError) as caught:
                await hub.subscribe(Subscribe(**values | changes))  # type: ignore[arg-type]
            return str(caught.value)

        own = f"http://127.0.0.1:{brokers['hub'].settings.port}"
        with pytest.raises(RefusedError, match="is the address of this broker"):
            await brokers["hub"].overlay.add(own, None, None)
        assert "only a durable" in await refusal(durable=None)
        assert "another filter at its home, 'n >= 0'" in await refusal(filter="n > 0")
        await north.subscribe(Subscribe(ref=2, filter="n >= 0", durable="crew", group=True))
        assert "'crew' is a group at its home, and groups do not move" in await refusal(
            durable="crew"
        )
        assert "the group 'crew' cannot be brought from another broker" in await refusal(
            durable="crew", group=True
        )
        [link] = brokers.links.values()
        await link.cut()
        assert "cannot be asked now" in await refusal()
        await brokers.heal()
        # One that is on its way cannot be used at either end.
        monkeypatch.setattr(takeovers.Takeovers, "_fetch_all", asyncio.Event().wait)
        assert "is not here yet" in await refusal()
        with pytest.raises(RefusedError, match="moves to the broker"):
            await north.subscription("laptop")
        with pytest.raises(RefusedError, match="is on its way here"):
            await hub.fetch("laptop")


@run_async
async def test_what_is_delivered_while_the_line_is_drawn_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go, leave = threading.Event(), threading.Event(), Departures._leave

    def leave_late(self: Departures, *args: Any) -> bool:
        # As if the matcher had to catch up first.
        asked.set()
        return go.is_set() and leave(self, *args)

    monkeypatch.setattr(Departures, "_leave", leave_late)
    async with local_brokers(tmp_path, LINE) as brokers:
        north, hub = await brokers.session("north"), await brokers.session("hub")
        await north.subscribe(WANTED)
        await settle(brokers, ["hub", "south"])
        former, tickers, told = Collected(), Tickers(brokers), partial(state_of, brokers)
        await north.attach("laptop", former, credit=99, acknowledge="auto")
        await tickers.tick("north", 3)
        moving = asyncio.create_task(subscribe_in_time(hub.subscribe))
        await eventually_async(asked.is_set, told)
        await tickers.tick("north", 2)
        await tickers.tick("south", 2)
        await eventually_async(lambda: len(former.events) == 7, told)
        go.set()
        await moving
        await tickers.tick("north")
        await tickers.tick("south")
        later = Collected()
        await hub.attach("laptop", later, credit=99, acknowledge="auto")

        def seen(name: str) -> list[int]:
            both = former.events + later.events
            return [event["n"] for _, event, _ in both if event["from"] == name]

        await eventually_async(
            lambda: seen("north")[-1:] == [5] and seen("south")[-1:] == [2], told
        )
        assert (seen("north"), seen("south")) == ([*range(6)], [*range(3)])


@run_async
async def test_a_narrow_credential_that_moves_a_subscription_takes_nothing_from_a_broad_one(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)

    async def taken(session: Session, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            events = await session.fetch("laptop", wait=20)
            assert events, found
            await session.acknowledge("laptop", [one.sequence for one in events])
            found += [json.loads(bytes(one.data))["n"] for one in events]
        return found

    async with local_brokers(tmp_path, LINE[:1], policy) as brokers:
        home = await brokers.session("north", "broad")
        await home.subscribe(WANTED)
        await home.publish([b'{"n": 2}', b'{"n": 8}', b'{"n": 9}'])
        narrow = await brokers.session("hub", "narrow")
        await narrow.subscribe(WANTED)
        # Not even how many events wait that it may not see.
        assert (await narrow.subscription("laptop")).pending == 0
        assert await taken(narrow, 1) == [2]
        broad = await brokers.session("hub", "broad")
        await broad.publish([b'{"n": 1}', b'{"n": 7}'])
        assert await taken(broad, 4) == [8, 9, 1, 7]
        # Also when it goes back.
        await broad.publish([b'{"n": 6}'])
        await (await brokers.session("north", "narrow")).subscribe(WANTED)
        assert await taken(await brokers.session("north", "broad"), 1) == [6]


@run_async
async def test_whoever_acknowledges_at_the_former_home_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_forget, forget = asyncio.Event(), Departures._forget

    async def forget_later(self: Departures, found: ActiveSubscription, move: str) -> None:
        await may_forget.wait()
        await forget(self, found, move)

    monkeypatch.setattr(Departures, "_forget", forget_later)

    async with local_brokers(tmp_path, LINE[:1]) as brokers:
        home, away = await brokers.session("north"), await brokers.session("hub")
        await home.subscribe(WANTED)
        await home.publish([b'{"n": 1}'])
        event = await next_of(home)
        await subscribe_in_time(away.subscribe)
        with pytest.raises(RefusedError, match="moves to the broker") as refused:
            await home.acknowledge("laptop", [event.sequence])
        assert refused.value.code == "conflict"
        may_forget.set()
        await eventually_async(partial(has_none, brokers, "north"), partial(state_of, brokers))
        with pytest.raises(RefusedError, match=r"has moved to the broker .* connect there") as gone:
            await home.acknowledge("laptop", [event.sequence])
        assert gone.value.code == "not_found"
        # So it comes again, and says so.
        assert (await next_of(away)).attempt > 1


@run_async
async def test_a_letter_of_an_earlier_move_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, late = Departures.answer, list[tuple[Departures, str, FenceRequest]]()

    async def note(self: Departures, source: str, question: Any) -> Any:
        if isinstance(question, FenceRequest):
            late.append((self, source, question))
        return await answer(self, source, question)

    monkeypatch.setattr(Departures, "answer", note)
    async with local_brokers(tmp_path, LINE[:1]) as brokers:
        north, hub = await brokers.session("north"), await brokers.session("hub")
        for one in (north, hub, north):
            await subscribe_in_time(one.subscribe)
        [found] = brokers["north"].subscription_index.owned_by("anonymous")
        await eventually_async(lambda: found.arrival is None, partial(state_of, brokers))
        # It was written again, and waited on its way until the subscription was back.
        home, source, question = late[0]
        assert home._store.state.broker_id == brokers["north"].overlay.broker
        said = await answer(home, source, question)
        assert isinstance(said, FenceAnswer)
        assert said.is_taken
        assert not found.is_moving


@pytest.mark.slow
@run_async
async def test_a_subscription_with_dead_letters_stays_at_home(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE[:1]) as brokers:
        north, hub = await brokers.session("north"), await brokers.session("hub")
        once = Subscribe(ref=1, filter="n >= 0", durable="laptop", max_attempts=1)
        await north.subscribe(once)
        await Tickers(brokers).tick("north")
        [event] = await north.fetch("laptop", wait=10)
        await north.reject("laptop", event.sequence)
        await eventually_async(lambda: bool(brokers["north"].store.state.dead_letter_usage()))
        service_seconds = service.MOVE_SECONDS
        try:
            service.MOVE_SECONDS = 2.0  # type: ignore[misc]
            with pytest.raises(RefusedError, match="not here yet"):
                await hub.subscribe(WANTED)
        finally:
            service.MOVE_SECONDS = service_seconds  # type: ignore[misc]
        await north.delete_dead_letters("laptop", [event.sequence])
        await subscribe_in_time(hub.subscribe)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20))
@run_async
async def test_moves_survive_cuts_and_restarts(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    async with local_brokers(tmp_path, [*LINE, ("east", "south")]) as brokers:
        traveller, first = Traveller(brokers), await brokers.session("north")
        await first.subscribe(WANTED)
        await first.close()
        await settle(brokers, ["hub", "south", "east"])
        is_over, turn = asyncio.Event(), asyncio.Lock()

        async def disturb() -> None:
            while not is_over.is_set():
                await asyncio.sleep(rng.uniform(0.2, 2))  # a visit of any length
                if rng.random() < 0.7:
                    link = rng.choice([*brokers.links.values()])
                    await link.cut()
                    await asyncio.sleep(rng.uniform(0, 0.5))  # a moment of the move
                    await link.heal()
                    continue
                async with turn:
                    name = rng.choice([one for one in brokers.names if one != traveller.place])
                    await brokers.stop(name)
                    await brokers.start(name)
                    await brokers.heal()

        async with ticking(brokers, pause=0.05) as tickers:
            disturbing = asyncio.create_task(disturb())
            for _ in range(8):
                async with turn:
                    traveller.place = rng.choice(brokers.names)
                await traveller.visit(
                    traveller.place, at_least(rng.randrange(1, 40)), rng.choice([0.3, 1.0])
                )
            is_over.set()
            await disturbing
        await brokers.heal()
        await traveller.take_rest("hub", tickers)


@pytest.mark.slow
@run_async
async def test_of_two_brokers_that_want_it_at_once_one_gets_it(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, LINE) as brokers:
        north = await brokers.session("north")
        await north.subscribe(WANTED)
        await settle(brokers, ["hub", "south"])
        tickers = Tickers(brokers)
        await tickers.tick("south", 10)
        for _ in range(5):
            sessions = [await brokers.session(name) for name in ("hub", "south")]
            await asyncio.gather(
                *(one.subscribe(WANTED) for one in sessions), return_exceptions=True
            )

            def homes() -> list[str]:
                return [
                    name
                    for name in brokers.names
                    for one in brokers[name].subscription_index.owned_by("anonymous")
                    if not one.is_moving
                ]

            def is_settled() -> bool:
                all_ = [brokers[one].subscription_index.owned_by("anonymous") for one in LINE[0]]
                return len(homes()) == 1 and sum(map(len, all_)) <= 1

            await eventually_async(is_settled, partial(state_of, brokers))
            # Back to the start of the next round.
            await subscribe_in_time(north.subscribe)
        traveller = Traveller(brokers)
        await traveller.take_rest("north", tickers)
