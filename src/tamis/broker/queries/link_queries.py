"""Queries over links: the router's messages go to peers, and what peers may see and answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from typing import Any, Final

import msgspec

from tamis.access import Rights
from tamis.broker.operations.fair_executor import FairExecutor
from tamis.broker.operations.logs import get_logger
from tamis.broker.publish.payloads import PayloadDecoder
from tamis.broker.queries.row_checks import RowChecker
from tamis.broker.queries.service import QueryService
from tamis.errors import ProtocolError
from tamis.filters import Filter
from tamis.mismatches import find_mismatch
from tamis.protocol.frames import FRAME_ERRORS
from tamis.routing.query_messages import (
    QUERY_MESSAGES,
    DataAdvertised,
    QueryAsked,
    QueryMessage,
    QueryRows,
    RowSight,
)
from tamis.routing.running_query import LinkCounts, PeerTerms

LOG: Final = get_logger("tamis.queries")

_MESSAGES: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(reduce(or_, QUERY_MESSAGES))
_ENCODER: Final = msgspec.json.Encoder()


class LinkQueries:
    """Carries queries between the query service and the links."""

    def __init__(
        self,
        service: QueryService,
        decoder: PayloadDecoder,
        executor: FairExecutor,
        checker: RowChecker,
        *,
        post: Callable[[str, bytes], None],
        end: Callable[[str, str], None],
        rights_of: Callable[[str], Rights],
        title_of: Callable[[str], str],
    ) -> None:
        """Connect them: `post` sends to a peer, `end` cuts one off, and `rights_of` knows it."""
        self._service = service
        self._decoder = decoder
        self._executor = executor
        self._checker = checker
        self._post = post
        self._end = end
        self._rights_of = rights_of
        self._title_of = title_of
        self._rights: dict[str, Rights] = {}
        """Of the peers that are connected."""
        self.refused: Final[Counter[str]] = Counter()
        """How many advertisements of data were refused of each peer, by its roles."""
        service.peers = self

    # --- for links -------------------------------------------------------------------------------

    def link_opened(self, peer: str) -> None:
        """Begin to exchange advertisements and queries with a peer."""
        rights = self._rights[peer] = self._rights_of(peer)
        terms = PeerTerms(self._title_of(peer))
        if rights.hides_anything:
            # What is advertised is found in data, so it may tell of what is hidden.
            terms = PeerTerms(
                terms.title,
                partial(self._sight, rights),
                rights.without_hidden,
                lambda filter_: rights.may_mention(filter_.attributes()),
            )
        self._service.link_opened(peer, terms)

    def link_closed(self, peer: str) -> None:
        """Note that a peer cannot be reached."""
        self._rights.pop(peer, None)
        self._service.link_closed(peer)

    def link_removed(self, peer: str) -> None:
        """Forget a peer and all that is behind it."""
        self._rights.pop(peer, None)
        self.refused.pop(peer, None)
        self._service.link_removed(peer)

    async def take(self, peer: str, message: bytes) -> None:
        """Take a message of a peer; raise `ProtocolError` if it is none."""
        try:
            found: QueryMessage = _MESSAGES.decode(message)
        except FRAME_ERRORS as error:
            mismatch = find_mismatch(error, text=message)
            raise ProtocolError(mismatch.sentence("the peer's message about queries")) from None
        if not self._may_say(peer, found):
            if peer in self._rights:
                self.refused[peer] += 1
                LOG.warning("a peer may not answer queries: none of its roles serves", peer=peer)
            return
        if isinstance(found, DataAdvertised | QueryAsked):
            # Comparing filters takes a while; what is found is remembered.
            relating = self._service.router.relate(found)
            await self._executor.run_slices(f"/{peer}", relating)
        if isinstance(found, QueryRows):
            await self._take_rows(peer, found)
        elif self._may_say(peer, found):
            self._service.receive(peer, found)

    async def _take_rows(self, peer: str, answer: QueryRows) -> None:
        """Take rows; for a query that is asked here, only those that match."""
        filter_ = self._service.router.filter_to_check(peer, answer.query)
        if filter_ is None:
            self._service.receive(peer, answer)
            return
        texts = [bytes(row) for row in answer.rows]
        checking = self._checker.check(texts, filter_, lambda _row: True)
        checked = await self._executor.run_slices(f"/{peer}", checking)
        kept = QueryRows(query=answer.query, rows=[msgspec.Raw(row) for row in checked.rows])
        self._service.receive(peer, kept, skipped=checked.skipped, problem=checked.problem)

    def _may_say(self, peer: str, message: QueryMessage) -> bool:
        rights = self._rights.get(peer)
        # What it may not answer with, it is not asked for.
        return rights is not None and (
            rights.serves_everything or not isinstance(message, DataAdvertised)
        )

    def apply_policy(self) -> None:
        """Begin anew with the peers whose rights have changed."""
        for peer, rights in [*self._rights.items()]:
            if self._rights_of(peer) is not rights:
                self._service.link_removed(peer)
                self.link_opened(peer)

    def counts(self, peer: str) -> LinkCounts:
        """Return what queries have passed a link, and what was pruned."""
        return self._service.router.counts(peer)

    def _sight(self, rights: Rights, filter_: Filter) -> RowSight:
        """Return what the rights show of rows that match a filter."""
        decoder, names = self._decoder, filter_.attributes()

        def see(row: bytes) -> bytes | None:
            sight = rights.sight(decoder.decode(row, "json").event)
            if sight is None or not sight.covers(names):
                return None
            if sight.is_whole:
                return row
            return msgspec.json.encode(sight.document(msgspec.json.decode(row)))

        return see

    # --- for the service -------------------------------------------------------------------------

    def send(self, peer: str, message: QueryMessage) -> None:
        """Send a message in order, or drop it if the peer is not connected."""
        self._post(peer, _ENCODER.encode(message))

    def refuse(self, peer: str, reason: str) -> None:
        """Cut off a peer that says what makes no sense."""
        self._end(peer, reason)
