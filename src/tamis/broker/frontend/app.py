"""The ASGI application: all paths of a broker."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from importlib.metadata import version
from typing import Final

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from tamis.broker.broker import Broker
from tamis.broker.frontend.guard import Guard
from tamis.broker.frontend.http import openapi
from tamis.broker.frontend.http.endpoint import Endpoint
from tamis.broker.frontend.http.operations import (
    Content,
    Frontend,
    Operation,
    OperationCall,
    Operations,
)
from tamis.broker.frontend.http.problems import problem_response
from tamis.broker.frontend.http.reading import JSON
from tamis.broker.frontend.http.routes import OPERATIONS
from tamis.broker.frontend.peer_socket import PeerApp
from tamis.broker.frontend.streams import OpenStreams
from tamis.broker.frontend.websocket import WebSocketApp
from tamis.errors import RefusedError
from tamis.protocol import Code
from tamis.protocol.peering import LINK_PATH

PAGE: Final = f"""<!doctype html>
<html lang="en">
<title>Tamis broker</title>
<style>body {{ font: 1rem/1.5 system-ui; margin: 3rem auto; max-width: 40rem; }}</style>
<h1>Tamis broker {version("tamis")}</h1>
<p>Publishers send events, subscribers send filters, and each event reaches everyone whose filter it
satisfies.</p>
<ul>
<li><a href="/openapi.json">/openapi.json</a> describes everything that can be asked for over HTTP
<li><code>/v1/connect</code> is the WebSocket
<li><a href="/v1/events?filter=true">/v1/events?filter=…</a> streams events
<li><a href="/v1/status">/v1/status</a>, <a href="/metrics">/metrics</a>,
<a href="/health">/health</a> and <a href="/ready">/ready</a> show the broker's state
</ul>
</html>
"""

_pages: Final = Operations("About")


@_pages.add("GET", "/", gives=Content({"text/html": {"type": "string"}}), public=True)
async def front_page(call: OperationCall) -> Response:  # noqa: ARG001 - all operations are called alike
    """Return a page with links, for people."""
    return HTMLResponse(PAGE)


@_pages.add("GET", "/openapi.json", gives=Content({JSON: {"type": "object"}}), public=True)
async def api_description(call: OperationCall) -> Response:
    """Return this document."""
    return Response(_document(call.settings.tokens_required), media_type=JSON)


ALL: Final = [*OPERATIONS, *_pages.all]


@cache
def _document(tokens_required: bool) -> bytes:
    return msgspec.json.encode(openapi.document(ALL, tokens_required=tokens_required))


def create_app(broker: Broker, streams: OpenStreams) -> ASGIApp:
    """Return the ASGI application of a broker."""
    settings = broker.settings
    frontend = Frontend(broker, settings, streams)
    broker.metrics.watch("streams", "Connections and event streams open", streams.__len__)
    app: ASGIApp = Router(_routes(frontend), redirect_slashes=False, default=_Nowhere(frontend))
    app = Guard(app, settings)
    if settings.origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.origins,
            allow_methods=("GET", "POST", "PATCH", "DELETE"),
            allow_headers=(
                "Authorization",
                "Content-Type",
                "Last-Event-ID",
                "Tamis-Publisher",
                "Tamis-Request",
                "Tamis-Sequence",
                "Tamis-Skip",
            ),
            max_age=600,
        )
    return app


def _routes(frontend: Frontend) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Operation]] = defaultdict(dict)
    for operation in ALL:
        by_path[operation.path][operation.method] = operation
    routes: list[BaseRoute] = [
        Route(path, Endpoint(frontend, path, operations)) for path, operations in by_path.items()
    ]
    return [
        *routes,
        WebSocketRoute("/v1/connect", WebSocketApp(frontend)),
        WebSocketRoute(LINK_PATH, PeerApp(frontend)),
    ]


class _Nowhere:
    """The ASGI application of all other paths."""

    def __init__(self, frontend: Frontend) -> None:
        self._pacing: Final = frontend.broker.pacing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._pacing.wait_as_stranger()
        path = scope["path"]
        message = f"nothing is served at {path!r:.200}; see /openapi.json"
        response = problem_response(RefusedError(Code.NOT_FOUND, message), path)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)
