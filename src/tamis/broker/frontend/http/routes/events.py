"""Publish events, and stream them."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from tamis.broker.frontend.http.bodies import (
    EventStreamQuery,
    PublisherHeaders,
    ResumeHeaders,
    StoredPublication,
)
from tamis.broker.frontend.http.operations import Content, OperationCall, Operations
from tamis.broker.frontend.http.reading import (
    CLOUDEVENT,
    CLOUDEVENT_BATCH,
    JSON,
    JSON_LINES,
    XML,
    announced_size,
    media_type,
    read_body,
    read_events,
)
from tamis.broker.frontend.http.sse import EVENT_STREAM, EventStream
from tamis.errors import RefusedError
from tamis.protocol import Code, Subscribe
from tamis.protocol.management import parse_position

operations: Final = Operations("Events")

_OBJECT: Final[dict[str, Any]] = {"type": "object"}
_MANY: Final[dict[str, Any]] = {"type": "array", "items": _OBJECT, "minItems": 1}
_CLOUDEVENT: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["specversion", "id", "source", "type"],
    "properties": {
        "specversion": {"const": "1.0"},
        **{name: {"type": "string", "minLength": 1} for name in ("id", "source", "type")},
    },
}
_EVENTS: Final = Content(
    {
        JSON: {"oneOf": [_OBJECT, _MANY]},
        JSON_LINES: {"type": "string", "description": "One JSON object on each line."},
        CLOUDEVENT: _CLOUDEVENT,
        CLOUDEVENT_BATCH: {**_MANY, "items": _CLOUDEVENT},
        XML: {"type": "string", "description": "One XML document."},
    }
)


@operations.add(
    "POST",
    "/v1/events",
    takes=_EVENTS,
    refuses=(
        Code.BAD_EVENT,
        Code.CONFLICT,
        Code.OUT_OF_ORDER,
        Code.TOO_LARGE,
        Code.STORAGE_FULL,
    ),
)
async def publish(call: OperationCall, headers: PublisherHeaders) -> StoredPublication:
    """Publish events, all or none.

    The response arrives once they are on disk. With the header `ce-specversion`, the body is the
    data of one CloudEvent in binary mode, of any media type.
    """
    request, settings = call.request, call.settings
    call.session.expect_publication(announced_size(request))
    body = await read_body(request, settings, call.broker.executors.decode)
    found = read_events(body, media_type(request), request.headers, settings.largest_batch)
    try:
        stored = await call.session.publish(
            found.events,
            format=found.format,
            publisher=headers.publisher,
            sequence=headers.sequence or 0,
            skip=headers.skip,
        )
    except RefusedError as error:
        if not found.is_batch:
            error.index = None
        elif error.index is not None:
            error.locate(found.place(error.index))
        raise
    return StoredPublication(count=stored.count, duplicates=stored.duplicates, first=stored.first)


@operations.add(
    "GET",
    "/v1/events",
    gives=Content({EVENT_STREAM: {"type": "string"}}),
    refuses=(Code.BAD_FILTER,),
)
async def stream_events(
    call: OperationCall, query: EventStreamQuery, headers: ResumeHeaders
) -> Response:
    """Stream the events that match a filter, as Server-Sent Events.

    The `id` of each is its sequence in the log. With overflow `wait`, a client that reconnects with
    `Last-Event-ID` receives what it has missed, as far back as events are kept.
    """
    is_resumed = headers.after is not None and query.overflow == "wait"
    wanted = Subscribe(
        ref=0,
        filter=query.filter,
        language=query.language,
        mode=query.mode,
        start=(headers.after or 0) + 1 if is_resumed else parse_position(query.start),
        overflow=query.overflow,
    )
    view = await call.session.subscribe(wanted)
    return EventStream(call, view.id, acknowledge="auto")
