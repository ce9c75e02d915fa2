"""A broker process that can be killed, and the supervisor that starts it again."""

from __future__ import annotations

import asyncio
import contextvars
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from simulation.executor import SimulatedExecutor
from simulation.loop import LIFE, Life
from simulation.network import BrokerEnd, Link
from simulation.watch import ConnectionWatch
from storage.disk import Disk
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.frontend.connection import Connection
from tamis.broker.operations.executors import Executors
from tamis.errors import (
    BrokerFailedError,
    DisconnectedError,
    RefusedError,
    StorageError,
    TamisError,
)
from tamis.protocol import Code
from tamis.storage import EventLog
from tamis.storage.log import Appending

if TYPE_CHECKING:
    from simulation.credentials import Credential
    from simulation.world import World

T = TypeVar("T")

Crash = Literal["kill", "power cut"]

OPENING_SECONDS = 60.0
"""A broker that takes longer to open, with nothing to hold it up, hangs."""


class BrokerProcess:
    """One life of the broker, from its start to its end."""

    def __init__(self, world: World, number: int, folder: Path) -> None:
        self.world = world
        self.folder = folder
        self.life = Life(f"broker-{number}")
        self.context = contextvars.copy_context()
        self.context.run(LIFE.set, self.life)
        self.ended = world.loop.create_future()
        self.broker: Broker | None = None
        self.started_at = world.loop.time()
        self.clock_offset = world.clock.offset
        """How far the wall clock was wrong when it started."""
        self.is_stopping = False
        self._requests: dict[asyncio.Future[Any], None] = {}
        self.links: dict[Link, Connection] = {}
        names = Executors._fields
        self.executors = Executors(*(self._executor(name) for name in names))
        self.disk = Disk(folder / "data", world.stream(f"disk {number}").getrandbits(32))
        self.disk.on_operation = self._before_operation
        self._operations_left: float = inf
        self._crash: Crash = "kill"
        self.read_fault_chance = 0.0
        self.has_bad_syncs = False
        """Whether some syncs of its disk may have failed."""
        self._random = world.stream(f"random {number}")

    def _executor(self, name: str) -> Any:
        world = self.world
        random = Random(f"{world.seed}/{self.life.name}/{name}")
        return SimulatedExecutor(name, world.loop, random, self._before, self._after)

    def _before(self, name: str) -> None:
        """Make work that only reads fail, now and then, as a disk with bad sectors does."""
        if name == "deliver" and self._random.random() < self.read_fault_chance:
            raise StorageError(self.folder, "reading failed: Input/output error")

    def _after(self, name: str) -> None:
        self.world.checker.after_work(self, name)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task inside the process."""
        return self.world.loop.create_task(work, context=self.context)

    # --- from the start to the end ---------------------------------------------------------------

    async def open(self) -> None:
        """Open the broker; the process ends if that fails."""
        settings = self.world.settings.model_copy(update={"data": self.folder / "data"})
        opening = self.spawn(self._open(settings))
        await asyncio.wait([opening, self.ended], return_when=asyncio.FIRST_COMPLETED)

    async def _open(self, settings: BrokerSettings) -> None:
        trace = self.world.trace
        try:
            self.broker = await Broker.open(
                settings,
                clock=self.world.clock,
                executors=self.executors,
                files=self.disk,
                random=self._random.randbytes,
            )
        except TamisError as error:
            trace("broker", "cannot open", type(error).__name__)
            self.world.checker.cannot_open(error)
            self.kill()
            return
        self.world.checker.opened(self.broker)
        self._watch_log(self.broker.store.log)
        self.broker.supervisor.failed.add_done_callback(self._on_failure)
        trace("broker", "open", self.broker.store.log.next_sequence)

    def _watch_log(self, log: EventLog) -> None:
        """Look at the log after each append, also if the event loop has waited for it."""
        end = log.end

        def watched_end(appending: Appending, *, waits: bool = True) -> range | None:
            found = end(appending, waits=waits)
            self.world.checker.after_work(self, "commit")
            return found

        log.end = watched_end  # type: ignore[method-assign]

    def _on_failure(self, failed: asyncio.Future[BrokerFailedError]) -> None:
        """Stop, as the server does, because a part of the broker has failed."""
        self.world.trace("broker", "has failed", failed.result())
        self.world.loop.create_task(self.stop(), context=contextvars.Context())

    async def stop(self) -> None:
        """Stop as SIGTERM does, or be killed when that takes too long."""
        self.is_stopping = True
        stopping = self.spawn(self._stop())
        limit = self.world.settings.stop_timeout * 2
        await asyncio.wait(
            [stopping, self.ended], timeout=limit, return_when=asyncio.FIRST_COMPLETED
        )
        if not self.life.is_over:
            if stopping.done() and stopping.exception() is not None:
                self.world.checker.fail(f"closing failed: {stopping.exception()!r}")
            if not stopping.done():
                self.world.checker.stopping_took_too_long(limit)
            else:
                self.world.checker.closed()
            self.kill()

    async def _stop(self) -> None:
        for connection in [*self.links.values()]:
            connection.stop()
        if self.broker is not None:
            await self.broker.close()

    def crash_later(self, operations: float, crash: Crash) -> None:
        """Crash in the middle of some work, before its disk operation of this number."""
        self._operations_left, self._crash = operations, crash

    def _before_operation(self, operation: str, name: str) -> None:
        self._operations_left -= 1
        if self._operations_left <= 0:
            self._operations_left = inf
            self.world.trace("chaos", "in the middle of", operation, name)
            self.crash(self._crash)

    def stall(self, executor: str, seconds: float) -> None:
        """Keep one kind of work waiting."""
        self.world.trace("broker", "stalls", executor, f"{seconds:.3f}")
        stalled: SimulatedExecutor = getattr(self.executors, executor)
        now = self.world.loop.time()
        stalled.stall_until = max(stalled.stall_until, now + seconds)
        if executor == "match":
            self.world.checker.policies.stall_matching(now, stalled.stall_until)

    def fail_reads(self, seconds: float) -> None:
        """Make all reading of events fail for a moment."""
        world = self.world
        world.trace("chaos", "disk fails read for", f"{seconds:.3f}")
        self.read_fault_chance, world.disk_fails_until = 1.0, inf
        world.loop.call_later(seconds, self._read_again)

    def _read_again(self) -> None:
        self.read_fault_chance, self.world.disk_fails_until = 0.0, self.world.loop.time()
        self.world.trace("chaos", "disk can be read")

    def kill(self) -> None:
        """End everything at this moment: nothing is finished, nothing is told."""
        self.crash("kill")

    def crash(self, how: Crash) -> None:
        """End everything at this moment; without power, the disk loses what was not synced.

        Work that is being done goes on to its end, on a disk that nobody will look at again.
        """
        if self.life.is_over:
            return
        self.world.trace("broker", "ends", how)
        self.life.is_over = True
        self._leave(how, self.world.server.next_folder())
        self.world.checker.crashed(how)
        for link in [*self.links]:
            link.cut()
        for request in [*self._requests]:
            if not request.done():
                request.set_exception(DisconnectedError("the broker has gone"))
        if not self.ended.done():
            self.ended.set_result(None)

    def _leave(self, how: Crash, folder: Path) -> None:
        """Write what the next life finds: a copy, since this one still has locks and open files."""
        folder.mkdir(parents=True)
        if how == "power cut":
            self.disk.image(self.disk.rng, folder / "data")
        else:
            # The shared memory of SQLite is made anew by whoever comes next.
            left_out = shutil.ignore_patterns("*-shm", "LOCK")
            shutil.copytree(self.folder / "data", folder / "data", ignore=left_out)

    # --- what clients do with it -----------------------------------------------------------------

    def connect(self, credential: Credential) -> Link:
        """Return a new connection."""
        world = self.world
        if self.broker is None or self.life.is_over or self.is_stopping:
            raise DisconnectedError("nobody listens")
        link = Link(world.loop, world.network_random)
        watch = ConnectionWatch(world.checker, credential)
        connection = Connection.over(self.broker, BrokerEnd(link, watch))
        self.links[link] = connection
        task = self.spawn(connection.run())
        task.add_done_callback(lambda _: self.links.pop(link, None))
        return link

    async def request(self, credential: Credential, do: Callable[[Session], Awaitable[T]]) -> T:
        """Return the answer to a request with a session of its own, as HTTP has."""
        if self.broker is None or self.life.is_over or self.is_stopping:
            raise DisconnectedError("nobody listens")
        answer: asyncio.Future[T] = self.world.loop.create_future()
        self.world.trace(str(credential), "requests", getattr(do, "__name__", "something"))
        self._requests[answer] = None
        self.spawn(self._handle(self.broker, credential, do, answer))
        try:
            return await answer
        finally:
            self._requests.pop(answer, None)

    async def _handle(
        self,
        broker: Broker,
        credential: Credential,
        do: Callable[[Session], Awaitable[T]],
        answer: asyncio.Future[T],
    ) -> None:
        try:
            session = await broker.authenticate(credential.text)
            try:
                result = await do(session)
            finally:
                await session.close()
        except Exception as error:
            if not isinstance(error, TamisError):
                self.world.checker.fail(f"a request raised {error!r}")
            if isinstance(error, StorageError):
                error = RefusedError(Code.UNAVAILABLE, str(error))
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(result)


class Supervisor:
    """Keeps a broker running, whatever happens to it."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self._folder = folder
        self.process: BrokerProcess | None = None
        self.starts = 0
        self.is_over = False
        self.lives: list[BrokerProcess] = []

    async def run(self) -> None:
        """Start the broker again and again."""
        while not self.is_over:
            folder = self.next_folder()
            self.starts += 1
            process = BrokerProcess(self.world, self.starts, folder)
            self.process = process
            self.lives.append(process)
            self.world.trace("broker", "starts", self.starts)
            await process.open()
            await process.ended
            self.process = None
            await asyncio.sleep(self.world.random.random())  # virtual: the time of a restart

    def next_folder(self) -> Path:
        """Return the folder of the next life."""
        return self._folder / str(self.starts + 1)

    @property
    def broker(self) -> Broker | None:
        """Return the broker that runs now."""
        return None if self.process is None or self.process.life.is_over else self.process.broker

    def require(self) -> BrokerProcess:
        """Return the process that listens now."""
        if self.process is None or self.process.broker is None:
            raise DisconnectedError("nobody listens")
        return self.process
