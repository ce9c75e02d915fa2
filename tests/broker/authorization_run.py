"""Run a scenario: every participant does the same things, and records all it observes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from access.oracle import Document
from broker.authorization_clients import Client, Collector, Refusal, SessionClient
from broker.authorization_scenario import FEED, Participant, RequestedFilter, Scenario
from broker.chores import do_all_chores
from clocks import ManualClock
from tamis.broker import Broker, Session
from tamis.protocol import Subscribe
from waiting import eventually_async

ATTEMPTS = 2
EXPLAINED_EVENTS = 2
"""How many events of the first phase are explained, which is slow."""

Observations = dict[str, Any]
"""What a participant learned, by step."""


class Tokens(NamedTuple):
    """The tokens of the publisher and of all participants."""

    feed: str
    of: dict[str, str]


class ScenarioBroker:
    """A restartable broker with the policy of a scenario."""

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario = scenario
        self.clock = ManualClock()
        self.settings = scenario.settings(folder, ack_timeout=1e6, max_attempts=ATTEMPTS)
        self.broker: Broker
        self.tokens: Tokens

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Broker]:
        self.broker = await Broker.open(self.settings, clock=self.clock)
        async with self.broker:
            yield self.broker

    async def issue_tokens(self) -> None:
        issue = self.broker.access_control.issue
        feed, _ = await issue(FEED, (), None, "")
        participants = self.scenario.participants
        self.tokens = Tokens(
            feed,
            {one.name: (await issue(one.name, one.by_token, None, ""))[0] for one in participants},
        )

    async def publish(self, documents: Sequence[Document]) -> None:
        session: Session = await self.broker.authenticate(self.tokens.feed)
        await session.publish(encoded(documents))
        await session.close()
        await wait_until_idle(self.broker)

    async def change_policy(self) -> None:
        assert self.settings.policy is not None
        self.settings.policy.write_text(self.scenario.policy(later=True))
        await reload(self.broker)


def encoded(documents: Sequence[Document]) -> list[bytes]:
    """Return events as they are published."""
    return [json.dumps(document).encode() for document in documents]


async def reload(broker: Broker) -> None:
    """Run housekeeping twice: a broker applies a policy file once two looks agree."""
    await do_all_chores(broker)
    await do_all_chores(broker)
    await broker.subscription_manager.current_rights.applied()


async def wait_until_idle(broker: Broker) -> None:
    """Return when every event is matched and sent as far as possible."""
    async with asyncio.timeout(30):
        await broker.committer.drained()
        await broker.matcher.drained()
        await eventually_async(lambda: not _is_sending(broker), timeout=30)
        await broker.acknowledgement_writer.settled()


def _is_sending(broker: Broker) -> bool:
    return any(
        one.attachments and broker.store.state.pending_count(one.number) > 0
        for one in broker.subscription_index
    )


# --- one participant -----------------------------------------------------------------------------


class Observer:
    """One participant at work, recording everything it can observe."""

    def __init__(
        self, participant: Participant, host: ScenarioBroker, samples: Sequence[Document]
    ) -> None:
        self.participant = participant
        self.host = host
        self.client: Client
        self.samples = encoded(samples)
        self.observed: Observations = {}
        self.live: dict[int, Collector | Refusal] = {}

    async def login(self, kind: Any) -> None:
        """Connect by a session, or with another kind of client."""
        broker, token = self.host.broker, self.host.tokens.of[self.participant.name]
        self.client = (
            SessionClient(await broker.authenticate(token)) if kind is None else kind(broker, token)
        )

    @property
    def _numbers(self) -> range:
        return range(len(self.participant.asked))

    async def _each(self, step: str, act: Any) -> dict[int, Any]:
        """Do something with every subscription, and record the results."""
        said = {n: await act(n) for n in self._numbers}
        self.observed[step] = said
        await self.host.broker.acknowledgement_writer.settled()
        self.observed[f"views after {step}"] = await self.client.views()
        return said

    async def subscribe(self) -> None:
        asked = self.participant.asked
        await self._each("subscribe", lambda n: self.client.subscribe(wanted(asked[n], f"s{n}")))
        await self.follow()
        self.observed["follow"] = [isinstance(one, Refusal) and one for one in self.live.values()]

    async def follow(self) -> None:
        asked = self.participant.asked
        self.live = {n: await self.client.follow(wanted(asked[n], f"l{n}")) for n in self._numbers}

    def record_live(self, step: str) -> None:
        self.observed[step] = {
            n: [one.got.copy(), one.end, one.lost]
            for n, one in self.live.items()
            if isinstance(one, Collector)
        }

    async def fetch(self, step: str, *, settle: bool = False) -> None:
        async def act(n: int) -> Any:
            got = await self.client.fetch(f"s{n}")
            if settle and not isinstance(got, Refusal):
                await self.client.settle(f"s{n}", [one["sequence"] for one in got])
            return got

        await self._each(step, act)

    async def reject(self, step: str) -> None:
        """Reject every event fetched in a step."""
        for n, got in self.observed[step].items():
            if not isinstance(got, Refusal):
                for one in got:
                    await self.client.reject(
                        f"s{n}",
                        one["sequence"],
                        f"no {one['attempt']}" if "attempt" in one else "no 1",
                    )

    async def letters(self, step: str) -> None:
        await self._each(step, lambda n: self.client.letters(f"s{n}"))

    async def requeue(self) -> None:
        """Requeue every other dead letter, and delete one."""

        async def act(n: int) -> Any:
            letters = self.observed["letters"][n]
            if isinstance(letters, Refusal) or len(letters) < 2:
                return None
            sequences = [one["sequence"] for one in letters]
            # Sequence numbers that were never delivered here name no dead letter.
            others = [max(sequences) + 1, 10_000]
            return [
                await self.client.requeue(f"s{n}", [*sequences[::2], *others]),
                await self.client.discard(f"s{n}", [sequences[1], *others]),
            ]

        await self._each("requeue", act)

    async def replay(self) -> None:
        for n in self._numbers:
            one = wanted(self.participant.asked[n], f"r{n}", start="earliest")
            said = await self.client.subscribe(one)
            if not isinstance(said, Refusal):
                # How many were found by now depends on timing.
                del said["pending"]
            self.observed[f"replay {n}"] = said

    async def fetch_replayed(self) -> None:
        self.observed["views when replayed"] = await self.client.views()
        await self._each("replayed", lambda n: self.client.fetch(f"r{n}"))

    async def history(self, step: str = "history") -> None:
        asked = self.participant.asked
        await self._each(step, lambda n: self.client.history(wanted(asked[n], "")))

    async def try_filters(self) -> None:
        asked = self.participant.asked

        async def act(n: int) -> Any:
            one = wanted(asked[n], "")
            return [
                await self.client.try_filter(one, self.samples),
                [
                    await self.client.explain(one, sample)
                    for sample in self.samples[:EXPLAINED_EVENTS]
                ],
                [
                    await self.client.explain(f"s{n}", sample)
                    for sample in self.samples[:EXPLAINED_EVENTS]
                ],
            ]

        await self._each("trial", act)

    async def resubscribe(self, step: str) -> None:
        asked = self.participant.asked
        await self._each(step, lambda n: self.client.subscribe(wanted(asked[n], f"s{n}")))


def wanted(asked: RequestedFilter, name: str, *, start: str = "latest") -> Subscribe:
    """Return the request for a subscription."""
    return Subscribe(
        ref=1,
        filter=str(asked.filter),
        mode=asked.mode.value,
        durable=name or None,
        start=start,
        max_attempts=ATTEMPTS,
        credit=1_000,
    )


# --- the steps -----------------------------------------------------------------------------------


async def run_scenario(
    scenario: Scenario, folder: Path, samples: Sequence[Document], kind: Any = None
) -> dict[str, Observations]:
    """Run every step for all participants of a scenario; return what each observed.

    With `kind` they connect with that kind of client, otherwise by sessions.
    """
    host = ScenarioBroker(scenario, folder)
    first, second, third, fourth = scenario.phases
    async with host.open() as broker:
        await host.issue_tokens()
        observers = [Observer(one, host, samples) for one in scenario.participants]
        for observer in observers:
            await observer.login(kind)
        await _all(observers, "subscribe")
        await host.publish(first)
        for observer in observers:
            observer.record_live("live")
            await observer.fetch("fetch")
            await observer.reject("fetch")
            await observer.fetch("again")
            await observer.reject("again")
            await broker.acknowledgement_writer.settled()
            await observer.letters("letters")
        await _all(observers, "requeue")
        for observer in observers:
            await observer.fetch("requeued", settle=True)
            await observer.letters("letters left")
        host.clock.now += 10
        await _all(observers, "replay")
        await _wait_for_replays(broker)
        await _all(observers, "fetch_replayed")
        await _all(observers, "history")
        await _all(observers, "try_filters")
        for observer in observers:
            await observer.client.close()
    async with host.open() as broker:
        for observer in observers:
            await observer.login(kind)
            await observer.resubscribe("taken up")
            await observer.follow()
        await host.publish(second)
        for observer in observers:
            observer.record_live("live after restart")
            await observer.fetch("fetch after restart", settle=True)
        await host.publish(third)
        await host.change_policy()
        for observer in observers:
            await observer.fetch("fetch after change", settle=True)
            await observer.letters("letters after change")
        await host.publish(fourth)
        for observer in observers:
            observer.record_live("live after change")
            await observer.fetch("fetch of new", settle=True)
            await observer.history("history after change")
            await observer.resubscribe("taken up after change")
            await observer.client.close()
    return {observer.participant.name: observer.observed for observer in observers}


async def _all(observers: Sequence[Observer], step: str) -> None:
    for observer in observers:
        await getattr(observer, step)()


async def _wait_for_replays(broker: Broker) -> None:
    await eventually_async(lambda: not broker.replayer._tasks, timeout=30)
