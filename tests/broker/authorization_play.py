"""What people do with a broker, the same for all, and all that each of them learns from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from access.oracle import Document
from broker.authorization_actors import Actor, Collector, Refused, SessionActor
from broker.authorization_scene import FEED, Asked, Person, Scene
from tamis.broker import Broker, Session
from tamis.protocol import Subscribe

ATTEMPTS = 2
EXPLAINED = 2
"""Events of the first act that are explained, which takes a while."""

Story = dict[str, Any]
"""What someone learned, by step."""


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Tokens(NamedTuple):
    """What people bring to come in."""

    feed: str
    of: dict[str, str]


class Stage:
    """A broker that can be started again, with the policy of a scene."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene = scene
        self.clock = Clock()
        self.settings = scene.settings(folder, ack_timeout=1e6, max_attempts=ATTEMPTS)
        self.broker: Broker
        self.tokens: Tokens

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Broker]:
        self.broker = await Broker.open(self.settings, clock=self.clock)
        async with self.broker:
            yield self.broker

    async def issue_tokens(self) -> None:
        issue = self.broker.doorman.issue
        feed, _ = await issue(FEED, (), None, "")
        people = self.scene.people
        self.tokens = Tokens(
            feed, {one.name: (await issue(one.name, one.by_token, None, ""))[0] for one in people}
        )

    async def publish(self, documents: Sequence[Document]) -> None:
        session: Session = await self.broker.authenticate(self.tokens.feed)
        await session.publish(texts(documents))
        await session.close()
        await quiet(self.broker)

    async def change_policy(self) -> None:
        assert self.settings.policy is not None
        self.settings.policy.write_text(self.scene.policy(later=True))
        await reload(self.broker)


def texts(documents: Sequence[Document]) -> list[bytes]:
    """Return events as they are published."""
    return [json.dumps(document).encode() for document in documents]


async def reload(broker: Broker) -> None:
    """Let a broker see that its policy file has changed, and that it is written to its end."""
    await broker.housekeeping.do_all()
    await broker.housekeeping.do_all()


async def quiet(broker: Broker) -> None:
    """Return when all is matched, and all that can be sent has been sent."""
    async with asyncio.timeout(30):
        await broker.committer.drained()
        await broker.matcher.drained()
        while any(one.attachment is not None and _waits(broker, one) for one in broker.catalogue):
            await asyncio.sleep(0.005)
        await broker.settler.settled()


def _waits(broker: Broker, subscription: Any) -> bool:
    return broker.store.state.pending_count(subscription.number) > 0


# --- one person ----------------------------------------------------------------------------------


class Player:
    """One person, who writes down all there is to learn."""

    def __init__(self, person: Person, stage: Stage, samples: Sequence[Document]) -> None:
        self.person = person
        self.stage = stage
        self.actor: Actor
        self.samples = texts(samples)
        self.story: Story = {}
        self.live: dict[int, Collector | Refused] = {}

    async def come(self, kind: Any) -> None:
        """Connect, by a session or over another way."""
        broker, token = self.stage.broker, self.stage.tokens.of[self.person.name]
        self.actor = (
            SessionActor(await broker.authenticate(token)) if kind is None else kind(broker, token)
        )

    @property
    def _numbers(self) -> range:
        return range(len(self.person.asked))

    async def _each(self, step: str, act: Any) -> dict[int, Any]:
        """Do something with every subscription, and write down what came of it."""
        said = {n: await act(n) for n in self._numbers}
        self.story[step] = said
        await self.stage.broker.settler.settled()
        self.story[f"views after {step}"] = await self.actor.views()
        return said

    async def subscribe(self) -> None:
        asked = self.person.asked
        await self._each("subscribe", lambda n: self.actor.subscribe(wanted(asked[n], f"s{n}")))
        await self.follow()
        self.story["follow"] = [isinstance(one, Refused) and one for one in self.live.values()]

    async def follow(self) -> None:
        asked = self.person.asked
        self.live = {n: await self.actor.follow(wanted(asked[n], f"l{n}")) for n in self._numbers}

    def note_live(self, step: str) -> None:
        self.story[step] = {
            n: [one.got.copy(), one.end, one.lost]
            for n, one in self.live.items()
            if isinstance(one, Collector)
        }

    async def fetch(self, step: str, *, settle: bool = False) -> None:
        async def act(n: int) -> Any:
            got = await self.actor.fetch(f"s{n}")
            if settle and not isinstance(got, Refused):
                await self.actor.settle(f"s{n}", [one["sequence"] for one in got])
            return got

        await self._each(step, act)

    async def reject(self, step: str) -> None:
        """Reject all that was fetched in a step."""
        for n, got in self.story[step].items():
            if not isinstance(got, Refused):
                for one in got:
                    await self.actor.reject(
                        f"s{n}",
                        one["sequence"],
                        f"no {one['attempt']}" if "attempt" in one else "no 1",
                    )

    async def letters(self, step: str) -> None:
        await self._each(step, lambda n: self.actor.letters(f"s{n}"))

    async def requeue(self) -> None:
        """Let every other dead letter come again; delete one."""

        async def act(n: int) -> Any:
            letters = self.story["letters"][n]
            if isinstance(letters, Refused) or len(letters) < 2:
                return None
            sequences = [one["sequence"] for one in letters]
            # Events that were never sent here are nobody's letters.
            others = [max(sequences) + 1, 10_000]
            return [
                await self.actor.requeue(f"s{n}", [*sequences[::2], *others]),
                await self.actor.discard(f"s{n}", [sequences[1], *others]),
            ]

        await self._each("requeue", act)

    async def replay(self) -> None:
        for n in self._numbers:
            one = wanted(self.person.asked[n], f"r{n}", start="earliest")
            said = await self.actor.subscribe(one)
            if not isinstance(said, Refused):
                # How much has been found at this moment is a matter of time alone.
                del said["pending"]
            self.story[f"replay {n}"] = said

    async def fetch_replayed(self) -> None:
        self.story["views when replayed"] = await self.actor.views()
        await self._each("replayed", lambda n: self.actor.fetch(f"r{n}"))

    async def history(self, step: str = "history") -> None:
        asked = self.person.asked
        await self._each(step, lambda n: self.actor.history(wanted(asked[n], "")))

    async def try_all(self) -> None:
        asked = self.person.asked

        async def act(n: int) -> Any:
            one = wanted(asked[n], "")
            return [
                await self.actor.try_filter(one, self.samples),
                [await self.actor.explain(one, sample) for sample in self.samples[:EXPLAINED]],
                [await self.actor.explain(f"s{n}", sample) for sample in self.samples[:EXPLAINED]],
            ]

        await self._each("trial", act)

    async def take_up(self, step: str) -> None:
        asked = self.person.asked
        await self._each(step, lambda n: self.actor.subscribe(wanted(asked[n], f"s{n}")))


def wanted(asked: Asked, name: str, *, start: str = "latest") -> Subscribe:
    """Return a subscription as it is asked for."""
    return Subscribe(
        ref=1,
        filter=str(asked.filter),
        mode=asked.mode.value,
        durable=name or None,
        start=start,
        max_attempts=ATTEMPTS,
        credit=1_000,
    )


# --- all of it -----------------------------------------------------------------------------------


async def play(
    scene: Scene, folder: Path, samples: Sequence[Document], kind: Any = None
) -> dict[str, Story]:
    """Let all people of a scene do all there is to do; return what each has learned.

    With `kind` they come over the network's ways, otherwise by sessions.
    """
    stage = Stage(scene, folder)
    first, second, third, fourth = scene.acts
    async with stage.open() as broker:
        await stage.issue_tokens()
        players = [Player(one, stage, samples) for one in scene.people]
        for player in players:
            await player.come(kind)
        await _all(players, "subscribe")
        await stage.publish(first)
        for player in players:
            player.note_live("live")
            await player.fetch("fetch")
            await player.reject("fetch")
            await player.fetch("again")
            await player.reject("again")
            await broker.settler.settled()
            await player.letters("letters")
        await _all(players, "requeue")
        for player in players:
            await player.fetch("requeued", settle=True)
            await player.letters("letters left")
        stage.clock.now += 10
        await _all(players, "replay")
        await _replayed(broker)
        await _all(players, "fetch_replayed")
        await _all(players, "history")
        await _all(players, "try_all")
        for player in players:
            await player.actor.close()
    async with stage.open() as broker:
        for player in players:
            await player.come(kind)
            await player.take_up("taken up")
            await player.follow()
        await stage.publish(second)
        for player in players:
            player.note_live("live after restart")
            await player.fetch("fetch after restart", settle=True)
        await stage.publish(third)
        await stage.change_policy()
        for player in players:
            await player.fetch("fetch after change", settle=True)
            await player.letters("letters after change")
        await stage.publish(fourth)
        for player in players:
            player.note_live("live after change")
            await player.fetch("fetch of new", settle=True)
            await player.history("history after change")
            await player.take_up("taken up after change")
            await player.actor.close()
    return {player.person.name: player.story for player in players}


async def _all(players: Sequence[Player], step: str) -> None:
    for player in players:
        await getattr(player, step)()


async def _replayed(broker: Broker) -> None:
    async with asyncio.timeout(30):
        while broker.replayer._tasks:
            await asyncio.sleep(0.005)
