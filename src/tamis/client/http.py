"""Management calls over HTTP."""

from __future__ import annotations

import functools
import ssl
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from tamis.client.options import Token
from tamis.client.reconnector import resolve_token
from tamis.client.transport import BrokerAddress, environment_proxy, failure_reason, redirected
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import Code
from tamis.protocol.management import OPERATIONS, ManagementCall, ManagementOperation

T = TypeVar("T")

_JSON: Final = "application/json"
# A broker may close an idle connection after a second (five by default). A request that it has not
# read by then fails, so a connection is not used again when that moment may be near.
SECONDS_TO_KEEP_ALIVE: Final = 0.5


class _RefusalBody(msgspec.Struct, frozen=True):
    """The body of a refusal."""

    code: str
    detail: str


class _ClosedError(Exception):
    """The connections were closed while a call was in flight."""


_CLOSED_BY_PEER: Final = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class HTTPManagement:
    """Makes management calls over HTTP, each on a kept-alive connection or on one of its own."""

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
        self._kept: httpx.AsyncClient | None = None

    async def close(self) -> None:
        """Close the kept-alive connections."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.aclose()

    def _client(self) -> httpx.AsyncClient:
        if self._tls is None and self._address.is_secure:
            # The system's certificates: by default, httpx would use its own.
            self._tls = ssl.create_default_context()
        try:
            return httpx.AsyncClient(
                base_url=self._address.web,
                headers={"Accept": _JSON},
                # Without TLS there is nothing to verify, since redirects are not followed.
                verify=self._tls or False,
                timeout=self._timeout,
                limits=httpx.Limits(keepalive_expiry=SECONDS_TO_KEEP_ALIVE),
                # httpx would read the environment by itself, but fails if `NO_PROXY` has `[::1]`.
                trust_env=False,
                proxy=environment_proxy(self._address),
                follow_redirects=False,
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise DisconnectedError(
                f"{self._address.web} cannot be reached with the proxy settings of the "
                f"environment (HTTP_PROXY, ALL_PROXY, NO_PROXY): {error}"
            ) from None

    async def call(self, call: ManagementCall[T], *, keep_alive: bool = False) -> T:
        """Return the broker's answer to a call; `keep_alive` keeps the connection for the next."""
        operation = OPERATIONS[type(call)]
        try:
            response = await self._fetch(operation, call, keep_alive=keep_alive)
        except httpx.InvalidURL as error:
            raise RefusedError(Code.TOO_LARGE, f"the request is too long: {error}") from None
        except _ClosedError:
            raise DisconnectedError("the bus was closed") from None
        except (httpx.HTTPError, OSError) as error:
            reason = failure_reason(error)
            raise DisconnectedError(f"{self._address.web} cannot be reached: {reason}") from None
        if response.next_request is not None:
            raise redirected(self._address, str(response.next_request.url))
        if response.is_error:
            raise _refusal(response)
        try:
            body = msgspec.json.decode(response.content or b"null", type=operation.response)
        except msgspec.MsgspecError:
            raise DisconnectedError(
                f"{self._address.web} does not answer as a broker of this version does"
            ) from None
        return cast(T, getattr(body, operation.wrapper) if operation.wrapper else body)

    async def _fetch(
        self, operation: ManagementOperation, call: ManagementCall[Any], *, keep_alive: bool
    ) -> httpx.Response:
        names = {name: _quote(text) for name, text in operation.path_arguments(call).items()}
        headers = _authorization(await resolve_token(self._token))
        arguments = operation.arguments(call)
        content, parameters = None, None
        if operation.has_body:
            headers["Content-Type"] = _JSON
            content = msgspec.json.encode(arguments)
        elif arguments is not None:
            built = msgspec.to_builtins(arguments)
            parameters = {name: value for name, value in built.items() if value is not None}
        request = functools.partial(
            httpx.AsyncClient.request,
            method=operation.method,
            url=operation.path.format(**names),
            params=parameters,
            headers=headers,
            content=content,
        )
        if keep_alive:
            kept = self._kept = self._kept or self._client()
            try:
                return await request(kept)
            except (httpx.HTTPError, OSError) as error:
                if kept.is_closed:
                    raise _ClosedError from None
                # The broker has closed a connection that was kept; it may have read the request
                # before.
                if operation.method != "GET" or not isinstance(error, _CLOSED_BY_PEER):
                    raise
        async with self._client() as client:
            return await request(client)


def _authorization(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    # Checked here, since an error of the HTTP library would look like a network failure and show
    # the token.
    if not token or not all("!" <= character <= "~" for character in token):
        raise RefusedError(
            Code.UNAUTHENTICATED,
            "the token is not valid: it is empty or has spaces, line ends or other characters "
            "that no token has",
        )
    return {"Authorization": f"Bearer {token}"}


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
