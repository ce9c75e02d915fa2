"""A model of an overlay for queries: brokers in a random tree, links, sources, and who asks.

The routers are the product's. Links keep messages in order, and each is carried as JSON, as over a
network. What happens next is drawn by a seed.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from random import Random
from typing import Any

import msgspec

from tamis import intersects
from tamis.filters import Filter, all_of, any_of, attr
from tamis.routing.aggregates import Aggregate
from tamis.routing.data_advertisements import DataAdvertisement
from tamis.routing.queries import QueryRouter
from tamis.routing.query_messages import (
    QUERY_MESSAGES,
    AskSource,
    CreditSource,
    DeliverRows,
    FinishQuery,
    QueryInstruction,
    QueryReport,
    RefusePeer,
    SendToPeer,
    StopSource,
)
from tamis.routing.running_query import QueryBounds

Row = dict[str, Any]
decode_query = msgspec.json.Decoder(
    QUERY_MESSAGES[0]
    | QUERY_MESSAGES[1]
    | QUERY_MESSAGES[2]
    | QUERY_MESSAGES[3]
    | QUERY_MESSAGES[4]
    | QUERY_MESSAGES[5]
    | QUERY_MESSAGES[6]
    | QUERY_MESSAGES[7]
).decode


class ModelSource:
    """A table of rows, what is advertised of it, and the queries it still answers."""

    def __init__(self, broker: int, number: int, rows: list[Row], advertised: Filter) -> None:
        self.broker = broker
        self.number = number
        self.name = f"source {number}"
        self.rows = rows
        self.advertised = advertised
        self.answering: dict[int, tuple[deque[bytes], int]] = {}

    def matching(self, query: Filter) -> list[Row]:
        return [row for row in self.rows if query.matches(row)]


class ModelQuery:
    """A query, what came of it, and what was to come when it was asked."""

    def __init__(
        self, filter_: Filter, aggregate: Aggregate | None, limit: int | None, credit: int
    ) -> None:
        self.filter = filter_
        self.aggregate = aggregate
        self.limit = limit
        self.credit = credit
        self.rows: list[Row] = []
        self.report: QueryReport | None = None
        self.concerned: dict[str, list[Row]] = {}
        """The matching rows of every source whose advertisement meets the query."""
        self.is_cancelled = False


class QueryWorld:
    """Brokers, links, sources and queries, driven by a seed."""

    def __init__(self, seed: int, brokers: int, *, line: bool = False) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        # Small windows now and then, so that credit runs out.
        window = self.rng.choice((40, 1024 * 1024))
        bounds = QueryBounds(window=window, least_window=min(window, 1024))
        self.routers = [QueryRouter(f"broker {n}", bounds) for n in range(brokers)]
        self.parent = {n: n - 1 if line else self.rng.randrange(n) for n in range(1, brokers)}
        self.links: dict[tuple[int, int], deque[bytes]] = {}
        self.sources: dict[int, ModelSource] = {}
        self.queries: dict[tuple[int, int], ModelQuery] = {}
        self.messages = 0
        self.asked: list[tuple[ModelSource, Filter]] = []
        self.removed: set[str] = set()
        for child, parent in self.parent.items():
            self.connect(child, parent)
        self.settle()

    # --- what may happen -------------------------------------------------------------------------

    def connect(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.links[here, there] = deque()
        for here, there in ((one, other), (other, one)):
            self.do(here, self.routers[here].link_opened(f"broker {there}"))

    def cut(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            self.links.pop((here, there), None)
        for here, there in ((one, other), (other, one)):
            self.do(here, self.routers[here].link_closed(f"broker {there}"))

    def add_source(self) -> None:
        rows = [self.random_row() for _ in range(self.rng.choice((0, 1, 3, 10)))]
        self.put_source(self.rng.randrange(len(self.routers)), rows, self.summary(rows))

    def put_source(self, broker: int, rows: list[Row], advertised: Filter) -> ModelSource:
        number = max(self.sources, default=0) + 1
        source = ModelSource(broker, number, rows, advertised)
        self.sources[number] = source
        self.advertise(source)
        return source

    def change_source(self) -> None:
        source = self.rng.choice([*self.sources.values()])
        source.rows = [*source.rows, self.random_row()]
        source.advertised = self.summary(source.rows)
        self.advertise(source)

    def advertise(self, source: ModelSource) -> None:
        advertisement = DataAdvertisement.of(source.advertised)
        router = self.routers[source.broker]
        self.do(source.broker, router.source_added(source.number, source.name, advertisement))

    def remove_source(self, number: int) -> None:
        source = self.sources.pop(number)
        self.removed.add(source.name)
        self.do(source.broker, self.routers[source.broker].source_removed(number))

    def ask(self, seconds: float = 60.0) -> ModelQuery:
        """Ask anything anywhere."""
        broker = self.rng.randrange(len(self.routers))
        limit = self.rng.choice((None, None, 1, 4))
        return self.ask_for(
            broker,
            self.random_filter(),
            aggregate=self.random_aggregate(),
            limit=limit,
            seconds=seconds,
            credit=self.rng.choice((0, 30, 1_000_000)),
        )

    def ask_for(
        self,
        broker: int,
        filter_: Filter,
        *,
        aggregate: Aggregate | None = None,
        limit: int | None = None,
        seconds: float = 60.0,
        credit: int = 1_000_000,
    ) -> ModelQuery:
        query = ModelQuery(filter_, aggregate, limit, credit)
        query.concerned = {
            source.name: source.matching(filter_)
            for source in self.sources.values()
            if intersects(source.advertised, filter_)
        }
        number, todo = self.routers[broker].ask(
            filter_, seconds=seconds, credit=query.credit, limit=limit, aggregate=aggregate
        )
        self.queries[broker, number] = query
        self.do(broker, todo)
        return query

    def cancel(self, broker: int, number: int) -> None:
        query = self.queries[broker, number]
        query.is_cancelled = query.report is None
        self.do(broker, self.routers[broker].cancel(number))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for broker, router in enumerate(self.routers):
            self.do(broker, router.time_passed(self.now))

    # --- instructions ----------------------------------------------------------------------------

    def do(self, broker: int, todo: list[QueryInstruction]) -> None:
        for one in todo:
            match one:
                case SendToPeer(peer=peer, message=message):
                    link = self.links.get((broker, int(peer.split()[1])))
                    if link is not None:
                        link.append(msgspec.json.encode(message))
                case AskSource(source=number, query=query, filter=filter_, credit=credit):
                    source = self.sources[number]
                    assert source.broker == broker
                    self.asked.append((source, filter_))
                    rows = deque(json.dumps(row).encode() for row in source.matching(filter_))
                    source.answering[query] = (rows, credit)
                case CreditSource(source=number, query=query, bytes=size):
                    rows, credit = self.sources[number].answering.get(query, (deque(), 0))
                    if query in self.sources[number].answering:
                        self.sources[number].answering[query] = (rows, credit + size)
                case StopSource(source=number, query=query):
                    self.sources[number].answering.pop(query, None)
                case DeliverRows(query=number, rows=rows_):
                    query_ = self.queries[broker, number]
                    query_.rows += [json.loads(row) for row in rows_]
                    query_.credit -= sum(map(len, rows_))
                case FinishQuery(query=number, report=report):
                    assert self.queries[broker, number].report is None
                    self.queries[broker, number].report = report
                case RefusePeer():
                    raise AssertionError(one.reason)

    # --- progress --------------------------------------------------------------------------------

    def step(self) -> bool:
        """Let one thing that can go on go on; return whether there was any."""
        busy = [link for link in self.links.items() if link[1]]
        working = [s for s in self.sources.values() if s.answering]
        readers = [
            key
            for key, query in self.queries.items()
            if query.report is None and query.credit <= 0 and not query.is_cancelled
        ]
        choices = ["link"] * bool(busy) + ["source"] * bool(working) + ["reader"] * bool(readers)
        if not choices:
            return False
        match self.rng.choice(choices):
            case "link":
                (here, there), link = self.rng.choice(busy)
                self.messages += 1
                router = self.routers[there]
                self.do(there, router.receive(f"broker {here}", decode_query(link.popleft())))
            case "source":
                self.work(self.rng.choice(working))
            case _:
                broker, number = self.rng.choice(readers)
                more = self.rng.choice((20, 500))
                self.queries[broker, number].credit += more
                self.do(broker, self.routers[broker].credit(number, more))
        return True

    def work(self, source: ModelSource) -> None:
        number, (rows, credit) = self.rng.choice([*source.answering.items()])
        router = self.routers[source.broker]
        if not rows:
            del source.answering[number]
            self.do(source.broker, router.source_finished(source.number, number))
        elif credit > 0:
            row = rows.popleft()
            source.answering[number] = (rows, credit - len(row))
            self.do(source.broker, router.source_rows(source.number, number, [row]))

    def carry(self) -> bool:
        """Let one message arrive, if one is on its way."""
        busy = [link for link in self.links.items() if link[1]]
        if busy:
            (here, there), link = busy[0]
            self.messages += 1
            router = self.routers[there]
            self.do(there, router.receive(f"broker {here}", decode_query(link.popleft())))
        return bool(busy)

    def settle(self, most: int = 100_000) -> None:
        """Go on until nothing can; those without credit wait for others to give it."""
        for _ in range(most):
            stuck = not any(self.links.values()) and not any(
                not rows or credit > 0
                for s in self.sources.values()
                for rows, credit in s.answering.values()
            )
            waiting = any(
                q.report is None and q.credit <= 0 and not q.is_cancelled
                for q in self.queries.values()
            )
            if stuck and not waiting:
                return
            self.step()
        raise AssertionError("it never settles")

    # --- drawing ---------------------------------------------------------------------------------

    def random_row(self) -> Row:
        row: Row = {"x": self.rng.randrange(8), "name": self.rng.choice("abc")}
        if self.rng.random() < 0.5:
            row["y"] = self.rng.choice((0.5, 1, 2.25, "t"))
        return row

    def random_filter(self) -> Filter:
        low = self.rng.randrange(8)
        tests = [
            attr("x").between(low, low + self.rng.randrange(4)),
            attr("name") == self.rng.choice("abc"),
            attr("y").is_present(),
            attr("x") < low,
        ]
        chosen = self.rng.sample(tests, self.rng.choice((1, 1, 2)))
        return self.rng.choice((all_of, any_of))(*chosen)

    def summary(self, rows: list[Row]) -> Filter:
        """Return what every row matches, sometimes more than that, as the paper allows."""
        xs = [row["x"] for row in rows] or [0]
        ranged = attr("x").between(min(xs), max(xs))
        named = attr("name").in_(*sorted({row["name"] for row in rows} or {"a"}))
        return self.rng.choice((ranged, named, ranged & named, ranged | named))

    def random_aggregate(self) -> Aggregate | None:
        text = self.rng.choice(
            ("", "", "", "union", "count", "sum y", "min x", "max y", "top 2 x", "bottom 3 y")
        )
        return Aggregate.parse(text) if text else None


# --- the oracle ----------------------------------------------------------------------------------


def multiset(rows: list[Row]) -> Counter[str]:
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def expected(aggregate: Aggregate | None, rows: list[Row]) -> list[Row]:
    """Return what a query amounts to, if all of these rows are there."""
    kind = "" if aggregate is None else aggregate.kind
    values = [row[aggregate.attribute] for row in rows if aggregate and aggregate.attribute in row]
    numbers = [value for value in values if not isinstance(value, str)]
    match kind:
        case "union":
            return [json.loads(row) for row in multiset(rows)]
        case "count":
            return [{"count": len(rows)}]
        case "sum":
            return [{"sum": sum(numbers) if numbers else None}]
        case "min":
            texts = [value for value in values if isinstance(value, str)]
            return [{"min": min(numbers) if numbers else min(texts, default=None)}]
        case "max":
            texts = [value for value in values if isinstance(value, str)]
            return [{"max": max(texts) if texts else max(numbers, default=None)}]
    return rows


def check_complete(query: ModelQuery) -> None:
    """Check a query that nothing disturbed: it has all that there is, and knows from whom."""
    report, aggregate = query.report, query.aggregate
    assert report is not None
    rows = [row for held in query.concerned.values() for row in held]
    assert report.missing == {}
    assert report.unnamed == 0
    if aggregate is not None and aggregate.kind in ("top", "bottom"):
        check_ranking(query, aggregate, rows)
    else:
        wanted = expected(aggregate, rows)
        is_rows = aggregate is None or aggregate.is_streamed
        if is_rows and query.limit is not None and len(wanted) >= query.limit:
            assert report.cut
            assert len(query.rows) == query.limit
            assert multiset(query.rows) <= multiset(wanted)
            return
        assert multiset(query.rows) == multiset(wanted)
    assert not report.cut
    assert {*report.answered} == {*query.concerned}


def check_ranking(query: ModelQuery, aggregate: Aggregate, rows: list[Row]) -> None:
    name = aggregate.attribute

    def order(row: Row) -> tuple[bool, Any]:
        return isinstance(row[name], str), row[name]

    ranked = sorted(
        (row for row in rows if name in row), key=order, reverse=aggregate.kind == "top"
    )
    best = ranked[: aggregate.size]
    assert [order(row) for row in query.rows] == [order(row) for row in best]
    assert multiset(query.rows) <= multiset(rows)


def check_partial(query: ModelQuery, removed: set[str]) -> None:
    """Check a query of which something was lost: nothing too much, all of whoever answered."""
    report = query.report
    assert report is not None
    rows = [row for held in query.concerned.values() for row in held]
    is_bag = query.aggregate is None
    if is_bag:
        assert multiset(query.rows) <= multiset(rows)
    assert {*report.answered} <= {*query.concerned}
    assert not {*report.answered} & {*report.missing}
    if is_bag and not report.cut:
        for name in report.answered:
            assert multiset(query.concerned[name]) <= multiset(query.rows)
    if not report.missing and not report.cut:
        assert {*query.concerned} - removed <= {*report.answered}
