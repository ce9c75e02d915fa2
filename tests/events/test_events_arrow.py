"""Arrow's columns become the events of their rows, with the same errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import EventError, LimitError, TamisError
from tamis.events import (
    Bits,
    Event,
    EventLimits,
    Kind,
    Schema,
    Type,
    Value,
    arrow,
    arrow_numbers,
    attribute,
)
from tamis.events.arrow import ArrowEvents, batch_of_arrow
from tamis.events.batch import EventBatch, Projection
from tamis.events.columns import split_integers, split_numbers
from tamis.events.event import flatten
from tamis.events.kinds import kind_of
from tamis.events.packed import MAX_LAYOUTS

from .arrow_tables import random_schema, random_table

# --- the reference: one event after the other ------------------------------------------------


def plainly(row: Mapping[str, object], schema: Schema | None, *, total: bool) -> Event | str:
    """Return the event of a row, or what is wrong with it."""
    bits = {name for name, declared in (schema or {}).items() if declared.type is Type.BITS}
    try:
        event = Event.of_checked(flatten(row, EventLimits(), masks=bits))
        if schema is not None:
            event = schema.conform(event)
            if total:
                schema.require_all(event)
    except TamisError as error:
        return str(error)
    return event


def by_kind(event: Event) -> Event:
    """Return an event with the values of each attribute by kind, as columns keep them."""
    kinds = [*Kind, None]
    return Event.of_checked(
        {
            name: tuple(sorted(values, key=lambda value: kinds.index(kind_of(value))))
            for name, values in event.items()
        }
    )


def only(row: Mapping[str, object], names: set[str]) -> dict[str, Any]:
    """Return what a mapping says of some attributes; the rest is as if it were not there."""

    def chosen(prefix: str, item: object) -> Any:
        if isinstance(item, Mapping):
            return {key: chosen(f"{prefix}.{key}", inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [chosen(prefix, inner) for inner in item]
        return item if prefix in names else None

    return {key: chosen(key, item) for key, item in row.items()}


def agree(
    batch: EventBatch,
    rows: list[dict[str, Any]],
    schema: Schema | None = None,
    *,
    total: bool = False,
    kept: set[str] | None = None,
) -> None:
    """Check that a batch is what its rows say, one by one."""
    expected = [plainly(row, schema, total=total) for row in rows]
    assert {n: str(error) for n, error in batch.errors.items()} == {
        n: error for n, error in enumerate(expected) if isinstance(error, str)
    }
    assert len(batch) == len(rows)
    for number, event in enumerate(expected):
        found = batch.event(number)
        if isinstance(event, str):
            assert found == Event({})
        else:
            values = {n: v for n, v in event.items() if kept is None or n in kept}
            assert by_kind(found) == by_kind(Event.of_checked(values))
    sound(batch)


def sound(batch: EventBatch) -> None:
    """Check what everyone who reads a batch relies on."""
    for column in batch.columns.values():
        assert column.entries
        for kind, entries in column.entries.items():
            assert len(entries.events) == len(entries.values) > 0
            assert entries.events.dtype == np.int32
            assert (np.diff(entries.events) >= 0).all()
            if kind is Kind.TEXT:
                assert len(set(entries.texts)) == len(entries.texts)
        held = np.zeros(len(batch), int)
        for entries in column.entries.values():
            np.add.at(held, entries.events, 1)
        assert (column.counts(len(batch)) == held).all()
        assert (column.multivalued(len(batch)) == (held > 1)).all()


# --- the same as the rows --------------------------------------------------------------------


def check_random_table(rng: Random) -> None:
    # With a minimum of none, all columns of numbers are read together.
    with patch.object(arrow, "MIN_PACKED_COLUMNS", rng.choice((0, 1_000))):
        check_table(rng, *random_table(rng))


def check_table(rng: Random, table: pa.Table, rows: list[dict[str, Any]]) -> None:
    agree(batch_of_arrow(table), rows)
    schema = random_schema(rng, table)
    total = rng.random() < 0.3
    declared = set(schema)
    rows = [only(row, declared) for row in rows]
    agree(batch_of_arrow(table, schema, total=total), rows, schema, total=total)
    wanted = {name for name in declared if rng.random() < 0.5}
    batch = batch_of_arrow(table, schema, total=total, wanted=wanted)
    agree(batch, rows, schema, total=total, kept=wanted)
    agree(batch_of_arrow(table, wanted=wanted), [only(row, wanted) for row in rows])


def test_any_table_says_what_its_rows_say() -> None:
    for seed in range(300):
        check_random_table(Random(seed))


@given(st.randoms(use_true_random=False))
def test_a_counterexample_to_that_would_be_small(rng: Random) -> None:
    check_random_table(rng)


@pytest.mark.parametrize("seed", range(3))
def test_many_sparse_columns_are_read_together_as_one_by_one(seed: int) -> None:
    rng = Random(seed)
    pools = {
        pa.int64(): (0, -5, 2**53, 2**31) if seed else (1, 2**53 + 1),
        pa.int32(): (-(2**31), 2**31 - 1, 7),
        pa.float64(): (0.5, -0.0, 1e300) if seed else (1.5, math.nan),
        pa.int16(): (3,),
        pa.string(): ("a", "b"),
    }
    arrays = {}
    for number in range(60):
        type_ = rng.choice(list(pools))
        share = rng.choice((0.0, 0.02, 0.5, 1.0))
        values = [rng.choice(pools[type_]) if rng.random() < share else None for _ in range(150)]
        arrays[f"c{number}"] = pa.array(values, type_)
    table = pa.table(arrays)
    for first, length in ((0, 150), (13, 100), (64, 0), (149, 1)):
        part = table.slice(first, length)
        agree(batch_of_arrow(part), part.to_pylist())
        for record_batch in part.to_batches():
            batch = batch_of_arrow(record_batch)
            agree(batch, record_batch.to_pylist())
            assert list(batch.columns) == [n for n in arrays if n in batch.columns]
    agree(batch_of_arrow(table, wanted={"c1", "c2"}), table.select(["c1", "c2"]).to_pylist())
    several = pa.concat_tables([table.slice(0, 40), table.slice(40)])
    assert several.column(0).num_chunks == 2
    agree(batch_of_arrow(several), table.to_pylist())


def test_tables_of_a_few_sources_keep_their_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[pa.Schema](), arrow_numbers._new_layout

    def noted(schema: pa.Schema, *how: Any) -> arrow_numbers.TableLayout:
        made.append(schema)
        return make(schema, *how)

    monkeypatch.setattr(arrow_numbers, "_new_layout", noted)
    names = [f"c{number}" for number in range(40)]
    sources = [
        pa.table(
            {name: [number, None] for number, name in enumerate(names[first:] + names[:first])}
        )
        for first in range(MAX_LAYOUTS + 1)
    ]
    projection = Projection(frozenset(names))

    def read(table: pa.Table) -> None:
        [batch] = ArrowEvents(table).event_batches(projection)
        agree(batch, table.to_pylist())

    for _ in range(3):
        for table in sources[:MAX_LAYOUTS]:
            read(table)
    assert [schema.names for schema in made] == [t.schema.names for t in sources[:MAX_LAYOUTS]]
    # One more source, and the one that was read the longest ago is read anew.
    read(sources[-1])
    read(sources[1])
    assert len(made) == MAX_LAYOUTS + 1
    read(sources[0])
    assert len(made) == MAX_LAYOUTS + 2


@pytest.mark.parametrize("misplaced", [0, 1, 4])
@pytest.mark.parametrize("offset", [0, 5, 70])
def test_buffers_of_others_may_be_short_and_unaligned(misplaced: int, offset: int) -> None:
    rng = np.random.default_rng(7)
    arrays = []
    for _ in range(40):
        values, present = rng.integers(-9, 9, 131), rng.random(131) < 0.3
        bits = np.packbits(present, bitorder="little").tobytes()
        # Arrow pads its own buffers and aligns them; here a bitmap ends where its last bit does.
        parts = [bits, values.tobytes()]
        buffers = [pa.py_buffer(b"?" * misplaced + part)[misplaced:] for part in parts]
        arrays.append(pa.Array.from_buffers(pa.int64(), 131 - offset, buffers, offset=offset))
    table = pa.RecordBatch.from_arrays(arrays, [f"c{n}" for n in range(40)])
    agree(batch_of_arrow(table), table.to_pylist())


@pytest.mark.parametrize("nulls", [0, 1, 40, 99])
def test_a_wrong_number_of_nulls_does_no_harm(nulls: int) -> None:
    present = np.arange(100) % 3 == 0
    bits = pa.py_buffer(np.packbits(present, bitorder="little").tobytes().ljust(64, b"\0"))
    values = pa.py_buffer(np.arange(100).tobytes())
    arrays = [pa.Array.from_buffers(pa.int64(), 100, [bits, values], nulls) for _ in range(200)]
    table = pa.RecordBatch.from_arrays(arrays, [f"c{n}" for n in range(200)])
    columns = batch_of_arrow(table).columns
    # With no nulls at all, Arrow does not look at the bitmap.
    expected = np.arange(100) if nulls == 0 else np.flatnonzero(present)
    assert [c.entries[Kind.NUMBER].values.tolist() for c in columns.values()] == [
        expected.tolist()
    ] * 200


@pytest.mark.slow
def test_many_tables_say_what_their_rows_say() -> None:
    for seed in range(1_000, 40_000):
        check_random_table(Random(seed))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, None, 3], pa.int8()), [1, None, 3]),
        (pa.array([2**63 - 1, -(2**63)], pa.int64()), [2**63 - 1, -(2**63)]),
        (pa.array([0.1], pa.float32()), [0.10000000149011612]),
        (pa.array([True, None, False]), [True, None, False]),
        (pa.array(["a", "a", None]).dictionary_encode(), ["a", "a", None]),
        (pa.array([[1, None], [], None], pa.large_list(pa.int8())), [1, None, None]),
        (pa.array([date(2026, 11, 15)]), [datetime(2026, 11, 15, tzinfo=UTC)]),
        (
            pa.array([-1], pa.timestamp("ns")),
            [datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)],
        ),
        (
            pa.array([0], pa.timestamp("s", "Europe/Paris")),
            [datetime(1970, 1, 1, tzinfo=UTC)],
        ),
        (pa.nulls(2), [None, None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["a", None])[1:], ["a", None]),
        (pa.RunEndEncodedArray.from_arrays([2, 3], [[1], [2]])[1:], [[1], [2]]),
        (pa.DictionaryArray.from_arrays([1, 0], [[1.5], [2, 3]]), [[2.0, 3.0], [1.5]]),
    ],
    ids=lambda given: str(given.type) if isinstance(given, pa.Array) else "",
)
def test_a_column_of_each_type_holds_its_values(array: pa.Array, expected: list[Value]) -> None:
    agree(batch_of_arrow(pa.table({"a": array})), [{"a": value} for value in expected])


def test_a_list_of_structs_is_several_values_of_each_field() -> None:
    rows: list[dict[str, Any]] = [
        {"items": [{"sku": "a", "n": 1}, {"sku": "b"}, None]},
        {"items": None},
    ]
    batch = batch_of_arrow(pa.Table.from_pylist(rows))
    agree(batch, rows)
    assert batch.event(0)["items.sku"] == ("a", "b")


def test_what_lies_hidden_under_a_null_is_not_there() -> None:
    hidden = pa.array([False, True, False])
    numbers = pa.array([1, 2, 3, 4])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), numbers, mask=hidden)
    inner = pa.StructArray.from_arrays([lists, numbers[1:]], names=["x", "y"], mask=hidden)
    table = pa.table({"a": lists, "b": inner})
    agree(batch_of_arrow(table), table.to_pylist())
    agree(batch_of_arrow(table.slice(1)), table.slice(1).to_pylist())


def test_a_dictionary_may_be_longer_than_the_column_repeat_itself_or_hold_null() -> None:
    for texts in (["a", "b", "c", "d", "e"], ["a", "b", "a"], ["a", None, "b"]):
        array = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 1]), pa.array(texts))
        for column in (array, array[1:], pa.chunked_array([array, array[1:]])):
            table = pa.table({"a": column})
            agree(batch_of_arrow(table), table.to_pylist())
            agree(batch_of_arrow(table.slice(2)), table.slice(2).to_pylist())


def test_a_table_without_rows_or_columns_is_a_batch_without_events() -> None:
    assert len(batch_of_arrow(pa.table({}))) == 0
    empty = pa.table({"a": pa.chunked_array([], pa.list_(pa.string()))})
    assert batch_of_arrow(empty).columns == {}


def test_integers_are_split_at_once_as_one_by_one() -> None:
    rng = Random(1)
    edges = [
        sign * 2**power + step for power in range(64) for sign in (1, -1) for step in range(-3, 4)
    ]
    drawn = [rng.randint(-(2**63), 2**63 - 1) for _ in range(2000)]
    values = [v for v in (*edges, *drawn, 2**63 - 512, 2**63 - 513) if -(2**63) <= v < 2**63]
    floats, residues = split_integers(np.array(values, np.int64))
    assert residues is not None
    assert [int(f) + int(r) for f, r in zip(floats, residues, strict=True)] == values
    singly, remainders = split_numbers([*values, 0.5])
    assert remainders is not None
    assert (singly[:-1] == floats).all()
    assert (remainders[:-1] == residues).all()


# --- what is wrong with one event ------------------------------------------------------------


def errors_of(batch: EventBatch) -> dict[int, str]:
    return {number: str(error) for number, error in batch.errors.items()}


def test_an_integer_beyond_64_bits_is_wrong_in_its_event_alone() -> None:
    table = pa.table({"a": pa.array([1, 2**63, 3], pa.uint64()), "b": ["x", "y", "z"]})
    batch = batch_of_arrow(table)
    assert errors_of(batch) == {
        1: "a: the integer 9223372036854775808 does not fit in 64 bits; send it as text or as a "
        "float"
    }
    assert [batch.event(n).as_dict() for n in range(3)] == [
        {"a": 1, "b": "x"},
        {},
        {"a": 3, "b": "z"},
    ]


def test_as_a_bit_set_it_is_right() -> None:
    table = pa.table({"a": pa.array([2**63], pa.uint64())})
    assert batch_of_arrow(table, Schema({"a": "bits"})).event(0)["a"] == (Bits([63]),)
    batch = EventBatch.of_events(table.to_pylist(), Schema({"a": "bits"}))
    assert batch.event(0)["a"] == (Bits([63]),)


@pytest.mark.parametrize(
    ("declared", "values", "wrong"),
    [
        ("int", [1.0], "a: 1.0 is not of type 'int', which the schema declares"),
        ("float", [2**53 + 1], "a: the integer 9007199254740993 has no exact float; declare the"),
        ("bits", [-1], "a: -1 is not of type 'bits', which the schema declares"),
        ("timestamp", ["noon"], "a: 'noon' is not a timestamp such as 2026-11-15T04:02:00Z"),
        ("bool", ["true"], "a: 'true' is not of type 'bool', which the schema declares"),
        ("str", [[None, "x", "y"]], "a: it holds 2 values, but the schema declares one"),
    ],
)
def test_what_contradicts_the_schema_is_wrong(declared: str, values: list[Any], wrong: str) -> None:
    schema = Schema({"a": declared})
    table = pa.table({"a": [*values, None]})
    batch = batch_of_arrow(table, schema)
    assert batch.errors.keys() == {0}
    assert errors_of(batch)[0].startswith(wrong)
    agree(batch, table.to_pylist(), schema)
    agree(batch_of_arrow(table, schema, wanted=()), table.to_pylist(), schema, kept=set())


def test_in_mode_total_what_is_lacking_is_wrong() -> None:
    schema = Schema({"a": attribute("int", many=True), "b": "str"})
    table = pa.table({"a": [[1], [None], [], None], "b": ["x", "y", "z", "w"]})
    batch = batch_of_arrow(table, schema, total=True, wanted={"b"})
    assert batch.errors.keys() == {1, 2, 3}
    agree(batch, table.to_pylist(), schema, total=True, kept={"b"})
    assert len(batch_of_arrow(table.select(["a"]), schema, total=True).errors) == 4


def test_a_name_given_twice_is_wrong_where_both_are_there() -> None:
    rows: list[dict[str, Any]] = [
        {"a.b": 1, "a": {"b": 2}},
        {"a.b": 1, "a": None},
        {"a.b": None, "a": {"b": 2}},
    ]
    batch = batch_of_arrow(pa.Table.from_pylist(rows))
    assert "given twice" in errors_of(batch)[0]
    agree(batch, rows)
    assert batch_of_arrow(pa.Table.from_pylist(rows), wanted={"a"}).columns == {}


def test_a_text_that_is_not_utf8_is_wrong_in_its_event_alone() -> None:
    offsets = pa.py_buffer(np.array([0, 1, 3, 3], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xed\xa0")])
    batch = batch_of_arrow(pa.table({"a": texts}))
    assert errors_of(batch) == {1: "a: the text is not valid UTF-8"}
    assert batch.event(0) == Event({"a": "a"})
    assert batch.event(2) == Event({"a": ""})


def test_an_instant_that_no_datetime_names_is_wrong_in_its_place() -> None:
    table = pa.table({"a": pa.array([[0, 2**60]], pa.list_(pa.timestamp("s")))})
    assert errors_of(batch_of_arrow(table)) == {
        0: "a[1]: 1152921504606846976 of type timestamp[s] lies outside of the years 1 to 9999"
    }


def test_the_limits_hold() -> None:
    rows: list[dict[str, Any]] = [
        {f"a{n}": n for n in range(1025)},
        {f"a{n}": n for n in range(1024)},
    ]
    wide = batch_of_arrow(pa.Table.from_pylist(rows))
    assert errors_of(wide) == {
        0: "attributes of the event: more than 1,024 exceeds the limit of 1,024"
    }
    long = batch_of_arrow(pa.table({"a": [[1] * 65_536, [1] * 65_535], "b": [1, 1]}))
    assert errors_of(long) == {
        0: "values of the event: more than 65,536 exceeds the limit of 65,536"
    }
    deep: Any = 1
    for _ in range(31):
        deep = [deep]
    rows = [{"a": deep, "b": [deep]}, {"a": deep, "b": None}]
    agree(batch_of_arrow(pa.Table.from_pylist(rows)), rows)


# --- what is wrong with a column -------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "type_", "advice"),
    [
        (Decimal("1.5"), None, "cast it to float64, or to string to keep every digit"),
        (timedelta(1), None, "cast it to int64"),
        (time(4, 2), None, "cast it to string, or to an integer"),
        ([("k", 1)], pa.map_(pa.string(), pa.int8()), "make it a struct, or a list of its values"),
        (True, pa.bool8(), "cast it to a type that Tamis knows"),
    ],
)
def test_a_type_that_tamis_has_no_values_for_is_refused(
    value: object, type_: pa.DataType | None, advice: str
) -> None:
    if type_ == pa.bool8():
        array: pa.Array = pa.ExtensionArray.from_storage(type_, pa.array([1], pa.int8()))
    else:
        array = pa.array([value], type_)
    with pytest.raises(EventError) as refused:
        batch_of_arrow(pa.table({"a": array, "b": [1]}))
    assert str(refused.value) == (
        f"a: the column has the Arrow type {array.type}, and Tamis has no such values; {advice}, "
        "or leave the column out"
    )
    assert batch_of_arrow(pa.table({"a": array, "b": [1]}), wanted={"b"}).event(0)["b"] == (1,)
    assert batch_of_arrow(pa.table({"a": array}), Schema({"b": "int"})).columns == {}


def test_such_a_type_is_named_with_its_place() -> None:
    table = pa.table({"a": pa.array([[{"b": Decimal(1)}]])})
    with pytest.raises(EventError, match=r"^a\.b: the column has the Arrow type decimal"):
        batch_of_arrow(table)
    with pytest.raises(EventError, match=r"^a\.b"):
        batch_of_arrow(table, Schema({"a.b": "str"}))
    assert batch_of_arrow(table, wanted={"a", "a.c"}).columns == {}


def test_names_that_cannot_be_are_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(EventError, match=r"^a: the name is given to two columns"):
        batch_of_arrow(twice)
    assert batch_of_arrow(twice, wanted={"b"}).columns == {}
    with pytest.raises(EventError, match="'' is not an attribute name"):
        batch_of_arrow(pa.table({"": [1]}))
    with pytest.raises(LimitError, match="characters of the name: 1,025 exceeds"):
        batch_of_arrow(pa.table({"a" * 1025: [1]}))


# --- events one by one -----------------------------------------------------------------------


class Name(str):
    __slots__ = ()


ODD_VALUES: list[Any] = [
    *(
        None,
        1,
        0,
        True,
        1.5,
        math.nan,
        math.inf,
        "a",
        "",
        "é",
        "\ud800",
        2**63,
        2**63 - 1,
        -(2**63),
    ),
    *(
        2**53 + 1,
        2**64,
        b"x",
        [1, "a", None],
        [],
        {"b": 2},
        {"b": {"c": [1]}},
        Name("n"),
        Bits([1]),
    ),
    *(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), "2026-11-15", -1, 2.0, object()),
]


def random_row(rng: Random, odd: float) -> Any:
    if rng.random() < 0.02:
        return rng.choice([None, 5, "a"])
    row: dict[Any, Any] = {}
    for _ in range(rng.randint(0, 4)):
        name: Any = rng.choice(("a", "b", "c", "a.b", "é"))
        if rng.random() < odd / 10:
            name = rng.choice(("", 7, Name("a"), Name("z"), "\ud800", "n" * 1025))
        row[name] = rng.choice(ODD_VALUES if rng.random() < odd else (1, 2, 3))
    return Event({"a": [1, "x"]}) if rng.random() < 0.05 else row


def check_random_rows(rng: Random) -> None:
    odd = rng.choice((0.0, 0.1, 0.9))
    rows = [random_row(rng, odd) for _ in range(rng.randint(0, 8))]
    if rng.random() < 0.3:
        # All have the same names, as most rows do.
        values = ODD_VALUES if rng.random() < odd else (1, 2.5, "x", None)
        names = rng.sample(("a", "b", "c", "a.b", "é"), rng.randint(0, 4))
        rows = [{name: rng.choice(values) for name in names} for _ in rows]
    schema = None
    if rng.random() < 0.6:
        names = [name for name in ("a", "b", "c", "a.b", "é") if rng.random() < 0.6]
        schema = Schema(
            {n: attribute(rng.choice(list(Type)), many=rng.random() < 0.5) for n in names}
        )
    total = schema is not None and rng.random() < 0.3
    batch = EventBatch.of_events(iter(rows), schema, total=total)
    expected = [row if isinstance(row, Mapping) else {"": row} for row in rows]
    wrong = {n for n, row in enumerate(rows) if not isinstance(row, Mapping)}
    assert wrong <= batch.errors.keys()
    assert list(batch.errors) == sorted(batch.errors)
    for number in set(range(len(rows))) - wrong:
        plain = _plainly(expected[number], schema, total=total)
        assert isinstance(plain, str) == (number in batch.errors)
        if isinstance(plain, str):
            assert str(batch.errors[number]) == plain
            assert batch.event(number) == Event({})
        else:
            assert by_kind(batch.event(number)) == by_kind(plain)
    sound(batch)
    wanted = {name for name in ("a", "c", "z") if rng.random() < 0.6}
    some = EventBatch.of_events(rows, schema, total=total, wanted=wanted)
    sound(some)
    assert some.columns.keys() <= wanted
    assert {n: str(e) for n, e in some.errors.items()} == {
        n: str(e) for n, e in batch.errors.items()
    }
    for number in range(len(rows)):
        assert some.event(number, sorted(wanted)) == batch.event(number, sorted(wanted))


def _plainly(row: Any, schema: Schema | None, *, total: bool) -> Event | str:
    return plainly(row.as_dict() if isinstance(row, Event) else row, schema, total=total)


def test_a_batch_of_events_holds_each_of_them() -> None:
    for seed in range(2_000):
        check_random_rows(Random(seed))
