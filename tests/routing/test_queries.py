"""The query router in a simulated overlay: what comes is what all concerned sources hold."""

from __future__ import annotations

import msgspec
import pytest

from seeds import seeds
from tamis import attr, intersects
from tamis.filters.structure import to_structure
from tamis.routing.aggregates import Aggregate, StateFrame
from tamis.routing.data_advertisements import (
    MAX_COMPARISONS_AT_ONCE,
    DataAdvertisement,
    DataAdvertisements,
)
from tamis.routing.queries import DOWN, GREEDY, LATE, LOST, QueryRouter
from tamis.routing.query_messages import (
    DataAdvertised,
    DeliverRows,
    FinishQuery,
    QueryAsked,
    QueryCancelled,
    QueryDone,
    QueryInstruction,
    QueryMessage,
    QueryRows,
    RefusePeer,
    SendToPeer,
    StopSource,
)
from tamis.routing.running_query import LinkCounts, QueryBounds

from .query_world import ModelQuery, QueryWorld, check_complete, check_partial


def check_nobody_else_was_asked(world: QueryWorld) -> None:
    for source, filter_ in world.asked:
        assert intersects(source.advertised, filter_), (source.name, filter_)


def check_empty(world: QueryWorld) -> None:
    """Check that nothing is left once everybody has gone."""
    for number in [*world.sources]:
        world.remove_source(number)
    world.settle()
    assert all(router.is_idle for router in world.routers)


@pytest.mark.parametrize("seed", seeds(2_000, 8))
def test_answers_are_what_all_concerned_sources_hold(seed: int) -> None:
    world = QueryWorld(seed, brokers=1 + seed % 9)
    for _ in range(4):
        for _ in range(world.rng.randrange(4)):
            world.add_source()
        if world.sources and world.rng.random() < 0.4:
            world.change_source()
        if world.sources and world.rng.random() < 0.4:
            world.remove_source(world.rng.choice([*world.sources]))
        world.settle()
        queries = [world.ask() for _ in range(3)]
        world.settle()
        for query in queries:
            check_complete(query)
        check_nobody_else_was_asked(world)
        world.asked.clear()
    check_empty(world)


def happen(world: QueryWorld, cut: set[int]) -> None:
    """Let something happen: a loss, a repair, a query, or progress."""
    draw, whole = world.rng.random(), [n for n in world.parent if n not in cut]
    if draw < 0.08 and whole:
        child = world.rng.choice(whole)
        cut.add(child)
        world.cut(child, world.parent[child])
    elif draw < 0.16 and cut:
        child = cut.pop()
        world.connect(child, world.parent[child])
    elif draw < 0.2 and world.sources:
        world.remove_source(world.rng.choice([*world.sources]))
    elif draw < 0.24:
        world.pass_time(world.rng.choice((0.1, 1.0)))
    elif draw < 0.3:
        world.ask(seconds=world.rng.choice((0.5, 5.0)))
    elif draw < 0.33 and world.queries:
        world.cancel(*world.rng.choice([*world.queries]))
    else:
        for _ in range(world.rng.randrange(12)):
            world.step()


@pytest.mark.parametrize("seed", seeds(4_000, 12))
def test_with_losses_answers_are_partial_and_say_so(seed: int) -> None:
    world = QueryWorld(seed, brokers=2 + seed % 9)
    for _ in range(6):
        world.add_source()
    world.settle()
    cut: set[int] = set()
    for _ in range(60):
        happen(world, cut)
    world.pass_time(60.0)
    world.pass_time(60.0)
    world.settle()
    for query in world.queries.values():
        if not query.is_cancelled:
            check_partial(query, world.removed)
    for child in cut:
        world.connect(child, world.parent[child])
    world.settle()
    later = [world.ask() for _ in range(3)]
    world.settle()
    for query in later:
        check_complete(query)
    assert not any(source.answering for source in world.sources.values())
    check_empty(world)


def test_a_source_is_found_at_every_moment_while_the_one_that_covers_it_goes() -> None:
    for messages in range(12):
        world = QueryWorld(0, brokers=3, line=True)
        wide = world.put_source(0, [{"x": 1}], attr("x") < 10)
        narrow = world.put_source(0, [{"x": 2}], attr("x") == 2)
        world.settle()
        world.remove_source(wide.number)
        for _ in range(messages):
            world.carry()
        query = world.ask_for(2, attr("x") == 2)
        world.settle()
        assert query.report is not None
        assert query.report.answered == (narrow.name,)
        assert query.rows == [{"x": 2}]


def test_cancelling_reaches_the_sources() -> None:
    world = QueryWorld(0, brokers=4, line=True)
    source = world.put_source(0, [{"x": 1}], attr("x") == 1)
    world.settle()
    world.ask_for(3, attr("x") == 1)
    while world.carry():
        pass
    assert source.answering
    world.cancel(3, 1)
    while world.carry():
        pass
    assert not source.answering
    check_empty(world)


def test_enough_rows_stop_the_sources() -> None:
    world = QueryWorld(0, brokers=3, line=True)
    first = world.put_source(1, [{"x": 1}], attr("x") == 1)
    other = world.put_source(0, [{"x": 1}], attr("x") == 1)
    world.settle()
    query = world.ask_for(2, attr("x") == 1, limit=1)
    while world.carry():
        pass
    world.work(first)
    while world.carry():
        pass
    assert query.rows == [{"x": 1}]
    assert query.report is not None
    assert query.report.cut
    assert not other.answering


def test_a_lost_link_and_a_late_source_are_named_with_the_reason() -> None:
    world = QueryWorld(0, brokers=3, line=True)
    world.put_source(0, [{"x": 1}], attr("x") == 1)
    late = world.put_source(2, [{"x": 1}], attr("x") == 1)
    world.settle()
    query = world.ask_for(1, attr("x") == 1, seconds=5.0)
    while world.carry():
        pass
    world.cut(1, 0)
    assert not query.rows
    world.pass_time(5.0)
    while world.carry():
        pass
    assert query.report is not None
    assert query.report.missing == {"broker 0": LOST, "broker 2": LATE}
    assert not late.answering
    down = world.ask_for(1, attr("x") == 1)
    world.settle()
    assert down.report is not None
    assert down.report.missing == {"broker 0": DOWN}
    assert down.report.answered == (late.name,)


def test_a_source_far_away_is_named_by_its_own_broker() -> None:
    world = QueryWorld(0, brokers=4, line=True)
    source = world.put_source(0, [{"x": 1}], attr("x") == 1)
    world.settle()
    query = world.ask_for(3, attr("x") == 1, seconds=10.0)
    while world.carry():
        pass
    # Each broker keeps some of the time for itself, so the nearest to the source is done first.
    for _ in range(100):
        world.pass_time(0.1)
        while world.carry():
            pass
    assert query.report is not None
    assert query.report.missing == {source.name: LATE}


def test_a_source_that_sends_without_credit_is_stopped() -> None:
    router = QueryRouter("broker", QueryBounds(window=10, least_window=10, overdraft=100))
    router.source_added(1, "greedy", DataAdvertisement.of(attr("x") > 0))
    number, _ = router.ask(attr("x") > 0, seconds=10, credit=0)
    assert router.source_rows(1, number, [b"{" + b" " * 98 + b"}"]) == []
    todo = router.source_rows(1, number, [b'{"x":1}', b'{"x":1}'])
    assert StopSource(1, number) in todo
    rows = [one for one in router.credit(number, 1000) if isinstance(one, FinishQuery)]
    assert rows[0].report.missing == {"greedy": GREEDY}


def test_who_reads_slowly_has_all_the_time_that_was_asked_for() -> None:
    router = QueryRouter("broker", QueryBounds())
    router.source_added(1, "quick", DataAdvertisement.of(attr("x") > 0))
    number, _ = router.ask(attr("x") > 0, seconds=60, credit=0)
    router.source_rows(1, number, [b'{"x":1}'])
    router.source_finished(1, number)
    router.time_passed(59.0)
    todo = router.credit(number, 1000)
    assert [one.rows for one in todo if isinstance(one, DeliverRows)] == [[b'{"x":1}']]
    assert [one.report.cut for one in todo if isinstance(one, FinishQuery)] == [False]


WRONG_MESSAGES: list[tuple[QueryMessage, str]] = [
    (DataAdvertised(digest="one:x", filter=[1, ["true"]]), "is not the digest of the filter"),
    (DataAdvertised(digest="one:x", filter=["nonsense"]), "its message DataAdvertised is not"),
    (QueryAsked(query=1, filter=5, seconds=1.0, credit=0), "its message QueryAsked is not valid"),
    (QueryAsked(query=1, filter=[1, ["true"]], seconds=-1.0, credit=0), "not a time to wait"),
    (
        QueryAsked(
            query=1, filter=[1, ["true"]], seconds=1.0, credit=0, aggregate=Aggregate("top", "x")
        ),
        "aggregate is 'top x'; it must be union, count",
    ),
]


@pytest.mark.parametrize(("message", "reason"), WRONG_MESSAGES)
def test_a_peer_that_says_what_makes_no_sense_is_refused(
    message: QueryMessage, reason: str
) -> None:
    router = QueryRouter("broker")
    router.link_opened("peer")
    [refused] = router.receive("peer", message)
    assert isinstance(refused, RefusePeer)
    assert reason in refused.reason


def test_a_peer_can_neither_advertise_nor_ask_without_bounds() -> None:
    router = QueryRouter("broker", QueryBounds(queries_per_peer=2, advertisements_per_peer=2))
    router.source_added(1, "here", DataAdvertisement.of(attr("x") > 0))
    router.link_opened("peer")
    for n in range(3):
        advertisement = DataAdvertisement.of(attr("x") == n)
        structure = to_structure(advertisement.filter)
        message = DataAdvertised(digest=advertisement.digest, filter=structure)
        todo = router.receive("peer", message)
        assert [type(one) for one in todo] == ([RefusePeer] if n == 2 else [])
    asked = [QueryAsked(query=n, filter=[1, ["true"]], seconds=9.0, credit=0) for n in (1, 2, 3)]
    *_, last = [router.receive("peer", one) for one in asked]
    assert last == [
        SendToPeer(
            "peer", QueryDone(query=3, missing={"broker": "it has too many queries to answer"})
        )
    ]
    assert isinstance(router.receive("peer", asked[0])[0], RefusePeer)


def test_who_may_not_see_all_has_rows_aggregated_after_what_is_hidden() -> None:
    world = QueryWorld(0, brokers=2, line=True)
    world.put_source(0, [{"x": 1, "y": 5}, {"x": 2, "y": 7}], attr("x") > 0)
    world.settle()

    def sight(row: bytes) -> bytes | None:
        return row if b'"x": 1' in row else None

    query = ModelQuery(attr("x") > 0, Aggregate.parse("sum y"), None, 1000)
    number, todo = world.routers[1].ask(
        query.filter, seconds=9, credit=1000, aggregate=query.aggregate, sight=sight
    )
    world.queries[1, number] = query
    world.do(1, todo)
    world.settle()
    assert query.rows == [{"sum": 5}]


def test_links_are_counted() -> None:
    world = QueryWorld(0, brokers=3, line=True)
    world.put_source(0, [{"x": 1}, {"x": 1}], attr("x") == 1)
    world.settle()
    for x in (1, 2, 1):
        world.ask_for(1, attr("x") == x)
        world.settle()
    assert world.routers[1].counts("broker 0") == LinkCounts(2, 1, 4)
    assert world.routers[1].counts("broker 2") == LinkCounts(0, 3, 0)


def asked_between_peers(aggregate: Aggregate | None = None) -> QueryRouter:
    """Return a router that a peer has asked query 1, and that asks two others as query 1."""
    router = QueryRouter("broker", QueryBounds(largest_row=1_000))
    everything = DataAdvertisement.of(attr("x") > 0)
    message = DataAdvertised(digest=everything.digest, filter=to_structure(everything.filter))
    router.link_opened("asker")
    for peer in ("one", "two"):
        router.link_opened(peer)
        router.receive(peer, message)
    asked = QueryAsked(
        query=1, filter=message.filter, seconds=9.0, credit=10**6, aggregate=aggregate
    )
    router.receive("asker", asked)
    return router


def sent_to_asker(todo: list[QueryInstruction]) -> list[QueryMessage]:
    """Return what the asker is sent, as it reads it."""
    sent = [one.message for one in todo if isinstance(one, SendToPeer) and one.peer == "asker"]
    return [msgspec.json.decode(msgspec.json.encode(one), type=type(one)) for one in sent]


@pytest.mark.parametrize(
    ("aggregate", "claimed"),
    [
        (Aggregate("count"), StateFrame(count=2**63 - 1)),
        (Aggregate("sum", "x"), StateFrame(count=2**63 - 1, total="f" * 1_000)),
        (Aggregate("sum", "x"), StateFrame(count=1, total="-" + "f" * 999)),
    ],
)
def test_what_peers_claim_can_be_passed_on(aggregate: Aggregate, claimed: StateFrame) -> None:
    router = asked_between_peers(aggregate)
    done = QueryDone(query=1, state=claimed, unnamed=2**53)
    assert router.receive("one", done) == []
    [last] = sent_to_asker(router.receive("two", done))
    assert isinstance(last, QueryDone)
    assert last.unnamed == 2**53


def test_long_reports_of_several_peers_fit_into_one_frame() -> None:
    router = asked_between_peers()
    for peer in ("one", "two"):
        missing = {f"{peer} {number}".ljust(1_000): "\x00" * 500 for number in range(1_000)}
        todo = router.receive(peer, QueryDone(query=1, missing=missing))
    [last] = sent_to_asker(todo)
    assert isinstance(last, QueryDone)
    assert len(msgspec.json.encode(last)) < 2 * 1024**2
    assert len(last.missing) + last.unnamed == 2_000


def test_a_row_that_is_too_large_ends_the_answer_of_the_peer_that_sent_it() -> None:
    router = asked_between_peers()
    row = msgspec.Raw(b'{"x":1,"y":"%s"}' % (b"y" * 1_000))
    todo = router.receive("one", QueryRows(query=1, rows=[row]))
    assert todo == [SendToPeer("one", QueryCancelled(query=1))]
    [last] = sent_to_asker(router.receive("two", QueryDone(query=1, answered=["source"])))
    assert last == QueryDone(
        query=1,
        answered=["source"],
        missing={"one": "it sent a row of 1,014 bytes; broker takes 1,000"},
    )


def test_a_peer_that_comes_back_is_told_of_many_sources_without_many_comparisons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = list[DataAdvertisement]()
    covers = DataAdvertisement.covers

    def counted(wide: DataAdvertisement, narrow: DataAdvertisement) -> bool:
        compared.append(wide)
        return covers(wide, narrow)

    advertisements = DataAdvertisements()
    for number in range(100):
        advertisements.put(number, DataAdvertisement.of(attr("x") == number))
    advertisements.open("peer", ())
    monkeypatch.setattr(DataAdvertisement, "covers", counted)
    added, removed = advertisements.changes("peer")
    assert (len(added), removed) == (100, [])
    assert len(compared) <= MAX_COMPARISONS_AT_ONCE
