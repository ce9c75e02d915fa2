"""The index of the subscriptions, which other threads read while it changes."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from tamis.broker.deliver.subscriptions import SubscriptionIndex


def test_the_subscriptions_of_an_owner_are_listed_while_another_thread_adds_one() -> None:
    index = SubscriptionIndex()

    class Interrupting:
        """A subscription whose reader is interrupted by an addition to the index."""

        def __init__(self, number: int) -> None:
            self.number = number

        @property
        def stored(self) -> Any:
            index.by_number[next(later)] = cast("Any", None)
            return SimpleNamespace(owner="ann")

    later: Iterator[int] = iter(range(100, 200))
    for one in (Interrupting(1), Interrupting(2)):
        index.by_number[one.number] = cast("Any", one)
    assert [one.number for one in index.owned_by("ann")] == [1, 2]
