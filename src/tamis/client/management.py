"""Looking after subscriptions, filters and tokens: what no frame is for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

from tamis.client.messages import Message, NoSettler, Publishable, encode_event
from tamis.client.options import Lifetime, position, seconds
from tamis.filters import Filter, Mode
from tamis.protocol import Delivery
from tamis.protocol.views import (
    DeadLetterView,
    HistoryView,
    IssuedTokenView,
    SubscriptionView,
    TokenView,
    Trial,
)


class Management(Protocol):
    """What a broker can be asked to do besides publishing and subscribing."""

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return one's own subscriptions."""

    async def subscription(self, id_: str) -> SubscriptionView:
        """Return one of them."""

    async def renew(self, id_: str, lifetime: float | None) -> SubscriptionView:
        """Let a subscription live for so many seconds from now on."""

    async def delete(self, id_: str) -> None:
        """Delete a subscription with all that waits for it."""

    async def dead_letters(self, id_: str, *, after: int, limit: int) -> list[DeadLetterView]:
        """Return events that were given up."""

    async def requeue(self, id_: str, sequences: Sequence[int]) -> int:
        """Let dead letters come again; return how many."""

    async def delete_dead_letters(self, id_: str, sequences: Sequence[int]) -> int:
        """Delete dead letters; return how many there were."""

    async def history(
        self, filter_: str, *, language: str, mode: str | None, start: int | str, end: int | str
    ) -> HistoryView:
        """Return a piece of the past."""

    async def try_filter(
        self, filter_: str, events: Sequence[bytes], *, language: str, mode: str | None
    ) -> list[Trial]:
        """Tell which sample events a filter matches."""

    async def explain(
        self, event: bytes, *, id_: str | None, filter_: str, language: str, mode: str | None
    ) -> str:
        """Say why a sample event matches a subscription or a filter, or why not."""

    async def status(self) -> dict[str, Any]:
        """Return a few numbers that tell how the broker does."""

    async def issue_token(
        self, principal: str, roles: Sequence[str], lifetime: float | None, note: str
    ) -> IssuedTokenView:
        """Return a new token, which nobody will be shown again."""

    async def tokens(self) -> list[TokenView]:
        """Return what is known of all tokens."""

    async def revoke_token(self, id_: str) -> None:
        """Let a token be worth nothing from now on."""


class PastSearch:
    """A search through the past, one piece after the other."""

    def __init__(
        self, filter_: str, start: int | str, end: int | str, language: str, mode: str | None
    ) -> None:
        self._filter = filter_
        self._start = start
        self._end = end
        self._language = language
        self._mode = mode
        self.is_over = False

    async def step(self, management: Management) -> Sequence[Delivery]:
        """Return what the next piece has, perhaps nothing."""
        piece = await management.history(
            self._filter,
            language=self._language,
            mode=self._mode,
            start=self._start,
            end=self._end,
        )
        self._start, self._end = piece.next, piece.end
        self.is_over = piece.next >= piece.end
        return piece.events


class Managing:
    """The part of a bus that looks after subscriptions and filters."""

    def __init__(self, management: Management) -> None:
        self.management = management
        """All that a broker can be asked to do, tokens included."""

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return your subscriptions, connected or not."""
        return await self.management.subscriptions()

    async def subscription(self, id: str) -> SubscriptionView:  # noqa: A002 - its name everywhere
        """Return one of your subscriptions; `RefusedError` if there is none."""
        return await self.management.subscription(id)

    async def renew(self, id: str, lifetime: Lifetime) -> SubscriptionView:  # noqa: A002
        """Let a subscription live for so long from now on; None: for ever."""
        return await self.management.renew(id, seconds(lifetime))

    async def delete(self, id: str) -> None:  # noqa: A002
        """Delete a subscription with all that waits for it."""
        await self.management.delete(id)

    async def dead_letters(
        self,
        id: str,  # noqa: A002
        *,
        after: int = 0,
        limit: int = 100,
    ) -> list[DeadLetterView]:
        """Return events of a subscription that were given up, from after a sequence on."""
        return await self.management.dead_letters(id, after=after, limit=limit)

    async def requeue(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Let dead letters come again, as if never sent; return how many."""
        return await self.management.requeue(id, [*sequences])

    async def delete_dead_letters(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Delete dead letters; return how many there were."""
        return await self.management.delete_dead_letters(id, [*sequences])

    async def history(
        self,
        filter: str | Filter = "true",  # noqa: A002
        *,
        start: int | str | datetime = "earliest",
        end: int | str | datetime = "latest",
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> AsyncIterator[Message]:
        """Give the events of the past that match a filter, in order, up to but without `end`.

        Nothing is kept, and nothing acknowledged; a subscription with a `start` goes on with what
        comes later.
        """
        search = PastSearch(str(filter), position(start), position(end), language, mode)
        while not search.is_over:
            for delivery in await search.step(self.management):
                yield Message(delivery, NoSettler())

    async def try_filter(
        self,
        filter: str | Filter,  # noqa: A002
        events: Iterable[Publishable],
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> list[Trial]:
        """Tell which sample events a filter matches, without subscribing."""
        texts = [encode_event(event).text for event in events]
        return await self.management.try_filter(str(filter), texts, language=language, mode=mode)

    async def explain(
        self,
        event: Publishable,
        *,
        id: str | None = None,  # noqa: A002
        filter: str | Filter | None = None,  # noqa: A002
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> str:
        """Say why a sample event matches a subscription, or a filter, or why not."""
        if (id is None) is (filter is None):
            raise TypeError("give the id of a subscription or a filter, not both")
        text = encode_event(event).text
        return await self.management.explain(
            text, id_=id, filter_=str(filter), language=language, mode=mode
        )

    async def status(self) -> dict[str, Any]:
        """Return a few numbers that tell how the broker does."""
        return await self.management.status()
