"""Subscriptions to queries over documents: the broker evaluates what it can, the rest is here.

The proxy of the MOTION paper: it keeps the subscription, checks every notification, and
acknowledges and drops those that do not match exactly, the negative residue. Queries with
operators, functions or namespaces of your own can be checked nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tamis.client.consumer import Consumer, ConsumerRegistry, logger
from tamis.client.messages import DocumentDelivery, document_of
from tamis.client.options import ConsumerOptions, SubscribeOptions
from tamis.errors import OptionError, TamisError
from tamis.filters import Mode
from tamis.protocol import Delivery

if TYPE_CHECKING:
    from tamis.filters.translations import Translation

# Parsing and evaluating more than this would keep the application's event loop.
MAX_BYTES_ON_LOOP: Final = 16 * 1024


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
        """How many documents could not be read, or took too long to check."""

    async def deliveries(self, limit: int) -> list[Delivery]:
        """Return the documents that satisfy the query."""
        while arrived := await super().deliveries(limit):
            if sum(len(one.data) for one in arrived) > MAX_BYTES_ON_LOOP:
                checked = await asyncio.to_thread(self._check, arrived)
            else:
                checked = self._check(arrived)
            found = [self._kept(*each) for each in zip(arrived, checked, strict=True)]
            satisfying = [delivery for delivery in found if delivery is not None]
            if satisfying:
                return satisfying
        return []

    def _check(self, arrived: Sequence[Delivery]) -> list[Delivery | TamisError | None]:
        return [self._checked(one) for one in arrived]

    def _checked(self, delivery: Delivery) -> Delivery | TamisError | None:
        try:
            document = document_of(delivery)
            if document is None or not self.query.matches(document):
                return None
        except TamisError as error:
            return error
        return DocumentDelivery.of(delivery, document)

    def _kept(self, delivery: Delivery, found: Delivery | TamisError | None) -> Delivery | None:
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
