"""A broker in this process, with a policy that can change and a clock that can be set."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from broker.authorization_clients import Data, as_json
from broker.authorization_run import reload, wait_until_idle
from clocks import ManualClock
from tamis.broker import Broker, BrokerSettings, Session
from tamis.errors import RefusedError
from tamis.protocol import Subscribe
from tamis.protocol.views import SubscriptionView
from waiting import eventually_async

P = ParamSpec("P")

FEED = """
[roles.feed]
publish = true
[principals]
feed = ["feed"]
"""


def run_async(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test in an event loop, for at most a minute."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


class BrokerFixture:
    """A broker with the sessions, events and policies of a test."""

    def __init__(self, broker: Broker, clock: ManualClock, policy: Path) -> None:
        self.broker = broker
        self.clock = clock
        self._policy = policy

    async def token(self, name: str, *roles: str, lifetime: float | None = None) -> str:
        text, _ = await self.broker.access_control.issue(name, roles, lifetime, "")
        return text

    async def login(self, name: str, *roles: str) -> Session:
        """Return a session with a new token that has these roles."""
        return await self.broker.authenticate(await self.token(name, *roles))

    async def publish(self, *documents: Data) -> None:
        feed = await self.login("feed", "feed")
        await feed.publish(encoded(documents))
        await feed.close()
        await self.broker.committer.drained()
        await self.broker.matcher.drained()
        await self.broker.acknowledgement_writer.settled()

    def write_policy(self, policy: str) -> None:
        """Write a policy file, without waiting for the broker to read it."""
        self._policy.write_text(policy + FEED)

    async def change_policy(self, policy: str) -> None:
        """Write a policy file and return when the broker has applied it."""
        self.write_policy(policy)
        await reload(self.broker)

    async def wait_until_idle(self) -> None:
        await wait_until_idle(self.broker)


@asynccontextmanager
async def broker_fixture(
    folder: Path, policy: str, **settings: Any
) -> AsyncIterator[BrokerFixture]:
    """Open a broker; in the folder of an earlier one it continues from its data."""
    folder.mkdir(parents=True, exist_ok=True)
    path, clock = folder / "policy.toml", ManualClock()
    path.write_text(policy + FEED)
    wanted = BrokerSettings(data=folder / "data", policy=path, **settings)
    async with await Broker.open(wanted, clock=clock) as broker:
        yield BrokerFixture(broker, clock, path)


@asynccontextmanager
async def busy_matcher(broker: Broker) -> AsyncIterator[None]:
    """Hold up all changes and all events."""
    begun, free = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        free.wait()

    matching = asyncio.create_task(broker.matcher.updater.do(wait))
    await eventually_async(begun.is_set)
    try:
        yield
    finally:
        free.set()
        await matching


def encoded(documents: Sequence[Data]) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


async def subscribe(
    session: Session, filter_: str, name: str | None = None, **more: Any
) -> SubscriptionView:
    return await session.subscribe(Subscribe(ref=0, filter=filter_, durable=name, **more))


async def fetched(session: Session, name: str, **more: Any) -> list[Data]:
    """Return the data of fetched events."""
    got: list[Data] = [as_json(one)["data"] for one in await session.fetch(name, **more)]
    return got


async def refusal(answer: Awaitable[object]) -> str:
    """Return the code and the message of a refusal."""
    with pytest.raises(RefusedError) as caught:
        await answer
    return f"{caught.value.code}: {caught.value}"


async def exhaust_attempts(session: Session, name: str) -> None:
    """Reject all pending events until they are dead letters."""
    while got := await session.fetch(name):
        for one in got:
            await session.reject(name, one.sequence, delay=0.0, reason="no")
    await session._services.acknowledgement_writer.settled()


def unreadable(name: str) -> str:
    """Return the refusal of a subscription that tests what the reader may not see."""
    return (
        f"forbidden: the filter of {name!r} tests attributes that you may not see: use a "
        "credential that may, or another name"
    )
