"""The router of a broker at work: gets what happens, one after the other, and carries out its word.

It computes in a thread of its own. Inputs of one source are handled in order, and sources take
turns: peers, owners of subscriptions, publishers that advertise. So whoever floods the router holds
up itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from tamis.broker.operations.logs import get_logger
from tamis.errors import FilterError, LimitError, ProtocolError
from tamis.filters import Filter
from tamis.mismatches import find_mismatch
from tamis.ports import Executor
from tamis.protocol.frames import FRAME_ERRORS
from tamis.protocol.peering import LinkFrame, RoutingFrame
from tamis.routing import Router
from tamis.routing.inputs import (
    LinkDrained,
    LinkOpened,
    LinkRemoved,
    MessageReceived,
    RouterInput,
    RoutesFound,
)
from tamis.routing.instructions import (
    AwaitDrained,
    ChangeAdvertisements,
    ChangeRoutes,
    ForgetLink,
    Instruction,
    RefuseLink,
    SendMessage,
    TakeLetter,
    WantedChanged,
)
from tamis.routing.messages import BrokerChanges, Greeting, Letter, LinkEnd, RouterMessage

LOG: Final = get_logger("tamis.peers")

MAX_INPUTS_AT_ONCE: Final = 16
"""Those who look at the router wait meanwhile."""
NOBODY: Final = ""
"""The source of what concerns no peer and no owner."""
MAX_PLACES_KEPT: Final = 20_000
"""Brokers; with more, only where they are now is known."""
_MESSAGES: Final[msgspec.json.Decoder[RouterMessage]] = msgspec.json.Decoder(RouterMessage)
_ENCODER: Final = msgspec.json.Encoder()

T = TypeVar("T")


class RoutedLinks(Protocol):
    """What the router's instructions are carried out on."""

    def post(self, peer: str, frame: LinkFrame) -> None:
        """Send a frame to a peer, if there is a connection."""

    def routes(self, peer: str) -> Mapping[str, Filter]:
        """Return for which filters events go to a peer, by digest; none if there is no link."""

    async def change_routes(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        """Change for which filters events go to a peer, at one point of the log."""

    async def change_advertisements(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        """Keep what a peer has advertised, durably."""

    def await_drained(self, peer: str, drained: Callable[[], None]) -> None:
        """Call back once the peer has stored all events that are due to it now."""

    def refuse(self, peer: str, reason: str) -> None:
        """End the connection to a peer."""

    async def forget(self, peer: str, reason: str) -> None:
        """Remove a link for good."""

    def take_letter(self, peer: str, letter: Letter) -> None:
        """Take a letter for this broker that a peer has passed on."""

    def hides_nothing(self, peer: str) -> bool:
        """Return whether a peer may see everything, and so what a letter holds."""

    def note_wanted(self, advertisement: str, *, is_wanted: bool) -> None:
        """Notify a publisher whether anybody asks for what it advertised."""


LazyInput = RouterInput | Callable[[], RouterInput]
"""An input, or what makes one in the router's thread."""


class _WaitingInput(NamedTuple):
    given: LazyInput | None
    """None: nothing happened, but somebody waits for what came before."""
    done: asyncio.Future[Exception | None] | None


class LinkRouter:
    """The only one that touches the router once it runs."""

    def __init__(self, router: Router, executor: Executor, links: RoutedLinks) -> None:
        self.router: Final = router
        self._executor = executor
        self._links = links
        self._waiting: dict[str, deque[_WaitingInput]] = {}
        """By source; the first has its turn next."""
        self._has_waiting = asyncio.Event()
        self._turn = asyncio.Lock()
        """Held while the router works or is looked at."""
        self.link_of: dict[str, str] = {}
        """Behind which link each broker is, by its id."""
        self.links_of: dict[str, set[str]] = {}
        """All links that a broker was behind since the start: its events may still come there."""

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, given: LazyInput, source: str = NOBODY) -> None:
        """Hand the router an input, after those before it from the same source."""
        self._append(given, source, None)

    async def settled(self) -> None:
        """Return when all inputs so far are handled, and what the router says is carried out."""
        # What is being handled now is no longer in a queue, but this one comes after it.
        sources = {*self._waiting, NOBODY}
        await asyncio.gather(*(self._handled(None, source) for source in sources))

    async def handle(self, given: RouterInput) -> None:
        """Return when the router has handled an input, and what it says is carried out."""
        await self._handled(given, _source_of(given))

    async def _handled(self, given: RouterInput | None, source: str) -> None:
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._append(given, source, done)
        error = await done
        if error is not None:
            raise error

    def _append(
        self,
        given: LazyInput | None,
        source: str,
        done: asyncio.Future[Exception | None] | None,
    ) -> None:
        if isinstance(given, RouterInput):
            source = source or _source_of(given)
        self._waiting.setdefault(source, deque()).append(_WaitingInput(given, done))
        self._has_waiting.set()

    async def receive(self, peer: str, data: bytes) -> None:
        """Hand the router a message of a peer."""
        try:
            message = _MESSAGES.decode(data)
        except FRAME_ERRORS as error:
            mismatch = find_mismatch(error, text=data)
            raise ProtocolError(mismatch.sentence("the message of the peer's router")) from None
        if isinstance(message, Letter) and not self._links.hides_nothing(peer):
            LOG.warning("letter dropped: the roles of the link hide something", peer=peer)
            return
        try:
            await self.handle(MessageReceived(peer, message))
        except (FilterError, LimitError) as error:
            raise ProtocolError(f"a filter of the peer cannot be used: {error}") from None

    async def run(self) -> None:
        """Handle inputs until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            while self._waiting:
                batch = self._take_turns()
                async with self._turn:
                    results = await self._executor.run(
                        self._handle_all, [one.given for one in batch]
                    )
                for one, result in zip(batch, results, strict=True):
                    await self._finish(one, result)

    def _take_turns(self) -> list[_WaitingInput]:
        """Return the next input of each source, or the next ones of the only source."""
        if len(self._waiting) == 1:
            [(source, queue)] = self._waiting.items()
            taken = [queue.popleft() for _ in range(min(len(queue), MAX_INPUTS_AT_ONCE))]
            if not queue:
                del self._waiting[source]
            return taken
        taken = []
        for source in [*islice(self._waiting, MAX_INPUTS_AT_ONCE)]:
            queue = self._waiting.pop(source)
            taken.append(queue.popleft())
            if queue:
                # At the end: the others come first.
                self._waiting[source] = queue
        return taken

    def _handle_all(
        self, inputs: Sequence[LazyInput | None]
    ) -> list[Sequence[Instruction] | Exception]:
        results: list[Sequence[Instruction] | Exception] = []
        for given in inputs:
            if given is None:
                results.append(())
                continue
            try:
                happened = given if isinstance(given, RouterInput) else given()
                results.append(self.router.handle(happened))
            except Exception as error:
                # Whoever gave the input is told.
                results.append(error)
            else:
                if _moves_brokers(happened):
                    self.link_of = self.router.link_of()
                    self._note_places(self.link_of)
        return results

    def _note_places(self, found: Mapping[str, str]) -> None:
        if len(self.links_of) > MAX_PLACES_KEPT:
            self.links_of = {}
        for broker, peer in found.items():
            self.links_of.setdefault(broker, set()).add(peer)

    async def look(self, at: Callable[[Router], T]) -> T:
        """Return something of the router as it is between two inputs."""
        async with self._turn:
            return await self._executor.run(at, self.router)

    async def _finish(self, one: _WaitingInput, result: Sequence[Instruction] | Exception) -> None:
        error = result if isinstance(result, Exception) else None
        try:
            if not isinstance(result, Exception):
                for instruction in result:
                    await self._carry_out(instruction)
        except Exception as failure:
            # Others wait for what comes after it.
            error = failure
        if one.done is not None and not one.done.done():
            one.done.set_result(error)
        elif error is not None:
            LOG.error("the router failed", input=type(one.given).__name__, exc_info=error)

    async def _carry_out(self, instruction: Instruction) -> None:
        links = self._links
        match instruction:
            case SendMessage(peer, Letter()) if not links.hides_nothing(peer):
                LOG.warning("letter dropped: the roles of the link hide something", peer=peer)
            case SendMessage(peer, message):
                links.post(peer, RoutingFrame(message=msgspec.Raw(_ENCODER.encode(message))))
            case ChangeRoutes(peer, add, remove):
                await self._change_routes(peer, add, remove)
            case ChangeAdvertisements(peer, add, remove):
                await links.change_advertisements(peer, add, remove)
            case AwaitDrained(peer, ticket):
                links.await_drained(peer, lambda: self.put(LinkDrained(peer, ticket)))
            case WantedChanged(advertisement, is_wanted):
                links.note_wanted(advertisement, is_wanted=is_wanted)
            case TakeLetter(peer, letter):
                links.take_letter(peer, letter)
            case RefuseLink(peer, reason):
                links.refuse(peer, reason)
            case ForgetLink(peer, reason):
                await links.forget(peer, reason)

    async def _change_routes(
        self, peer: str, add: Mapping[str, Filter], remove: Sequence[str]
    ) -> None:
        try:
            await self._links.change_routes(peer, add, remove)
        except Exception as error:
            # The router takes them for changed, and would tell the peer so on every connection.
            self._links.refuse(peer, f"its filters cannot be kept: {error}")
            found = RoutesFound(peer, self._links.routes(peer))
            async with self._turn:
                [result] = await self._executor.run(self._handle_all, [found])
            await self._finish(_WaitingInput(found, None), result)
            raise


def _source_of(given: RouterInput) -> str:
    """Return the peer that an input is about."""
    peer: str = getattr(given, "peer", NOBODY)
    return peer


def _moves_brokers(happened: RouterInput) -> bool:
    """Return whether brokers may be behind other links afterwards."""
    if isinstance(happened, MessageReceived):
        return isinstance(happened.message, Greeting | BrokerChanges | LinkEnd)
    return isinstance(happened, LinkOpened | LinkRemoved)
