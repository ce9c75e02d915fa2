"""The router at work: what cannot be carried out costs one link, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec
import pytest

from broker.authorization_fixture import run_async
from tamis.broker.peers.link_router import LinkRouter
from tamis.covering import CoveringIndex
from tamis.errors import RefusedError
from tamis.filters import Filter, attr
from tamis.filters.structure import to_structure
from tamis.protocol import Code
from tamis.protocol.peering import LinkFrame
from tamis.routing import Router
from tamis.routing.inputs import (
    LinkOpened,
    LocalFilterAdded,
    LocalFilterRemoved,
    MessageReceived,
    RouterInput,
)
from tamis.routing.instructions import Instruction
from tamis.routing.messages import (
    BrokerChanges,
    BrokerEntry,
    FilterChanges,
    Greeting,
    Holdings,
    Letter,
    LinkMessage,
)

P = ParamSpec("P")
T = TypeVar("T")


class DirectExecutor:
    """Runs work at once."""

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return work(*args, **kwargs)

    def close(self) -> None:
        """Nothing is to be closed."""


class LimitedLinks:
    """Keeps one route for each peer, and refuses more."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Filter]] = {}
        self.posted: list[str] = []
        self.refused: list[str] = []

    def post(self, peer: str, frame: LinkFrame) -> None:  # noqa: ARG002
        self.posted.append(peer)

    def routes(self, peer: str) -> dict[str, Filter]:
        return self.kept.get(peer, {})

    async def change_routes(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        await asyncio.sleep(0)  # the router has its turn
        kept = {**self.routes(peer), **add}
        if len(kept) > 1:
            raise RefusedError(Code.TOO_MANY, "there would be more than 1 route")
        self.kept[peer] = {name: one for name, one in kept.items() if name not in remove}

    async def change_advertisements(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        """Keep nothing."""

    def await_drained(self, peer: str, drained: Callable[[], None]) -> None:
        """Wait for nothing."""

    def refuse(self, peer: str, reason: str) -> None:  # noqa: ARG002
        self.refused.append(peer)

    async def forget(self, peer: str, reason: str) -> None:
        """Keep nothing."""

    def note_wanted(self, advertisement: str, *, is_wanted: bool) -> None:
        """Tell nobody."""

    def take_letter(self, peer: str, letter: Letter) -> None:
        """Read nothing."""

    def hides_nothing(self, peer: str) -> bool:
        """Return whether letters may pass: not to one peer."""
        return peer != "narrow"


@run_async
async def test_routes_that_cannot_be_kept_cost_one_link_and_are_not_taken_for_kept() -> None:
    links = LimitedLinks()
    router = Router("us", make_index=partial(CoveringIndex, many=True))
    link_router = LinkRouter(router, DirectExecutor(), links)

    async def say(peer: str, message: LinkMessage) -> None:
        await link_router.handle(MessageReceived(peer, message))

    def asking(*bounds: int) -> FilterChanges:
        return FilterChanges(tuple(to_structure(attr("x") == one) for one in bounds))

    running = asyncio.create_task(link_router.run())
    for peer in ("greedy", "other"):
        await link_router.handle(LinkOpened(peer))
        await say(peer, Greeting(peer, 1))
        await say(peer, Holdings())
    await say("greedy", asking(1))
    links.posted.clear()
    # All of them are handled at once.
    greedy = asyncio.create_task(say("greedy", asking(2)))
    other = asyncio.create_task(say("other", asking(3)))
    local = asyncio.create_task(link_router.handle(LocalFilterAdded("own", attr("y") == 1)))
    async with asyncio.timeout(5):
        with pytest.raises(RefusedError, match="more than 1 route"):
            await greedy
        await other
        await local
    assert links.refused == ["greedy"]
    assert "other" in links.posted
    for peer in ("greedy", "other"):
        # On its next connection, a peer sends what is not here.
        assert router.routes(peer) == links.routes(peer)
        assert len(links.routes(peer)) == 1
    assert not running.done()
    running.cancel()


async def linked(link_router: LinkRouter, peer: str, *behind: BrokerEntry) -> None:
    await link_router.handle(LinkOpened(peer))
    await link_router.handle(MessageReceived(peer, Greeting(peer, 1, behind)))
    await link_router.handle(MessageReceived(peer, Holdings()))


@run_async
async def test_a_broker_that_moves_to_another_link_may_have_left_events_on_its_former_way() -> None:
    router = Router("us", make_index=partial(CoveringIndex, many=True))
    link_router = LinkRouter(router, DirectExecutor(), LimitedLinks())
    running = asyncio.create_task(link_router.run())
    await linked(link_router, "left", BrokerEntry("guest", "left", 1, "Guest"))
    await linked(link_router, "right")
    assert link_router.link_of["guest"] == "left"
    await link_router.handle(MessageReceived("left", BrokerChanges((), ("guest",))))
    entry = BrokerEntry("guest", "right", 2, "Guest")
    await link_router.handle(MessageReceived("right", BrokerChanges((entry,))))
    assert link_router.link_of["guest"] == "right"
    assert link_router.links_of["guest"] == {"left", "right"}
    assert link_router.links_of["left"] == {"left"}
    running.cancel()


@run_async
async def test_letters_do_not_pass_links_whose_roles_hide_something() -> None:
    links = LimitedLinks()
    router = Router("us", make_index=partial(CoveringIndex, many=True))
    link_router = LinkRouter(router, DirectExecutor(), links)
    running = asyncio.create_task(link_router.run())
    await linked(link_router, "wide")
    await linked(link_router, "narrow")
    links.posted.clear()
    letter = Letter("wide", "narrow", 1, msgspec.Raw(b"{}"))
    await link_router.receive("wide", msgspec.json.encode(letter))
    back = Letter("narrow", "wide", 1, msgspec.Raw(b"{}"))
    await link_router.receive("narrow", msgspec.json.encode(back))
    assert links.posted == []
    running.cancel()


class CountingRouter(Router):
    """Notes what it handles."""

    def __init__(self) -> None:
        super().__init__("us", make_index=partial(CoveringIndex, many=True))
        self.handled: list[RouterInput] = []

    def handle(self, given: RouterInput) -> list[Instruction]:
        self.handled.append(given)
        return super().handle(given)


@run_async
async def test_whoever_floods_the_router_holds_up_itself() -> None:
    router = CountingRouter()
    link_router = LinkRouter(router, DirectExecutor(), LimitedLinks())
    flood = [LocalFilterAdded(str(n), attr("x") == n) for n in range(500)]
    for one in flood:
        link_router.put(partial(lambda given: given, one), "/noisy")
    running = asyncio.create_task(link_router.run())
    quiet = LocalFilterAdded("500", attr("y") == 1)
    link_router.put(lambda: quiet, "/quiet")
    await link_router.handle(LinkOpened("peer"))
    # In the first turns, and not after everything else.
    assert max(map(router.handled.index, (quiet, LinkOpened("peer")))) < 5
    link_router.put(LocalFilterRemoved("0"), "/noisy")
    await link_router.settled()
    assert len(router.handled) == 503
    # Each source's in order.
    assert [one for one in router.handled if one in flood] == flood
    assert router.handled[-1] == LocalFilterRemoved("0")
    running.cancel()
