"""Management over HTTP."""

from __future__ import annotations

import asyncio
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode

import msgspec

from tamis.client.address import BrokerAddress
from tamis.client.options import Token
from tamis.client.reconnector import resolve_token
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Code
from tamis.protocol.views import (
    DeadLetterView,
    HistoryView,
    IssuedTokenView,
    SubscriptionView,
    TokenView,
    Trial,
)

T = TypeVar("T")

_AT_ONCE: Final = 1000


class _Problem(msgspec.Struct, frozen=True):
    code: str
    detail: str


class _Subscriptions(msgspec.Struct, frozen=True):
    subscriptions: list[SubscriptionView]
    next: str | None = None


class _DeadLetters(msgspec.Struct, frozen=True):
    dead_letters: list[DeadLetterView]


class _Count(msgspec.Struct, frozen=True):
    count: int


class _Results(msgspec.Struct, frozen=True):
    results: list[Trial]


class _Explanation(msgspec.Struct, frozen=True):
    explanation: str


class _Tokens(msgspec.Struct, frozen=True):
    tokens: list[TokenView]


class HTTPManagement:
    """Asks a broker over HTTP, each question in a thread of its own."""

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
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=tls)]
        if address.is_loopback:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    # --- subscriptions ---------------------------------------------------------------------------

    async def subscriptions(self) -> list[SubscriptionView]:
        """Return one's own subscriptions, page by page."""
        found: list[SubscriptionView] = []
        after: str | None = ""
        while after is not None:
            query = urlencode({"after": after, "limit": _AT_ONCE})
            page = await self._ask("GET", f"/v1/subscriptions?{query}", _Subscriptions)
            found += page.subscriptions
            after = page.next
        return found

    async def subscription(self, id_: str) -> SubscriptionView:
        """Return one of them."""
        return await self._ask("GET", _path(id_), SubscriptionView)

    async def renew(self, id_: str, lifetime: float | None) -> SubscriptionView:
        """Let a subscription live for so many seconds from now on."""
        return await self._ask("PATCH", _path(id_), SubscriptionView, {"lifetime": lifetime})

    async def delete(self, id_: str) -> None:
        """Delete a subscription."""
        await self._ask("DELETE", _path(id_), None)

    # --- dead letters ----------------------------------------------------------------------------

    async def dead_letters(self, id_: str, *, after: int, limit: int) -> list[DeadLetterView]:
        """Return events that were given up."""
        query = urlencode({"after": after, "limit": limit})
        path = f"{_path(id_)}/dead-letters?{query}"
        return (await self._ask("GET", path, _DeadLetters)).dead_letters

    async def requeue(self, id_: str, sequences: Sequence[int]) -> int:
        """Let dead letters come again."""
        path = f"{_path(id_)}/dead-letters/requeue"
        return (await self._ask("POST", path, _Count, {"sequences": sequences})).count

    async def delete_dead_letters(self, id_: str, sequences: Sequence[int]) -> int:
        """Delete dead letters."""
        query = urlencode([("sequence", sequence) for sequence in sequences])
        return (await self._ask("DELETE", f"{_path(id_)}/dead-letters?{query}", _Count)).count

    async def history(
        self, filter_: str, *, language: str, mode: str | None, start: int | str, end: int | str
    ) -> HistoryView:
        """Return a piece of the past."""
        asked = {"filter": filter_, "language": language, "start": start, "end": end}
        query = urlencode({**asked, **({"mode": mode} if mode else {}), "limit": _AT_ONCE})
        return await self._ask("GET", f"/v1/history?{query}", HistoryView)

    # --- filters ---------------------------------------------------------------------------------

    async def try_filter(
        self, filter_: str, events: Sequence[bytes], *, language: str, mode: str | None
    ) -> list[Trial]:
        """Tell which sample events a filter matches."""
        samples = [msgspec.Raw(event) for event in events]
        body = {"filter": filter_, "events": samples, "language": language, "mode": mode}
        return (await self._ask("POST", "/v1/filters/try", _Results, body)).results

    async def explain(
        self, event: bytes, *, id_: str | None, filter_: str, language: str, mode: str | None
    ) -> str:
        """Say why a sample event matches, or why not."""
        body: dict[str, object] = {"event": msgspec.Raw(event)}
        path = "/v1/filters/explain" if id_ is None else f"{_path(id_)}/explain"
        if id_ is None:
            body |= {"filter": filter_, "language": language, "mode": mode}
        return (await self._ask("POST", path, _Explanation, body)).explanation

    # --- the broker ------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Return a few numbers that tell how the broker does."""
        return await self._ask("GET", "/v1/status", dict[str, Any])

    async def issue_token(
        self, principal: str, roles: Sequence[str], lifetime: float | None, note: str
    ) -> IssuedTokenView:
        """Return a new token."""
        body = {"principal": principal, "roles": roles, "lifetime": lifetime, "note": note}
        return await self._ask("POST", "/v1/tokens", IssuedTokenView, body)

    async def tokens(self) -> list[TokenView]:
        """Return what is known of all tokens."""
        return (await self._ask("GET", "/v1/tokens", _Tokens)).tokens

    async def revoke_token(self, id_: str) -> None:
        """Let a token be worth nothing from now on."""
        await self._ask("DELETE", f"/v1/tokens/{quote(id_, safe='')}", None)

    # --- asking ----------------------------------------------------------------------------------

    async def _ask(
        self,
        method: str,
        path: str,
        type_: type[T] | None,
        body: Mapping[str, object] | None = None,
    ) -> T:
        headers = {"Accept": "application/json"}
        token = await resolve_token(self._token)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310 - an address is http or https
            f"{self._address.web}{path}", data=data, headers=headers, method=method
        )
        text = await asyncio.to_thread(self._fetch, request)
        try:
            return msgspec.json.decode(text or b"null", type=type_ or type(None))  # type: ignore[return-value]
        except msgspec.MsgspecError as error:
            raise DisconnectedError(f"{self._address.web} is no broker: {error}") from None

    def _fetch(self, request: urllib.request.Request) -> bytes:
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                answer: bytes = response.read()
                return answer
        except HTTPError as error:
            with error:
                raise _refusal(error) from None
        except URLError as error:
            reason = getattr(error.reason, "strerror", None) or error.reason
            raise DisconnectedError(f"{self._address.web} cannot be reached: {reason}") from None
        except (OSError, HTTPException) as error:
            raise DisconnectedError(f"{self._address.web} did not answer: {error}") from None


def _path(id_: str) -> str:
    return f"/v1/subscriptions/{quote(id_, safe='')}"


def _refusal(error: HTTPError) -> RefusedError:
    retry_after = error.headers.get("Retry-After")
    wait = float(retry_after) if retry_after and retry_after.isdigit() else None
    try:
        problem = msgspec.json.decode(error.read(), type=_Problem)
    except (msgspec.MsgspecError, OSError, HTTPException):
        return RefusedError(Code.UNAVAILABLE, f"the broker answered with HTTP {error.code}")
    return RefusedError(problem.code, problem.detail, retry_after=wait)
