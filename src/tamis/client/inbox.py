"""The events a consumer has received: in order, within its credit, duplicates removed where known.

No I/O: acknowledgements and credit are collected, and returned as frames to send.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from typing import Final

from tamis.protocol import Acknowledge, Credit, Delivery, Reject

Settlement = Acknowledge | Reject | Credit

URGENT_ACKNOWLEDGEMENTS: Final = 100
_MAX_ACKNOWLEDGEMENTS_PER_FRAME: Final = 1000
# A broker sends at most a window of unacknowledged events, 1,000 by default.
_MIN_SETTLED: Final = 4096


class Inbox:
    """Events that arrived and wait for the application; acknowledgements that wait to be sent."""

    def __init__(self, window: int, *, settles: bool, is_kept: bool) -> None:
        self._window = window
        self._settles = settles
        """Whether events are acknowledged one by one."""
        self._is_kept = is_kept
        """Whether the broker keeps unacknowledged events and sends them again."""
        self._waiting: OrderedDict[int, Delivery] = OrderedDict()
        self._consumed = 0
        """Events whose credit has not been returned to the broker."""
        self._acknowledged: list[int] = []
        self._rejected: list[tuple[int, float | None, str]] = []
        # Acknowledgements can be lost with a connection. The broker then sends these events again,
        # but the application must not see them twice.
        self._settled: OrderedDict[int, None] = OrderedDict()
        self._max_settled = max(_MIN_SETTLED, 4 * window)
        self.last = 0
        """The highest sequence that has arrived."""

    def __len__(self) -> int:
        return len(self._waiting)

    def connect(self) -> int:
        """Reset for a new connection; return the credit to grant."""
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        if self._is_kept:
            # The broker sends all of these again, perhaps with others before them.
            self._waiting.clear()
        return self._window - len(self._waiting)

    def put(self, deliveries: Sequence[Delivery]) -> None:
        """Add events that arrived; an event that waits already is not added twice."""
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
        """Acknowledge an event, so that it is not sent again."""
        if not self._settles:
            return
        self._acknowledged.append(sequence)
        self._settled[sequence] = None
        if len(self._settled) > self._max_settled:
            self._settled.popitem(last=False)

    def reject(self, sequence: int, delay: float | None, reason: str) -> None:
        """Reject an event, so that it is sent again."""
        if self._settles:
            self._rejected.append((sequence, delay, reason))

    @property
    def is_urgent(self) -> bool:
        """Return whether to report to the broker now."""
        return bool(
            self._rejected
            or len(self._acknowledged) >= URGENT_ACKNOWLEDGEMENTS
            or self._consumed >= max(1, self._window // 2)
        )

    @property
    def has_news(self) -> bool:
        """Return whether there is anything to report to the broker."""
        return bool(self._rejected or self._acknowledged or self._consumed)

    def frames(self, subscription: str) -> list[Settlement]:
        """Return the frames that report to the broker, once."""
        frames: list[Settlement] = []
        acknowledged = iter(self._acknowledged)
        while some := [*islice(acknowledged, _MAX_ACKNOWLEDGEMENTS_PER_FRAME)]:
            frames.append(Acknowledge(subscription=subscription, sequences=some))
        frames += [
            Reject(subscription=subscription, sequence=sequence, delay=delay, reason=reason)
            for sequence, delay, reason in self._rejected
        ]
        if self._consumed:
            frames.append(Credit(subscription=subscription, events=self._consumed))
        self._consumed = 0
        self._acknowledged.clear()
        self._rejected.clear()
        return frames
