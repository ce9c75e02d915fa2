"""A survey of the overlay: each broker asks those behind its other links, and adds itself.

The overlay has no cycles, so every broker is asked once. A broker waits a little less long than the
one that asked it, so that one that does not answer costs its own part of the picture only.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from tamis.broker.peers.link import PeerLink
from tamis.protocol.peering import MAX_BROKERS, TopologyReply, TopologyRequest
from tamis.protocol.views import BrokerView

FIRST_SECONDS: Final = 3.0
# Of the time that a broker has for its answer, those behind it get this share.
SHARE_OF_OTHERS: Final = 0.8
LEAST_SECONDS: Final = 0.05
MAX_SURVEYS: Final = 100


class SurveyResult(NamedTuple):
    """The brokers on this side of a link, and the names of those that did not answer."""

    brokers: list[BrokerView]
    missing: list[str]


class TopologySurvey:
    """Asks and answers which brokers there are."""

    def __init__(
        self,
        view: Callable[[], Awaitable[BrokerView]],
        links: Callable[[], Iterable[PeerLink]],
        hides_nothing: Callable[[str], bool],
    ) -> None:
        """Make one; a peer from which the broker hides something is shown no broker."""
        self._view = view
        self._links = links
        self._hides_nothing = hides_nothing
        self._refs = itertools.count(1)
        self._answers: dict[int, tuple[PeerLink, asyncio.Future[TopologyReply]]] = {}
        self._running = 0

    async def take(
        self, *, without: PeerLink | None = None, seconds: float = FIRST_SECONDS
    ) -> SurveyResult:
        """Return all brokers on this side of a link, or of the whole overlay."""
        asked = [one for one in self._links() if one is not without and one.connection is not None]
        replies = await asyncio.gather(
            *(self._ask(one, seconds * SHARE_OF_OTHERS) for one in asked)
        )
        brokers, missing = [await self._view()], list[str]()
        for link, reply in zip(asked, replies, strict=True):
            if reply is None:
                missing.append(link.title)
            else:
                brokers += reply.brokers
                missing += reply.missing
        return SurveyResult(brokers[:MAX_BROKERS], missing[:MAX_BROKERS])

    async def _ask(self, link: PeerLink, seconds: float) -> TopologyReply | None:
        ref = next(self._refs)
        answer: asyncio.Future[TopologyReply] = asyncio.get_running_loop().create_future()
        self._answers[ref] = link, answer
        link.post(TopologyRequest(ref=ref, seconds=max(seconds, LEAST_SECONDS)))
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._answers[ref]

    async def answer(self, link: PeerLink, request: TopologyRequest) -> None:
        """Answer a peer; not at all if it asks for more than it can want."""
        if not self._hides_nothing(link.peer):
            link.post(TopologyReply(ref=request.ref, brokers=[]))
            return
        if self._running >= MAX_SURVEYS:
            return
        self._running += 1
        try:
            found = await self.take(without=link, seconds=request.seconds)
        finally:
            self._running -= 1
        link.post(TopologyReply(ref=request.ref, brokers=found.brokers, missing=found.missing))

    def note_reply(self, link: PeerLink, reply: TopologyReply) -> None:
        """Take an answer, if it was asked of this peer and still is waited for."""
        asked, answer = self._answers.get(reply.ref, (None, None))
        if asked is link and answer is not None and not answer.done():
            answer.set_result(reply)
