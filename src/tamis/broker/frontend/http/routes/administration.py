"""Tokens and the audit log, and how the broker does."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import Response

from tamis.broker.frontend.http.bodies import (
    Alive,
    AuditEntryView,
    AuditLog,
    AuditPage,
    NewToken,
    Ready,
    TokenList,
)
from tamis.broker.frontend.http.operations import Content, OperationCall, Operations
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.views import IssuedTokenView

operations: Final = Operations("Administration")


@operations.add("POST", "/v1/tokens", status=201, refuses=(Code.STORAGE_FULL,))
async def issue_token(call: OperationCall, body: NewToken) -> IssuedTokenView:
    """Issue a token."""
    return await call.session.issue_token(body.principal, body.roles, body.lifetime, body.note)


@operations.add("GET", "/v1/tokens")
async def list_tokens(call: OperationCall) -> TokenList:
    """List the tokens that are valid."""
    return TokenList(tokens=await call.session.tokens())


@operations.add("DELETE", "/v1/tokens/{token}", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def revoke_token(call: OperationCall, token: str) -> None:
    """Revoke a token; connections that use it are ended."""
    await call.session.revoke_token(token)


@operations.add("GET", "/v1/audit")
async def read_audit_log(call: OperationCall, query: AuditPage) -> AuditLog:
    """Read the log of administrative acts."""
    found = await call.session.audit(query.after, query.limit)
    return AuditLog(entries=[AuditEntryView(**entry._asdict()) for entry in found])


@operations.add("GET", "/v1/status")
async def status(call: OperationCall) -> dict[str, Any]:
    """Show a few numbers that tell how the broker does."""
    call.require_admin()
    return call.broker.status()


@operations.add("GET", "/metrics", gives=Content({"text/plain": {"type": "string"}}))
async def metrics(call: OperationCall) -> Response:
    """Give all counters, for Prometheus."""
    call.require_admin()
    text = await asyncio.to_thread(generate_latest, call.broker.metrics.registry)
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


@operations.add("GET", "/health", public=True)
async def health(call: OperationCall) -> Alive:  # noqa: ARG001 - all operations are called alike
    """Tell whether the process answers."""
    return Alive()


@operations.add("GET", "/ready", public=True)
async def ready(call: OperationCall) -> Ready:
    """Tell whether publications are taken."""
    if not call.broker.health.ready or call.frontend.streams.is_stopping:
        raise RefusedError(
            Code.UNAVAILABLE, "the broker takes no publications now; /v1/status says why"
        )
    return Ready()
