"""Fetch events and report their outcome; dead letters."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from tamis.broker.frontend.http.bodies import (
    Acknowledgement,
    Fetch,
    Fetched,
    FetchNext,
    Rejection,
)
from tamis.broker.frontend.http.operations import Content, OperationCall, Operations
from tamis.broker.frontend.http.reading import CLOUDEVENT, JSON, XML
from tamis.broker.frontend.streams import long_poll
from tamis.errors import MissingExtraError
from tamis.protocol import Code, Delivery

operations: Final = Operations("Delivery")

_SUBSCRIPTION: Final = "/v1/subscriptions/{subscription}"


@operations.add(
    "POST", f"{_SUBSCRIPTION}/fetch", refuses=(Code.NOT_FOUND, Code.CONFLICT, Code.STORAGE_FULL)
)
async def fetch(call: OperationCall, subscription: str, body: Fetch) -> Fetched:
    """Fetch pending events, or wait for some.

    They are delivered again unless they are acknowledged within `ack_timeout`.
    """
    asked = call.session.fetch(subscription, limit=body.limit, wait=body.wait, confirm=False)
    found = await long_poll(call.frontend.streams, call.request.receive, asked)
    return Fetched(events=found or [], dropped=found.dropped if found is not None else 0)


_TYPES: Final = {"json": JSON, "cloudevents": CLOUDEVENT}
_OBJECT: Final[dict[str, Any]] = {"type": "object"}


@operations.add(
    "POST",
    f"{_SUBSCRIPTION}/next",
    gives=Content({JSON: _OBJECT, CLOUDEVENT: _OBJECT, XML: {"type": "string"}}),
    refuses=(Code.NOT_FOUND, Code.CONFLICT, Code.STORAGE_FULL),
    may_be_empty=True,
)
async def fetch_next(call: OperationCall, subscription: str, body: FetchNext) -> Response:
    """Fetch one event as it was published: JSON, a CloudEvent, or an XML document.

    A document comes in the encoding that it declares, also named by `charset`.
    The headers `Tamis-Sequence`, `Tamis-Time`, `Tamis-Publisher` and `Tamis-Attempt` describe it,
    and `Tamis-Dropped` counts lost events. It is delivered again unless it is acknowledged within
    `ack_timeout`.
    """
    asked = call.session.fetch(subscription, limit=1, wait=body.wait, confirm=False)
    found = await long_poll(call.frontend.streams, call.request.receive, asked)
    dropped = {"Tamis-Dropped": str(found.dropped)} if found is not None and found.dropped else {}
    if not found:
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=dropped)
    [event] = found
    content, media_type = _body(event)
    headers = {
        "Tamis-Sequence": str(event.sequence),
        "Tamis-Time": repr(event.time),
        "Tamis-Publisher": quote(event.publisher, safe="/@+:,"),
        "Tamis-Attempt": str(event.attempt),
        **dropped,
    }
    return Response(content, headers=headers, media_type=media_type)


def _body(event: Delivery) -> tuple[bytes, str]:
    """Return an event as it was published, and its media type."""
    if event.format != "xml":
        return bytes(event.data), _TYPES.get(event.format, JSON)
    text = msgspec.json.decode(event.data, type=str)
    try:
        # The extra `xml` may be gone since it was published.
        from tamis.xml.decoding import encode_document  # noqa: PLC0415
    except MissingExtraError:
        return text.encode(), f"{XML}; charset=utf-8"
    # What is stored is text; whoever writes the body to a file believes the declaration in it.
    content, charset = encode_document(text)
    return content, f"{XML}; charset={charset}"


@operations.add("POST", f"{_SUBSCRIPTION}/acknowledge", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def acknowledge(call: OperationCall, subscription: str, body: Acknowledgement) -> None:
    """Acknowledge events, so that they are not delivered again."""
    await call.session.acknowledge(subscription, body.sequences, body.up_to)


@operations.add("POST", f"{_SUBSCRIPTION}/reject", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def reject(call: OperationCall, subscription: str, body: Rejection) -> None:
    """Reject an event; it is delivered again later or becomes a dead letter."""
    await call.session.reject(subscription, body.sequence, delay=body.delay, reason=body.reason)
