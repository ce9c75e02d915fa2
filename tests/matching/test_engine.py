"""What the engine offers: subscriptions in and out, matches in all their forms, expiry, errors."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from tamis.errors import EventError, FilterError, FilterSyntaxError, FilterTypeError, SchemaError
from tamis.events import Schema
from tamis.languages import parse
from tamis.matching import Engine, Rejected, Subscription


def small_engine() -> Engine:
    engine = Engine()
    engine.add("cheap", "price < 10")
    engine.add(7, "price >= 5 and company = 'IBM'")
    engine.add("priced", parse("price is present"))
    return engine


def test_matches_come_in_order_of_adding() -> None:
    engine = small_engine()
    assert engine.match({"price": 6, "company": "IBM"}) == ["cheap", 7, "priced"]
    assert engine.match({"company": "IBM"}) == []
    engine.add("late", "price = 6")
    assert engine.match({"price": 6}) == ["cheap", "priced", "late"]


def test_an_empty_engine_matches_nothing() -> None:
    assert Engine().match({"a": 1}) == []
    assert list(Engine().match_batch([])) == []
    assert list(small_engine().match_batch([])) == []


def test_ids_can_be_removed_replaced_and_used_again() -> None:
    engine = small_engine()
    assert "cheap" in engine
    engine.remove("cheap")
    assert "cheap" not in engine
    assert engine.match({"price": 6}) == ["priced"]
    engine.add("cheap", "price < 3")
    assert engine.match({"price": 2}) == ["priced", "cheap"]
    engine.replace(7, "price = 2")
    assert engine.match({"price": 2}) == ["priced", "cheap", 7]
    assert len(engine) == 3


def test_mistakes_with_ids_are_sentences() -> None:
    engine = small_engine()
    with pytest.raises(FilterError, match="there is a subscription 'cheap' already"):
        engine.add("cheap", "price < 3")
    with pytest.raises(FilterError, match="there is no subscription 'dear'"):
        engine.remove("dear")
    with pytest.raises(FilterError, match="an id is a text or an integer, not None"):
        engine.add(None, "price < 3")  # type: ignore[arg-type]
    with pytest.raises(FilterError, match="there is no subscription 'dear'"):
        engine.replace("dear", "price < 3")
    with pytest.raises(FilterError, match="expires_at is NaN; leave it out"):
        engine.add("dear", "price < 3", expires_at=float("nan"))


def test_a_filter_that_cannot_be_read_changes_nothing() -> None:
    engine = small_engine()
    with pytest.raises(FilterSyntaxError):
        engine.replace("cheap", "price <")
    assert engine.match({"price": 6}) == ["cheap", "priced"]


def test_matches_in_all_their_forms() -> None:
    matches = small_engine().match_batch([{"price": 6, "company": "IBM"}, {}, {"price": 20}])
    assert list(matches) == [["cheap", 7, "priced"], [], ["priced"]]
    assert matches[-1] == ["priced"]
    assert matches.counts().tolist() == [3, 0, 1]
    events, ids = matches.pairs()
    assert events.tolist() == [0, 0, 0, 2]
    assert ids.tolist() == ["cheap", 7, "priced", "priced"]
    assert matches.bitmap()[:, 0].tolist() == [0b001, 0b001, 0b101]
    assert matches.ids.tolist() == ["cheap", 7, "priced"]
    assert repr(matches) == "<Matches: 3 events, 4 matches of 3 subscriptions>"
    one = Engine()
    one.add(1, "true")
    one.compact()
    assert repr(one) == "<Engine: 1 subscription in 1 segment>"
    assert repr(one.match_batch([{}])) == "<Matches: 1 event, 1 match of 1 subscription>"
    with pytest.raises(IndexError, match="there are 3 events"):
        matches[3]


def test_matches_as_arrow_lists() -> None:
    engine = Engine()
    engine.add_many([Subscription(1, "a = 1"), Subscription(2, "a < 3")])
    assert engine.match_batch([{"a": 1}, {"a": 5}, {"a": 2}]).to_arrow().to_pylist() == [
        [1, 2],
        [],
        [2],
    ]


def test_rejected_rows_are_reported_and_the_rest_is_added() -> None:
    engine = Engine(Schema({"price": "float"}))
    added = engine.add_many(
        [
            {"id": "a", "filter": "price < 5"},
            {"id": "b", "filter": "price <"},
            {"id": "a", "filter": "price < 6"},
            {"id": "c", "filter": "prise < 5"},
            {"id": "d", "filter": "price < 5", "language": "latin"},
            {"id": "e", "filter": "price < 5", "mode": "total"},
            {"identity": "f"},
            {"id": "g", "filter": "price <= 5", "language": "jms", "mode": "strict"},
        ]
    )
    assert added.added == 2
    assert [(r.row, r.id) for r in added.rejected] == [
        *((2, "b"), (3, "a"), (4, "c"), (5, "d"), (6, "e"), (7, None)),
    ]
    assert isinstance(added.rejected[0], Rejected)
    assert engine.match({"price": 5}) == ["g"]


def test_a_subscription_expires_by_the_engines_clock() -> None:
    now = [1_000.0]
    engine = Engine(clock=lambda: now[0])
    engine.add("short", "a = 1", expires_at=1_010)
    engine.add("dated", "a = 1", expires_at=datetime.fromtimestamp(1_020, UTC))
    engine.add("long", "a = 1")
    assert engine.match({"a": 1}) == ["short", "dated", "long"]
    now[0] = 1_010.0
    assert engine.match({"a": 1}) == ["dated", "long"]
    now[0] = 1_021.0
    assert engine.match({"a": 1}) == ["long"]
    assert engine.match_batch([{"a": 1}], now=1_015.0)[0] == ["dated", "long"]


def test_an_event_that_contradicts_the_schema_is_an_error_for_itself_alone() -> None:
    engine = Engine(Schema({"price": "float"}))
    engine.add("cheap", "price < 10")
    engine.add("priceless", "price is absent")
    matches = engine.match_batch([{"price": 5}, {"price": "dear"}, {"price": 6.0}])
    assert list(matches) == [["cheap"], [], ["cheap"]]
    assert "'dear' is not of type 'float'" in str(matches.errors[1])
    assert repr(matches).endswith("1 refused>")
    with pytest.raises(EventError, match="is not of type 'float'"):
        engine.match({"price": "dear"})


def test_mode_total_refuses_events_that_lack_an_attribute() -> None:
    engine = Engine(Schema({"a": "int", "b": "int"}), "total")
    engine.add(1, "not (a = 1)")
    assert engine.match({"a": 2, "b": 0}) == [1]
    with pytest.raises(EventError, match="b: the event lacks it"):
        engine.match({"a": 2})
    with pytest.raises(SchemaError, match="needs a schema"):
        Engine(mode="total")


def test_the_engine_checks_filters_against_its_schema_and_limits() -> None:
    engine = Engine(Schema({"at": "timestamp"}))
    with pytest.raises(FilterTypeError, match="no attribute 'price'"):
        engine.add(1, "price < 5")
    engine.add(2, "at > '2026-01-01'")
    assert engine.match({"at": "2026-06-01T00:00:00Z"}) == [2]


def test_many_filters_in_many_chunks_and_tiles() -> None:
    engine = Engine(threads=2)
    engine.add_many(Subscription(n, f"a >= {n} and b != {n % 7}") for n in range(3_000))
    events = [{"a": n, "b": n % 5} for n in range(0, 9_000, 2)]
    matches = engine.match_batch(events)
    for number in (0, 1, 700, 1_499, 4_499):
        a, b = events[number]["a"], events[number]["b"]
        assert matches[number] == [n for n in range(3_000) if a >= n and b != n % 7]
    assert (
        matches.counts().sum()
        == np.array(
            [sum(e["b"] != n % 7 for n in range(min(e["a"], 2_999) + 1)) for e in events]
        ).sum()
    )


def test_a_filter_too_wide_for_a_diagram_stays_a_graph_and_is_right() -> None:
    wide = " xor ".join(f"(a{n} = 1 or b{n} = 1)" for n in range(12))
    tall = " or ".join(f"(x{n} = 1 and y{n % 5} = {n})" for n in range(200))
    engine = Engine()
    engine.add("wide", wide)
    engine.add("tall", tall)
    event = (
        {f"a{n}": n % 3 for n in range(12)} | {"x7": 1, "y2": 7} | {f"b{n}": 0 for n in range(12)}
    )
    wanted = [name for name, text in (("wide", wide), ("tall", tall)) if parse(text).matches(event)]
    assert engine.match(event) == wanted
    assert "tall" in wanted


def test_a_few_that_are_compiled_are_tried_by_a_single_event_as_long_as_they_are_all() -> None:
    now = 0.0
    engine = Engine(clock=lambda: now)
    for number in range(3):
        engine.add(number, f"x > {number}", expires_at=10.0 if number == 2 else None)
    event = {"x": 9}
    # A batch compiles them.
    assert next(iter(engine.match_batch([event] * 100))) == [0, 1, 2]
    assert len(engine._collection.state.few) == 3
    assert engine.match(event) == [0, 1, 2]
    now = 11.0
    assert engine.match(event) == [0, 1]
    engine.remove(1)
    assert engine.match(event) == [0]
    engine.add(1, "x < 0")
    assert engine.match(event) == [0]
    for number in range(20, 40):
        engine.add(number, "x > 8")
    found = next(iter(engine.match_batch([event] * 100)))
    assert found == engine.match(event) == [0, *range(20, 40)]
    assert not engine._collection.state.few
