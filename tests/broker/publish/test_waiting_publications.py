"""Publications that wait to be stored: what happens meanwhile is not ignored, nor others' doing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from broker.authorization_clients import MemoryConnection
from broker.authorization_fixture import broker_fixture, run_async
from tamis.broker import Session
from tamis.broker.publish import publishers
from tamis.errors import RefusedError
from tamis.ports import SystemFiles
from tamis.protocol import Hello, Publish
from tamis.storage import EventLog
from waiting import eventually_async, let_others_run

POLICY = "[roles.user]\nsee = true\npublish = true\n[roles.root]\nadmin = true\n"
WITHOUT_PUBLISHING = "[roles.user]\nsee = true\n[roles.root]\nadmin = true\n"


@pytest.fixture(autouse=True)
def nobody_writes_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is stored goes through `EventLog.append`."""
    monkeypatch.setattr(SystemFiles, "writer", lambda _: None)


class SlowDisk:
    """A disk whose writes wait until they may go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.has_begun = threading.Event()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        append = EventLog.append

        def slow(log: EventLog, records: Sequence[Any], time: float) -> range:
            self.has_begun.set()
            self.go_on.wait(30)
            return append(log, records, time)

        with patch.object(EventLog, "append", slow):
            try:
                yield
            finally:
                self.go_on.set()


async def outcome(session: Session, number: int = 1, **named: Any) -> str:
    """Return `stored` or the code of the refusal."""
    try:
        await session.publish([b'{"n": %d}' % number], **named)
    except RefusedError as error:
        return str(error.code)
    return "stored"


@run_async
async def test_refusals_of_one_principal_make_no_other_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "MAX_REFUSED_NAMES", 10, raising=False)
    monkeypatch.setattr(publishers, "MAX_ACTIVE_NAMES", 10)
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, mallory = await fixture.login("ann", "user"), await fixture.login("mallory", "user")
        kept = fixture.broker.numbering
        disk = SlowDisk()
        assert await outcome(ann, publisher="known", sequence=1) == "stored"
        with disk.waiting():
            waiting = []
            for number in (2, 3):
                for name in ("known", "new"):
                    publication = outcome(ann, number, publisher=name, sequence=number)
                    waiting.append(asyncio.create_task(publication))
            await eventually_async(disk.has_begun.is_set)
            await eventually_async(lambda: len(kept.next) == 2)
            for number in range(50):
                with pytest.raises(RefusedError):
                    await mallory.publish([b"broken"], publisher=f"n{number}", sequence=1)
            waiting += [
                asyncio.create_task(outcome(ann, 4, publisher=name, sequence=4))
                for name in ("known", "new")
            ]
            # They are refused at once if they are.
            await asyncio.sleep(0.05)  # so that the publications wait in their order
            disk.go_on.set()
            assert await asyncio.gather(*waiting) == ["stored"] * 6
        # What was refused has little memory.
        assert len(kept.next) == 2 + 10
        assert await outcome(mallory, publisher="n49", sequence=2) == "out_of_order"
        assert await outcome(mallory, publisher="n49", sequence=1) == "stored"


@run_async
async def test_what_waits_when_a_token_is_revoked_is_not_stored(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, commit_queue=1) as fixture:
        root, disk = await fixture.login("root", "root"), SlowDisk()
        text, token = await fixture.broker.access_control.issue("ann", ("user",), None, "")
        sessions = [await fixture.broker.authenticate(text) for _ in range(4)]
        with disk.waiting():
            first = asyncio.create_task(outcome(sessions[0]))
            await eventually_async(disk.has_begun.is_set)
            others = [asyncio.create_task(outcome(one)) for one in sessions[1:]]
            # Let all of them get as far as they can.
            await asyncio.sleep(0.05)  # so that the publications wait in their order
            # Whoever has left is not told that the token is revoked.
            await sessions[1].close()
            await root.revoke_token(token.id)
            disk.go_on.set()
            assert await first == "stored"
            assert await asyncio.gather(*others) == ["unauthenticated"] * 3
        assert fixture.broker.store.log.next_sequence == 2


@run_async
async def test_what_waits_when_a_right_is_withdrawn_is_not_stored(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, disk = await fixture.login("ann", "user"), SlowDisk()
        with disk.waiting():
            first = asyncio.create_task(outcome(ann))
            await eventually_async(disk.has_begun.is_set)
            second = asyncio.create_task(outcome(ann))
            # Let it get as far as it can.
            await asyncio.sleep(0.05)  # so that the publications wait in their order
            await fixture.change_policy(WITHOUT_PUBLISHING)
            disk.go_on.set()
            assert [await first, await second] == ["stored", "forbidden"]


@run_async
async def test_what_waits_when_the_broker_stops_is_stored(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        fixture = await stack.enter_async_context(broker_fixture(tmp_path, POLICY))
        ann, disk = await fixture.login("ann", "user"), SlowDisk()
        with disk.waiting():
            first = asyncio.create_task(outcome(ann))
            await eventually_async(disk.has_begun.is_set)
            second = asyncio.create_task(outcome(ann))
            # Let it get as far as it can.
            await asyncio.sleep(0.05)  # so that the publications wait in their order
            loop = asyncio.get_running_loop()
            ann.closed.add_done_callback(lambda _: loop.call_soon(disk.go_on.set))
            await stack.aclose()
            assert [await first, await second] == ["stored", "stored"]


@run_async
async def test_new_names_in_one_commit_count_together(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY, publishers_per_principal=3) as fixture:
        ann, disk = await fixture.login("ann", "user"), SlowDisk()
        with disk.waiting():
            first = asyncio.create_task(outcome(ann))
            await eventually_async(disk.has_begun.is_set)
            names = [f"n{number}" for number in range(6)]
            others = [
                asyncio.create_task(outcome(ann, publisher=name, sequence=1)) for name in names * 2
            ]
            # Let all of them get as far as they can.
            await asyncio.sleep(0.05)  # so that the publications wait in their order
            disk.go_on.set()
            assert await first == "stored"
            expected = (["stored"] * 3 + ["too_many"] * 3) * 2
            assert await asyncio.gather(*others) == expected
        assert sorted(fixture.broker.numbering.tails) == ["ann/n0", "ann/n1", "ann/n2"]


@run_async
async def test_those_that_follow_a_publication_that_cannot_be_read_are_refused(
    tmp_path: Path,
) -> None:
    deep = b'{"a":' + b"[" * 960 + b"]" * 960 + b"}"
    async with broker_fixture(tmp_path, "[roles.user]\nsee = true\npublish = true\n") as fixture:
        connection = MemoryConnection(fixture.broker)
        await connection.send_frame(Hello(token=await fixture.token("ann", "user")))

        async def publish(ref: int, sequence: int, *events: bytes) -> str:
            raw = [msgspec.Raw(event) for event in events]
            frame = Publish(ref=ref, events=raw, publisher="new", sequence=sequence)
            await connection.send_frame(frame)
            answer = await connection.answer(ref)
            return str(answer.get("code", answer["type"]))

        assert await publish(1, 1, b'{"a": 1}', deep) == "bad_request"
        assert await publish(2, 3, b'{"a": 3}') == "out_of_order"
        assert await publish(3, 1, b'{"a": 1}', b'{"a": 2}') == "published"
        assert await publish(4, 3, b'{"a": 3}') == "published"
        await connection.disconnect()


@run_async
async def test_all_who_wait_for_room_are_refused_when_publications_can_no_longer_be_stored(
    tmp_path: Path,
) -> None:
    """Seen failing: only as many were answered as the queue holds, and the others hung."""
    go_on = threading.Event()

    def fail(*_: object) -> range:
        go_on.wait(30)
        raise RuntimeError("a planted fault")

    with patch.object(EventLog, "append", fail):
        async with broker_fixture(tmp_path, POLICY, commit_queue=2) as fixture:
            text, _ = await fixture.broker.access_control.issue("ann", ("user",), None, "")
            sessions = [await fixture.broker.authenticate(text) for _ in range(9)]
            publishing = [asyncio.create_task(outcome(session)) for session in sessions]
            await eventually_async(lambda: fixture.broker.committer._waiting.qsize() == 2)
            await let_others_run()
            go_on.set()
            results = await asyncio.wait_for(asyncio.gather(*publishing), 20)
            assert {*results} == {"unavailable"}
