"""Create, read, renew and delete subscriptions."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from tamis.broker.frontend.http.bodies import (
    FollowHeaders,
    FollowQuery,
)
from tamis.broker.frontend.http.operations import Content, Created, OperationCall, Operations
from tamis.broker.frontend.http.reading import require_proof
from tamis.broker.frontend.http.sse import EVENT_STREAM, EventStream
from tamis.protocol import Code
from tamis.protocol.management import RoamingSubscription
from tamis.protocol.views import SubscriptionView

operations: Final = Operations("Subscriptions")


@operations.add(
    "POST",
    "/v1/subscriptions",
    status=201,
    refuses=(Code.BAD_FILTER, Code.CONFLICT, Code.STORAGE_FULL),
)
async def create_subscription(
    call: OperationCall, body: RoamingSubscription
) -> Created[SubscriptionView]:
    """Create a subscription, which lasts until it expires or is deleted.

    If you have one with this name and the same filter, it is resumed, and the status is 200. With
    `roaming`, one that a linked broker has is brought here first, with what waits for it.
    """
    view, is_resumed = await call.session.create_subscription(body)
    return Created(view, is_new=not is_resumed)


@operations.add(
    "GET",
    "/v1/subscriptions/{subscription}/events",
    gives=Content({EVENT_STREAM: {"type": "string"}}),
    refuses=(Code.NOT_FOUND,),
)
async def stream_subscription(
    call: OperationCall, subscription: str, query: FollowQuery, headers: FollowHeaders
) -> Response:
    """Stream the events of a subscription, as Server-Sent Events.

    Events are acknowledged when they reach the client's machine, unless the client acknowledges
    them itself. `Last-Event-ID` acknowledges the events up to that one that were sent over a
    connection, without those that were rejected. If no token is required, a client that is not a
    browser must send `Tamis-Request: 1`, which no foreign page can.
    """
    await call.session.subscription(subscription)
    require_proof(call.request.headers, call.settings)
    if headers.after is not None:
        await call.session.resume_after(subscription, headers.after)
    return EventStream(call, subscription, acknowledge=query.acknowledge, on_arrival=True)
