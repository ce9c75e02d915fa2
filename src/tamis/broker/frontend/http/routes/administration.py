"""Tokens, the audit log, and the state of the broker."""

from __future__ import annotations

from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from starlette.responses import Response

from tamis.broker.frontend.http.bodies import (
    Alive,
    Ready,
)
from tamis.broker.frontend.http.operations import Content, OperationCall, Operations
from tamis.errors import RefusedError
from tamis.protocol import Code

operations: Final = Operations("Administration")


@operations.add("GET", "/metrics", gives=Content({"text/plain": {"type": "string"}}))
async def metrics(call: OperationCall) -> Response:
    """Return all metrics, for Prometheus."""
    call.require_admin()
    text = await call.broker.executors.administration.run(
        generate_latest, call.broker.metrics.registry
    )
    return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


@operations.add("GET", "/health", public=True)
async def health(call: OperationCall) -> Alive:  # noqa: ARG001 - all operations are called alike
    """Report whether the process responds."""
    return Alive()


@operations.add("GET", "/ready", public=True)
async def ready(call: OperationCall) -> Ready:
    """Report whether the broker accepts publications."""
    if not call.broker.health.ready or call.frontend.streams.is_stopping:
        raise RefusedError(
            Code.UNAVAILABLE, "the broker does not accept publications; /v1/status says why"
        )
    return Ready()
