"""What a subscription has received: in order, within its credit, each event once if it can be.

No I/O: what must be told to the broker is collected, and given out as frames.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from tamis.protocol import Acknowledge, Credit, Delivery, Reject

Settlement = Acknowledge | Reject | Credit

ACKNOWLEDGEMENTS_AT_ONCE: Final = 100
_ACKNOWLEDGEMENTS_IN_A_FRAME: Final = 1000
# A broker has at most a window of events out that it holds for unsettled, 1,000 by default.
_LEAST_REMEMBERED: Final = 4096


class Inbox:
    """The events that came and were not taken yet, and what the broker has to know of others."""

    def __init__(self, window: int, *, settles: bool, is_kept: bool) -> None:
        self._window = window
        self._settles = settles
        """Whether events are acknowledged one by one."""
        self._is_kept = is_kept
        """Whether the broker keeps what was not acknowledged, and sends it again."""
        self._waiting: OrderedDict[int, Delivery] = OrderedDict()
        self._consumed = 0
        """Events whose credit has not been given again."""
        self._acknowledged: list[int] = []
        self._rejected: list[tuple[int, float | None, str]] = []
        # Acknowledgements may be lost with a connection; then these come again, but not further.
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._most_settled = max(_LEAST_REMEMBERED, 4 * window)
        self.last = 0
        """The highest sequence that came."""

    def __len__(self) -> int:
        return len(self._waiting)

    def connect(self) -> int:
        """Begin anew with a connection; return the credit to begin with."""
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        if self._is_kept:
            # All of these come again, and others may have to come before them.
            self._waiting.clear()
        return self._window - len(self._waiting)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Take what came; an event that waits already is not kept twice."""
        before = len(self._waiting)
        for delivery in deliveries:
            self._waiting[delivery.sequence] = delivery
            self.last = max(self.last, delivery.sequence)
        self._consumed += before + len(deliveries) - len(self._waiting)

    def take(self, limit: int) -> list[Delivery]:
        """Return the next events for the application, if there are any."""
        taken: list[Delivery] = []
        while self._waiting and len(taken) < limit:
            sequence, delivery = self._waiting.popitem(last=False)
            self._consumed += 1
            if sequence in self._settled:
                self._acknowledged.append(sequence)
            else:
                taken.append(delivery)
        return taken

    def acknowledge(self, sequence: int) -> None:
        """Let an event not come again."""
        if not self._settles:
            return
        self._acknowledged.append(sequence)
        self._settled[sequence] = None
        if len(self._settled) > self._most_settled:
            self._settled.popitem(last=False)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Let an event come again later."""
        if self._settles:
            self._rejected.append((sequence, delay, reason))

    @property
    def is_urgent(self) -> bool:
        """Tell whether the broker is to be told now."""
        return bool(
            self._rejected
            or len(self._acknowledged) >= ACKNOWLEDGEMENTS_AT_ONCE
            or self._consumed >= max(1, self._window // 2)
        )

    @property
    def has_news(self) -> bool:
        """Tell whether there is something to tell the broker at all."""
        return bool(self._rejected or self._acknowledged or self._consumed)

    def frames(self, subscription: str) -> list[Settlement]:
        """Return what the broker is to be told, once."""
        told: list[Settlement] = []
        acknowledged = iter(self._acknowledged)
        while some := [*islice(acknowledged, _ACKNOWLEDGEMENTS_IN_A_FRAME)]:
            told.append(Acknowledge(subscription=subscription, sequences=some))
        told += [
            Reject(subscription=subscription, sequence=sequence, delay=delay, reason=reason)
            for sequence, delay, reason in self._rejected
        ]
        if self._consumed:
            told.append(Credit(subscription=subscription, events=self._consumed))
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        return told
