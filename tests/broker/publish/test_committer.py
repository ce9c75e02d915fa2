"""Publications: stored in order, once, all or none; what is refused does not make others lost."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest

from tamis.access import Rights
from tamis.broker.operations.health import Health
from tamis.broker.operations.metrics import Metrics
from tamis.broker.publish.committer import Committer
from tamis.broker.publish.event_cache import EventCache, StoredEvent
from tamis.broker.publish.payloads import Payload, PayloadDecoder
from tamis.broker.publish.publishers import FanOut, Numbering
from tamis.errors import RefusedError
from tamis.events import EventLimits
from tamis.ports import SystemFiles, ThreadExecutor, Writer
from tamis.storage import EventLog, Storage
from tamis.storage.files import WaitingWriter

THREADS = ThreadExecutor("test")
DECODER = PayloadDecoder(None, EventLimits(), is_total=False)


class Disk(SystemFiles):
    """A disk that is full on request."""

    def __init__(self) -> None:
        self.is_full = False

    def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:  # type: ignore[override]
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(file, data, offset)


class UnrestrictedAuthor:
    """A session that may publish everything."""

    owner = "ann"
    rights = Rights([])
    has_ended = False

    def __init__(self) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def require_right(self, *_: object) -> None:
        raise AssertionError("nothing has changed")


class NobodyAhead:
    """A matcher that waits until events are stored."""

    ahead: object = None

    def match_ahead(self, events: Sequence[StoredEvent]) -> None:
        """Do nothing."""

    def offer_ahead(self, found: object) -> None:
        raise AssertionError(f"nothing was found ahead, and certainly not {found}")


class PassedEvents(EventCache):
    """Takes what a committer passes on; nobody matches it."""

    def __init__(self, store: Storage) -> None:
        nothing = cast("Any", None)
        super().__init__(store.log, nothing, 0, THREADS, nothing, max_unmatched=1)
        self.events: list[StoredEvent] = []
        self.matcher = NobodyAhead()

    async def put(self, events: list[StoredEvent], found: object = None) -> None:
        assert found is None
        self.events += events


class Publishing:
    """A committer, and what it has passed on."""

    def __init__(self, store: Storage) -> None:
        self.cache = PassedEvents(store)
        self.passed = self.cache.events
        self.committer = Committer(
            store.log,
            Numbering({}),
            self.cache,
            Metrics(),
            THREADS,
            max_waiting=2,
            fan_out=FanOut(),
            health=Health(),
            clock=time.monotonic,
        )

    async def publish(self, sequence: int, *numbers: int) -> tuple[int, int | None]:
        payloads = [payload(number) for number in numbers]
        author = UnrestrictedAuthor()
        stored = await self.committer.enqueue(author, author.rights, "ann", sequence, payloads)
        receipt = await stored
        return receipt.duplicates, receipt.first


def payload(number: int) -> Payload:
    return DECODER.decode(b'{"n":%d}' % number, "json")


def test_later_publications_wait_for_a_refused_one(tmp_path: Path) -> None:
    disk = Disk()

    async def work(publishing: Publishing) -> None:
        running = asyncio.create_task(publishing.committer.run())
        assert await publishing.publish(1, 1) == (0, 1)
        disk.is_full = True
        with pytest.raises(RefusedError, match="nothing was stored") as refused:
            await publishing.publish(2, 2)
        # Where the broker keeps its files is nobody's business.
        assert str(refused.value) == "nothing was stored: the broker's disk is full"
        disk.is_full = False
        with pytest.raises(
            RefusedError, match="number 3 of this publisher is out of order: the next one is 2"
        ):
            await publishing.publish(3, 3)
        # Others are not concerned.
        assert await publishing.publish(0, 9) == (0, 2)
        assert await publishing.publish(2, 2, 3) == (0, 3)
        assert await publishing.publish(2, 2, 3, 4) == (2, 5)
        running.cancel()

    with Storage.open(tmp_path, files=disk) as store:
        publishing = Publishing(store)
        asyncio.run(work(publishing))
    assert [stored.payload.text for stored in publishing.passed] == [
        b'{"n":1}',
        b'{"n":9}',
        b'{"n":2}',
        b'{"n":3}',
        b'{"n":4}',
    ]


def test_publications_are_stored_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async def work(publishing: Publishing) -> None:
        waiting = [asyncio.create_task(publishing.publish(n, n)) for n in range(1, 200)]
        running = asyncio.create_task(publishing.committer.run())
        receipts = await asyncio.gather(*waiting)
        assert receipts == [(0, n) for n in range(1, 200)]
        running.cancel()

    with Storage.open(tmp_path) as store:
        publishing = Publishing(store)
        asyncio.run(work(publishing))
    assert [stored.sequence for stored in publishing.passed] == list(range(1, 200))


class LateFiles(SystemFiles):
    """Files with a writer that is late, or fails, on request."""

    def __init__(self) -> None:
        self.is_late = False
        self.is_full = False
        self.begun = 0
        self.heard_after = 0.0
        """How long somebody who waits for the writer waits, though it has been quick."""

    def pwrite(self, file: int, data: bytes | memoryview, offset: int, /) -> int:  # type: ignore[override]
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(file, data, offset)

    def writer(self) -> Writer:
        files = self

        class OnRequest(WaitingWriter):
            def begin(self, *given: Any) -> None:
                files.begun += 1
                super().begin(*given)

            def is_stored(self, seconds: float) -> bool:
                time.sleep(files.heard_after)  # as on a machine that is busy with others
                return not files.is_late and super().is_stored(seconds)

        return OnRequest(self, time.monotonic)


def test_the_loop_waits_for_a_quick_disk_if_there_is_little_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LateFiles()
    monkeypatch.setattr("tamis.broker.publish.committer.MAX_SECONDS_AWAITED", 10.0)

    async def work(publishing: Publishing, log: EventLog) -> None:
        running = asyncio.create_task(publishing.committer.run())
        committer = publishing.committer
        # The first one begins a segment, which is more than writing.
        assert await publishing.publish(1, 1) == (0, 1)
        assert files.begun == 0
        for number, late in ((2, False), (3, True), (4, False)):
            files.is_late = late
            committer._quiet_from = 0.0
            assert await publishing.publish(number, number) == (0, number)
            assert files.begun == number - 1
        # So soon after the last one, others may come that are stored together.
        committer._quiet_from = time.monotonic() + 60
        assert await publishing.publish(5, 5) == (0, 5)
        # Of a disk that fails nobody expects to be quick.
        committer._quiet_from, files.is_full = 0.0, True
        with pytest.raises(RefusedError, match="nothing was stored"):
            await publishing.publish(6, 6)
        files.is_full = False
        assert await publishing.publish(6, 6) == (0, 6)
        assert files.begun == 4
        # A disk that was slow is not waited for.
        committer._quiet_from, committer._took_seconds = 0.0, 11.0
        assert await publishing.publish(7, 7) == (0, 7)
        assert files.begun == 4
        assert [record.publisher_sequence for record in log.read(1, 100)] == [*range(1, 8)]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with Storage.open(tmp_path, files=files) as store:
        store.log.write_beside()
        asyncio.run(work_with(store, work))


def test_the_loop_counts_how_long_it_has_waited_not_how_long_the_disk_took(tmp_path: Path) -> None:
    """Found by a reviewer: on a busy machine it would wait for half of its time."""
    files = LateFiles()

    async def work(publishing: Publishing, log: EventLog) -> None:
        running = asyncio.create_task(publishing.committer.run())
        committer = publishing.committer
        await publishing.publish(1, 1)
        files.heard_after, committer._quiet_from, committer._took_seconds = 0.05, 0.0, 0.0
        await publishing.publish(2, 2)
        assert files.begun == 1
        assert log.last_seconds < 0.05 <= committer._took_seconds
        assert committer._quiet_from >= time.monotonic() + 3 * 0.05
        # What is done meanwhile is no waiting.
        files.heard_after, committer._quiet_from, committer._took_seconds = 0.0, 0.0, 0.0

        def match_slowly(*_: object) -> None:
            time.sleep(0.05)  # as a busy matcher

        with patch.object(NobodyAhead, "match_ahead", match_slowly):
            await publishing.publish(3, 3)
        assert files.begun == 2
        assert committer._took_seconds < 0.05
        # A loop that was held up does not wait again before a commit was quick.
        committer._took_seconds = 0.05
        committer._quiet_from = 0.0
        await publishing.publish(4, 4)
        assert files.begun == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with Storage.open(tmp_path, files=files) as store:
        store.log.write_beside()
        asyncio.run(work_with(store, work))


async def work_with(
    store: Storage, work: Callable[[Publishing, EventLog], Awaitable[None]]
) -> None:
    await work(Publishing(store), store.log)
