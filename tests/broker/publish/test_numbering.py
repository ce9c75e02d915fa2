"""The numbers of publishers: what is acknowledged is in the log, whatever was refused before it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from broker.authorization_fixture import run_async
from clocks import SettableClock
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.local import open_bus
from tamis.broker.publish import publishers
from tamis.errors import RefusedError
from tamis.protocol.views import Receipt
from tamis.storage import NewRecord, PublisherTail
from waiting import eventually_async

POLICY = """
[roles.all]
publish = true
see = true
quotas = { publications = 10 }
[roles.brisk]
publish = true
quotas = { publications = 50 }
[roles.unlimited]
publish = true
see = true
"""


class Publisher(NamedTuple):
    """A session that publishes under one name."""

    broker: Broker
    session: Session
    clock: SettableClock

    async def publish(
        self, first: int, *values: int, name: str = "p", skip: bool = False
    ) -> Receipt:
        texts = [b'{"n":%d}' % value for value in values or (first,)]
        return await self.session.publish(texts, publisher=name, sequence=first, skip=skip)

    async def outcome(self, first: int, *values: int, name: str = "p", skip: bool = False) -> str:
        """Return `stored`, `duplicate`, or the refusal's code and the number it expects."""
        try:
            receipt = await self.publish(first, *values, name=name, skip=skip)
        except RefusedError as error:
            return error.code if error.expected is None else f"{error.code} {error.expected}"
        return "duplicate" if receipt.duplicates else "stored"

    async def pipelined(self, *numbers: int) -> list[str]:
        """Publish numbers one after the other, without waiting for answers."""
        return await asyncio.gather(*[self.outcome(number) for number in numbers])

    def stored(self) -> list[int]:
        log = self.broker.store.log
        return [record.publisher_sequence for record in log.read(log.first_sequence, 10_000)]


@asynccontextmanager
async def publishing(
    folder: Path, role: str = "unlimited", **settings_: Any
) -> AsyncIterator[Publisher]:
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    clock = SettableClock()
    settings = BrokerSettings(data=folder / "data", policy=policy, **settings_)
    async with await Broker.open(settings, clock=clock) as broker:
        token, _ = await broker.access_control.issue("ann", (role,), None, "")
        yield Publisher(broker, await broker.authenticate(token), clock)


@run_async
async def test_what_a_quota_refused_is_stored_when_it_is_sent_again(tmp_path: Path) -> None:
    async with publishing(tmp_path, "all") as ann:
        assert await ann.pipelined(*range(1, 11)) == ["stored"] * 10
        refused = await ann.pipelined(*range(11, 21))
        assert refused == ["too_many", *["out_of_order 11"] * 9]
        ann.clock.now += 1
        assert await ann.outcome(21) == "out_of_order 11"
        # What was refused for its number has cost nothing, so all of these fit.
        assert await ann.pipelined(*range(11, 21)) == ["stored"] * 10
        assert ann.stored() == [*range(1, 21)]


@run_async
async def test_the_first_publications_of_a_new_name_keep_their_order_too(tmp_path: Path) -> None:
    async with publishing(tmp_path, "all") as ann:
        await ann.publish(1, *range(10), name="other")
        assert await ann.pipelined(1, 2, 3) == ["too_many", "out_of_order 1", "out_of_order 1"]
        ann.clock.now += 1
        assert await ann.pipelined(2, 1, 2) == ["out_of_order 1", "stored", "stored"]


@run_async
async def test_a_number_that_was_never_stored_is_no_duplicate(tmp_path: Path) -> None:
    async with publishing(tmp_path) as ann:
        assert await ann.outcome(10) == "stored"
        assert await ann.outcome(7) == "out_of_order 11"
        assert await ann.outcome(12) == "out_of_order 11"
        # Neither in part.
        assert await ann.outcome(9, 9, 10, 11) == "out_of_order 11"
        assert await ann.outcome(10, 10, 11) == "duplicate"
        with pytest.raises(RefusedError, match=r"number 13 .* the next one is 12"):
            await ann.publish(13)
        assert ann.stored() == [10, 11]


@run_async
async def test_numbers_are_left_out_only_on_purpose(tmp_path: Path) -> None:
    async with publishing(tmp_path) as ann:
        await ann.publish(1)
        assert await ann.outcome(5, skip=True) == "stored"
        assert await ann.outcome(5, skip=True) == "duplicate"
        assert await ann.outcome(1) == "duplicate"
        assert await ann.outcome(3) == await ann.outcome(4, skip=True) == "out_of_order 6"
        assert ann.stored() == [1, 5]


@run_async
async def test_a_number_used_again_for_another_event_is_a_conflict(tmp_path: Path) -> None:
    async with publishing(tmp_path) as ann:
        await ann.publish(1, 1, 2, 3)
        assert await ann.outcome(1, 1, 2, 3) == "duplicate"
        with pytest.raises(RefusedError, match="number 2 of this publisher is stored") as refused:
            await ann.publish(1, 1, 20, 3, 4)
        assert refused.value.code == "conflict"
        assert ann.stored() == [1, 2, 3]


@run_async
async def test_numbers_are_known_after_a_restart(tmp_path: Path) -> None:
    async with publishing(tmp_path) as ann:
        await ann.publish(10, 1, 2, 3)
        await ann.publish(20, 4, 5, skip=True)
    async with publishing(tmp_path) as ann:
        assert await ann.outcome(7) == await ann.outcome(15) == "out_of_order 22"
        assert await ann.outcome(23) == "out_of_order 22"
        assert await ann.outcome(10, 1, 2, 3) == await ann.outcome(20, 4, 5) == "duplicate"
        assert await ann.outcome(20, 4, 6) == "conflict"
        assert await ann.outcome(22) == "stored"


@run_async
async def test_many_gaps_are_remembered_as_few_and_hide_no_loss(tmp_path: Path) -> None:
    async with publishing(tmp_path) as ann:
        for number in range(1, 601, 2):
            await ann.publish(number, skip=True)
        odd = [await ann.outcome(number) for number in range(1, 601, 2)]
        even = [await ann.outcome(number) for number in range(2, 600, 2)]
        assert even == ["out_of_order 600"] * 299
        # Old ones may be refused; none that was left out is taken for a duplicate.
        assert set(odd) == {"duplicate", "out_of_order 600"}
        assert odd[-100:] == ["duplicate"] * 100


@run_async
async def test_memory_for_latest_events_is_bounded_and_numbers_are_known_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishers, "MAX_ACTIVE_NAMES", 3)
    async with publishing(tmp_path) as ann:
        for name in "abcdef":
            await ann.publish(1, 7, name=name)
        kept = ann.broker.numbering
        assert sum(bool(tail.recent) for tail in kept.tails.values()) == 3
        assert [await ann.outcome(1, 8, name=name) for name in "af"] == ["duplicate", "conflict"]
        assert await ann.outcome(3, name="a") == "out_of_order 2"


DAY = 86_400.0


@run_async
async def test_the_names_of_a_principal_are_limited_and_idle_ones_are_forgotten(
    tmp_path: Path,
) -> None:
    limits: dict[str, Any] = {
        "publishers_per_principal": 3,
        "publisher_age": 30 * DAY,
        "retention_age": DAY,
    }
    async with publishing(tmp_path, **limits) as ann:
        for name in "abc":
            await ann.publish(1, 7, name=name)
        with pytest.raises(RefusedError, match="ann has 3 publisher names, which is the limit"):
            await ann.publish(1, name="d")
        # Names without numbers are not kept, and known ones can be used.
        assert (await ann.publish(0, 1, name="e")).count == 1
        assert await ann.outcome(2, name="a") == "stored"
        bob_token, _ = await ann.broker.access_control.issue("bob", ("unlimited",), None, "")
        bob = ann._replace(session=await ann.broker.authenticate(bob_token))
        assert await bob.outcome(1, name="d") == "stored"
        ann.clock.now += 20 * DAY
        await ann.publish(3, name="a")
        await ann.broker.forget_publishers()
        assert await ann.outcome(1, name="d") == "too_many"
        ann.clock.now += 11 * DAY
        await ann.broker.forget_publishers()
        assert sorted(ann.broker.numbering.tails) == ["ann/a"]
        assert await ann.outcome(5, name="b") == "stored"
    async with publishing(tmp_path, **limits) as ann:
        assert sorted(ann.broker.numbering.tails) == ["ann/a", "ann/b"]
        assert await ann.outcome(4, name="a") == await ann.outcome(1, name="c") == "stored"
        assert await ann.outcome(1, name="d") == "too_many"


@run_async
async def test_a_name_with_a_waiting_publication_is_not_forgotten(tmp_path: Path) -> None:
    async with publishing(tmp_path, publisher_age=30 * DAY) as ann:
        await ann.publish(1)
        ann.clock.now += 31 * DAY
        log, begun, may_go_on = ann.broker.store.log, threading.Event(), threading.Event()
        append = log.append

        def append_slowly(records: Sequence[NewRecord], time: float) -> range:
            begun.set()
            may_go_on.wait(10)
            return append(records, time)

        nobody = patch.object(log, "_beside", None)
        with patch.object(log, "append", append_slowly), nobody:
            before = asyncio.create_task(ann.session.publish([b'{"n":0}']))
            await eventually_async(begun.is_set)
            repeated = asyncio.create_task(ann.outcome(1))
            await eventually_async(ann.broker.committer._waiting.qsize)
            await ann.broker.forget_publishers()
            may_go_on.set()
            await before
            assert await repeated == "duplicate"
        await ann.broker.forget_publishers()
        assert not ann.broker.numbering.tails
        assert not ann.broker.numbering.waiting


@run_async
async def test_a_clock_that_jumps_makes_no_name_forgotten(tmp_path: Path) -> None:
    async with publishing(tmp_path, publisher_age=30 * DAY) as ann:
        await ann.publish(1)
        ann.clock.wrong_by += 365 * DAY
        await ann.broker.forget_publishers()
        assert await ann.outcome(1) == "duplicate"


@run_async
async def test_a_client_over_its_quota_publishes_everything_in_order(tmp_path: Path) -> None:
    async with publishing(tmp_path, "brisk") as ann:
        token, _ = await ann.broker.access_control.issue("ann", ("brisk",), None, "")
        settings = ann.broker.settings
    async with open_bus(settings=settings, token=token, patient=True) as bus:
        # As many frames as there are publications at first; then they share frames.
        receipts = await asyncio.gather(*[bus.publish({"n": n}) for n in range(120)])
        assert sorted(receipt.first or 0 for receipt in receipts) == [*range(1, 121)]
        # A client without patience reports what it could not publish, and goes on.
        async with bus.connect(token=token) as hasty:
            many = [hasty.publish({"n": n}) for n in range(200)]
            results = await asyncio.gather(*many, return_exceptions=True)
            refused = [n for n, result in enumerate(results) if isinstance(result, RefusedError)]
        events = bus.broker.store.log.read(121, 1_000)
        assert refused
        assert [record.payload for record in events] == [
            b'{"n":%d}' % n for n in range(200) if n not in refused
        ]


def test_nothing_is_kept_of_principals_whose_names_are_forgotten() -> None:
    numbers = publishers.Numbering({"ann/a": PublisherTail(3, time=1.0)})
    numbers.note_refusal("bob/b", 1, 1)
    numbers.note_stored({"bob/b": PublisherTail(1)}, time=1.0)
    assert [*numbers.forget(2.0)] == ["ann/a", "bob/b"]
    assert not numbers._names
    assert not numbers._refused
