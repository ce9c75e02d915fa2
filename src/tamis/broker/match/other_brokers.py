"""Who gets an event where subscriptions move between brokers, or brokers are linked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tamis.broker.deliver.routes import LinkSubscription
from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.broker.publish.event_cache import StoredEvent
from tamis.matching import MatchingBudget
from tamis.storage import StateStore

Found = Sequence[tuple[int, list[ActiveSubscription]]]
"""Sequences of events, and the subscriptions that get each."""


class OtherBrokers:
    """Adds the links that events go over, and leaves out subscriptions that have moved."""

    def __init__(self, subscription_index: SubscriptionIndex, state: StateStore) -> None:
        self._index = subscription_index
        self._state = state

    def recipients(
        self,
        event: StoredEvent,
        found: list[ActiveSubscription],
        matched: Iterable[Any],
        attempts: dict[int, dict[int, int]],
    ) -> list[ActiveSubscription]:
        """Return who gets an event, of those found here and of the links.

        `attempts` takes how often one that is handed over was sent before, by number and sequence.
        """
        if event.recipient is not None:
            return self._receiver(event, attempts)
        if self._index.moved:
            found = [one for one in found if one.is_due(event, self._state.broker_id)]
        if self._index.routes:
            found += self._links_of(event, matched)
        return found

    def _receiver(
        self, event: StoredEvent, attempts: dict[int, dict[int, int]]
    ) -> list[ActiveSubscription]:
        """Return the subscription that an event was handed over for, unless it has it already."""
        recipient = event.recipient
        found = None if recipient is None else self._index.get(recipient.number)
        if recipient is None or found is None or not found.is_arriving or found.arrival is None:
            return []
        if recipient.position <= found.arrival.received:
            return []
        found.arrival = msgspec.structs.replace(found.arrival, received=recipient.position)
        own = attempts.setdefault(found.number, {})
        if recipient.attempts:
            own[event.sequence] = recipient.attempts
        return [found]

    def _links_of(self, event: StoredEvent, matched: Iterable[Any]) -> list[LinkSubscription]:
        """Return the links that an event goes over: each once, and never back to its hop."""
        routes = self._index.routes
        hop = None if event.origin is None else event.origin.hop
        links: dict[LinkSubscription, None] = {}
        for number in matched:
            route = routes.get(number)
            if route is None or route.link in links or route.link.peer == hop:
                continue
            link = route.link
            if link.stored.start <= event.sequence and (
                not link.rights.hides_anything or route.admits(event)
            ):
                links[link] = None
        return [*links]

    def add_undecided(
        self, budget: MatchingBudget, events: Sequence[StoredEvent], found: Found
    ) -> None:
        """Send what routes could not be tested on within the budget: the neighbour filters again.

        A neighbour must not miss anything because one of its subscribers has a slow filter.
        """
        routes = self._index.routes
        for number in [one for one in budget.undecided if one in routes]:
            link, place = routes[int(number)].link, budget.undecided.pop(number)
            for event, (sequence, subscriptions) in zip(events[place:], found[place:], strict=True):
                is_back = event.origin is not None and event.origin.hop == link.peer
                if link in subscriptions or sequence < link.stored.start or is_back:
                    continue
                if not link.rights.hides_anything or link.rights.sight(event.payload.source):
                    subscriptions.append(link)
