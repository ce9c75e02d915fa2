"""A broker in this process with a policy that can be rewritten and a clock that can be set."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from broker.authorization_actors import Data, plain
from broker.authorization_play import Clock, quiet, reload
from tamis.broker import Broker, BrokerSettings, Session
from tamis.errors import RefusedError
from tamis.protocol import Subscribe
from tamis.protocol.views import SubscriptionView

P = ParamSpec("P")

FEED = """
[roles.feed]
publish = true
[principals]
feed = ["feed"]
"""


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let pytest run a test that is a coroutine."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


class House:
    """A broker, and who comes to it."""

    def __init__(self, broker: Broker, clock: Clock, policy: Path) -> None:
        self.broker = broker
        self.clock = clock
        self._policy = policy

    async def token(self, name: str, *roles: str, lifetime: float | None = None) -> str:
        text, _ = await self.broker.doorman.issue(name, roles, lifetime, "")
        return text

    async def come(self, name: str, *roles: str) -> Session:
        """Return a session by a token with these roles."""
        return await self.broker.authenticate(await self.token(name, *roles))

    async def publish(self, *documents: Data) -> None:
        feed = await self.come("feed", "feed")
        await feed.publish(texts(documents))
        await feed.close()
        await self.broker.committer.drained()
        await self.broker.matcher.drained()
        await self.broker.settler.settled()

    def write(self, policy: str) -> None:
        """Write another policy into the file."""
        self._policy.write_text(policy + FEED)

    async def rewrite(self, policy: str) -> None:
        """Write another policy, and let it be read."""
        self.write(policy)
        await reload(self.broker)

    async def quiet(self) -> None:
        await quiet(self.broker)


@asynccontextmanager
async def house(folder: Path, policy: str, **settings: Any) -> AsyncIterator[House]:
    """Open a broker; opened again in the same folder it goes on."""
    folder.mkdir(parents=True, exist_ok=True)
    path, clock = folder / "policy.toml", Clock()
    path.write_text(policy + FEED)
    wanted = BrokerSettings(data=folder / "data", policy=path, **settings)
    async with await Broker.open(wanted, clock=clock) as broker:
        yield House(broker, clock, path)


def texts(documents: Sequence[Data]) -> list[bytes]:
    return [json.dumps(document).encode() for document in documents]


async def subscribe(
    session: Session, filter_: str, name: str | None = None, **more: Any
) -> SubscriptionView:
    return await session.subscribe(Subscribe(ref=0, filter=filter_, durable=name, **more))


async def fetched(session: Session, name: str, **more: Any) -> list[Data]:
    """Return what events say that are fetched."""
    got: list[Data] = [plain(one)["data"] for one in await session.fetch(name, **more)]
    return got


async def refusal(answer: Coroutine[Any, Any, object]) -> str:
    """Return the code and the message of a refusal."""
    with pytest.raises(RefusedError) as caught:
        await answer
    return f"{caught.value.code}: {caught.value}"


async def bury(session: Session, name: str) -> None:
    """Reject all that waits, so often that it is given up."""
    while got := await session.fetch(name):
        for one in got:
            await session.reject(name, one.sequence, delay=0.0, reason="no")
    await session._broker.settler.settled()
