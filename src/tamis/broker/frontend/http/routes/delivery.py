"""Fetching events and settling them; dead letters."""

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
    """Fetch events that wait, or wait for some.

    They come again unless they are acknowledged within the time that the broker sets.
    """
    asked = call.session.fetch(subscription, limit=body.limit, wait=body.wait)
    return Fetched(events=await long_poll(call.frontend.streams, call.request.receive, asked) or [])


@operations.add("POST", f"{_SUBSCRIPTION}/acknowledge", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def acknowledge(call: OperationCall, subscription: str, body: Acknowledgement) -> None:
    """Acknowledge events: they do not come again."""
    await call.session.acknowledge(subscription, body.sequences, body.up_to)


@operations.add("POST", f"{_SUBSCRIPTION}/reject", refuses=(Code.NOT_FOUND, Code.STORAGE_FULL))
async def reject(call: OperationCall, subscription: str, body: Rejection) -> None:
    """Reject an event: it comes again later, or goes to the dead letters."""
    await call.session.reject(subscription, body.sequence, delay=body.delay, reason=body.reason)
