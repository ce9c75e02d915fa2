"""Who speaks for a broker, and what those are shown who may not see everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from broker.authorization_fixture import run_async
from broker.links.pairs import opened
from tamis.access import Principal
from tamis.broker import Broker
from tamis.broker.peers import peer_identities
from tamis.broker.peers.link import LinkTerms
from tamis.errors import RefusedError
from tamis.protocol.peering import TopologyRequest, encode_link_frame
from waiting import eventually_async

from .local_links import local_brokers
from .wires import PEER, Wires

POLICY = """
[roles.peer]
peer = true
see = true
publish = true

[roles.guest]
peer = true
see = { filter = "level < 3", hide = ["salary"] }
"""
NEXT = "https://next.example"
EVIL = "https://evil.example"


class Peers:
    """Connections of peers to a broker with a policy."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._revoked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open: dict[asyncio.Task[Any], Wires] = {}

    async def hold(self, terms: LinkTerms, peer: str = PEER) -> tuple[asyncio.Task[Any], Wires]:
        """Let one connect; return when its link is open, or it is refused."""
        wires, overlay = Wires(), self._broker.overlay
        wires.begin(peer)
        held = asyncio.create_task(overlay._hold(wires, terms))
        self._open[held] = wires
        await eventually_async(lambda: held.done() or self.speaker(peer) == terms.principal.name)
        return held, wires

    async def accept(self, name: str, peer: str = PEER) -> tuple[asyncio.Task[Any], Wires]:
        role = "guest" if name == "guest" else "peer"
        return await self.hold(LinkTerms(Principal(name, (role,)), revoked=self._revoked), peer)

    async def dial(self, url: str, peer: str = PEER) -> tuple[asyncio.Task[Any], Wires]:
        return await self.hold(LinkTerms(Principal(url, ("peer",)), url, "settings"), peer)

    def speaker(self, peer: str = PEER) -> str | None:
        """Return who speaks over the open connection of a broker."""
        link = self._broker.overlay.traffic.links.get(peer)
        if link is None or link.terms is None or not link.is_greeted:
            return None
        return link.terms.principal.name

    async def leave(self) -> None:
        """Let all connections be lost."""
        for held, wires in self._open.items():
            wires.said.put_nowait(None)
            await held
        self._open.clear()


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[Peers]:
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    async with opened(folder / "data", policy=policy) as broker:
        peers = Peers(broker)
        yield peers
        await peers.leave()


@pytest.mark.parametrize("is_there", [True, False], ids=["linked", "away"])
@run_async
async def test_a_server_cannot_claim_a_broker_that_dials_here(
    tmp_path: Path, is_there: bool
) -> None:
    async with guarded(tmp_path) as peers:
        await peers.accept("branch")
        if not is_there:
            await peers.leave()
        refused, _ = await peers.dial(EVIL)
        assert f"{EVIL} may not speak for the broker ffffffff, because branch did" in str(
            refused.result()
        )
        assert peers.speaker() == ("branch" if is_there else None)


@run_async
async def test_nobody_can_claim_a_broker_that_is_dialled(tmp_path: Path) -> None:
    async with guarded(tmp_path) as peers:
        peers._broker.overlay._diallers[NEXT] = None  # type: ignore[assignment]
        await peers.dial(NEXT)
        for refused, _ in (await peers.dial(EVIL), await peers.accept("branch")):
            assert f"because {NEXT} did before" in str(refused.result())
        assert peers.speaker() == NEXT
        # An operator that has given its broker another address is believed.
        del peers._broker.overlay._diallers[NEXT]
        await peers.leave()
        await peers.dial(EVIL)
        assert peers.speaker() == EVIL


@run_async
async def test_who_did_not_become_a_peer_does_not_speak_for_it(tmp_path: Path) -> None:
    async with guarded(tmp_path) as peers:
        terms, wires = LinkTerms(Principal(EVIL, ("peer",)), EVIL, "settings"), Wires()
        wires.begin()
        hello = wires.said.get_nowait()
        assert hello is not None
        silent = Wires()
        silent.said.put_nowait(hello)
        silent.said.put_nowait(None)
        await peers._broker.overlay._hold(silent, terms)
        await peers.accept("branch")
        assert peers.speaker() == "branch"


@run_async
async def test_one_token_cannot_take_all_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_identities, "MAX_BROKERS_PER_SPEAKER", 3)
    async with guarded(tmp_path) as peers:
        many = [peers.accept("greedy", f"{number:032x}") for number in range(6)]
        held = [one for one, _ in await asyncio.gather(*many)]
        refused = [str(one.result()) for one in held if one.done()]
        assert len(refused) == 3
        assert {*refused} == {
            "greedy speaks for 3 brokers, the limit: give others a token of another principal"
        }
        await peers.accept("branch")
        assert peers.speaker() == "branch"


def brokers_shown(wires: Wires) -> list[Any]:
    """Return the brokers of each answer about the topology."""
    frames = [json.loads(one) for one in wires.sent]
    return [one["brokers"] for one in frames if one["type"] == "brokers"]


@run_async
async def test_a_peer_from_which_something_is_hidden_does_not_see_the_topology(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as peers:
        request = encode_link_frame(TopologyRequest(ref=1, seconds=1.0))
        for name, count in (("guest", 0), ("branch", 1)):
            _, wires = await peers.accept(name, f"{count:032x}")
            wires.said.put_nowait(request)
            [brokers] = await eventually_async(partial(brokers_shown, wires))
            assert len(brokers) == count, name


@run_async
async def test_a_peer_is_known_however_its_address_is_written(tmp_path: Path) -> None:
    async with local_brokers(tmp_path, [("north", "hub")]) as brokers:
        north = brokers["north"].overlay
        url = "http://hub.example:8765/tamis"
        await north.add(url, None, None)
        for other in (f"{url}/", "HTTP://Hub.example:8765/tamis", "ws://hub.example:8765/tamis"):
            with pytest.raises(RefusedError, match=f"dials {url} already"):
                await north.add(other, None, None)
        await north.remove(url)
