"""Management: the calls to a broker that need no open connection, and their HTTP client."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from tamis.client.address import BrokerAddress
from tamis.client.messages import Message, NoSettler, Publishable, encode_event
from tamis.client.options import Lifetime, Token, position, seconds
from tamis.client.reconnector import resolve_token
from tamis.client.transport import failure_reason
from tamis.errors import DisconnectedError, RefusedError
from tamis.filters import Filter, Mode
from tamis.protocol import Code, Delivery
from tamis.protocol.management import (
    MAX_PAGE_ITEMS,
    OPERATIONS,
    DeleteDeadLetters,
    DeleteSubscription,
    ExplainFilter,
    ExplainSubscription,
    ListDeadLetters,
    ListSubscriptions,
    ManagementCall,
    ManagementOperation,
    ReadHistory,
    ReadStatus,
    ReadSubscription,
    RenewSubscription,
    RequeueDeadLetters,
    TryFilter,
)
from tamis.protocol.views import DeadLetterView, SubscriptionView, Trial

T = TypeVar("T")


class Management(Protocol):
    """Makes management calls to a broker."""

    async def open(self) -> None:
        """Keep connections alive from now on."""

    async def call(self, call: ManagementCall[T]) -> T:
        """Return the broker's answer to a call."""

    async def close(self) -> None:
        """Close the connections that calls use."""


class ManagingBus:
    """The part of a bus that manages subscriptions and filters."""

    def __init__(self, management: Management) -> None:
        self._management = management

    async def call(self, call: ManagementCall[T]) -> T:
        """Make any management call, such as `bus.call(ListTokens())`.

        `tamis.protocol.management` lists them all.
        """
        return await self._management.call(call)

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

    async def renew(self, id: str, lifetime: Lifetime) -> SubscriptionView:  # noqa: A002
        """Set when a subscription expires, counted from now; None: never."""
        return await self.call(RenewSubscription(id, seconds(lifetime)))

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
        """Return dead letters of a subscription, those after a sequence."""
        return await self.call(ListDeadLetters(id, after, limit))

    async def requeue(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Send dead letters again, as if they had never been sent; return how many."""
        return await self.call(RequeueDeadLetters(id, [*sequences]))

    async def delete_dead_letters(self, id: str, sequences: Iterable[int]) -> int:  # noqa: A002
        """Delete dead letters; return how many there were."""
        return await self.call(DeleteDeadLetters(id, [*sequences]))

    async def history(
        self,
        filter: str | Filter = "true",  # noqa: A002
        *,
        start: int | str | datetime = "earliest",
        end: int | str | datetime = "latest",
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> AsyncIterator[Message]:
        """Yield the past events that match a filter, in order, from `start` up to before `end`.

        This keeps and acknowledges nothing. To continue with later events, subscribe with a
        `start`.
        """
        search = HistorySearch(read_history(filter, start, end, language, mode))
        while not search.is_over:
            for delivery in await search.next_page(self):
                yield Message(delivery, NoSettler())

    async def try_filter(
        self,
        filter: str | Filter,  # noqa: A002
        events: Iterable[Publishable],
        *,
        language: str = "tamis",
        mode: Mode | str | None = None,
    ) -> list[Trial]:
        """Return which sample events a filter matches, without subscribing."""
        samples = [msgspec.Raw(encode_event(event).text) for event in events]
        return await self.call(TryFilter(str(filter), samples, language, _mode(mode)))

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
            return await self.call(ExplainSubscription(id, sample))
        if id is None and filter is not None:
            return await self.call(ExplainFilter(str(filter), sample, language, _mode(mode)))
        raise TypeError("give the id of a subscription or a filter, not both")

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
        return page.events


def read_history(
    filter_: str | Filter,
    start: int | str | datetime,
    end: int | str | datetime,
    language: str = "tamis",
    mode: Mode | str | None = None,
) -> ReadHistory:
    """Return the call for the first page of past events, as large as the broker allows."""
    first, last = str(position(start)), str(position(end))
    return ReadHistory(str(filter_), language, _mode(mode), first, last, MAX_PAGE_ITEMS)


def _mode(mode: Mode | str | None) -> Mode | None:
    # The broker checks it.
    return cast(Mode | None, mode)


# --- over HTTP -----------------------------------------------------------------------------------

_JSON: Final = "application/json"


class _RefusalBody(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    code: str
    detail: str


class HTTPManagement:
    """Makes management calls over HTTP; an open bus keeps its connections alive between calls."""

    def __init__(
        self,
        address: BrokerAddress,
        token: Token,
        *,
        timeout: float | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._address = address
        self._token = token
        self._timeout = timeout
        self._tls = tls
        self._is_open = False
        self._kept: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Keep connections alive from now on."""
        self._is_open = True

    async def close(self) -> None:
        """Close the connections."""
        self._is_open = False
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.aclose()

    def _client(self) -> httpx.AsyncClient:
        if self._tls is None and self._address.is_secure:
            # The certificates of the system; those of httpx would be its own.
            self._tls = ssl.create_default_context()
        return httpx.AsyncClient(
            base_url=self._address.web,
            headers={"Accept": _JSON},
            verify=self._tls or False,
            timeout=self._timeout,
            trust_env=not self._address.is_loopback,
            follow_redirects=True,
        )

    async def call(self, call: ManagementCall[T]) -> T:
        """Return the broker's answer to a call."""
        operation = OPERATIONS[type(call)]
        try:
            response = await self._fetch(operation, call)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = failure_reason(error)
            raise DisconnectedError(f"{self._address.web} cannot be reached: {reason}") from None
        if response.is_error:
            raise _refusal(response)
        try:
            body = msgspec.json.decode(response.content or b"null", type=operation.response)
        except msgspec.MsgspecError as error:
            raise DisconnectedError(f"{self._address.web} is not a broker: {error}") from None
        return cast(T, getattr(body, operation.wrapper) if operation.wrapper else body)

    async def _fetch(
        self, operation: ManagementOperation, call: ManagementCall[Any]
    ) -> httpx.Response:
        names = {name: _quote(text) for name, text in operation.path_arguments(call).items()}
        token = await resolve_token(self._token)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        arguments = operation.arguments(call)
        content, parameters = None, None
        if operation.has_body:
            headers["Content-Type"] = _JSON
            content = msgspec.json.encode(arguments)
        elif arguments is not None:
            built = msgspec.to_builtins(arguments)
            parameters = {name: value for name, value in built.items() if value is not None}
        async with self._connections() as client:
            return await client.request(
                operation.method,
                operation.path.format(**names),
                params=parameters,
                headers=headers,
                content=content,
            )

    @contextlib.asynccontextmanager
    async def _connections(self) -> AsyncIterator[httpx.AsyncClient]:
        if self._is_open:
            # Made at the first call, since that takes a while.
            self._kept = self._kept or self._client()
            yield self._kept
            return
        async with self._client() as client:
            yield client


def _quote(name: str) -> str:
    """Return a name as one segment of a path, even if it is `..`."""
    return quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")


def _refusal(response: httpx.Response) -> RefusedError:
    retry_after = response.headers.get("Retry-After", "")
    wait = float(retry_after) if retry_after.isdigit() else None
    try:
        problem = msgspec.json.decode(response.content, type=_RefusalBody)
    except msgspec.MsgspecError:
        status = response.status_code
        return RefusedError(Code.UNAVAILABLE, f"the broker answered with HTTP {status}")
    return RefusedError(problem.code, problem.detail, retry_after=wait)
