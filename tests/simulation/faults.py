"""What goes wrong in a simulated world, and the people who change its rights."""

from __future__ import annotations

import asyncio
import contextlib
from math import inf
from typing import TYPE_CHECKING

from simulation.clients import FrameClient, request
from simulation.credentials import DESKS, Credential, PolicyModel
from simulation.server import Crash
from storage.disk import RandomFaults, no_fault
from tamis.errors import DisconnectedError, RefusedError

if TYPE_CHECKING:
    from simulation.world import World

EXECUTORS = ("commit", "match", "settle", "deliver", "client", "background")


class Chaos:
    """Kills, stalls, restarts and clock jumps, at random moments."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("chaos")

    async def run(self) -> None:
        """Do harm until the end."""
        world, random = self._world, self._random
        await asyncio.sleep(random.expovariate(1 / world.calm_seconds))  # virtual
        while not world.is_winding_down:
            await random.choice(world.faults)(self)
            await asyncio.sleep(random.expovariate(1 / world.calm_seconds))  # virtual

    async def kill(self) -> None:
        self._crash("kill")

    async def cut_power(self) -> None:
        self._crash("power cut")

    def _crash(self, how: Crash) -> None:
        """Crash at this moment, or in the middle of the work that comes next."""
        process = self._world.server.process
        if process is not None:
            operations = self._random.choice([0, 1, 2, 3, 5, 10, 30])
            self._world.trace("chaos", how, operations)
            if operations:
                process.crash_later(operations, how)
            else:
                process.crash(how)

    async def break_disk(self) -> None:
        """Make some of the writes and syncs fail for a while."""
        world, random = self._world, self._random
        process = world.server.process
        if process is None:
            return
        chance = random.choice([0.05, 0.3, 1.0])
        which = random.choice([("write",), ("sync",), ("write", "sync"), ("read",)])
        world.trace("chaos", "disk fails", *which, chance)
        world.disk_fails_until = inf
        process.has_bad_syncs |= "sync" in which
        if which == ("read",):
            process.read_fault_chance = chance
        chances = dict.fromkeys({"write", "sync"} & {*which}, chance)
        process.disk.fault = RandomFaults(world.stream(f"faults {world.next_number()}"), **chances)
        await asyncio.sleep(random.random() * 2)  # virtual
        process.disk.fault, process.read_fault_chance = no_fault, 0.0
        world.disk_fails_until = world.loop.time()
        world.trace("chaos", "disk works")

    async def fill_disk(self) -> None:
        """Leave no room for a while."""
        world = self._world
        process = world.server.process
        if process is None:
            return
        world.trace("chaos", "disk full")
        world.disk_fails_until = inf
        process.disk.is_full = True
        await asyncio.sleep(self._random.random() * 2)  # virtual
        process.disk.is_full = False
        world.disk_fails_until = world.loop.time()
        world.trace("chaos", "disk has room")

    async def restart(self) -> None:
        process = self._world.server.process
        if process is not None and process.broker is not None:
            self._world.trace("chaos", "stop")
            await process.stop()

    async def stall(self) -> None:
        """Keep one kind of work waiting."""
        process = self._world.server.process
        if process is not None:
            process.stall(self._random.choice(EXECUTORS), self._random.random() * 4)

    async def cut_link(self) -> None:
        """Lose some connections."""
        process = self._world.server.process
        self._world.trace("chaos", "cuts connections")
        for link in [] if process is None else [*process.links]:
            if self._random.random() < 0.5:
                link.cut()

    async def jump(self) -> None:
        """Set the clock wrong for some seconds."""
        world, random = self._world, self._random
        world.clock.set(random.choice([-3600.0, 3600.0, 8 * 86_400.0, -1.0]))
        world.trace("chaos", "clock", world.clock.offset)
        await asyncio.sleep(random.random() * 3)  # virtual
        if random.random() < 0.7:
            world.clock.set(0.0)


class Burglar:
    """Tries tokens that are no longer valid."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("burglar")

    async def run(self) -> None:
        """Try until the end; the checker sees what comes of it."""
        world = self._world
        while not world.is_winding_down:
            await asyncio.sleep(self._random.random())  # virtual
            ended = [one for one in world.retired if one.revoked_at < inf]
            ended += [one for one in world.credentials if one.expires_at < world.loop.time()]
            if ended:
                client = FrameClient(world, self._random.choice(ended))
                with contextlib.suppress(RefusedError):
                    await client.open()
                client.die()


class Administrator:
    """Issues and revokes tokens, and changes the policy."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.stream("administrator")

    async def run(self) -> None:
        """Change rights until the end."""
        world, random = self._world, self._random
        await asyncio.sleep(random.random() * 3)  # virtual
        while not world.is_winding_down:
            with contextlib.suppress(RefusedError):
                choice = random.random()
                if choice < 0.5:
                    self._change_policy()
                elif choice < 0.65:
                    await self._lend_token()
                else:
                    await self._replace_token()
            await asyncio.sleep(random.random() * 3)  # virtual

    def _change_policy(self) -> None:
        world, random = self._world, self._random
        if world.server.process is not None and random.random() < 0.3:
            # The matcher is busy meanwhile.
            world.server.process.stall("match", 1 + random.random() * 3)
        blocked = frozenset({"bob"}) if random.random() < 0.15 else frozenset()
        world.write_policy(PolicyModel(random.choice(DESKS), blocked))

    async def _replace_token(self) -> None:
        world = self._world
        old = self._random.choice(world.replaceable())
        new = await self._issue(old)
        world.credentials.append(new)
        world.credentials.remove(old)
        world.retired.append(old)
        await asyncio.sleep(self._random.random())  # virtual
        await self._revoke(old)

    async def _lend_token(self) -> None:
        """Issue a token for a few seconds."""
        world = self._world
        like, seconds = self._random.choice(world.replaceable()), 1 + self._random.random() * 3
        asked_at = world.loop.time()
        lent, process = await self._issue(like, seconds), world.server.process
        lent.issued_in = None if process is None else process.life
        lent.lifetime = seconds
        lent.expires_from = asked_at + seconds
        lent.expires_at = world.loop.time() + seconds
        world.credentials.append(lent)

    async def _issue(self, like: Credential, lifetime: float | None = None) -> Credential:
        issued = await request(
            self._world,
            self._world.root,
            lambda session: session.issue_token(like.principal, like.roles, lifetime),
        )
        credential = Credential(like.principal, like.roles, issued.text, issued.token.id)
        credential.written_expiry = issued.token.expires_at or inf
        return credential

    async def _revoke(self, old: Credential) -> None:
        world = self._world
        old.revoking_at = world.loop.time()
        while old.revoked_at > world.loop.time():
            try:
                await request(world, world.root, lambda session: session.revoke_token(old.id))
            except RefusedError as error:
                if error.code == "not_found":
                    return
            except DisconnectedError:
                await asyncio.sleep(0.3)  # virtual
                if world.is_winding_down:
                    return
            else:
                old.revoked_at = world.loop.time()
                world.trace("administrator", "revoked", old)
