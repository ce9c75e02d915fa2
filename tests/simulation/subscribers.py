"""Simulated subscribers: prompt and slow ones, and some that vanish."""

from __future__ import annotations

import asyncio
import contextlib
from math import inf
from typing import TYPE_CHECKING

import msgspec

from simulation.clients import FrameClient, Push, fetch, request
from simulation.credentials import Credential
from tamis.broker import Session
from tamis.errors import DisconnectedError, RefusedError
from tamis.protocol import (
    Acknowledge,
    Code,
    Credit,
    Deliver,
    Ended,
    Reject,
    Subscribe,
    Unsubscribe,
)
from tamis.protocol.frames import Overflow
from tamis.protocol.management import NewSubscription

if TYPE_CHECKING:
    from simulation.world import World

FILTERS = ("a < 5", "a = 1 or a = 4", "id is present", 'b = "x" and a > 2', "level < 4", "a >= 0")
ELEMENTS = "items[n = 1 and m > 1]"
"""What is found for it is checked exactly, when it is about to be sent."""
STARTS: tuple[int | str, ...] = ("latest", "latest", "earliest", 1)
OVERFLOWS: tuple[Overflow, ...] = ("wait", "drop", "disconnect")


class DurableSubscriber:
    """Connects to one durable subscription again and again, and each time behaves differently."""

    is_member = False
    """Whether it shares its subscription with others."""

    def __init__(self, world: World, principal: str, name: str) -> None:
        self._world = world
        self._random = world.stream(f"subscriber {principal} {name}")
        self.principal = principal
        self.name = name
        random = self._random
        self.filter = random.choice(FILTERS)
        if world.stream(f"elements {principal} {name}").random() < 0.2:
            self.filter = ELEMENTS
        self._start: int | str = random.choice(STARTS)
        self._lifetime = random.choice([None, None, None, 4.0]) if world.uses_lifetimes else None
        self._likes_to_reject = random.random() < 0.4
        self._max_attempts = random.choice([0, 0, 2])
        self.unacknowledged: dict[int, None] = {}
        """What was received and not acknowledged: a consumer may remember it across connections."""

    def rival(self) -> DurableSubscriber:
        """Return another consumer of the same subscription."""
        rival = DurableSubscriber(self._world, self.principal, self.name)
        rival._random = self._world.stream(f"rival {self.principal} {self.name}")
        for name in ("filter", "_start", "_lifetime", "_max_attempts"):
            setattr(rival, name, getattr(self, name))
        return rival

    def wanted(self, credit: int, acknowledge: str) -> Subscribe:
        return Subscribe(
            ref=0,
            filter=self.filter,
            durable=self.name,
            start=self._start,
            lifetime=self._lifetime,
            credit=credit,
            acknowledge="manual" if acknowledge == "manual" else "auto",
            max_attempts=self._max_attempts,
        )

    async def run(self) -> None:
        """Come and go until the end."""
        random = self._random
        while not self._world.is_winding_down:
            credential = self._world.credential(self.principal)
            try:
                choice = random.random()
                if choice < 0.25:
                    await self._fetch(credential)
                elif choice < 0.3:
                    await self._create_together(credential)
                elif choice < 0.35:
                    await self._read_history(credential)
                elif choice < 0.4:
                    await self._look_at_dead_letters(credential)
                else:
                    await self._connect(credential)
            except (DisconnectedError, RefusedError, TimeoutError):
                pass
            await asyncio.sleep(random.choice([0.01, 0.2, 1.0]) * random.random())  # virtual

    # --- over a connection -----------------------------------------------------------------------

    async def _connect(self, credential: Credential) -> None:
        random, client = self._random, FrameClient(self._world, credential)
        try:
            await client.open()
            acknowledge = random.choice(["manual", "manual", "auto"])
            credit = random.choice([0, 1, 3, 100])
            await client.call(self.wanted(credit, acknowledge))
            until = self._world.loop.time() + random.choice([0.1, 1.0, 3.0])
            while self._world.loop.time() < until:
                frame = await client.next(0.3)
                if isinstance(frame, Ended):
                    return
                if frame is None or random.random() < 0.2:
                    await client.send(Credit(subscription=self.name, events=random.randint(0, 4)))
                if isinstance(frame, Deliver) and acknowledge == "manual":
                    await self._treat(client, frame)
                if random.random() < 0.05:
                    await self._be_slow(client)
            await self._leave(client)
        finally:
            client.die()

    async def _treat(self, client: FrameClient, frame: Deliver) -> None:
        """Acknowledge some events, reject some, and forget some."""
        random = self._random
        for event in frame.events:
            self.unacknowledged[event.sequence] = None
            choice = random.random()
            if self._likes_to_reject and choice < 0.25:
                delay = random.choice([None, 0.0, 0.3])
                await client.send(
                    Reject(subscription=self.name, sequence=event.sequence, delay=delay)
                )
            elif choice < 0.8:
                await client.send(Acknowledge(subscription=self.name, sequences=[event.sequence]))
                self.unacknowledged.pop(event.sequence)
            elif choice < 0.85 and not self.is_member:
                await client.send(Acknowledge(subscription=self.name, up_to=event.sequence))
                self.unacknowledged.clear()

    async def _be_slow(self, client: FrameClient) -> None:
        client.may_read.clear()
        await asyncio.sleep(self._random.random() * 1.5)  # virtual
        client.may_read.set()

    async def _leave(self, client: FrameClient) -> None:
        choice = self._random.random()
        if choice < 0.2:
            await client.call(Unsubscribe(ref=0, subscription=self.name))
        elif choice < 0.24:
            await client.call(Unsubscribe(ref=0, subscription=self.name, delete=True))

    # --- by requests -----------------------------------------------------------------------------

    async def _create_together(self, credential: Credential) -> None:
        """Create all subscriptions of the principal in one request, or resume them."""
        world, checker = self._world, self._world.checker
        owned = {one.name: one for one in world.durable if one.principal == self.principal}
        frames = [one.wanted(0, "manual") for one in owned.values()]

        async def create(session: Session) -> None:
            asked_at = world.loop.time()
            for frame in frames:
                checker.asking(credential, frame)
            given = [*map(_new, frames), NewSubscription(id="s9", filter="a <")]
            keys = [(self.principal, frame.durable or "") for frame in frames]
            checker.unanswered.update(keys)
            try:
                *results, refused = await session.create_subscriptions(given)
            finally:
                checker.unanswered.subtract(keys)
            if refused.code != Code.BAD_FILTER:
                checker.fail(f"a filter that is not one has the result {refused}")
            for frame, result in zip(frames, results, strict=True):
                made = session._services.subscription_index.find(self.principal, result.id)
                # Somebody else may have deleted it just now.
                if result.code is None and made is not None:
                    start = made.view(0, 0).start
                    checker.subscribed(
                        credential, frame, asked_at, result.id, start, resumed=result.resumed
                    )

        await request(world, credential, create)

    async def _fetch(self, credential: Credential) -> None:
        world, random = self._world, self._random
        if random.random() < 0.5 and self.unacknowledged:
            await self._acknowledge(credential, [*self.unacknowledged])
        limit, wait = random.choice([1, 5, 100]), random.choice([0.0, 0.2, 2.0])
        asked = world.checker.subscriptions.get((self.principal, self.name))
        try:
            events = await fetch(world, credential, self.name, limit, wait)
        except RefusedError as error:
            if error.code == "not_found":
                world.checker.not_found((self.principal, self.name), asked)
            raise
        for event in events:
            self.unacknowledged[event.sequence] = None
        # Some acknowledge late, after the broker has lent the events to others.
        await asyncio.sleep(random.choice([0.0, 0.1, 0.1, 2.5]))  # virtual
        if events and random.random() < 0.7:
            await self._acknowledge(credential, [one.sequence for one in events])
        elif events and random.random() < 0.3:
            await self._reject(credential, events[0].sequence)

    async def _acknowledge(self, credential: Credential, sequences: list[int]) -> None:
        world = self._world

        async def acknowledge(session: Session) -> None:
            # A request that fails may have acknowledged some of them.
            world.checker.acknowledging(credential, self.name, sequences, 0, surely=False)
            await session.acknowledge(self.name, sequences)
            world.checker.acknowledging(credential, self.name, sequences, 0)

        asked = world.checker.subscriptions.get((self.principal, self.name))
        try:
            await request(world, credential, acknowledge)
        except RefusedError as error:
            if error.code == "not_found":
                world.checker.not_found((self.principal, self.name), asked)
                self.unacknowledged.clear()
            raise
        for sequence in sequences:
            self.unacknowledged.pop(sequence, None)

    async def _reject(self, credential: Credential, sequence: int) -> None:
        world = self._world

        async def reject(session: Session) -> None:
            world.checker.rejecting((self.principal, self.name), sequence)
            await session.reject(self.name, sequence)

        await request(world, credential, reject)

    # --- the past --------------------------------------------------------------------------------

    async def _read_history(self, credential: Credential) -> None:
        world = self._world

        async def read(session: Session) -> None:
            asked_at, end = world.loop.time(), world.checker.log.next
            page = await session.history(self.filter, limit=1_000)
            world.checker.read_history(credential, self.filter, page.events, asked_at, end)

        await request(world, credential, read)

    async def _look_at_dead_letters(self, credential: Credential) -> None:
        world, key = self._world, (self.principal, self.name)

        async def look(session: Session) -> list[int]:
            letters = await session.dead_letters(self.name)
            world.checker.read_dead_letters(credential, self.name, letters)
            return [one.sequence for one in letters]

        async def requeue(session: Session) -> None:
            world.checker.requeueing(key, some)
            await session.requeue(self.name, some)

        async def delete(session: Session) -> None:
            world.checker.deleting_letters(key, some)
            await session.delete_dead_letters(self.name, some)

        some = [
            one for one in await request(world, credential, look) if self._random.random() < 0.5
        ]
        if some:
            await request(world, credential, self._random.choice([requeue, requeue, delete]))

    # --- the end ---------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Take and acknowledge everything that is left."""
        world = self._world
        while not world.is_drained(self):
            client = FrameClient(world, world.credential(self.principal, "broad"))
            try:
                await client.open()
                await client.call(self.wanted(10_000, "manual"))
                while (frame := await client.next(0.3)) is not None or not world.is_drained(self):
                    await self._drain(client, frame)
            except (DisconnectedError, RefusedError, TimeoutError):
                await asyncio.sleep(0.5)  # virtual
            finally:
                client.die()

    async def _drain(self, client: FrameClient, frame: Push | None) -> None:
        if isinstance(frame, Deliver):
            sequences = [event.sequence for event in frame.events]
            await client.send(Acknowledge(subscription=self.name, sequences=sequences))
        elif isinstance(frame, Ended):
            raise DisconnectedError(frame.reason)


def _new(frame: Subscribe) -> NewSubscription:
    return NewSubscription(
        id=frame.durable,
        filter=frame.filter,
        start=frame.start,
        lifetime=frame.lifetime,
        max_attempts=frame.max_attempts,
        group=frame.group,
        ordering_key=frame.ordering_key,
    )


class GroupMember(DurableSubscriber):
    """Shares a subscription with the other members of its group."""

    is_member = True

    def __init__(self, world: World, principal: str, name: str, number: int) -> None:
        # What they have in common comes from the name.
        super().__init__(world, principal, name)
        keys = ("", "b", "a") if principal == "carl" else ("",)
        self._ordering_key = self._random.choice(keys)
        self._lifetime = None
        self._random = world.stream(f"member {principal} {name} {number}")
        self._member = self._random.choice(["", f"member {number}"])

    def wanted(self, credit: int, acknowledge: str) -> Subscribe:
        return msgspec.structs.replace(
            super().wanted(credit, acknowledge),
            group=True,
            ordering_key=self._ordering_key,
            member=self._member,
        )


class PatientSubscriber(DurableSubscriber):
    """Takes everything, and waits for what is lent to it and what is still to come."""

    def __init__(self, world: World, principal: str, name: str) -> None:
        super().__init__(world, principal, name)
        self._lifetime = None
        self._is_restless = self._random.random() < 0.4
        """Whether it leaves by itself; the others come back only when they are told to."""
        self._spoiling = world.stream("bad sectors")

    async def run(self) -> None:
        """Take everything until the end, and then what is left."""
        world = self._world
        while not (world.is_winding_down and world.is_drained(self)):
            client = FrameClient(world, world.credential(self.principal))
            try:
                if self._random.random() < 0.5:
                    await self._borrow(client.credential)
                await client.open()
                await client.call(self.wanted(10_000, "manual"))
                stay = self._random.choice([1.0, 3.0]) if self._is_restless else inf
                until = world.loop.time() + stay
                while not (world.is_winding_down and world.is_drained(self)):
                    if world.loop.time() > until and not world.is_winding_down:
                        break
                    frame = await client.next(1.0)
                    if isinstance(frame, Deliver):
                        self._spoil_disk()
                    await self._drain(client, frame)
            except (RefusedError, TimeoutError):
                await asyncio.sleep(0.2)  # virtual
            finally:
                client.die()
            await asyncio.sleep(self._random.random())  # virtual: events arrive meanwhile

    def _spoil_disk(self) -> None:
        """Make the next events unreadable for a moment, now and then."""
        process, random = self._world.server.process, self._spoiling
        is_spoilt = self._world.is_disk_unreliable and random.random() < 0.1
        if is_spoilt and process is not None and not self._world.is_winding_down:
            process.fail_reads(random.random() * 0.5)

    async def _borrow(self, credential: Credential) -> None:
        """Fetch, and leave the events to come back, also over the connection."""
        world, random = self._world, self._random
        process = world.server.process
        if process is not None and random.random() < 0.5:
            # The disk is slow meanwhile.
            process.stall("deliver", random.random())
        await fetch(world, credential, self.name, limit=5)


class Tenant:
    """Has a subscription for a short time only, and renews it at the last moment."""

    def __init__(self, world: World, principal: str, name: str) -> None:
        self._world = world
        self._random = world.stream(f"tenant {principal} {name}")
        self._principal = principal
        self._name = name
        self._lifetime = self._random.choice([0.5, 1.0, 2.0])

    async def run(self) -> None:
        """Renew until the end."""
        world = self._world
        while not world.is_winding_down:
            try:
                known = world.checker.subscriptions.get((self._principal, self._name))
                if known is None:
                    await self._subscribe()
                    continue
                due = known.expires_from + self._random.uniform(-0.2, 0.05)
                await asyncio.sleep(max(0.0, due - world.loop.time()))  # virtual
                await self._renew()
                if self._random.random() < 0.3:
                    await fetch(world, world.credential(self._principal), self._name, limit=100)
            except (DisconnectedError, RefusedError, TimeoutError):
                await asyncio.sleep(0.1)  # virtual

    async def _subscribe(self) -> None:
        world = self._world
        client = FrameClient(world, world.credential(self._principal))
        try:
            await client.open()
            await client.call(
                Subscribe(ref=0, filter="a < 5", durable=self._name, lifetime=self._lifetime)
            )
        finally:
            client.die()

    async def _renew(self) -> None:
        world, key = self._world, (self._principal, self._name)

        async def renew(session: Session) -> None:
            asked_at = world.loop.time()
            world.checker.renewing(key)
            await session.renew(self._name, self._lifetime)
            world.checker.renewed(key, asked_at, self._lifetime)

        asked = world.checker.subscriptions.get(key)
        try:
            await request(world, world.credential(self._principal), renew)
        except RefusedError as error:
            if error.code == "not_found":
                world.checker.not_found(key, asked)
            raise


class TemporarySubscriber:
    """Subscribes for the time of one connection."""

    def __init__(self, world: World, principal: str, number: int) -> None:
        self._world = world
        self._random = world.stream(f"temporary {number}")
        self._principal = principal

    async def run(self) -> None:
        """Come and go until the end."""
        while not self._world.is_winding_down:
            with contextlib.suppress(RefusedError, TimeoutError):
                await self._connect()
            await asyncio.sleep(self._random.random())  # virtual

    async def _connect(self) -> None:
        random = self._random
        client = FrameClient(self._world, self._world.credential(self._principal))
        try:
            await client.open()
            overflow = random.choice(OVERFLOWS)
            subscribed = await client.call(
                Subscribe(
                    ref=0,
                    filter=random.choice(FILTERS),
                    overflow=overflow,
                    credit=random.choice([2, 99]),
                )
            )
            name, until = subscribed.subscription, self._world.loop.time() + 4 * random.random()
            while self._world.loop.time() < until:
                frame = await client.next(0.3)
                if isinstance(frame, Ended):
                    return
                if isinstance(frame, Deliver) and random.random() < 0.7:
                    await client.send(Credit(subscription=name, events=len(frame.events)))
                if random.random() < 0.1:
                    client.may_read.clear()
                    await asyncio.sleep(random.random() * 1.5)  # virtual
                    client.may_read.set()
            if not self._world.has_disk_faults and random.random() < 0.5:
                await self._take_all(client, name)
        finally:
            client.die()

    async def _take_all(self, client: FrameClient, name: str) -> None:
        """Read everything that is there, and check that nothing is missing."""
        asked_at = self._world.loop.time()
        await client.send(Credit(subscription=name, events=10_000))
        while (frame := await client.next(6.0)) is not None:
            if isinstance(frame, Ended):
                return
        if not self._world.has_disk_faults:
            self._world.checker.check_temporary(client.credential, name, asked_at)
