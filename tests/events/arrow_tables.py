"""Random Arrow tables of every type and nesting, beside the rows that they say in plain Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from tamis.events import Attribute, Schema, Type
from tamis.events.values import RejectedValue

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY: Final = 86_400_000

INTEGERS: Final = (
    0,
    1,
    -1,
    7,
    127,
    128,
    -128,
    255,
    2**31,
    -(2**31),
    2**53,
    2**53 + 1,
    -(2**53) - 1,
)
EDGES: Final = (2**63 - 1, 2**63 - 511, 2**63 - 512, 2**63 - 513, -(2**63), -(2**63) + 1, 2**64 - 1)
FLOATS: Final = (0.0, -0.0, 1.5, -2.0, 1e300, math.nan, math.inf, -math.inf, 0.1)
TEXTS: Final = ("", "a", "b", "ab", "é", "日本", "a\0", "2026-11-15T04:02:00Z", "2026-02-30")

MICROSECONDS_OF: Final = {"s": 10**6, "ms": 10**3, "us": 1}


class Flat(NamedTuple):
    """A flat type: how its values are chosen, and what they are to Tamis."""

    type: pa.DataType
    choose: Callable[[Random], Any]
    means: Callable[[Any], Any]


def _integers(type_: pa.DataType) -> Flat:
    signed = pa.types.is_signed_integer(type_)
    low, high = (
        (-(2 ** (type_.bit_width - 1)), 2 ** (type_.bit_width - 1) - 1)
        if signed
        else (0, 2**type_.bit_width - 1)
    )
    pool = [value for value in (*INTEGERS, *EDGES) if low <= value <= high]
    return Flat(type_, lambda rng: rng.choice(pool), lambda value: value)


def _floats(type_: pa.DataType) -> Flat:
    dtype = type_.to_pandas_dtype()
    with np.errstate(over="ignore"):
        pool = [dtype(value) for value in FLOATS]
    return Flat(type_, lambda rng: rng.choice(pool), float)


def _instants(unit: str, zone: str | None) -> Flat:
    type_ = pa.timestamp(unit, zone)

    def choose(rng: Random) -> int:
        if rng.random() < 0.05 and unit != "ns":
            return rng.choice((-(2**62), 2**62))
        seconds = rng.choice((0, -1, 1_763_179_320))
        finest = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        return seconds * finest + rng.choice((0, 1, -1, 999, 1001))

    def means(value: int) -> datetime | RejectedValue:
        if unit == "ns":
            return EPOCH + timedelta(microseconds=value // 1000)
        try:
            return EPOCH + timedelta(microseconds=value * MICROSECONDS_OF[unit])
        except OverflowError:
            return RejectedValue(f"{value} of type {type_} lies outside of the years 1 to 9999")

    return Flat(type_, choose, means)


def _days(type_: pa.DataType) -> Flat:
    scale = 1 if type_ == pa.date32() else DAY
    return Flat(
        type_,
        lambda rng: rng.choice((0, -1, 20_000, -719_162, 2_932_896)) * scale,
        lambda value: EPOCH + timedelta(days=value // scale),
    )


def _texts(type_: pa.DataType) -> Flat:
    return Flat(type_, lambda rng: rng.choice(TEXTS), lambda value: value)


def _blobs(type_: pa.DataType) -> Flat:
    short = () if type_ == pa.binary(16) else (b"", b"x\0")
    return Flat(
        type_, lambda rng: rng.choice((bytes(16), b"\xff" * 16, *short)), lambda value: value
    )


INTEGER_TYPES: Final = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
)

FLAT: Final = (
    *map(_integers, INTEGER_TYPES),
    *map(_floats, (pa.float16(), pa.float32(), pa.float64())),
    Flat(pa.bool_(), lambda rng: rng.random() < 0.5, lambda value: value),
    *map(_texts, (pa.string(), pa.large_string(), pa.string_view())),
    *map(_texts, (pa.dictionary(index, pa.string()) for index in (pa.int8(), pa.int32()))),
    *(_instants(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "+01:00")),
    *map(_days, (pa.date32(), pa.date64())),
    *map(_blobs, (pa.binary(), pa.large_binary(), pa.binary(16))),
)

# A value as `pa.array` takes it, and as Tamis should see it.
Pair = tuple[Any, Any]
Chooser = Callable[[Random], Pair]


def _absent(rng: Random, share: float) -> bool:
    return rng.random() < share


def random_type(rng: Random, depth: int = 2) -> tuple[pa.DataType, Chooser]:
    """Return a type and what chooses its values, nulls among them."""
    form = rng.choice(("flat", "flat", "list", "struct")) if depth else "flat"
    if form == "flat":
        return _flat_type(rng)
    return _list_type(rng, depth) if form == "list" else _struct_type(rng, depth)


def _flat_type(rng: Random) -> tuple[pa.DataType, Chooser]:
    if rng.random() < 0.05:
        return pa.null(), lambda _: (None, None)
    flat, nulls = rng.choice(FLAT), rng.choice((0.0, 0.3))

    def choose(rng: Random) -> Pair:
        if _absent(rng, nulls):
            return None, None
        value = flat.choose(rng)
        return value, flat.means(value)

    return flat.type, choose


def _list_type(rng: Random, depth: int) -> tuple[pa.DataType, Chooser]:
    inner, choose_inner = random_type(rng, depth - 1)
    size = rng.choice((None, None, 2))
    make = rng.choice((pa.list_, pa.large_list, pa.list_view))
    type_ = make(inner) if size is None else pa.list_(inner, size)

    def choose(rng: Random) -> Pair:
        if _absent(rng, 0.2):
            return None, None
        pairs = [choose_inner(rng) for _ in range(rng.choice((0, 1, 1, 2)) if size is None else 2)]
        return [given for given, _ in pairs], [meant for _, meant in pairs]

    return type_, choose


def _struct_type(rng: Random, depth: int) -> tuple[pa.DataType, Chooser]:
    fields = {name: random_type(rng, depth - 1) for name in rng.sample(("x", "y", "x.y"), 2)}
    type_ = pa.struct([(name, inner) for name, (inner, _) in fields.items()])

    def choose(rng: Random) -> Pair:
        if _absent(rng, 0.2):
            return None, None
        pairs = {name: choose_inner(rng) for name, (_, choose_inner) in fields.items()}
        return {n: given for n, (given, _) in pairs.items()}, {
            n: meant for n, (_, meant) in pairs.items()
        }

    return type_, choose


def random_table(rng: Random) -> tuple[pa.Table | pa.RecordBatch, list[dict[str, Any]]]:
    """Return a table and its rows; cut out of a larger one, in chunks, or encoded by runs."""
    length = rng.randint(0, 12)
    names = rng.sample(("a", "b", "a.x", "a.x.y", "unit price"), rng.randint(1, 4))
    rows: list[dict[str, Any]] = [{} for _ in range(length)]
    columns: dict[str, Any] = {}
    for name in names:
        type_, choose = random_type(rng)
        pairs = [choose(rng) for _ in range(length)]
        columns[name] = _random_layout(rng, [given for given, _ in pairs], type_, choose)
        for row, (_, meant) in zip(rows, pairs, strict=True):
            row[name] = meant
    table = pa.table(columns)
    if rng.random() < 0.3:
        batches = pa.Table.from_arrays(
            [pa.concat_arrays(c.chunks) if _joins(c) else c for c in table.columns], names=names
        ).to_batches()
        if len(batches) == 1:
            return batches[0], rows
    return table, rows


def _joins(column: pa.ChunkedArray) -> bool:
    try:
        pa.concat_arrays(column.chunks)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _random_layout(
    rng: Random, values: list[Any], type_: pa.DataType, choose: Chooser
) -> pa.ChunkedArray:
    cuts = sorted(rng.choices(range(len(values) + 1), k=rng.choice((0, 0, 1, 3))))
    chunks = []
    for first, last in zip([0, *cuts], [*cuts, len(values)], strict=True):
        before, after = (
            [choose(rng)[0] for _ in range(rng.choice((0, 0, 1, 9)))] for _ in range(2)
        )
        array = pa.array([*before, *values[first:last], *after], type_)
        chunks.append(array.slice(len(before), last - first))
    return pa.chunked_array(chunks, type_)


def attributes_of(type_: pa.DataType, name: str) -> dict[str, Type | None]:
    """Return the dotted names that a type gives, and the type of the values of each."""
    if pa.types.is_struct(type_):
        found: dict[str, Type | None] = {}
        for field in type_:
            found |= attributes_of(field.type, f"{name}.{field.name}")
        return found
    if hasattr(type_, "value_type") and not pa.types.is_dictionary(type_):
        return attributes_of(type_.value_type, name)
    tests = (
        (pa.types.is_integer, Type.INT),
        (pa.types.is_floating, Type.FLOAT),
        (pa.types.is_boolean, Type.BOOL),
        (pa.types.is_null, None),
        (pa.types.is_temporal, Type.TIMESTAMP),
    )
    return {name: next((found for test, found in tests if test(type_)), Type.STR)}


def random_schema(rng: Random, data: pa.Table | pa.RecordBatch) -> Schema:
    """Return a schema that declares most of a table's attributes, most of them rightly."""
    declared: dict[str, Attribute] = {}
    for field in data.schema:
        for name, type_ in attributes_of(field.type, field.name).items():
            if rng.random() < 0.8:
                near = {Type.INT: (Type.FLOAT, Type.BITS), Type.STR: (Type.TIMESTAMP,)}
                other = rng.choice((*near.get(type_ or Type.INT, ()), *Type))
                right = type_ is not None and rng.random() < 0.7
                chosen = type_ if right and type_ is not None else other
                declared[name] = Attribute(chosen, None, rng.random() < 0.6)
    if rng.random() < 0.1:
        declared["nowhere"] = Attribute(Type.INT)
    return Schema(declared)
