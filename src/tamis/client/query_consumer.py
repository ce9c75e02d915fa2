"""Subscriptions to queries over documents: the broker evaluates what it can, the rest is here.

The proxy of the MOTION paper: it keeps the subscription, checks every notification, and
acknowledges and drops those that do not match exactly, the negative residue. Queries with
operators, functions or namespaces of your own can be checked nowhere else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tamis.client.consumer import Consumer, ConsumerRegistry, logger
from tamis.client.messages import DocumentDelivery, document_of
from tamis.client.options import ConsumerOptions, SubscribeOptions
from tamis.errors import EventError, OptionError, TamisError
from tamis.filters import Mode
from tamis.protocol import Delivery
from tamis.protocol.frames import MAX_REASON_CHARACTERS

if TYPE_CHECKING:
    from tamis.filters.translations import Translation

# Parsing and evaluating more than this would keep the application's event loop.
MAX_BYTES_ON_LOOP: Final = 16 * 1024

Checked = Delivery | TamisError | None
"""A document that satisfies a query, why it cannot be checked, or None if it does not."""


class DocumentQuery(Protocol):
    """A query over documents, such as `tamis.xml.query` returns."""

    @property
    def text(self) -> str:
        """Return the query as it was written."""

    def matches(self, document: Any) -> bool:
        """Return whether a document satisfies it."""

    def __translation__(self) -> Translation:
        """Return a filter that holds wherever it does."""


def is_document_query(given: object) -> bool:
    """Return whether a filter is a query over documents, without loading what parses them."""
    return type(given).__module__ == "tamis.xml.queries" and hasattr(given, "__translation__")


class DocumentRequest(NamedTuple):
    """A query and the options of a subscription, complete."""

    query: DocumentQuery
    options: ConsumerOptions

    @classmethod
    def of(cls, query: DocumentQuery, window: int, options: SubscribeOptions) -> DocumentRequest:
        """Return the request; the broker gets the filter that the query translates to."""
        for name in ("language", "mode"):
            if options.get(name) is not None:
                raise OptionError(name, "is for filters given as text: leave it out")
        asked: SubscribeOptions = {**options, "mode": Mode.SQL}
        filter_ = query.__translation__().filter
        return cls(query, ConsumerOptions.of(filter_, window, asked))


class QueryConsumer(Consumer):
    """Documents that satisfy a query; the others are acknowledged here, and counted."""

    def __init__(self, registry: ConsumerRegistry, request: DocumentRequest) -> None:
        super().__init__(registry, request.options)
        self.query: Final = request.query
        self.residue = 0
        """How many events the broker's filter let through, and the query did not."""
        self.refused = 0
        """How many documents could not be read, or took too long to check, or made it raise."""
        self._unchecked: Final[list[Delivery]] = []
        """What had arrived when a caller gave up waiting for the check."""

    async def deliveries(self, limit: int) -> list[Delivery]:
        """Return the documents that satisfy the query."""
        while arrived := self._take_unchecked(limit) or await super().deliveries(limit):
            checked = await self._check(arrived)
            found = [self._kept(*each) for each in zip(arrived, checked, strict=True)]
            satisfying = [delivery for delivery in found if delivery is not None]
            if satisfying:
                return satisfying
        return []

    def _take_unchecked(self, limit: int) -> list[Delivery]:
        taken = [] if self.is_closed else self._unchecked[:limit]
        del self._unchecked[:limit]
        return taken

    async def _check(self, arrived: list[Delivery]) -> list[Checked]:
        if sum(len(one.data) for one in arrived) <= MAX_BYTES_ON_LOOP:
            return [self._checked(one) for one in arrived]
        try:
            return await asyncio.to_thread(lambda: [self._checked(one) for one in arrived])
        except asyncio.CancelledError:
            # The caller's time is over; they have left the inbox, and nobody else knows of them.
            self._unchecked[:0] = arrived
            raise

    def _checked(self, delivery: Delivery) -> Checked:
        try:
            document = document_of(delivery)
            if document is None or not self.query.matches(document):
                return None
        except TamisError as error:
            return error
        except Exception as error:
            # The user's own functions may raise anything, and no other document is to be lost.
            return EventError(_said_of(error))
        return DocumentDelivery.of(delivery, document)

    def _kept(self, delivery: Delivery, found: Checked) -> Delivery | None:
        if isinstance(found, Delivery):
            return found
        if found is None:
            self.residue += 1
            self.acknowledge(delivery.sequence)
            return None
        # Where events are kept, it becomes a dead letter.
        self.refused += 1
        self.reject(delivery.sequence, None, str(found))
        logger.warning("%r: event %d cannot be checked: %s", self, delivery.sequence, found)
        return None


def _said_of(error: Exception) -> str:
    """Return what a user's own function raised, as a sentence that can be sent."""
    sentence = f"a function of the query raised {type(error).__name__}: {error}"
    return sentence[:MAX_REASON_CHARACTERS].encode(errors="replace").decode()
