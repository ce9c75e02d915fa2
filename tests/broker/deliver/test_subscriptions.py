"""The index of the subscriptions, which other threads read while it changes."""

from __future__ import annotations

import time
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tamis.broker.deliver.subscriptions import ActiveSubscription, SubscriptionIndex


def subscription(number: int, owner: str) -> ActiveSubscription:
    stored: Any = SimpleNamespace(number=number, owner=owner, name=f"{number}")
    made = SimpleNamespace(number=number, key=(owner, f"{number}"), stored=stored, cut=None)
    return cast("ActiveSubscription", made)


def test_the_subscriptions_of_an_owner_are_listed_while_another_thread_changes_them() -> None:
    index = SubscriptionIndex()
    changing = [subscription(number, "ann") for number in range(100, 1_000)]
    index.add(subscription(1, "ann"))

    def change() -> None:
        for _ in range(50):
            for one in changing:
                index.add(one)
            for one in changing:
                index.remove(one)

    thread = Thread(target=change)
    thread.start()
    while thread.is_alive():
        assert index.owned_by("ann")[0].number == 1
        assert {one.number for one in index} >= {1}
    thread.join()
    assert [one.number for one in index.owned_by("ann")] == [1]
    assert index.count_of("ann") == 1
    assert index.owned_by("bob") == []


@pytest.mark.timing
def test_the_subscriptions_of_an_owner_are_not_searched_among_all() -> None:
    index = SubscriptionIndex()
    for number in range(50_000):
        index.add(subscription(number, "bob"))
    index.add(subscription(50_000, "ann"))
    started = time.thread_time()
    for _ in range(100):
        assert len(index.owned_by("ann")) == 1
    assert time.thread_time() - started < 0.1
