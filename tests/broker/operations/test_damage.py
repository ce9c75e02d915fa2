"""Damaged files: logged, shown, counted, and told to the subscribers concerned."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from unittest.mock import AsyncMock, patch

import pytest

from broker.authorization_clients import Collector, Data
from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    encoded,
    run_async,
    subscribe,
)
from broker.log_lines import log_lines
from tamis.errors import StorageError, StorageFullError
from tamis.storage import StateStore, Storage
from waiting import eventually_async

READER = "[roles.reader]\nsee = true\n"
FULL = StorageFullError(Path("state.db"), "the disk is full", advice="free space")


def damage(folder: Path, number: int) -> None:
    """Flip a bit of one event in the log."""
    text = b'{"n": %d}' % number
    [path] = [one for one in (folder / "data" / "log").iterdir() if text in one.read_bytes()]
    data = bytearray(path.read_bytes())
    data[data.index(text) + 2] ^= 1
    path.write_bytes(data)


async def publish_nine(fixture: BrokerFixture) -> None:
    for number in range(1, 10):
        await fixture.publish({"n": number})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker was here, and nine events that wait for `s`."""

    @run_async
    async def fill() -> None:
        async with broker_fixture(tmp_path, READER) as fixture:
            ann = await fixture.login("ann", "reader")
            await subscribe(ann, "n > 0", "s")
            await publish_nine(fixture)

    fill()
    return tmp_path


def metric(fixture: BrokerFixture, name: str) -> float | None:
    return fixture.broker.metrics.registry.get_sample_value(f"tamis_{name}")


@run_async
async def test_damage_found_at_the_start_is_logged_shown_and_counted(folder: Path) -> None:
    damage(folder, 3)
    with log_lines() as lines:
        async with broker_fixture(folder, READER) as fixture:
            status = fixture.broker.status()
            assert status["damage"]["lost_events"] == 1
            assert status["ready"]
            assert "1 event" in "; ".join(status["problems"])
            assert metric(fixture, "lost_events") == 1
            assert metric(fixture, "damaged_places") == 1
    warnings = [one for one in lines if one.levelname == "WARNING"]
    [warning] = [one for one in warnings if one.getMessage() == "the log is damaged"]
    assert "bytes are damaged; lost: 3" in warning.__dict__["where"]


@run_async
async def test_damage_that_happens_while_the_broker_runs_is_found_without_reading(
    folder: Path,
) -> None:
    with log_lines() as lines:
        async with broker_fixture(folder, READER) as fixture:
            await eventually_async(lambda: fixture.broker.status()["damage"]["verified_up_to"] == 9)
            assert fixture.broker.status()["damage"]["lost_events"] == 0
            damage(folder, 5)
            fixture.broker.damage_watch.begin_again()
            await eventually_async(lambda: metric(fixture, "lost_events") == 1)
            await eventually_async(
                lambda: any(one.getMessage() == "the log is damaged" for one in lines)
            )
            assert len(fixture.broker.health.problems) == 1


@run_async
async def test_a_subscriber_learns_of_its_damaged_events_once(folder: Path) -> None:
    damage(folder, 3)
    damage(folder, 4)
    async with broker_fixture(folder, READER) as fixture:
        ann, collector = await fixture.login("ann", "reader"), Collector()
        await ann.attach("s", collector, credit=100, acknowledge="manual")
        await eventually_async(lambda: len(collector.got) == 7)
        await eventually_async(lambda: sum(count for count, _ in collector.lost) == 2)
        assert {reason for _, reason in collector.lost} == {"damage"}
        await ann.acknowledge("s", up_to=9)
        await fixture.broker.acknowledgement_writer.settled()
    async with broker_fixture(folder, READER) as fixture:
        ann, collector = await fixture.login("ann", "reader"), Collector()
        await ann.attach("s", collector, credit=100, acknowledge="manual")
        assert (await ann.subscription("s")).dropped == 2
        await fixture.publish({"n": 10})
        await eventually_async(lambda: len(collector.got) == 1)
        assert collector.lost == []


@run_async
async def test_a_removed_file_of_the_log_is_damage_and_not_retention(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, READER) as fixture:
        fixture.broker.store.log._segment_bytes = 1
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "n > 0", "s")
        await publish_nine(fixture)
    min((tmp_path / "data" / "log").glob("*.log")).unlink()
    async with broker_fixture(tmp_path, READER) as fixture:
        ann, collector = await fixture.login("ann", "reader"), Collector()
        await ann.attach("s", collector, credit=100, acknowledge="manual")
        await eventually_async(lambda: collector.lost)
        assert {reason for _, reason in collector.lost} == {"damage"}

        # Whoever asks for all there is learns of it, too.
        first = fixture.broker.store.log.first_sequence
        assert first > 1
        for start in ("earliest", 1):
            assert (await ann.history("n > 0", start=start)).damaged == first - 1
        await subscribe(ann, "n > 0", "replayed", start="earliest")
        replayed = Collector()
        await ann.attach("replayed", replayed, credit=100, acknowledge="manual")
        await eventually_async(lambda: replayed.lost)
        assert replayed.lost == [(first - 1, "damage")]


@run_async
async def test_a_replay_tells_how_many_events_it_could_not_read(folder: Path) -> None:
    damage(folder, 2)
    damage(folder, 9)
    async with broker_fixture(folder, READER) as fixture:
        ann, collector = await fixture.login("ann", "reader"), Collector()
        await subscribe(ann, "n > 0", "replayed", start="earliest")
        await ann.attach("replayed", collector, credit=100, acknowledge="manual")
        await eventually_async(lambda: len(collector.got) == 7)
        await eventually_async(lambda: sum(count for count, _ in collector.lost) == 2)
        assert {reason for _, reason in collector.lost} == {"damage"}
        assert (await ann.subscription("replayed")).dropped == 2


@run_async
async def test_history_says_how_many_events_it_could_not_read(folder: Path) -> None:
    damage(folder, 2)
    damage(folder, 6)
    async with broker_fixture(folder, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        page = await ann.history("n > 0")
        assert (len(page.events), page.damaged) == (7, 2)
        assert (await ann.history("n > 0", start=3)).damaged == 1
        assert (await ann.history("n > 0", start=3, end=6)).damaged == 0
        page = await ann.history("n > 0", limit=3)
        assert ([one.sequence for one in page.events], page.next, page.damaged) == ([1, 3, 4], 5, 1)


@pytest.mark.parametrize("damaged", [(10, 11), (12,), (10, 11, 12)])
@run_async
async def test_events_that_were_never_matched_are_told_to_all_once(
    folder: Path, damaged: tuple[int, ...]
) -> None:
    async with broker_fixture(folder, READER) as fixture:
        copy = folder / "copy"
        # As if the broker had been killed: the state does not know of what follows.
        shutil.copytree(folder / "data", copy)
        for number in (10, 11, 12):
            await fixture.publish({"n": number})
        shutil.copytree(folder / "data" / "log", copy / "log", dirs_exist_ok=True)
        shutil.copy(folder / "data" / "log.count", copy)
    shutil.rmtree(folder / "data")
    copy.rename(folder / "data")
    for number in damaged:
        damage(folder, number)
    for _ in range(2):
        async with broker_fixture(folder, READER) as fixture:
            ann = await fixture.login("ann", "reader")
            assert (await ann.subscription("s")).dropped == len(damaged)
            assert (await ann.subscription("s")).pending == 12 - len(damaged)
            assert fixture.broker.store.log.next_sequence == 13


async def leave_unmatched(folder: Path, *documents: Data) -> None:
    """Store events as numbers 1 and on of a publisher, and kill the broker before it matches."""
    async with broker_fixture(folder, READER) as fixture:
        feed = await fixture.login("feed", "feed")
        with patch.object(fixture.broker.event_cache, "put", AsyncMock()):
            await feed.publish(encoded(documents), publisher="p", sequence=1)
            shutil.copytree(folder / "data", folder / "copy")
    shutil.rmtree(folder / "data")
    (folder / "copy").rename(folder / "data")


@run_async
async def test_a_publishers_numbers_stay_known_when_events_after_them_are_damaged(
    folder: Path,
) -> None:
    # Nobody gets the first, so there is no match to write its number with.
    await leave_unmatched(folder, {"n": -1}, {"n": 11})
    damage(folder, 11)
    async with broker_fixture(folder, READER):
        pass
    async with broker_fixture(folder, READER) as fixture:
        feed = await fixture.login("feed", "feed")
        receipt = await feed.publish(encoded([{"n": -1}]), publisher="p", sequence=1)
        assert receipt.duplicates == 1


@run_async
async def test_a_broker_opens_although_a_full_disk_keeps_it_from_counting_losses(
    folder: Path,
) -> None:
    await leave_unmatched(folder, {"n": 11}, {"n": 12})
    damage(folder, 11)
    with patch.object(StateStore, "_add_dropped", side_effect=FULL):
        opening = broker_fixture(folder, READER)
        fixture = await asyncio.wait_for(opening.__aenter__(), 20)
        assert not fixture.broker.health.ready
        ann = await fixture.login("ann", "reader")
        assert (await ann.subscription("s")).dropped == 0
    try:
        await eventually_async(lambda: fixture.broker.health.ready)
        assert (await ann.subscription("s")).dropped == 1
    finally:
        await opening.__aexit__(None, None, None)
    async with broker_fixture(folder, READER) as fixture:
        ann = await fixture.login("ann", "reader")
        assert (await ann.subscription("s")).dropped == 1


@run_async
async def test_a_broker_whose_state_lacks_changes_does_not_start(folder: Path) -> None:
    async with broker_fixture(folder, READER) as fixture:
        await fixture.login("bob", "reader")
        shutil.copytree(folder / "data", folder / "copy")
    shutil.rmtree(folder / "data")
    (folder / "copy").rename(folder / "data")
    (folder / "data" / "state.db-wal").unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match="a revoked token may be valid again; put back"):
            async with broker_fixture(folder, READER):
                pass
    with log_lines() as lines:
        with Storage.open(folder / "data", accept_lost_changes=True) as store:
            assert store.recovery.lost_changes == 1
        async with broker_fixture(folder, READER) as fixture:
            assert fixture.broker.health.ready
    assert not [one for one in lines if one.levelname == "WARNING"]


@run_async
async def test_damaged_rows_are_logged_shown_and_counted(folder: Path) -> None:
    path = folder / "data" / "state.db"
    path.write_bytes(path.read_bytes().replace(b"n > 0", b"n > 1"))
    with log_lines() as lines:
        async with broker_fixture(folder, READER) as fixture:
            assert fixture.broker.status()["damage"]["rows"] == 1
            assert metric(fixture, "damaged_rows") == 1
            assert fixture.broker.health.problems
    [warning] = [one for one in lines if one.getMessage() == "the state is damaged"]
    assert "subscriptions, number 1: the checksum of the row is wrong" in warning.__dict__["where"]
