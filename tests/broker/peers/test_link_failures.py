"""Links fail, brokers die, and nothing is lost or stored twice; routes are right soon after."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import httpx
import pytest

from waiting import eventually

from .brokers import QUICK, LinkedBrokers, linked

LINE = [("north", "hub"), ("south", "hub")]
TREE = [("a", "hub"), ("b", "hub"), ("c", "a"), ("d", "a")]
PATIENCE_SECONDS = 60.0
HEALED_SECONDS = 5.0
"""Within this, routes are right again."""


class Failure(NamedTuple):
    """Something that goes wrong."""

    kind: str
    """`cut`, `blackhole` or `kill`."""
    place: int
    """Which link or broker."""
    seconds: float
    """How long it lasts."""


class Publisher(threading.Thread):
    """Publishes numbers at one broker, each until it is stored, whatever happens to the broker."""

    def __init__(self, brokers: LinkedBrokers, name: str) -> None:
        super().__init__(daemon=True)
        self.brokers = brokers
        self.place = name
        self.stored = 0
        self.stopped = threading.Event()
        self.client = httpx.Client(verify=False, timeout=5)  # noqa: S501 - there is no TLS

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            while not self._publish(number):
                self.stopped.wait(0.02)
            self.stored = number
            self.stopped.wait(0.05)
        self.client.close()

    def _publish(self, number: int) -> bool:
        headers = {"Tamis-Publisher": f"at-{self.place}", "Tamis-Sequence": str(number)}
        event = {"from": self.place, "number": number, "even": number % 2 == 0}
        try:
            url = f"{self.brokers[self.place].url}/v1/events"
            return self.client.post(url, json=event, headers=headers).is_success
        except httpx.HTTPError:
            return False


class FailureRun:
    """Publishers and durable subscriptions that go on through all failures."""

    def __init__(self, brokers: LinkedBrokers) -> None:
        self.brokers = brokers
        self.names = [*brokers.servers]
        self.publishers = [Publisher(brokers, name) for name in self.names]
        self.slowest = 0.0
        """The most seconds that routes took to be right after a failure."""

    def run(self, failures: Sequence[Failure]) -> None:
        for name in self.names:
            self.brokers.subscribe(name, "all", "number > 0")
            self.brokers.subscribe(name, "even", "even = true")
        self._wait_for_routes()
        for publisher in self.publishers:
            publisher.start()
        for count, failure in enumerate(failures):
            self._fail(failure)
            self._check_new_route(count)
        for publisher in self.publishers:
            publisher.stopped.set()
            publisher.join()
        self._check()

    def _wait_for_routes(self) -> None:
        for one, other in self.brokers.links:
            for name, peer in ((one, other), (other, one)):
                eventually(partial(self.brokers.count_routes, name, peer))

    def _fail(self, failure: Failure) -> None:
        brokers, links = self.brokers, self.brokers.links
        wait = threading.Event().wait
        if failure.kind == "kill":
            name = self.names[failure.place % len(self.names)]
            brokers.kill(name)
            wait(failure.seconds)
            brokers.start(name)
            return
        proxy = brokers.proxies[links[failure.place % len(links)]]
        proxy.cut() if failure.kind == "cut" else proxy.blackhole()
        wait(failure.seconds)
        proxy.heal()

    def _check_new_route(self, count: int) -> None:
        """Check how soon a subscription made right after the heal gets events from everywhere."""
        begun, id_ = time.monotonic(), f"new-{count}"
        at = self.names[count % len(self.names)]
        missing = {*self.names} - {at}
        self.brokers.subscribe(at, id_, f"probe = {count}")

        def all_arrive() -> bool:
            for name in missing:
                self.brokers.publish(name, {"probe": count, "at": name})
            found = self.brokers.take(at, id_, 1_000, seconds=0.05)
            missing.difference_update(event["at"] for event in found)
            return not missing

        while not all_arrive():
            assert time.monotonic() - begun < PATIENCE_SECONDS, missing
        self.slowest = max(self.slowest, time.monotonic() - begun)
        self.brokers.unsubscribe(at, id_)

    def _check(self) -> None:
        expected = {publisher.place: publisher.stored for publisher in self.publishers}
        for name in self.names:
            assert self._received(name, "all", sum(expected.values())) == {
                place: [*range(1, last + 1)] for place, last in expected.items()
            }
            evens = {place: [*range(2, last + 1, 2)] for place, last in expected.items()}
            assert self._received(name, "even", sum(map(len, evens.values()))) == evens

    def _received(self, name: str, id_: str, count: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for event in self.brokers.take(name, id_, count, seconds=60):
            found[event["from"]].append(event["number"])
        # Nothing comes twice.
        assert self.brokers.take(name, id_, 1, seconds=0.3) == []
        return found


def test_nothing_is_lost_or_doubled_when_links_and_brokers_fail(tmp_path: Path) -> None:
    failures = [
        Failure("cut", 0, 0.3),
        Failure("kill", 1, 0.1),
        Failure("blackhole", 1, 1.5),
        Failure("kill", 0, 0.1),
        Failure("cut", 1, 0.2),
    ]
    with linked(tmp_path, LINE, **QUICK) as brokers:
        run = FailureRun(brokers)
        run.run(failures)
        assert run.slowest < HEALED_SECONDS


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_by_many_failures_of_a_tree(tmp_path: Path) -> None:
    random = Random(20)
    kinds = ["cut"] * 60 + ["blackhole"] * 40 + ["kill"] * 50
    random.shuffle(kinds)
    failures = [Failure(kind, random.randrange(20), random.uniform(0, 2)) for kind in kinds]
    with linked(tmp_path, TREE, **QUICK) as brokers:
        run = FailureRun(brokers)
        run.run(failures)
    print(f"\n{Counter(kinds)}; routes right after at most {run.slowest:.2f} s")
    assert run.slowest < HEALED_SECONDS
