"""Fetch events and report their outcome; dead letters."""

from __future__ import annotations

from typing import Final

from tamis.broker.frontend.http.bodies import (
    Acknowledgement,
    Fetch,
    Fetched,
    Rejection,
)
from tamis.broker.frontend.http.operations import OperationCall, Operations
from tamis.broker.frontend.streams import long_poll
from tamis.protocol import Code

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


@operations.add("POST", f"{_SUBSCRIPTION}/acknowledge", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def acknowledge(call: OperationCall, subscription: str, body: Acknowledgement) -> None:
    """Acknowledge events, so that they are not delivered again."""
    await call.session.acknowledge(subscription, body.sequences, body.up_to)


@operations.add("POST", f"{_SUBSCRIPTION}/reject", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def reject(call: OperationCall, subscription: str, body: Rejection) -> None:
    """Reject an event; it is delivered again later or becomes a dead letter."""
    await call.session.reject(subscription, body.sequence, delay=body.delay, reason=body.reason)
