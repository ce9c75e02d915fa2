"""Trying filters on sample events."""

from __future__ import annotations

import asyncio
from typing import Final

from tamis.broker.frontend.http.bodies import (
    ExplainFilter,
    ExplainSubscription,
    ExplanationView,
    TrialResults,
    Trials,
)
from tamis.broker.frontend.http.operations import OperationCall, Operations
from tamis.protocol import Code

operations: Final = Operations("Filters")


@operations.add("POST", "/v1/filters/try", refuses=(Code.BAD_FILTER,))
async def try_filter(call: OperationCall, body: Trials) -> TrialResults:
    """Try a filter on sample events, without subscribing."""
    results = await asyncio.to_thread(
        call.session.try_filter,
        body.filter,
        language=body.language,
        mode=body.mode,
        events=body.events,
    )
    return TrialResults(results=results)


@operations.add("POST", "/v1/filters/explain", refuses=(Code.BAD_FILTER, Code.BAD_EVENT))
async def explain_filter(call: OperationCall, body: ExplainFilter) -> ExplanationView:
    """Explain why a filter matches a sample event, or why not."""
    text = await asyncio.to_thread(
        call.session.explain,
        filter_=body.filter,
        language=body.language,
        mode=body.mode,
        event=body.event,
    )
    return ExplanationView(explanation=text)


@operations.add(
    "POST",
    "/v1/subscriptions/{subscription}/explain",
    refuses=(Code.NOT_FOUND, Code.BAD_FILTER, Code.BAD_EVENT),
)
async def explain_subscription(
    call: OperationCall, subscription: str, body: ExplainSubscription
) -> ExplanationView:
    """Explain why a subscription matches a sample event, or why not."""
    text = await asyncio.to_thread(call.session.explain, id_=subscription, event=body.event)
    return ExplanationView(explanation=text)
