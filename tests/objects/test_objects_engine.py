"""Objects and filters over them in the engine, beside texts and plain events."""

from __future__ import annotations

import gc
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest

from tamis import (
    Engine,
    EventError,
    FilterError,
    Schema,
    SchemaError,
    Subscription,
    covers,
    equivalent,
    intersects,
)
from tamis.objects import FAILURES, message, register_comparison, source, where
from tamis.objects.generation import generate_extractor

from .shop import (
    Address,
    BlockTrade,
    Box,
    Checked,
    Level,
    Line,
    Packed,
    Plain,
    Point,
    Priced,
    Row,
    Side,
    Sku,
    Slotted,
    Trade,
)

t = message(Trade)
register_comparison("is near to", lambda value, constant: abs(value - constant) < 1)


def trade(**fields: Any) -> Trade:
    return Trade(**{"symbol": "ACME", "price": Decimal("20.5"), **fields})


@pytest.mark.parametrize("cls", [Packed, Checked, Plain, Slotted])
def test_any_class_will_do(cls: Any) -> None:
    engine = Engine()
    engine.add("by type", message(cls).price > 5)
    engine.add("by name", message().price > 5)
    engine.add("function", where(cls, lambda m: m.symbol == "A"))
    engine.add("text", "price > 5")
    assert engine.match(cls(symbol="A", price=6.0)) == ["by type", "by name", "function", "text"]
    assert engine.match(cls(symbol="B", price=5.0)) == []
    assert engine.match(Point(1, 2.0)) == []


def test_named_tuples_and_typed_dictionaries_are_messages() -> None:
    engine = Engine()
    engine.add("point", (message(Point).x > 1) & (message(Point).y < 5))
    engine.add("row", message(Row)["price"] > 5)
    engine.add("priced", message(Priced).price > 5)
    assert engine.match(Point(2, 4.5)) == ["point"]
    row: Row = {"symbol": "A", "price": 6.0}
    assert engine.match(row) == ["row", "priced"]
    assert engine.match(Line(Sku("s"), 6.0)) == ["row", "priced"]


def test_a_subscription_by_type_gets_subclasses() -> None:
    engine = Engine()
    engine.add("trades", t)
    engine.add("blocks", message(BlockTrade))
    block = BlockTrade("A", Decimal(1))
    assert engine.match(block) == ["trades", "blocks"]
    assert [*engine.match_batch([trade(), block, Point(1, 1.0), {"a": 1}])] == [
        ["trades"],
        ["trades", "blocks"],
        [],
        [],
    ]


CONDITIONS = [
    (t.address.city == "Wien", {"address": Address("Wien")}, {"address": None}),
    (t.customer.city == "Wien", {"address": Address("Wien")}, {"address": Address("Graz")}),
    (t.discounted(50) < 10, {"price": Decimal(19)}, {"price": Decimal(21)}),
    (t.meta["k"] > 5, {"meta": {"k": 6}}, {"meta": {"k": 5}}),
    (t.pair[1] == "x", {"pair": (0, "x")}, {"pair": ("x", "y")}),
    (t.lines[0].price > 5, {"lines": [Line(Sku("s"), 6.0)]}, {"lines": []}),
    (t.box.content == 5, {"box": Box(5)}, {"box": Box(6)}),
    (t.box.unpacked() == 5, {"box": Box(5)}, {"box": None}),
    (t.on >= date(2026, 1, 2), {"on": date(2026, 1, 2)}, {"on": date(2026, 1, 1)}),
    (
        t.at < datetime(2026, 1, 2, tzinfo=UTC),
        {"at": datetime(2026, 1, 1, tzinfo=UTC)},
        {"at": datetime(2026, 1, 1)},
    ),
    (t.key == UUID(int=5), {"key": UUID(int=5)}, {"key": UUID(int=6)}),
    (t.blob == b"a\0", {"blob": b"a\0"}, {"blob": b"a"}),
    (t.side == Side.SELL, {"side": Side.SELL}, {"side": Side.BUY}),
    (t.side == "sell", {"side": Side.SELL}, {"side": Side.BUY}),
    (t.level >= Level.HIGH, {"level": Level.HIGH}, {"level": Level.LOW}),
    (
        t.price == Decimal("0.1"),
        {"price": Decimal("0.10")},
        {"price": Decimal("0.1000000000000000000001")},
    ),
    (t.price > 1, {"price": Decimal("1.0000000000000000000001")}, {"price": Decimal(1)}),
    (t.price != 1, {"price": Decimal("1.0000000000000000000001")}, {"price": Decimal("1.00")}),
    (t.tags.contains("a"), {"tags": ["b", "a"]}, {"tags": ["ab"]}),
    (~t.tags.contains("a"), {"tags": []}, {"tags": ["a"]}),
    (t.symbol.contains("a"), {"symbol": "bab"}, {"symbol": "b"}),
    (t.anything.contains("a"), {"anything": ["a"]}, {"anything": ["ab"]}),
    (t.anything.contains("a"), {"anything": "ab"}, {"anything": None}),
    (t.either.in_("x", "y"), {"either": "x"}, {"either": 5}),
    (t.recent.any(lambda each: each > 5), {"recent": [1, 6]}, {"recent": [1]}),
    (t.recent.all(lambda each: each > 5), {"recent": [7, 6]}, {"recent": [1, 6]}),
    (t.ratios.contains(0.5), {"ratios": (0.5,)}, {"ratios": ()}),
    (t.address.is_present(), {"address": Address("x")}, {"address": None}),
    (t.tags.is_absent(), {"tags": []}, {"tags": ["a"]}),
    (t.address.is_a(Address), {"address": Address("x")}, {"address": None}),
    (t.is_open & (t.quantity == 1), {"quantity": 1}, {"is_open": False, "quantity": 1}),
    (~t.is_open, {"is_open": False}, {"is_open": True}),
    (t.quantity.compare("is near to", 5), {"quantity": 5}, {"quantity": 7}),
    (~t.quantity.compare("is near to", 5), {"quantity": 7}, {"quantity": None}),
    (t.unannotated() == 3, {"quantity": 3}, {"quantity": 4}),
    (t.anything.deep.er == 1, {"anything": {"deep": {"er": 1}}}, {"anything": {"deep": 1}}),
    ((t.quantity == 1) ^ (t.symbol == "A"), {"quantity": 1}, {"quantity": 1, "symbol": "A"}),
    ((t.quantity == 1).nand(t.symbol == "A"), {"quantity": 1}, {"quantity": 1, "symbol": "A"}),
    ((t.quantity == 1).nor(t.symbol == "A"), {"quantity": 2}, {"quantity": 1, "symbol": "B"}),
    (t.symbol.like("A%E"), {"symbol": "ACE"}, {"symbol": "AC"}),
    (t.symbol.matches("^A.E$"), {"symbol": "ACE"}, {"symbol": "AC"}),
]


@pytest.mark.parametrize(
    ("condition", "yes", "no"), CONDITIONS, ids=[repr(c)[:60] for c, *_ in CONDITIONS]
)
def test_a_condition_means_the_same_everywhere(condition: Any, yes: Any, no: Any) -> None:
    matching, other = trade(**yes), trade(**no)
    assert condition.matches(matching)
    assert not condition.matches(other)
    engine = Engine()
    engine.add("it", condition)
    assert [engine.match(matching), engine.match(other)] == [["it"], []]
    assert [*engine.match_batch([other, matching] * 3)] == [[], ["it"]] * 3
    assert eval_repr(condition) == condition


def eval_repr(condition: Any) -> Any:
    import datetime  # noqa: PLC0415

    names = {"message": message, "Trade": Trade, "datetime": datetime, "Address": Address}
    return eval(repr(condition), {**names, "Decimal": Decimal, "UUID": UUID})  # noqa: S307 - our text


def test_texts_and_plain_events_mix_with_objects() -> None:
    engine = Engine()
    engine.add("text", 'address.city = "Wien" and quantity > 1')
    engine.add("name", (message().address.city == "Wien") & (message().quantity > 1))
    engine.add("lines", "lines.price > 5")
    engine.add("any", 'any contains "Wien"')
    plain = {"address": {"city": "Wien"}, "quantity": 2, "lines": [{"price": 6}]}
    given = trade(address=Address("Wien"), quantity=2, lines=[Line(Sku("s"), 6.0)])
    expected = ["text", "name", "lines", "any"]
    assert [engine.match(plain), engine.match(given)] == [expected, expected]
    assert [*engine.match_batch([plain, given, {}, trade()])] == [expected, expected, [], []]
    assert engine.match_json('{"address": {"city": "Wien"}, "quantity": 2}') == [
        "text",
        "name",
        "any",
    ]


def test_a_text_never_calls_a_method_or_reads_what_is_private() -> None:
    called = []

    class Dangerous:
        _secret = 5

        def delete(self) -> bool:
            called.append(1)
            return True

    engine = Engine()
    engine.add("call", "`delete()` = true")
    engine.add("bare", "delete is present")
    engine.add("private", "_secret = 5")
    engine.add("class", "`__class__.__name__` is present")
    assert engine.match(Dangerous()) == ["bare"]
    assert [*engine.match_batch([Dangerous()])] == [["bare"]]
    assert called == []


def test_an_exception_in_an_accessor_is_no_match_and_is_counted() -> None:
    FAILURES.clear()
    engine = Engine()
    engine.add("broken", t.broken() > 1)
    engine.add("not", ~(t.broken() > 1))
    engine.add("other", t.quantity == 0)
    assert engine.match(trade()) == ["other"]
    assert [*engine.match_batch([trade(), trade()])] == [["other"]] * 2
    [failure] = FAILURES.first.values()
    assert failure == ("objects.shop.Trade", "broken()", "ValueError", "broken", 3)
    assert FAILURES.total == 3


def test_the_failures_that_are_kept_are_bounded() -> None:
    FAILURES.clear()
    for number in range(FAILURES.MOST + 5):
        FAILURES.note(5, f"a{number}", ValueError())
    assert len(FAILURES.first) == FAILURES.MOST
    assert FAILURES.total == FAILURES.MOST + 5
    FAILURES.clear()


class Counting:
    def __init__(self) -> None:
        self.calls = 0

    def inner(self) -> Counting:
        self.calls += 1
        return self

    @property
    def size(self) -> int:
        return 5


def test_no_accessor_is_called_twice_for_an_object() -> None:
    engine = Engine()
    for number in range(20):
        engine.add(
            number,
            (message(Counting).inner().size == number % 7) | (message(Counting).inner().size == 9),
        )
    counting = Counting()
    assert engine.match(counting) == [5, 12, 19]
    assert counting.calls == 1
    assert [*engine.match_batch([counting])] == [[5, 12, 19]]
    assert counting.calls == 2


class Tally:
    """Counts how often each of its members is asked."""

    def __init__(self, parts: int = 0) -> None:
        self.asked: Counter[str] = Counter()
        self.parts = [Tally() for _ in range(parts)]
        self.twin: Tally | None = None

    def price(self) -> Decimal:
        self.asked["price"] += 1
        return Decimal("4.995")

    def other(self):  # type: ignore[no-untyped-def]
        self.asked["other"] += 1
        return self.twin

    def lines(self) -> list[Tally]:
        self.asked["lines"] += 1
        return self.parts

    def broken(self) -> Decimal:
        self.asked["broken"] += 1
        raise ValueError


def test_exact_checks_ask_no_accessor_again() -> None:
    engine, c = Engine(), message(Tally)
    for number in range(50):
        limit = Decimal(number) / 5
        engine.add(f"price {number}", c.price() >= limit)
        engine.add(f"other {number}", c.other().price() >= limit)
        engine.add(f"all {number}", c.lines().all(lambda each: each.price() >= limit))  # noqa: B023
        engine.add(
            f"any {number}",
            c.other().lines().any(lambda each: (each.price() > limit) & (each.price() < 100)),  # noqa: B023
        )
        engine.add(f"broken {number}", c.broken() >= limit)
    one, two = Tally(2), Tally(2)
    one.twin, two.twin = Tally(2), Tally(2)
    FAILURES.clear()
    found = engine.match(one)
    assert len(found) == 4 * 25
    assert [*engine.match_batch([two])] == [found]
    for each in (one, two):
        assert each.asked == {"price": 1, "other": 1, "lines": 1, "broken": 1}
        assert each.twin is not None
        assert each.twin.asked == {"price": 1, "lines": 1}
        for part in (*each.parts, *each.twin.parts):
            assert part.asked == {"price": 1}
    assert FAILURES.total == 2
    FAILURES.clear()


class Echo:
    def shown(self, given: object) -> str:
        return repr(given)


def test_arguments_that_are_equal_are_not_the_same() -> None:
    engine, e = Engine(), message(Echo)
    engine.add("int", e.shown(1) == "1")
    engine.add("bool", e.shown(True) == "True")
    engine.add("float", e.shown(1.0) == "1.0")
    assert engine.match(Echo()) == ["int", "bool", "float"]
    assert [*engine.match_batch([Echo()])] == [["int", "bool", "float"]]
    assert (e.shown(1) == "x") != (e.shown(True) == "x")


def test_filters_come_and_go_and_change() -> None:
    engine = Engine()
    exact = t.price == Decimal("0.1")
    engine.add("it", exact)
    near = trade(price=Decimal("0.1000000000000000000001"))
    assert engine.match(near) == []
    engine.replace("it", "price = 0.1")
    assert engine.match(near) == ["it"]
    engine.replace("it", exact)
    assert [*engine.match_batch([near, trade(price=Decimal("0.1"))])] == [[], ["it"]]
    engine.remove("it")
    engine.add("it", "price = 0.1")
    assert [*engine.match_batch([near])] == [["it"]]
    with pytest.raises(FilterError, match="there is a subscription 'it' already"):
        engine.add("it", exact)
    assert [*engine.match_batch([near])] == [["it"]]


def test_many_are_added_together() -> None:
    engine = Engine()
    added = engine.add_many([Subscription(n, t.price == Decimal(n) / 10) for n in range(50)])
    assert (added.added, added.rejected) == (50, ())
    assert engine.match(trade(price=Decimal("0.7"))) == [7]


def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    engine = Engine()
    with pytest.raises(FilterError, match="mode 'strict' is for filters over attributes"):
        engine.add("it", t.price > 5, mode="strict")
    with pytest.raises(FilterError, match="a filter is a text or a Filter, not 5"):
        engine.add("it", 5)  # type: ignore[arg-type]
    for event in (5, "text", None, [trade()], datetime.now(UTC)):
        with pytest.raises(EventError, match="an event is a mapping"):
            engine.match(event)
    engine.add("exact", t.price > 5)
    with pytest.raises(FilterError, match="the filter of 'exact' leaves something to check"):
        engine.save(tmp_path / "engine")


def test_filters_without_residue_are_saved(tmp_path: Path) -> None:
    engine = Engine()
    engine.add("it", (t.symbol == "A") & (t.quantity > 1))
    engine.save(tmp_path / "engine")
    assert Engine.load(tmp_path / "engine").match({"symbol": "A", "quantity": 2}) == []


def test_an_explanation_names_accessors_and_what_is_left_to_check() -> None:
    engine = Engine()
    engine.add("city", (t.address.city == "Wien") & (t.quantity > 1))
    engine.add("exact", t.price == Decimal("0.1"))
    found = engine.explain("city", trade(address=Address("Wien"), quantity=1))
    assert "quantity is 1, so quantity > 1 is false" in str(found)
    near = engine.explain("exact", trade(price=Decimal("0.1000000000000000000001")))
    assert not near
    assert "does not hold exactly: message(Trade).price == Decimal('0.1')" in str(near)
    assert engine.explain("exact", trade(price=Decimal("0.1")))


def test_filters_over_objects_are_compared() -> None:
    assert covers(t.quantity > 1, t.quantity > 5)
    assert not covers(t.quantity > 5, t.quantity > 1)
    assert covers(t, t.symbol == "A")
    assert not covers(message(BlockTrade).quantity > 1, t.quantity > 5)
    assert covers(t.tags.contains("a"), t.tags.contains("a") & t.tags.contains("b"))
    assert intersects(t.tags.contains("a"), t.tags.contains("b"))
    assert not intersects(t.is_open == True, t.quantity.is_absent() & t.quantity.is_present())  # noqa: E712
    assert covers(t.price > 5, t.price > 5)
    unsure = covers(t.price > 5, t.price > 6)
    assert not unsure
    assert not unsure.exact
    assert covers(t, t.price > 6)
    assert (
        equivalent(where(Trade, lambda t: 1 < t.quantity < 5), t.quantity.in_(2, 3, 4)) is not None
    )
    engine = Engine()
    engine.add("wide", t.quantity > 1)
    engine.add("narrow", t.quantity > 5)
    engine.add("above", t.price > 1)
    engine.add("from", t.price >= 1)
    assert [(one.id, one.other) for one in engine.lint()] == [("narrow", "wide")]


def test_a_schema_of_a_class_checks_plain_events() -> None:
    schema = Schema.of(Trade)
    assert {name: schema[name].type.value for name in ("symbol", "price", "on", "side")} == {
        "symbol": "str",
        "price": "float",
        "on": "date",
        "side": "str",
    }
    assert schema["tags"].many
    assert schema["lines.price"] == schema["lines.price"]._replace(many=True)
    assert "either" not in schema
    assert "meta" not in schema
    assert not [name for name in schema if "_" in name.split(".")[0][:1] or "(" in name]
    engine = Engine(schema)
    engine.add("it", 'on > "2026-01-01" and customer.city = "Wien"')
    assert engine.match({"on": "2026-01-02", "customer": {"city": "Wien"}}) == ["it"]
    given = trade(on=date(2026, 1, 2), address=Address("Wien"))
    assert engine.match(given) == ["it"]
    with pytest.raises(FilterError, match="add it to an engine without a schema"):
        engine.add("object", t.quantity > 1)
    with pytest.raises(SchemaError, match="annotates no fields"):
        Schema.of(object)
    with pytest.raises(SchemaError, match=r"Schema\.of takes a class, not 5"):
        Schema.of(5)  # type: ignore[arg-type]


def test_a_schema_checks_objects_as_well() -> None:
    engine = Engine(Schema({"symbol": "str", "quantity": "int"}))
    engine.add("it", "quantity > 1")
    assert engine.match(trade(quantity=2)) == ["it"]
    matches = engine.match_batch([trade(quantity=2), trade(quantity="many")])
    assert [*matches] == [["it"], []]
    assert "'many' is not of type 'int'" in str(matches.errors[1])


def test_readers_see_the_old_filter_or_the_new_one() -> None:
    """A weakened filter never shows without its check, whoever changes it meanwhile."""
    engine = Engine()
    near = trade(price=Decimal("0.1000000000000000000001"))
    engine.add("it", t.price == Decimal("0.1"))
    wrong: list[object] = []
    done = False

    def read() -> None:
        while not done:
            wrong.extend(engine.match(near))
            wrong.extend(i for found in engine.match_batch([near]) for i in found)

    readers = [Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(60):
        engine.replace("it", "price = 5")
        engine.replace("it", t.price == Decimal("0.1"))
        engine.remove("it")
        engine.add("it", t.price == Decimal("0.1"))
    done = True
    for reader in readers:
        reader.join()
    assert wrong == []


def test_classes_that_are_gone_are_forgotten_in_the_end() -> None:
    engine = Engine()
    engine.add("it", message().size > 5)
    for number in range(3):
        made = type(f"Made{number}", (), {"size": 6})
        assert engine.match(made()) == ["it"]
    gc.collect()


def test_accessors_of_filters_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MIN_FORGOTTEN_ACCESSORS", 10)
    engine = Engine()
    engine.add("kept", message().scaled(7) > 1)
    for number in range(100):
        engine.add(number, message().scaled(number + 100) > 1)
        if number % 3 == 0:
            engine.match({"price": 1})  # It compiles what is there.
        engine.remove(number)
    assert len(engine._objects.reader._known.ways) <= 12
    engine.add("new", message().scaled(500) > 1)
    assert engine.match(Scaled()) == ["kept", "new"]


def test_another_accessor_makes_few_others_be_generated_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generate, generated = generate_extractor, Counter[str]()

    def counting(cls: type, wanted: Any, names: Any, by_name: Any) -> Any:
        generated.update(names)
        return generate(cls, wanted, names, by_name)

    monkeypatch.setattr(source, "generate_extractor", counting)
    engine = Engine()
    for number in range(200):
        engine.add(number, message(Scaled).scaled(number) == number)
        assert engine.match(Scaled()) == [*range(number + 1)]
    for number in range(100):
        engine.remove(number)
        assert engine.match(Scaled()) == [*range(number + 1, 200)]
    # Each time all of them would be about 35,000.
    assert generated.total() < 9_000


class Scaled:
    def scaled(self, by: int) -> int:
        return by


# --- values that raise --------------------------------------------------------------------------


class NoAttributes:
    def __getattr__(self, name: str) -> object:
        raise KeyError(name)


class NoClass:
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ValueError("no class")


class NoElements(list[int]):
    def __iter__(self) -> Any:
        raise ValueError("no elements")


class Holder:
    def __init__(self, x: object) -> None:
        self.x = x


@pytest.mark.parametrize("make", [NoAttributes, NoClass, NoElements])
def test_a_value_that_raises_stops_no_other_object(make: Any) -> None:
    FAILURES.clear()
    engine = Engine()
    h = message(Holder)
    conditions = [
        h.x == 1,
        h.x.y == 1,
        h.x.any(lambda each: each == 1),
        h.x.all(lambda each: each == 1),
        h.x.contains(1),
        h.x.is_a(int),
        h.x[0] == 1,
        h.x >= Decimal("0.5"),
    ]
    for number, condition in enumerate(conditions):
        engine.add(number, condition)
    expected = [number for number, each in enumerate(conditions) if each.matches(Holder(1))]
    assert [*engine.match_batch([Holder(1), Holder(make()), Holder(1)])] == [
        expected,
        [],
        expected,
    ]
    assert engine.match(Holder(make())) == []
    assert not any(condition.matches(Holder(make())) for condition in conditions)
    assert FAILURES.total > 0
    names = {failure.class_name.rpartition(".")[2] for failure in FAILURES.first.values()}
    assert names <= {"Holder", make.__name__}
    FAILURES.clear()
