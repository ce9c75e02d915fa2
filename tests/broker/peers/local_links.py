"""Brokers in this process, linked by queues, without a network; their links can be cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tamis.access import Principal
from tamis.access.roles import ANONYMOUS
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.local import _ClientSide, _Lane
from tamis.broker.peers.link import LinkTerms
from waiting import eventually_async


class LocalLink:
    """A link of two brokers, which may be cut and healed."""

    def __init__(self, brokers: LocalBrokers, one: str, other: str) -> None:
        self._brokers = brokers
        self.ends = one, other
        self._sides: list[_ClientSide] = []
        self._tasks: list[asyncio.Task[object]] = []

    async def heal(self) -> None:
        """Connect the brokers anew."""
        await self.cut()
        lanes = _Lane(), _Lane()
        self._sides = [_ClientSide(*lanes), _ClientSide(*lanes[::-1])]
        if not all(name in self._brokers for name in self.ends):
            return
        one, other = (self._brokers[name].overlay for name in self.ends)
        revoked = asyncio.get_running_loop().create_future()
        peer = ANONYMOUS if self._brokers.policy is None else Principal("peer", ("link",))
        dialling = one._hold(self._sides[0], LinkTerms(peer, "local:", "settings"))
        accepting = other.hold_accepted(self._sides[1], peer, revoked)
        self._tasks = [asyncio.ensure_future(work) for work in (dialling, accepting)]

    async def cut(self) -> None:
        """Lose the connection."""
        for side in self._sides:
            await side.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._sides, self._tasks = [], []


class LocalBrokers:
    """Brokers by name, and their links."""

    def __init__(
        self, folder: Path, links: Sequence[tuple[str, str]], policy: Path | None = None
    ) -> None:
        """Name brokers; the links of those with a policy have its role `link`."""
        self._folder = folder
        self.policy = policy
        self.names = [*dict.fromkeys(name for link in links for name in link)]
        self._brokers: dict[str, Broker] = {}
        self.links = {link: LocalLink(self, *link) for link in links}

    def __getitem__(self, name: str) -> Broker:
        return self._brokers[name]

    def __contains__(self, name: str) -> bool:
        return name in self._brokers

    async def start(self, name: str) -> None:
        """Start a broker."""
        settings = BrokerSettings(
            data=self._folder / name,
            name=name,
            policy=self.policy,
            peer_ping_interval=0.2,
            peer_timeout=5,
        )
        self._brokers[name] = await Broker.open(settings)

    async def stop(self, name: str) -> None:
        """Stop a broker, and cut its links."""
        for link in self.links.values():
            if name in link.ends:
                await link.cut()
        await self._brokers.pop(name).close()

    async def heal(self) -> None:
        """Connect all links, and wait until their routers are in step."""
        for link in self.links.values():
            await link.heal()
        for link in self.links.values():
            for name, other in (link.ends, link.ends[::-1]):
                await eventually_async(partial(self.knows, name, other))

    def knows(self, name: str, other: str) -> bool:
        """Return whether a broker has an open link to another."""
        peer = self[other].overlay.broker
        link = self[name].overlay.traffic.links.get(peer)
        return link is not None and link.is_greeted

    async def session(self, name: str, *roles: str) -> Session:
        """Return a session of nobody, or of Ann with a token for roles."""
        token = None
        if roles:
            token, _ = await self[name].access_control.issue("ann", roles, None, "")
        return await self[name].authenticate(token)

    async def close(self) -> None:
        for name in [*self._brokers]:
            await self.stop(name)


@asynccontextmanager
async def local_brokers(
    folder: Path, links: Sequence[tuple[str, str]], policy: Path | None = None
) -> AsyncIterator[LocalBrokers]:
    """Run linked brokers until the end of the block."""
    brokers = LocalBrokers(folder, links, policy)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(brokers.close)
        for name in brokers.names:
            await brokers.start(name)
        await brokers.heal()
        yield brokers
