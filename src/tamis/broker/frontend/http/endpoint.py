"""One path: find the operation, run it, and turn refusals into problems."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tamis.broker.frontend.http.operations import Created, Frontend, Operation, OperationCall
from tamis.broker.frontend.http.problems import HTTPRefusedError, problem_response
from tamis.broker.frontend.http.reading import (
    JSON,
    announced_size,
    bearer_token,
    decode_body,
    decode_headers,
    decode_query,
    media_type,
    read_body,
    unsupported,
)
from tamis.broker.frontend.streams import make_known
from tamis.broker.operations.health import storage_refusal
from tamis.broker.operations.logs import get_logger
from tamis.broker.operations.pacing import Strangers
from tamis.errors import (
    AccessError,
    DisconnectedError,
    RefusedError,
    StorageError,
)
from tamis.protocol import Code

LOG: Final = get_logger("tamis.http")
WRITTEN_TOGETHER: Final = ("Events", "Delivery")
"""Operations whose changes are written with those of others, in one sync."""
PROBED: Final = ("/health", "/ready")
"""What load balancers ask for, who must not wait for other strangers."""


class Endpoint:
    """An ASGI application for one path."""

    def __init__(self, frontend: Frontend, path: str, operations: Mapping[str, Operation]) -> None:
        self._frontend = frontend
        self._path = path
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = _ResponseSender(send)
        begun = time.perf_counter()
        principal = await self._answer(Request(scope, receive, send), answer)
        LOG.log(
            _level(answer.status),
            "request",
            method=scope["method"],
            path=self._path,
            status=answer.status,
            milliseconds=round((time.perf_counter() - begun) * 1000, 1),
            principal=principal,
        )

    async def _answer(self, request: Request, answer: _ResponseSender) -> str | None:
        """Answer a request, whatever happens; return the principal."""
        call = OperationCall(request, self._frontend, None)
        try:
            operation = self._find(request.method)
            if not operation.public:
                session = await self._frontend.broker.authenticate(bearer_token(request))
                call = OperationCall(request, self._frontend, session)
                make_known(request.scope)
                pacing, principal = self._frontend.broker.pacing, session.principal.name
                await pacing.wait_for_turn(
                    principal,
                    session.closed,
                    size=announced_size(request),
                    changes=operation.method != "GET" and operation.tag not in WRITTEN_TOGETHER,
                )
                await pacing.metered(principal, _respond(operation, call, answer))
                session.note_answered()
            else:
                who = Strangers.PROBES if self._path in PROBED else Strangers.OTHERS
                await self._frontend.broker.pacing.wait_as_stranger(who)
                await _respond(operation, call, answer)
        except (ClientDisconnect, DisconnectedError):
            pass
        except Exception as error:  # No trace of it may reach the client.
            found = _as_refusal(error, self._path)
            await self._wait_to_refuse(call, found)
            await self._refuse(request, answer, found)
        finally:
            if call.authenticated is not None:
                await call.authenticated.close()
        return None if call.authenticated is None else call.authenticated.principal.name

    def _find(self, method: str) -> Operation:
        found = self._operations.get("GET" if method == "HEAD" else method)
        if found is None:
            known = ", ".join(self._operations)
            raise HTTPRefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"{method:.20} is not allowed here; use {known}",
                headers={"Allow": known},
            )
        return found

    async def _wait_to_refuse(self, call: OperationCall, error: RefusedError) -> None:
        """Leave time to others before a refusal, after which many clients try again at once."""
        pacing, session = self._frontend.broker.pacing, call.authenticated
        if error.code == Code.UNAUTHENTICATED:
            await pacing.wait_as_stranger()
        elif error.code == Code.TOO_MANY and session is not None:
            await pacing.wait_to_refuse(session.principal.name, session.closed)

    async def _refuse(self, request: Request, answer: _ResponseSender, error: RefusedError) -> None:
        self._frontend.broker.metrics.refused.labels(error.code).inc()
        if isinstance(error, AccessError):
            LOG.warning("refused", path=self._path, code=error.code, reason=error.reason)
        if answer.status is None:
            response = problem_response(error, request.url.path)
            await response(request.scope, request.receive, answer)


def _level(status: int | None) -> int:
    if status is None or status < 400:
        return logging.DEBUG
    return logging.INFO if status < 500 else logging.WARNING


class _ResponseSender:
    """Sends the response, and remembers its status."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def _respond(operation: Operation, call: OperationCall, answer: _ResponseSender) -> None:
    response = _as_response(operation, await _perform(operation, call))
    await response(call.request.scope, call.request.receive, answer)


async def _perform(operation: Operation, call: OperationCall) -> object:
    parts: dict[str, Any] = dict(call.request.path_params)
    if operation.query is not None:
        parts["query"] = decode_query(call.request, operation.query)
    if operation.headers is not None:
        parts["headers"] = decode_headers(call.request, operation.headers)
    if operation.body is not None:
        given = media_type(call.request)
        if given != JSON:
            raise unsupported(given, JSON)
        body = await read_body(call.request, call.settings, call.broker.executors.decode)
        parts["body"] = decode_body(body, operation.body)
    return await operation.handler(call, **parts)


def _as_response(operation: Operation, result: object) -> Response:
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    status = operation.status
    if isinstance(result, Created):
        status = status if result.is_new else HTTPStatus.OK
        result = result.value
    return Response(msgspec.json.encode(result), status, media_type=JSON)


def _as_refusal(error: Exception, path: str) -> RefusedError:
    match error:
        case RefusedError():
            return error
        case StorageError():
            return storage_refusal(error)
        case _:
            LOG.error("internal error", path=path, exc_info=error)
            return RefusedError(Code.UNAVAILABLE, "an internal error; the broker's log has details")
