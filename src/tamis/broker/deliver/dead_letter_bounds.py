"""Bounds of dead letters: each holds a whole event, once for every subscription that gave it up."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final

from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex
from tamis.storage import DroppedEvents, StateStore

# Why events are lost that were dead letters.
DEAD_LETTERS: Final = "dead_letters"


class DeadLetterBounds:
    """Keeps the dead letters of subscriptions and of principals within bounds; for any thread.

    The oldest make room, and count as dropped events.
    """

    def __init__(
        self, state: StateStore, subscription_index: SubscriptionIndex, letters: int, bytes_: int
    ) -> None:
        """Allow a subscription this many letters, and a principal this many bytes of them."""
        self._state = state
        self._index = subscription_index
        self._letters = letters
        self._bytes = bytes_
        self._changing = Lock()
        self._sizes: dict[str, dict[int, int]] = {}
        """Bytes of dead letters, by the owner and the number of subscriptions that have any."""

    def load(self) -> None:
        """Learn what is on disk."""
        for usage in self._state.dead_letter_usage():
            subscription = self._index.get(usage.number)
            if subscription is not None:
                self._sizes.setdefault(subscription.stored.owner, {})[usage.number] = usage.bytes

    def refresh(self, subscription: ActiveSubscription) -> None:
        """Learn that letters of a subscription were deleted or requeued."""
        with self._changing:
            self._look(subscription.stored.owner, subscription.number)

    def enforce(self, subscriptions: Iterable[ActiveSubscription]) -> list[DroppedEvents]:
        """Drop what is too much after subscriptions got letters; return how many of each."""
        with self._changing:
            return [
                dropped
                for subscription in subscriptions
                for dropped in self._enforce(subscription.stored.owner, subscription.number)
            ]

    def _enforce(self, owner: str, number: int) -> list[DroppedEvents]:
        found = []
        excess = self._look(owner, number) - self._letters
        if excess > 0:
            found.append(self._drop(owner, number, letters=excess))
        sizes = self._sizes.get(owner, {})
        for deleted in [one for one in sizes if self._index.get(one) is None]:
            self._forget(owner, deleted)
        while sizes and (too_much := sum(sizes.values()) - self._bytes) > 0:
            largest = max(sizes, key=sizes.__getitem__)
            found.append(self._drop(owner, largest, bytes_=too_much))
        return [dropped for dropped in found if dropped.events]

    def _drop(self, owner: str, number: int, *, letters: int = 0, bytes_: int = 0) -> DroppedEvents:
        gone = self._state.drop_dead_letters(number, DEAD_LETTERS, letters=letters, bytes_=bytes_)
        self._look(owner, number)
        return DroppedEvents(number, DEAD_LETTERS, gone)

    def _look(self, owner: str, number: int) -> int:
        """Note the size of a subscription's letters, and return their number."""
        usage = self._state.dead_letter_usage(number)
        if not usage:
            self._forget(owner, number)
            return 0
        self._sizes.setdefault(owner, {})[number] = usage[0].bytes
        return usage[0].letters

    def _forget(self, owner: str, number: int) -> None:
        sizes = self._sizes.get(owner, {})
        sizes.pop(number, None)
        if not sizes:
            self._sizes.pop(owner, None)
