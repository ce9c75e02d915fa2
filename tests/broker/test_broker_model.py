"""The broker against a plain model: whatever happens, nothing is lost, invented or out of order."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    rule,
    run_state_machine_as_test,
)

from broker.chores import do_all_chores
from clocks import ManualClock
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.match import snapshots
from tamis.broker.subscribe import replay
from tamis.errors import RefusedError
from tamis.protocol import Deliver, Delivery, Dropped, Ended, Subscribe

NAMES = st.sampled_from(["laptop", "phone", "desk"])
WINDOW = 4

FILTERS: dict[str, Callable[[int], bool]] = {
    "a < 3": lambda a: a < 3,
    "a = 1 or a = 4": lambda a: a in {1, 4},
    "a is present": lambda _: True,
    "a > 7": lambda a: a > 7,
}


class Known(NamedTuple):
    """What the model knows of a durable subscription."""

    filter: str
    start: int
    expires_at: float
    settled: set[int]
    """What must not come again."""
    forgotten: set[int]
    """What was settled before a crash: it may come again, or not."""
    seen: list[int]
    """First deliveries, in order."""


class Collector:
    """An outlet that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Delivery] = []
        self.lost = 0
        self.reason = ""

    async def send(self, frame: Deliver | Dropped | Ended) -> None:
        match frame:
            case Deliver():
                self.got += frame.events
            case Dropped():
                assert frame.reason
                self.lost += frame.count
            case Ended():
                self.reason = frame.reason


class BrokerMachine(RuleBasedStateMachine):
    """Drives a broker and a model side by side."""

    def __init__(self) -> None:
        super().__init__()
        # Small steps, so that much can happen between them.
        replay.EVENTS_PER_STEP = 2  # type: ignore[misc]
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.log: list[int] = []
        """What the event with sequence n + 1 says."""
        self.published: dict[str, dict[int, int]] = {}
        """The values by publisher and number."""
        self.known: dict[str, Known] = {}
        self._open()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def _open(self) -> None:
        wanted = BrokerSettings(
            data=Path(self.folder.name) / "data",
            window=WINDOW,
            ack_timeout=100.0,
            max_attempts=1000,
        )
        self.broker: Broker = self.run(Broker.open(wanted, clock=self.clock))
        self.session: Session = self.run(self.broker.authenticate(None))

    # --- what is done ----------------------------------------------------------------------------

    @rule(values=st.lists(st.integers(0, 9), min_size=1, max_size=8))
    def publish(self, values: list[int]) -> None:
        receipt = self.run(self.session.publish(_events(values)))
        assert (receipt.count, receipt.duplicates) == (len(values), 0)
        assert receipt.first == len(self.log) + 1
        self.log += values

    @rule(
        name=st.sampled_from(["p", "q"]),
        values=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        offset=st.integers(-6, 2),
        skip=st.booleans(),
    )
    def publish_numbered(self, name: str, values: list[int], offset: int, skip: bool) -> None:
        stored = self.published.setdefault(name, {})
        last = max(stored, default=0)
        first = max(1, last + 1 + offset)
        numbered = dict(enumerate(values, start=first))
        publishing = self.session.publish(
            _events(values), publisher=name, sequence=first, skip=skip
        )
        old = {n: value for n, value in numbered.items() if n <= last}
        is_late = any(n not in stored for n in old)
        is_early = bool(stored) and first > last + 1 and not skip
        is_other = any(stored.get(n) != value for n, value in old.items())
        if is_late or is_early or is_other:
            with pytest.raises(RefusedError) as refused:
                self.run(publishing)
            in_order = not (is_late or is_early)
            assert refused.value.code == ("conflict" if in_order else "out_of_order")
            assert refused.value.expected == (None if in_order else last + 1)
            return
        assert self.run(publishing).duplicates == len(old)
        self.log += [value for n, value in numbered.items() if n > last]
        stored.update(numbered)

    @rule(
        name=NAMES,
        filter_=st.sampled_from([*FILTERS]),
        start=st.sampled_from(["latest", "earliest", 3]),
        lifetime=st.sampled_from([None, 50.0]),
    )
    def subscribe(self, name: str, filter_: str, start: str | int, lifetime: float | None) -> None:
        wanted = Subscribe(ref=1, filter=filter_, durable=name, start=start, lifetime=lifetime)
        known = self.known.get(name)
        if known is not None and known.filter != filter_:
            with pytest.raises(RefusedError, match="another filter"):
                self.run(self.session.subscribe(wanted))
            return
        if known is None and isinstance(start, int) and start > len(self.log) + 1:
            with pytest.raises(RefusedError, match="in the future"):
                self.run(self.session.subscribe(wanted))
            return
        view = self.run(self.session.subscribe(wanted))
        assert view.id == name
        expires_at = float("inf") if lifetime is None else self.clock.now + lifetime
        if known is not None:
            if lifetime is not None:
                self.known[name] = known._replace(expires_at=expires_at)
            return
        first = {"latest": len(self.log) + 1, "earliest": 1}.get(str(start), start)
        assert isinstance(first, int)
        self.known[name] = Known(filter_, first, expires_at, set(), set(), [])

    @rule(
        name=NAMES,
        before=st.lists(st.integers(0, 9), min_size=1, max_size=3),
        after=st.lists(st.integers(0, 9), min_size=1, max_size=3),
        start=st.sampled_from(["latest", "earliest"]),
    )
    def subscribe_in_between(
        self, name: str, before: list[int], after: list[int], start: str
    ) -> None:
        """Subscribe while events are being matched: before it or after it, nothing in between."""
        if name in self.known:
            return

        async def work() -> None:
            wanted = Subscribe(ref=1, filter="a is present", durable=name, start=start)
            await self.session.publish(_events(before))
            await self.session.subscribe(wanted)
            await self.session.publish(_events(after))

        self.run(work())
        self.log += before
        first = 1 if start == "earliest" else len(self.log) + 1
        self.known[name] = Known("a is present", first, float("inf"), set(), set(), [])
        self.log += after

    @rule(
        name=NAMES, limit=st.integers(1, 6), settle=st.sampled_from(["all", "some", "none", "up"])
    )
    def fetch(self, name: str, limit: int, settle: str) -> None:
        if name not in self.known:
            with pytest.raises(RefusedError, match="no subscription"):
                self.run(self.session.fetch(name))
            return
        got = self.run(self.session.fetch(name, limit=limit))
        self._check(name, got)
        sequences = [delivery.sequence for delivery in got]
        if settle == "up" and sequences:
            self.run(self.session.acknowledge(name, up_to=max(sequences)))
            self.known[name].settled.update(range(max(sequences) + 1))
        elif settle in {"all", "some"}:
            meant = sequences if settle == "all" else sequences[::2]
            self.run(self.session.acknowledge(name, meant))
            self.known[name].settled.update(meant)

    @rule(name=NAMES, credit=st.integers(0, 5), manual=st.booleans())
    def connect(self, name: str, credit: int, manual: bool) -> None:
        if name not in self.known:
            return

        async def work() -> list[Delivery]:
            outlet = Collector()
            attachment = await self.session.attach(
                name, outlet, credit=credit, acknowledge="manual" if manual else "auto"
            )
            await asyncio.sleep(0.02)  # any number of events may come, or none
            await self.session.detach(attachment)
            assert not outlet.lost
            return outlet.got

        got = self.run(work())
        assert len(got) <= credit
        self._check(name, got)
        if not manual:
            self.known[name].settled.update(delivery.sequence for delivery in got)

    @rule(name=NAMES)
    def reject(self, name: str) -> None:
        if name not in self.known:
            return
        got = self.run(self.session.fetch(name, limit=1))
        self._check(name, got)
        for delivery in got:
            self.run(self.session.reject(name, delivery.sequence, delay=0.0))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            self.run(self.session.delete(name))

    @rule(seconds=st.sampled_from([10.0, 60.0, 200.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.now += seconds
        self.run(do_all_chores(self.broker))
        self._forget_expired()

    @rule()
    def restart(self) -> None:
        self.run(self.broker.close())
        self._open()

    @rule()
    def crash(self) -> None:
        self.loop.run_until_complete(_abandon(self.broker))
        self._open()
        for known in self.known.values():
            known.forgotten.update(known.settled)
            known.settled.clear()

    # --- what must hold --------------------------------------------------------------------------

    def _check(self, name: str, got: Sequence[Delivery]) -> None:
        known = self.known[name]
        for delivery in got:
            value = msgspec.json.decode(delivery.data)["a"]
            assert delivery.sequence >= known.start
            assert self.log[delivery.sequence - 1] == value
            assert FILTERS[known.filter](value)
            assert delivery.sequence not in known.settled
            if delivery.attempt == 1 and delivery.sequence not in known.seen:
                known.seen.append(delivery.sequence)
        assert known.seen == sorted(known.seen)

    def _forget_expired(self) -> None:
        self.known = {
            name: known for name, known in self.known.items() if known.expires_at > self.clock.now
        }

    def _due(self, known: Known) -> set[int]:
        return {
            n
            for n, value in enumerate(self.log, start=1)
            if n >= known.start
            and FILTERS[known.filter](value)
            and n not in known.settled | known.forgotten
        }

    def teardown(self) -> None:
        # Whatever was sent and not settled is late by now, and comes again.
        self.clock.now += 300
        self.run(do_all_chores(self.broker))
        self._forget_expired()
        self.clock.now += 100
        for name, known in self.known.items():
            due = self._due(known)
            while got := self.run(self.session.fetch(name, limit=100, wait=5.0 if due else 0.01)):
                self._check(name, got)
                sequences = [delivery.sequence for delivery in got]
                due.difference_update(sequences)
                self.run(self.session.acknowledge(name, sequences))
            if known.expires_at <= self.clock.now:
                continue
            assert not due, f"{name}: {sorted(due)} never came"
        self._end()

    def _end(self) -> None:
        self.run(self.broker.close())
        self.loop.close()
        self.folder.cleanup()


async def _abandon(broker: Broker) -> None:
    """Stop as if killed: nothing more is written."""
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks, return_exceptions=True)
    broker.store.close()


def _events(values: Sequence[int]) -> list[bytes]:
    return [msgspec.json.encode({"a": value}) for value in values]


@pytest.fixture(autouse=True)
def _snapshots_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every restart load what was compiled before it."""
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SUBSCRIPTIONS", 0)
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SHARE", 0.0)


def test_the_broker_does_what_the_model_does() -> None:
    run_state_machine_as_test(
        BrokerMachine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.slow
def test_the_broker_does_what_the_model_does_in_volume() -> None:
    run_state_machine_as_test(
        BrokerMachine,
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            suppress_health_check=list(HealthCheck),
        ),
    )
