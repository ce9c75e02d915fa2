"""Management: the calls to a broker that need no open bus."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

import msgspec

from tamis.client.messages import (
    Message,
    NoAcknowledgements,
    Publishable,
    check_several,
    encode_event,
    encode_indexed,
)
from tamis.client.option_checks import (
    check_arguments,
    check_duration,
    check_filter,
    check_language,
    check_mode,
    check_position,
    check_sequences,
    check_subscriptions,
)
from tamis.client.options import Lifetime
from tamis.filters import Filter, Mode
from tamis.protocol import Delivery
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
    AskWanted,
    CreateSubscriptions,
    DeleteDeadLetters,
    DeleteSubscription,
    ExplainFilter,
    ExplainSubscription,
    ListDeadLetters,
    ListSubscriptions,
    ManagementCall,
    NewSubscription,
    ReadHistory,
    ReadStatus,
    ReadSubscription,
    RenewSubscription,
    RequeueDeadLetters,
    TryFilter,
    UpdateSubscription,
)
from tamis.protocol.views import Creation, DeadLetterView, SubscriptionView, Trial

T = TypeVar("T")
logger: Final = logging.getLogger("tamis.client")

PAGES_AT_ONCE: Final = 2
"""While the broker waits for the disk, it can read the next subscriptions to create."""


class Management(Protocol):
    """Makes management calls to a broker."""

    async def call(self, call: ManagementCall[T], *, keep_alive: bool = False) -> T:
        """Return the broker's answer to a call; `keep_alive` keeps the connection for the next."""

    async def close(self) -> None:
        """Close the kept-alive connections."""


class ManagingBus:
    """The part of a bus that manages subscriptions and filters."""

    def __init__(self, make_management: Callable[[], Management]) -> None:
        self._make_management = make_management
        self._management: Management | None = None
        self._keeps_alive = False
        """Whether connections for management calls are kept alive."""

    async def call(self, call: ManagementCall[T]) -> T:
        """Make any management call, such as `bus.call(ListTokens())`.

        `tamis.protocol.management` lists them all.
        """
        check_arguments(call)
        # At the first call: most programs only publish or subscribe, and loading takes a while.
        self._management = self._management or self._make_management()
        return await self._management.call(call, keep_alive=self._keeps_alive)

    async def _stop_managing(self) -> None:
        self._keeps_alive = False
        if self._management is not None:
            await self._management.close()

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return your subscriptions, connected or not."""
        found: list[SubscriptionView] = []
        after: str | None = ""
        while after is not None:
            page = await self.call(ListSubscriptions(after, MAX_PAGE_ITEMS))
            found += page.subscriptions
            after = page.next
        return found

    async def subscription(self, id: str) -> SubscriptionView:  # noqa: A002 - its name in the API
        """Return one of your subscriptions; raise `RefusedError` if there is none."""
        return await self.call(ReadSubscription(id))

    async def create_subscriptions(
        self, subscriptions: Iterable[NewSubscription | Mapping[str, Any]]
    ) -> list[Creation]:
        """Create many durable subscriptions that nobody reads yet; return a result for each.

        All of them are checked before the first is sent: `OptionError` says which is wrong.

        >>> from tamis.protocol.management import NewSubscription
        >>> new = [NewSubscription(id=f"watch-{n}", filter=f"price < {n}") for n in range(3)]
        >>> results = await bus.create_subscriptions(new)  # doctest: +SKIP
        """
        given = check_subscriptions(subscriptions)
        names = [one.id for one in given if one.id is not None]
        # One that comes twice is resumed, once the first is there.
        at_once = PAGES_AT_ONCE if len({*names}) == len(names) else 1
        results: list[Creation] = []
        asked: deque[asyncio.Future[list[Creation]]] = deque()
        try:
            for first in range(0, len(given), MAX_PAGE_ITEMS):
                if len(asked) == at_once:
                    results += await asked.popleft()
                page = CreateSubscriptions(given[first : first + MAX_PAGE_ITEMS])
                asked.append(asyncio.ensure_future(self.call(page)))
            while asked:
                results += await asked.popleft()
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return results

    async def renew(self, id: str, lifetime: Lifetime) -> SubscriptionView:  # noqa: A002
        """Set when a subscription expires, counted from now; None: never."""
        return await self.call(RenewSubscription(id, check_duration("lifetime", lifetime)))

    async def update(
        self,
        id: str,  # noqa: A002
        filter: str | Filter,  # noqa: A002
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> SubscriptionView:
        """Replace the filter of a durable subscription; the events that wait for it stay.

        Events published before the call are matched by the old filter. `filter_from` of the result
        is the first event that the new one holds for.

        >>> (await bus.update("laptop-7", "price < 4")).filter_from  # doctest: +SKIP
        1207
        """
        call = UpdateSubscription(
            id, check_filter(filter), check_language(language), check_mode(mode)
        )
        return await self.call(call)

    async def delete(self, id: str) -> None:  # noqa: A002
        """Delete a subscription and the events that wait for it."""
        await self.call(DeleteSubscription(id))

    async def dead_letters(
        self,
        id: str,  # noqa: A002
        *,
        after: int = 0,
        limit: int = 100,
    ) -> list[DeadLetterView]:
        """Return the dead letters of a subscription that follow a sequence."""
        return await self.call(ListDeadLetters(id, after, limit))

    async def requeue(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Send dead letters again, as if they had never been sent; return how many."""
        return await self.call(RequeueDeadLetters(id, check_sequences(sequences)))

    async def delete_dead_letters(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Delete dead letters; return how many there were."""
        return await self.call(DeleteDeadLetters(id, check_sequences(sequences)))

    async def history(
        self,
        filter: str | Filter = "true",  # noqa: A002
        *,
        start: int | str | datetime | timedelta = "earliest",
        end: int | str | datetime | timedelta = "latest",
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> AsyncIterator[Message]:
        """Yield the past events that match a filter, in order, from `start` until before `end`.

        This keeps and acknowledges nothing. To continue with later events, subscribe with a
        `start`.
        """
        search = HistorySearch(read_history(filter, start, end, language, mode))
        while not search.is_over:
            for delivery in await search.next_page(self):
                yield Message(delivery, NoAcknowledgements())

    async def try_filter(
        self,
        filter: str | Filter,  # noqa: A002
        events: Iterable[Publishable],
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> list[Trial]:
        """Return which sample events a filter matches, without subscribing."""
        check_several(events, "try_filter", one="put it in a list")
        samples = [
            msgspec.Raw(encode_indexed(event, index).text) for index, event in enumerate(events)
        ]
        return await self.call(
            TryFilter(check_filter(filter), samples, check_language(language), check_mode(mode))
        )

    async def explain(
        self,
        event: Publishable,
        *,
        id: str | None = None,  # noqa: A002
        filter: str | Filter | None = None,  # noqa: A002
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> str:
        """Explain why a sample event matches a subscription or a filter, or why not."""
        sample = msgspec.Raw(encode_event(event).text)
        if id is not None and filter is None:
            return (await self.call(ExplainSubscription(id, sample))).explanation
        if id is None and filter is not None:
            call = ExplainFilter(
                check_filter(filter), sample, check_language(language), check_mode(mode)
            )
            return (await self.call(call)).explanation
        raise TypeError("give either `filter` or `id`")

    async def wanted(self, event: Publishable) -> bool:
        """Return whether anybody would get an event if it were published now."""
        return await self.call(AskWanted(msgspec.Raw(encode_event(event).text)))

    async def status(self) -> dict[str, Any]:
        """Return the broker's state and its main counters; for administrators."""
        return await self.call(ReadStatus())


class HistorySearch:
    """A search through past events, page by page."""

    def __init__(self, first: ReadHistory) -> None:
        self._next = first
        self.is_over = False

    async def next_page(self, bus: ManagingBus) -> list[Delivery]:
        """Return the events of the next page, perhaps none."""
        page = await bus.call(self._next)
        self._next.start, self._next.end = str(page.next), str(page.end)
        self.is_over = page.next >= page.end
        if page.damaged:
            logger.warning(
                "%d past events before %d are damaged on the broker's disk and cannot be searched",
                page.damaged,
                page.next,
            )
        if page.invalid:
            logger.warning(
                "%d past events before %d no longer conform to the broker's schema or limits, "
                "and cannot be searched",
                page.invalid,
                page.next,
            )
        return page.events


def read_history(
    filter_: str | Filter,
    start: int | str | datetime | timedelta,
    end: int | str | datetime | timedelta,
    language: str = "tamis",
    mode: Mode | str | None = None,
) -> ReadHistory:
    """Return the call for the first page of past events, as large as the broker allows."""
    return ReadHistory(
        check_filter(filter_),
        check_language(language),
        check_mode(mode),
        str(check_position("start", start)),
        str(check_position("end", end)),
        MAX_PAGE_ITEMS,
    )
