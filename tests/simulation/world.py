"""A simulated world: one seed, from the first start of the broker to the verdict."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from random import Random
from typing import Any, cast
from unittest import mock

from simulation.checker import Checker
from simulation.clock import SimulatedClock
from simulation.credentials import APPLIED_SECONDS, DESKS, Credential, PolicyModel
from simulation.faults import Administrator, Burglar, Chaos
from simulation.loop import SimulationLoop, StuckError, bury, run_in
from simulation.model import SimulatedEvent
from simulation.publishers import Publisher
from simulation.server import Supervisor
from simulation.subscribers import (
    DurableSubscriber,
    GroupMember,
    PatientSubscriber,
    TemporarySubscriber,
    Tenant,
)
from simulation.verdict import Verdict
from storage.disk import no_fault
from tamis import ports
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.deliver.attachments import Attachment
from tamis.broker.deliver.subscriptions import ActiveSubscription
from tamis.broker.match import matcher
from tamis.broker.match.deferred import DeferredWriter
from tamis.broker.subscribe import replay
from tamis.matching.store import additions
from tamis.storage import Storage, database, tables

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it

RECOVERING_SECONDS = 5.0
"""After a fault of the disk, all is well again within this time."""
SETTLING_SECONDS = 60.0
"""After the last fault, everything must be well within this time."""


class World:
    """Everything of one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.random = self.stream("world")
        self.network_random = self.stream("network")
        self.loop = SimulationLoop(self.stream("timers"))
        self.clock = SimulatedClock(self.loop)
        self.history: list[str] = []
        self.is_winding_down = False
        self.disk_fails_until = -inf
        random = self.random
        # Each seed has some of the troubles, not all: some faults hide others.
        kinds = [
            Chaos.kill,
            Chaos.cut_power,
            Chaos.break_disk,
            Chaos.fill_disk,
            Chaos.restart,
            Chaos.stall,
            Chaos.cut_link,
        ]
        self.faults = [kind for kind in kinds if random.random() < 0.4] or [Chaos.kill]
        self.is_disk_unreliable = Chaos.break_disk in self.faults
        self.jumps = random.random() < 0.2
        if self.jumps:
            self.faults.append(Chaos.jump)
        self.uses_lifetimes = not self.jumps and random.random() < 0.4
        self.loses_answers = random.random() < 0.3
        self.calm_seconds = random.choice([0.5, 1.5, 4.0])
        self.active_seconds = random.choice([3.0, 6.0, 10.0])
        self._most_events = random.choice([30, 80, 160])
        self._folder = folder
        self._last_event = 0
        self._last_number = 0
        self.settings = self._settings()
        self.checker = Checker(self)
        self.server = Supervisor(self, folder / "lives")
        self.root = Credential("root", ("operator",))
        self.credentials: list[Credential] = []
        self.retired: list[Credential] = []
        """Those that somebody has revoked, or tries to."""
        self.publishers: list[Publisher] = []
        self.durable: list[DurableSubscriber] = []
        self.contested: set[tuple[str, str]] = set()
        """Subscriptions with two consumers."""

    def _settings(self) -> BrokerSettings:
        random = self.random
        return BrokerSettings(
            data=self._folder / "unused",
            policy=self._folder / "policy.toml",
            window=random.choice([2, 5, 1000]),
            buffer=random.choice([2, 5, 1000]),
            max_attempts=random.choice([2, 3, 10]),
            ack_timeout=random.choice([0.5, 2.0]),
            backoff_first=0.1,
            backoff_most=1.0,
            commit_queue=random.choice([2, 1000]),
            match_queue=random.choice([1, 64]),
            retention_age=random.choice([8.0, 7 * 86_400.0, 7 * 86_400.0]),
            retention_bytes=random.choice([3_000, 10_000_000, 10_000_000]),
            stop_timeout=10.0,
        )

    def stream(self, name: str) -> Random:
        """Return a source of chance of its own."""
        return Random(f"{self.seed}/{name}")

    def trace(self, who: str, *what: object) -> None:
        """Add a line to the history."""
        line = f"{self.loop.time():9.4f} {who:14} {' '.join(map(str, what))}"
        self.history.append(line.replace(str(self._folder), "~"))

    def next_number(self) -> int:
        """Return another number, to name things by."""
        self._last_number += 1
        return self._last_number

    @property
    def has_disk_faults(self) -> bool:
        """Return whether the disk fails, or has failed a moment ago."""
        return self.loop.time() < self.disk_fails_until + RECOVERING_SECONDS

    async def travel(self) -> None:
        """Take the time of a message on the network."""
        await asyncio.sleep(self.network_random.random() * 0.005)  # virtual

    @property
    def wants_events(self) -> bool:
        """Return whether there are not yet enough events."""
        return not self.is_winding_down and self._last_event < self._most_events

    def new_event(self) -> SimulatedEvent:
        """Return an event with random values."""
        self._last_event += 1
        random = self.random
        document: dict[str, Any] = {
            "id": self._last_event,
            "a": random.randint(0, 9),
            "b": random.choice("xy"),
            "level": random.randint(0, 9),
            "secret": random.randint(0, 999),
        }
        a, level = document["a"], document["level"]
        document["items"] = [{"n": a % 3, "m": level % 4}, {"n": (a + 1) % 3, "m": level // 2 % 4}]
        return SimulatedEvent(document)

    # --- who may do what -------------------------------------------------------------------------

    def write_policy(self, version: PolicyModel) -> None:
        """Replace the policy file."""
        path = self._folder / "policy.toml"
        beside = path.with_suffix(".new")
        beside.write_text(version.toml())
        moment = 1 + len(self.checker.policies.versions)
        os.utime(beside, (moment, moment))
        beside.replace(path)
        self.checker.policies.add(version, self.loop.time())
        self.trace("administrator", "policy", version.desk, sorted(version.blocked))

    def credential(self, principal: str, role: str = "") -> Credential:
        """Return a credential of a principal, perhaps with a role."""
        now = self.loop.time()
        valid = [one for one in self.credentials if one.expires_from > now]
        if self.is_winding_down:
            # One that was lent may end too early, by a clock that was wrong.
            valid = [one for one in valid if one.expires_from == inf]
        own = [one for one in valid if one.principal == principal]
        return self.random.choice([one for one in own if role in one.roles] or own)

    def replaceable(self) -> list[Credential]:
        """Return the credentials that may be revoked."""
        people = ("ann", "bob", "carl")
        lasting = [one for one in self.credentials if one.expires_at == inf]
        return [one for one in lasting if one.principal in people]

    async def _issue_first(self) -> None:
        process = self.server.require()
        access = process.broker.access_control  # type: ignore[union-attr]
        wanted = [
            self.root,
            *(
                Credential(*one)
                for one in (
                    ("ann", ("broad",)),
                    ("ann", ("narrow",)),
                    ("bob", ("desk",)),
                    ("carl", ("broad",)),
                    ("pete", ("feed",)),
                    ("mary", ("meter",)),
                )
            ),
        ]
        for credential in wanted:
            issuing = access.issue(credential.principal, credential.roles, None, "")
            credential.text, record = await process.spawn(issuing)
            credential.id = record.id
        self.credentials = wanted[1:]

    # --- from the beginning to the end -----------------------------------------------------------

    async def live(self) -> None:
        """Run the world from its beginning to its end."""
        self.write_policy(PolicyModel(DESKS[0]))
        supervising = asyncio.create_task(self.server.run())
        await self._up()
        await self._issue_first()
        participants = self._participants()
        tasks = [asyncio.create_task(one.run()) for one in participants]
        await asyncio.sleep(self.active_seconds)  # virtual
        await self._settle(tasks)
        supervising.cancel()

    def _participants(self) -> list[Any]:
        random = self.random
        self.publishers = [Publisher(self, "pete", "n1", numbered=True)]
        if random.random() < 0.5:
            self.publishers.append(Publisher(self, "pete", "u1", numbered=False))
        if random.random() < 0.5:
            self.publishers.append(Publisher(self, "mary", "m1", numbered=True))
        names = [("ann", "s1"), ("bob", "s2"), ("carl", "s3"), ("ann", "s4")]
        self.durable = [DurableSubscriber(self, *one) for one in names if random.random() < 0.7]
        # Two consumers of one subscription, with different rights, take it from each other.
        rivals = [one.rival() for one in self.durable if random.random() < 0.3]
        self.durable += rivals
        members = self._members()
        self.durable += members
        self.contested = {(one.principal, one.name) for one in [*rivals, *members]}
        patient = [PatientSubscriber(self, "carl", "s5")] if random.random() < 0.5 else []
        temporary = [
            TemporarySubscriber(self, random.choice(["ann", "bob", "carl"]), number)
            for number in range(random.choice([0, 0, 1, 2]))
        ]
        others: list[Any] = [Chaos(self)]
        if self.uses_lifetimes:
            others.append(Tenant(self, "carl", "s6"))
        if random.random() < 0.6:
            others += [Administrator(self), Burglar(self)]
        return [*self.publishers, *self.durable, *temporary, *patient, *others]

    def _members(self) -> list[GroupMember]:
        random = self.stream("groups")
        if random.random() < 0.5:
            return []
        principal = random.choice(["carl", "carl", "ann"])
        count = random.randint(2, 4)
        return [GroupMember(self, principal, "g1", number) for number in range(count)]

    async def _up(self) -> Broker:
        """Wait for the broker to be up."""
        async with asyncio.timeout(SETTLING_SECONDS):
            while self.server.broker is None:
                await asyncio.sleep(0.05)  # virtual
        return self.server.broker

    async def _settle(self, tasks: list[asyncio.Task[None]]) -> None:
        """End all faults, and check that everything is well soon."""
        self.trace("world", "winds down")
        self.is_winding_down = True
        self.loses_answers = False
        if self.server.process is not None:
            self.server.process.crash_later(inf, "kill")
        self.clock.set(0.0)
        await self._up()
        self.write_policy(PolicyModel(DESKS[0]))
        await asyncio.sleep(APPLIED_SECONDS * 1.5)  # virtual: until it holds
        verdict = Verdict(self)
        if not await self._finish(tasks):
            for task in tasks:
                if not task.done():
                    self.checker.fail(f"{task.get_coro().__qualname__} does not end")  # type: ignore[union-attr]
            return
        for task in tasks:
            task.result()
        broker = await self._up()
        drains = [asyncio.create_task(one.drain()) for one in self.durable]
        if not await self._finish(drains):
            verdict.not_drained(broker)
            return
        await verdict.check(broker)
        await asyncio.sleep(5.0)  # virtual: those who left are forgotten, if nothing stalls
        verdict.check_rest(broker)
        if self.server.process is not None:
            await self.server.process.stop()
        if self.random.random() < 0.3:
            await asyncio.sleep(2.0)  # virtual: another start
            await self._up()
        self.server.is_over = True

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> bool:
        if not tasks:
            return True
        _, late = await asyncio.wait(tasks, timeout=SETTLING_SECONDS)
        return not late

    def is_drained(self, subscriber: DurableSubscriber) -> bool:
        """Return whether nothing is left for a subscriber."""
        return Verdict(self).is_drained(subscriber)

    @property
    def hash(self) -> str:
        """Return a digest of the history."""
        return hashlib.blake2b("\n".join(self.history).encode(), digest_size=8).hexdigest()


class Outcome:
    """What became of a seed."""

    def __init__(self, world: World) -> None:
        self.seed = world.seed
        self.violations = world.checker.violations
        self.history = world.history
        self.hash = world.hash
        self.events = world.checker.log.next - 1
        self.deliveries = world.checker.deliveries
        self.starts = world.server.starts
        self.virtual_seconds = world.loop.time()


def simulate(seed: int) -> Outcome:
    """Run the world of a seed."""
    home = MEMORY if MEMORY.is_dir() else Path(tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix="tamis-simulation-", dir=home))
    world = World(seed, folder)
    try:
        with _replaced(world):
            _run(world)
        return Outcome(world)
    finally:
        _tidy(world)
        shutil.rmtree(folder, ignore_errors=True)


def _run(world: World) -> None:
    try:
        run_in(world.loop, world.live())
    except StuckError as error:
        world.checker.fail(str(error))
    except TimeoutError:
        world.checker.fail("the broker does not come up again")


def _tidy(world: World) -> None:
    logging.disable(logging.CRITICAL)
    for process in world.server.lives:
        process.life.is_over = True
        bury(process.life.tasks)
        process.disk.fault, process.disk.is_full = no_fault, False
        process.disk.on_operation = lambda _operation, _name: None
        if process.broker is not None:
            process.broker.store.close()
        process.disk.unplug()
    bury(world.loop.tasks)
    logging.disable(logging.NOTSET)
    world.loop.close()


@contextmanager
def _replaced(world: World) -> Iterator[None]:
    """Replace what a port does not cover: random bytes, and steps that would be too large."""
    random = world.stream("secrets")

    def token_hex(size: int = 32) -> str:
        return random.randbytes(size).hex()

    def number_of(thing: Any) -> int:
        if "simulated_number" not in thing.__dict__:
            thing.simulated_number = world.next_number()
        number: int = thing.simulated_number
        return number

    logger = logging.getLogger("tamis")
    before, handler = (logger.level, logger.propagate), LogWatch(world)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    world.loop.set_exception_handler(
        lambda _, context: world.checker.fail(f"nobody handled {context}")
    )
    with (
        mock.patch.object(secrets, "token_bytes", random.randbytes),
        mock.patch.object(secrets, "token_hex", token_hex),
        mock.patch.object(replay, "EVENTS_PER_STEP", 3),
        mock.patch.object(matcher, "MIN_QUICK_STEPS", world.seed % 3),
        # Even two subscriptions of one request are compiled beside the matcher.
        mock.patch.object(additions, "MAX_RECOMPILED_SUBSCRIPTIONS", 2),
        mock.patch.object(DeferredWriter, "max_rows_per_event", 300 if world.seed % 4 else 1),
        mock.patch.object(DeferredWriter, "rows_per_slice", 1),
        mock.patch.object(tables, "MAX_DEFERRED_PER_ROW", 1),
        mock.patch.object(database, "CHECKPOINT_TRANSACTIONS", 5),
        mock.patch.object(ports, "TRUST_SECONDS", 3.0),
        mock.patch.dict(cast("Any", Storage.open).__func__.__kwdefaults__, segment_bytes=1_000),
        # The order of sets must not depend on where things lie in memory.
        mock.patch.object(Session, "__hash__", number_of),
        mock.patch.object(Attachment, "__hash__", number_of),
        mock.patch.object(ActiveSubscription, "__hash__", lambda self: self.number),
    ):
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before[0])
            logger.propagate = before[1]
            world.loop.set_exception_handler(lambda _loop, _context: None)


class LogWatch(logging.Handler):
    """Adds the broker's log lines to the history; an error in them is a violation."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        reason = getattr(record, "reason", "")
        self._world.trace("log", record.levelname, record.getMessage(), reason, repr(error))
        if record.levelno >= logging.ERROR and not self._world.has_disk_faults:
            self._world.checker.fail(f"the broker logs {record.getMessage()!r}: {error!r}")
