"""Fan-out: how many subscriptions the events of each principal reach, and how many events wait.

Events are matched in the order of the log, so everybody waits for those before. An event that
reaches thousands of queues takes long. Its principal therefore waits before it publishes the next,
and so its events fill no queue that others have to pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from tamis.broker.publish.numbering import owner_of

# Some 10 to 20 ms of work for the matcher.
MAX_MATCHES_WAITING: Final = 5_000
# How fast a high number is forgotten, per step of the matcher.
DECAY: Final = 0.99
MAX_PRINCIPALS: Final = 10_000


class ReachedQueues(NamedTuple):
    """How many events of a principal were matched, and how many subscriptions they reached."""

    events: int
    matches: int


class FanOut:
    """What waits of each principal to be stored or matched; keys are as `owner_of` has them."""

    def __init__(self) -> None:
        self._waiting: Final[dict[str, int]] = {}
        self._reach: Final[dict[str, float]] = {}
        self._reliefs: Final[dict[str, asyncio.Future[None]]] = {}

    def enter(self, publisher: str, events: int) -> None:
        """Count events that are to be stored and matched."""
        owner = owner_of(publisher)
        self._waiting[owner] = self._waiting.get(owner, 0) + events

    def leave(self, owner: str, events: int) -> None:
        """Count events of a principal that wait no longer, and wake whom they held up."""
        left = self._waiting.get(owner, 0) - events
        if left > 0:
            self._waiting[owner] = left
        else:
            self._waiting.pop(owner, None)
        if self._reliefs:
            self._relieve(owner)

    def note(self, reached: Mapping[str, ReachedQueues]) -> None:
        """Record what was matched, by principal."""
        for owner, (events, matches) in reached.items():
            before = self._reach.pop(owner, 0.0)
            self._reach[owner] = max(1.0, matches / events, DECAY * before)
            self.leave(owner, events)
        while len(self._reach) > MAX_PRINCIPALS:
            del self._reach[next(iter(self._reach))]

    def reach(self, owner: str, most: int) -> float:
        """Return how many of so many subscriptions an event reaches: at first perhaps all."""
        return self._reach.get(owner, most)

    def relief(self, publisher: str, most: int) -> asyncio.Future[None] | None:
        """Return None if there is room for its events, otherwise the moment to ask again.

        The answer and the future are of the same moment, so no relief falls between them.
        """
        owner = owner_of(publisher)
        if self._waiting.get(owner, 0) * self._reach.get(owner, most) <= MAX_MATCHES_WAITING:
            return None
        if owner not in self._reliefs:
            self._reliefs[owner] = asyncio.get_running_loop().create_future()
        return self._reliefs[owner]

    def wake_all(self) -> None:
        """Let everybody ask again who waits for room."""
        for owner in [*self._reliefs]:
            self._relieve(owner)

    def _relieve(self, owner: str) -> None:
        relief = self._reliefs.pop(owner, None)
        if relief is not None:
            relief.set_result(None)
