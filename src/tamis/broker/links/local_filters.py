"""Local filters: what the subscriptions of this broker ask for, told to whoever routes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tamis.access import FilterInMode
from tamis.broker.deliver.routes import LinkSubscription
from tamis.broker.deliver.subscriptions import SubscriptionIndex, mark_of
from tamis.errors import TamisError
from tamis.ports import Executor

# Read at once, in a few milliseconds.
CHANGES_PER_TURN: Final = 200


class LocalFilterChange(NamedTuple):
    """A subscription that has come into force, is matched otherwise, or has gone."""

    number: int
    """Of the subscription; no other ever has it."""
    owner: str
    filter: FilterInMode | None
    """What is matched for it, by the rights of its owner; None: nothing more."""


Listener = Callable[[Sequence[LocalFilterChange]], object]


class LocalFilters:
    """Tells a listener what local subscriptions ask for, in order, after it is in force.

    Without a listener this costs nothing. A subscription that changes several times before it is
    told is told once, as it is then.
    """

    def __init__(self, subscription_index: SubscriptionIndex, executor: Executor) -> None:
        self._index = subscription_index
        self._executor = executor
        self._changed: deque[int] = deque()
        self._told: dict[int, tuple[str, bytes]] = {}
        """Of each subscription that was told, its owner and a digest of what is matched for it."""
        self._work = asyncio.Event()
        self._idle = asyncio.Event()
        """Set when the listener knows everything, for those who wait for that."""
        self._listener: Listener | None = None

    def watch(self, listener: Listener) -> None:
        """Report all subscriptions to a listener, then all changes; on the event loop.

        It takes the place of the one before, and knows nothing yet.
        """
        self._listener, self._told = listener, {}
        # First: what changes while the others are listed is told later, as it is then.
        self._index.note_change = self._changed.append
        self._changed.extend(one.number for one in self._index)
        self.wake()

    def wake(self) -> None:
        """Look for changes; called when some are in force."""
        if self._changed:
            self._work.set()

    @property
    def is_told(self) -> bool:
        """Return whether the listener knows everything."""
        return not self._changed and not self._work.is_set()

    async def told(self) -> None:
        """Return when the listener knows everything that is in force now."""
        while not self.is_told and self._listener is not None:
            self._idle.clear()
            await self._idle.wait()

    async def run(self) -> None:
        """Report to the listener until cancelled."""
        while True:
            await self._work.wait()
            while self._changed:
                numbers = [self._changed.popleft() for _ in range(self._size())]
                changes = await self._executor.run(self._read, [*dict.fromkeys(numbers)])
                if changes and self._listener is not None:
                    self._tell(self._listener, changes)
            self._work.clear()
            self._idle.set()

    def _tell(self, listener: Listener, changes: Sequence[LocalFilterChange]) -> None:
        try:
            listener(changes)
        except BaseException:
            # They are told again, as they are then, when this starts anew.
            for change in reversed(changes):
                self._told[change.number] = change.owner, b""
                self._changed.appendleft(change.number)
            raise

    def _size(self) -> int:
        return min(len(self._changed), CHANGES_PER_TURN)

    def _read(self, numbers: Sequence[int]) -> list[LocalFilterChange]:
        found = (self._change(number) for number in numbers)
        return [change for change in found if change is not None]

    def _change(self, number: int) -> LocalFilterChange | None:
        """Return what is to be told of a subscription; None if that is known."""
        subscription = self._index.get(number)
        if isinstance(subscription, LinkSubscription):
            return None
        if subscription is not None and subscription.departure is None:
            stored, rights = subscription.stored, subscription.rights
            known = stored.owner, mark_of(stored, rights)
            if self._told.get(number) == known:
                return None
            try:
                effective = rights.effective(subscription.filter, stored.mode)
            except TamisError:
                # The policy does not allow it now.
                pass
            else:
                self._told[number] = known
                return LocalFilterChange(number, stored.owner, effective)
        told = self._told.pop(number, None)
        return None if told is None else LocalFilterChange(number, told[0], None)
