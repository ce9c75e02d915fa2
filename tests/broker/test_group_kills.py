"""A group handles every event, in order per key, however often members and the broker are killed.

Members note in journals what they handle, with the time of one clock for all processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

import tamis
from broker.group_member import FILTER, GROUP, KEY
from broker.server import ServerProcess
from tamis.client.connection import Backoff
from waiting import eventually_async

MEMBERS = 8
KEYS = 40
BATCH = 20
SCRIPT = Path(__file__).with_name("group_member.py")


class Note(NamedTuple):
    """An event that a member has handled, by when."""

    ended: int
    began: int
    key: str
    number: int
    attempt: int


class GroupKilling:
    """A publisher, a broker and members; some of them are killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.server = ServerProcess(folder / "server", {})
        self.folder = folder
        self.random = Random(seed)
        self.members: list[subprocess.Popen[bytes]] = []
        self.published: dict[str, int] = {}
        """The last number of each key whose publication was acknowledged."""
        self.is_over = False
        self.kills: Counter[str] = Counter()

    async def run(self, victims: list[str]) -> None:
        self.server.start()
        self.server.settings["port"] = self.server.port
        for number in range(MEMBERS):
            self.members.append(self._start_member(number))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._publish())
                await eventually_async(lambda: len(self.notes()) > 100, timeout=120)
                for victim in victims:
                    await self._kill(victim)
                    await asyncio.sleep(self.random.uniform(0.05, 0.6))  # a random moment
                self.is_over = True
            await eventually_async(self._has_all, "events are lost", timeout=120)
            await eventually_async(self._is_idle, "events are pending", timeout=60)
        finally:
            for member in self.members:
                member.kill()
                member.wait()
            self.server.stop()

    def _start_member(self, number: int) -> subprocess.Popen[bytes]:
        arguments = [self.server.url, str(self.folder / f"journal-{number}")]
        folders = os.pathsep.join(path for path in sys.path if path)
        return subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, str(SCRIPT), *arguments],
            env={**os.environ, "PYTHONPATH": folders},
            stderr=subprocess.DEVNULL,
        )

    async def _kill(self, victim: str) -> None:
        self.kills[victim] += 1
        if victim == "broker":
            await asyncio.to_thread(self.server.kill)
            await asyncio.to_thread(self.server.start)
            return
        number = self.random.randrange(MEMBERS)
        self.members[number].kill()
        self.members[number].wait()
        self.members[number] = self._start_member(number)

    async def _publish(self) -> None:
        numbers = Counter[str]()
        url = self.server.url
        async with tamis.connect(url, publisher="p", sequence=1, timeout=120) as bus:
            while not self.is_over:
                batch = []
                for _ in range(BATCH):
                    key = f"k{self.random.randrange(KEYS)}"
                    numbers[key] += 1
                    batch.append({KEY: key, "n": numbers[key]})
                await bus.publish_many(batch)
                self.published |= numbers
                await asyncio.sleep(0.1)  # a pace that the members can follow

    def notes(self) -> list[Note]:
        """Return what members have handled, in the order of time."""
        found = []
        for journal in self.folder.glob("journal-*"):
            for line in journal.read_text().splitlines(keepends=True):
                # A member that is killed may not have written all of the last one.
                if line.endswith("\n"):
                    ended, began, key, number, attempt = line.split()
                    found.append(Note(int(ended), int(began), key, int(number), int(attempt)))
        return sorted(found)

    def _has_all(self) -> bool:
        handled = {(one.key, one.number) for one in self.notes()}
        return all(
            (key, number) in handled
            for key, last in self.published.items()
            for number in range(1, last + 1)
        )

    async def _is_idle(self) -> bool:
        with contextlib.suppress(tamis.TamisError):
            async with tamis.connect(self.server.url) as bus:
                return (await bus.subscription(GROUP)).pending == 0
        return False


def check_firsts(notes: list[Note]) -> None:
    """Check that events of a key were handled in order, the first time that they were."""
    by_key = defaultdict[str, list[int]](list)
    for one in notes:
        by_key[one.key].append(one.number)
    for key, numbers in by_key.items():
        firsts = list(dict.fromkeys(numbers))
        assert firsts == [*range(1, len(firsts) + 1)], f"{key}: out of order"


def check_strictly(notes: list[Note]) -> None:
    """Check that nobody handled an event of a key before another had done with the last."""
    last: dict[str, Note] = {}
    for one in notes:
        before = last.get(one.key)
        if before is not None:
            assert one.number in (before.number, before.number + 1), f"{one.key}: out of order"
            assert before.ended <= one.began, f"{one.key}: two members at a time"
        last[one.key] = one


@pytest.fixture(autouse=True)
def _impatient_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backoff, "next", lambda _: 0.05)


def test_a_disorder_is_found_out() -> None:
    notes = [Note(2, 1, "k", 1, 1), Note(4, 3, "k", 2, 1)]
    check_firsts(notes)
    check_strictly(notes)
    with pytest.raises(AssertionError, match="out of order"):
        check_firsts([notes[1], notes[0]])
    with pytest.raises(AssertionError, match="two members"):
        check_strictly([notes[0], notes[1]._replace(began=1)])
    with pytest.raises(AssertionError, match="out of order"):
        check_strictly([*notes, notes[0]._replace(began=5, ended=6)])


@pytest.mark.slow
def test_a_group_handles_every_event_through_fifty_kills(tmp_path: Path) -> None:
    killing = GroupKilling(tmp_path, 1)
    victims = ["member", "broker", "member"] * 16 + ["member", "broker"]
    asyncio.run(asyncio.wait_for(killing.run(victims), 900))
    notes = killing.notes()
    check_firsts(notes)
    report("kills of members and broker", killing, notes)
    assert killing.kills == {"member": 33, "broker": 17}
    assert any(one.attempt > 1 for one in notes)


@pytest.mark.slow
def test_kills_of_members_alone_leave_every_key_in_strict_order(tmp_path: Path) -> None:
    killing = GroupKilling(tmp_path, 2)
    asyncio.run(asyncio.wait_for(killing.run(["member"] * 50), 900))
    notes = killing.notes()
    check_strictly(notes)
    report("kills of members", killing, notes)
    assert any(one.attempt > 1 for one in notes)


def report(what: str, killing: GroupKilling, notes: list[Note]) -> None:
    again = len(notes) - len({(one.key, one.number) for one in notes})
    print(
        f"\n{what}: {dict(killing.kills)}, {MEMBERS} members of {FILTER!r}, "
        f"{sum(killing.published.values()):,} events of {len(killing.published)} keys, 0 lost, "
        f"0 out of order; {again:,} handled again"
    )
