"""Exact checks: what the engine finds for a query over documents, or for tests of elements.

The engine has a filter that holds wherever they do. Whether an event satisfies them is found out
when it is about to be sent: by then it is one of a few, nobody else waits for the answer, and each
principal has one thread at a time for all of its subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.operations.fair_executor import FairExecutor, Slices
from tamis.broker.publish.event_cache import INVALID, StoredEvent
from tamis.broker.publish.payloads import XML, Payload
from tamis.errors import TamisError
from tamis.filters import Filter
from tamis.languages.exactness import QueryTest, is_approximated, satisfies_exactly

RESIDUE: Final = "residue"
"""In place of an event that does not satisfy the filter, although the engine has found it."""
UNCHECKED: Final = "unchecked"
"""In place of an event that there was no time to check."""


class ExactChecks:
    """Checks events beside the event loop, in turns with other principals."""

    def __init__(self, executor: FairExecutor) -> None:
        self._executor = executor

    async def check(
        self,
        subscription: ActiveSubscription,
        found: list[StoredEvent | str],
        is_late: Callable[[], bool] = lambda: False,
    ) -> list[StoredEvent | str]:
        """Return events that satisfy a subscription's filter; for the others, the reason.

        That is `residue`, or `invalid` if it takes too long to find out. Once it is late, all that
        follow are `unchecked`; the first never is, so that whoever asks again gets further.
        """
        if not subscription.is_checked:
            return found
        owner = subscription.stored.owner
        return await self._executor.run_slices(owner, _checked(subscription, found, is_late))


def _checked(
    subscription: ActiveSubscription,
    found: Sequence[StoredEvent | str],
    is_late: Callable[[], bool],
) -> Slices[list[StoredEvent | str]]:
    checked: list[StoredEvent | str] = []
    for stored in found:
        if not isinstance(stored, str):
            yield
            if checked and is_late():
                return checked + [UNCHECKED] * (len(found) - len(checked))
        checked.append(stored if isinstance(stored, str) else _outcome(subscription, stored))
    return checked


def _outcome(subscription: ActiveSubscription, stored: StoredEvent) -> StoredEvent | str:
    try:
        return stored if has_passed(subscription, stored.sequence, stored.payload) else RESIDUE
    except TamisError:
        return INVALID


def has_passed(subscription: ActiveSubscription, sequence: int, payload: Payload) -> bool:
    """Return whether an event satisfies the filter of a subscription that held for it."""
    left = subscription.left_to_check(sequence)
    return left is None or is_satisfied(*left, payload)


def is_satisfied(filter_: Filter, mode: str, payload: Payload) -> bool:
    """Return whether an event that the engine found satisfies a filter exactly."""
    if not is_approximated(filter_):
        return True
    if isinstance(filter_, QueryTest):
        if payload.format != XML:
            return False
        if filter_.translation.residual is None:
            return True
    decoder = payload.decoder
    return satisfies_exactly(
        filter_, mode, decoder.exact_event(payload.text, payload.format), decoder.schema
    )
