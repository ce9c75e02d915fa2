"""Roaming between real processes: links are cut and brokers are killed while subscriptions move."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

import tamis
from tamis.client import SyncMessage
from tamis.errors import RefusedError
from waiting import eventually

from .brokers import QUICK, LinkedBrokers, linked

LINKS = [("north", "hub"), ("south", "hub"), ("east", "south")]
FILTER = "kind = 'tick' and n >= 0"
ROAMINGS = 20


class ProcessTicker:
    """Publishes numbered events at a broker, each until it is stored."""

    def __init__(self, brokers: LinkedBrokers, name: str) -> None:
        self._brokers = brokers
        self.name = name
        self.count = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._publish()
            except RefusedError:
                # The broker is down. What it did not answer is published again under its number.
                self._is_over.wait(0.1)

    def _publish(self) -> None:
        url, number = self._brokers[self.name].url, self.count + 1
        with tamis.connect_sync(url, publisher=self.name, sequence=number, timeout=60) as bus:
            while not self._is_over.is_set():
                event = {"kind": "tick", "n": self.count, "from": self.name}
                bus.publish(event, sequence=self.count + 1)
                self.count += 1
                self._is_over.wait(0.02)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


@contextmanager
def ticking(brokers: LinkedBrokers) -> Iterator[list[ProcessTicker]]:
    """Publish at all brokers until the end of the block."""
    tickers = [ProcessTicker(brokers, name) for name in brokers.servers]
    try:
        yield tickers
    finally:
        for ticker in tickers:
            ticker.stop()


class ProcessTraveller:
    """A client that takes events, now here, now there."""

    def __init__(self, brokers: LinkedBrokers) -> None:
        self._brokers = brokers
        self.seen: dict[str, list[int]] = {name: [] for name in brokers.servers}
        self.repeated = 0

    def visit(self, broker: str, count: int, *, seconds: float = 120) -> int:
        """Take up to so many events at a broker, as soon as the subscription is there."""
        until, taken = time.monotonic() + seconds, 0
        while taken < count and time.monotonic() < until:
            try:
                with (
                    tamis.connect_sync(self._brokers[broker].url) as bus,
                    bus.subscribe(FILTER, durable="laptop", roaming=True) as consumer,
                ):
                    while taken < count:
                        self._note(consumer.next(timeout=10))
                        taken += 1
            except TimeoutError:
                return taken
            except RefusedError:
                time.sleep(0.2)  # a pace at which to look again
        return taken

    def _note(self, message: SyncMessage) -> None:
        numbers, n = self.seen[message["from"]], message["n"]
        if numbers and n <= numbers[-1]:
            # It was here before, and was not acknowledged in time: the message says so.
            assert message.attempt > 1, (message, numbers[-3:])
            self.repeated += 1
            return
        assert n == len(numbers), (message, numbers[-3:])
        numbers.append(n)


def disturb(brokers: LinkedBrokers, rng: random.Random) -> None:
    """Cut a link, or kill a broker, and repair it."""
    if rng.random() < 0.6:
        proxy = brokers.proxies[rng.choice(LINKS)]
        rng.choice([proxy.cut, proxy.blackhole])()
        time.sleep(rng.uniform(0, 1.5))  # a moment of the move
        proxy.heal()
    else:
        name = rng.choice([*brokers.servers])
        brokers.kill(name)
        brokers.start(name)


def has_none(brokers: LinkedBrokers, place: str) -> bool:
    return not brokers.get(place, "/v1/subscriptions")["subscriptions"]


@pytest.mark.slow
def test_twenty_roamings_lose_nothing_and_repeat_nothing_silently(tmp_path: Path) -> None:
    rng = random.Random(14)
    with linked(tmp_path, LINKS, **QUICK) as brokers:
        traveller = ProcessTraveller(brokers)
        brokers.subscribe("north", "laptop", FILTER)
        brokers.wait_for_routes("east", "south", 1)
        with ticking(brokers) as tickers:
            for _ in range(ROAMINGS):
                place = rng.choice([*brokers.servers])
                moving = threading.Thread(target=disturb, args=(brokers, rng), daemon=True)
                moving.start()
                assert traveller.visit(place, rng.randrange(1, 60)) > 0
                moving.join()
        brokers.wait_for_links()
        total = sum(ticker.count for ticker in tickers)
        for _ in range(20):
            left = total - sum(map(len, traveller.seen.values()))
            if not left:
                break
            traveller.visit("hub", left)
        for ticker in tickers:
            assert traveller.seen[ticker.name] == [*range(ticker.count)], ticker.name
        for place in ("north", "south", "east"):
            eventually(partial(has_none, brokers, place))
