"""Events of other brokers in the log, and the id of this one."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from storage.samples import UNSYNCED, everything, new_origin, new_records, subscription
from tamis.errors import LimitError
from tamis.storage import EventLog, EventOrigin, NewRecord, PublisherTail, Storage, StoredRoute
from tamis.storage.files import FilePool
from tamis.storage.segments import read_header

HERE, THERE = "0f" * 16, "a1" * 16
# Three events, as version 1 of the log wrote them.
VERSION_1 = bytes.fromhex(
    "74616d6973206c6f670d0a0001000102030401000000000000000000000000405940000004c0ea9d01020304"
    "468bb2033a000000010000000000000000000000008059400700000000000000000000000200000001030061"
    "6e6e7b226e223a20317d01020304d927bdb83c00000002000000000000000000000000805940000000000000"
    "00000100000002000000020500616e6e2f787b226e223a20327d01020304e8819a552f000000030000000000"
    "00000000000000c0594000000000000000000000000001000000010000"
)
VERSION_1_NAME = "00000000000000000001-01020304.log"


def forwarded(sequence: int, broker: str = THERE, publisher: str = "ann") -> NewRecord:
    return NewRecord(publisher, 5, 1, b"x", EventOrigin(broker, sequence, 7.5, HERE))


def test_an_origin_is_read_as_it_was_written(quick_path: Path) -> None:
    log = EventLog(quick_path, files=UNSYNCED)
    given = [forwarded(12), NewRecord("ann", 6, 2, b"y"), forwarded(2**63 - 1, HERE)]
    log.append(given)
    log.close()
    log = EventLog(quick_path, files=UNSYNCED)
    found = everything(log)
    assert [one[2:] for one in found] == [tuple(one) for one in given]
    assert [one.origin is None for one in found] == [False, True, False]
    with pytest.raises(LimitError, match="a sequence at another broker"):
        log.append([forwarded(2**63)])
    log.close()


def test_a_log_of_version_1_is_read_and_goes_on_in_another_segment(quick_path: Path) -> None:
    path = quick_path / VERSION_1_NAME
    path.write_bytes(VERSION_1)
    wanted = [
        (1, 102.0, "ann", 7, 1, b'{"n": 1}', None),
        (2, 102.0, "ann/x", 0, 2, b'{"n": 2}', None),
        (3, 103.0, "", 0, 1, b"", None),
    ]
    for _ in range(2):
        log = EventLog(quick_path, files=UNSYNCED)
        assert everything(log) == wanted
        assert (log.next_sequence, log.damage.places) == (4, ())
        log.close()
    log = EventLog(quick_path, files=UNSYNCED)
    log.append([forwarded(12)])
    assert len(everything(log)) == 4
    log.close()
    assert path.read_bytes() == VERSION_1
    versions = [
        header.version
        for one in sorted(quick_path.glob("*.log"))
        if (header := read_header(one, FilePool(UNSYNCED))) is not None
    ]
    assert versions == [1, 2]
    log = EventLog(quick_path, files=UNSYNCED)
    assert (len(everything(log)), log.damage.places) == (4, ())
    log.close()


def test_an_empty_segment_of_version_1_becomes_one_of_this_version(quick_path: Path) -> None:
    (quick_path / VERSION_1_NAME).write_bytes(VERSION_1[:44])
    log = EventLog(quick_path, files=UNSYNCED)
    assert (everything(log), log.next_sequence) == ([], 1)
    log.append([forwarded(12)])
    log.close()
    log = EventLog(quick_path, files=UNSYNCED)
    assert [one.origin for one in everything(log)] == [forwarded(12).origin]
    log.close()


def test_the_id_of_a_broker_is_made_once(quick_path: Path) -> None:
    ids = set()
    for _ in range(2):
        with Storage.open(quick_path / "one") as store:
            ids.add(store.state.broker_id)
            assert store.recovery.is_clean
    [broker_id] = ids
    assert len(bytes.fromhex(broker_id)) == 16
    with Storage.open(quick_path / "other") as store:
        assert store.state.broker_id != broker_id


@pytest.mark.parametrize("matched", [0, 2, 4])
def test_the_last_sequence_of_each_origin_survives_a_restart(
    quick_path: Path, matched: int
) -> None:
    """From the state as far as the log was matched, and from the log beyond."""
    events = [forwarded(12), forwarded(3, HERE), forwarded(15), NewRecord("ann", 6, 1, b"y")]
    tails = {
        0: {},
        2: {f"/{THERE}": PublisherTail(12), f"/{HERE}": PublisherTail(3)},
        4: {f"/{THERE}": PublisherTail(15), f"/{HERE}": PublisherTail(3)},
    }
    with Storage.open(quick_path) as store:
        store.log.append(events)
        store.state.commit_matches(matched, (), tails[matched])
    with Storage.open(quick_path) as store:
        last = {name: tail.last for name, tail in store.publishers.items()}
        wanted = {f"/{THERE}": 15, f"/{HERE}": 3}
        assert last == (wanted if matched == 4 else wanted | {"ann": 6})


def test_routes_are_kept_with_their_link(quick_path: Path) -> None:
    with Storage.open(quick_path) as store:
        link, other = store.state.add_subscriptions([subscription("a"), subscription("b")])
        numbers = store.state.reserve_numbers(3)
        routes = [StoredRoute(n, link, f"d{n}", b"[1]") for n in numbers[:2]]
        kept = StoredRoute(numbers[2], other, "d", b"[1]")
        store.state.change_routes([*routes, kept], [])
        store.state.change_routes([], [routes[0].number])
    with Storage.open(quick_path) as store:
        assert store.recovery.is_clean
        assert store.state.routes() == [routes[1], kept]
        # A number is never used twice.
        assert store.state.reserve_numbers(1)[0] > kept.number
        store.state.remove_subscription(link)
        assert store.state.routes() == [kept]
    with Storage.open(quick_path) as store:
        assert store.recovery.is_clean


def test_origins_of_random_records_are_random() -> None:
    """The suites that damage logs and cut the power have records with origins."""
    assert new_origin(Random(1)) != new_origin(Random(2))
    found = {one.origin is None for one in new_records(Random(1), 20)}
    assert found == {True, False}
