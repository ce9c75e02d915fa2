"""The table of kinds: all that the package knows about each kind of value, in one place.

A *type* is what a schema declares. A *kind* decides whether two values can be compared: integers
and floats are one kind, because they compare exactly with each other. A new kind is a member of
`Kind` and of `Type` with an entry in each of the two tables; whatever reads, writes, compares,
orders or stores values reads the tables. Only what is special to a kind (arithmetic of numbers,
tests of text, bits) has code elsewhere; `tests/events/test_kinds.py` lists where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from tamis.errors import EventError
from tamis.events.values import (
    FIRST_DAY,
    LAST_INSTANT,
    MICROSECOND,
    Bits,
    bytes_of_characters,
    characters_of,
    check_datetime,
    check_int,
    check_text,
    day_at_midnight,
    exact_float,
    format_base64,
    format_timestamp,
    instant,
    mask_bits,
    microseconds,
    nearest_number,
    parse_base64,
    parse_date,
    parse_timestamp,
    parse_uuid,
    uuid_of_bytes,
)

Value = int | float | str | bool | datetime | Bits | date | UUID | bytes


class Kind(StrEnum):
    """Values of one kind can be compared; the member's value names the kind in a sentence."""

    NUMBER = "a number"
    TEXT = "text"
    BOOLEAN = "a boolean"
    TIMESTAMP = "a timestamp"
    BITS = "a bit set"
    DATE = "a date"
    UUID = "a UUID"
    BYTES = "bytes"


class Type(StrEnum):
    """The types a schema may declare."""

    INT = "int"
    FLOAT = "float"
    STR = "str"
    BOOL = "bool"
    TIMESTAMP = "timestamp"
    BITS = "bits"
    DATE = "date"
    UUID = "uuid"
    BYTES = "bytes"


EQUALITY: Final = frozenset(("=", "!="))
ORDER: Final = EQUALITY | {"<", "<=", ">", ">="}


class KindTraits(NamedTuple):
    """How the values of one kind compare, in which order, and how columns store them."""

    comparisons: frozenset[str]
    """The operators that mean something between two values of the kind."""
    dtype: str
    """The NumPy type of a column."""
    store: Callable[[Any], Any] | None = None
    """Convert a value to a scalar of the dtype that sorts alike; None: columns do it their way."""
    restore: Callable[[Any], Any] | None = None
    """Return the value of a stored scalar."""
    lowest: Any = None
    """The lowest value, None where there is no order."""
    successor: Callable[[Any], Any] = lambda _: None
    """Return the next greater value, None after the last."""
    predecessor: Callable[[Any], Any] = lambda _: None
    """Return a value just below one that is not the lowest, None if there is none to name."""
    examples: tuple[Any, ...] = ()
    """Readable values for a witness."""
    advice: str = "only = and != have"
    """What to use where a comparison has no meaning."""


# In the order of the brackets of a value order. Snapshots store these numbers: add kinds last.
KINDS: Final[Mapping[Kind, KindTraits]] = MappingProxyType(
    {
        Kind.BOOLEAN: KindTraits(
            comparisons=EQUALITY,
            dtype="bool",
            store=bool,
            restore=bool,
            lowest=False,
            successor=lambda value: None if value else True,
            predecessor=lambda _: False,
            examples=(True, False),
        ),
        # Integers are floats with a residue, so that 64 bits of them stay exact.
        Kind.NUMBER: KindTraits(comparisons=ORDER, dtype="float64", lowest=-inf),
        Kind.TIMESTAMP: KindTraits(
            comparisons=ORDER,
            dtype="int64",
            store=microseconds,
            restore=instant,
            lowest=datetime.min.replace(tzinfo=UTC),
            successor=lambda value: None if value >= LAST_INSTANT else value + MICROSECOND,
            predecessor=lambda value: value - MICROSECOND,
            examples=(datetime(2026, 1, 1, tzinfo=UTC),),
        ),
        Kind.BITS: KindTraits(
            comparisons=frozenset(),
            dtype="uint64",
            store=lambda value: value.mask,
            restore=Bits.from_mask,
            advice="use has_all_bits or has_any_bit",
        ),
        # Texts are codes into the distinct ones.
        Kind.TEXT: KindTraits(
            comparisons=ORDER,
            dtype="int32",
            lowest="",
            successor=lambda value: value + "\0",
            examples=("x",),
        ),
        Kind.DATE: KindTraits(
            comparisons=ORDER,
            dtype="int32",
            store=lambda value: (value - FIRST_DAY).days,
            restore=lambda days: FIRST_DAY + timedelta(days=days),
            lowest=date.min,
            successor=lambda value: None if value >= date.max else value + timedelta(days=1),
            predecessor=lambda value: value - timedelta(days=1),
            examples=(date(2026, 1, 1),),
        ),
        # As texts of digits, which sort alike: no number of NumPy has 128 bits.
        Kind.UUID: KindTraits(
            comparisons=ORDER,
            dtype="U32",
            store=lambda value: value.hex,
            restore=UUID,
            lowest=UUID(int=0),
            successor=lambda value: UUID(int=value.int + 1) if value.int + 1 < 2**128 else None,
            predecessor=lambda value: UUID(int=value.int - 1),
            examples=(UUID("12345678-1234-4234-8234-123456789abc"),),
        ),
        # As texts with a character for each byte, which sort alike; none is 0, because NumPy may
        # drop zeros at the end.
        Kind.BYTES: KindTraits(
            comparisons=ORDER,
            dtype="O",
            store=characters_of,
            restore=bytes_of_characters,
            lowest=b"",
            successor=lambda value: value + b"\0",
            examples=(b"x",),
        ),
    }
)


class TypeTraits(NamedTuple):
    """How the values of one type are checked, converted, printed and carried."""

    kind: Kind
    cls: type
    check: Callable[[Any, str], Any]
    """Return an instance of the class as a plain value, or raise EventError with its place."""
    trusted: bool = False
    """Whether every instance of the class itself, not of a subclass, is a value."""
    conversions: Mapping[Type, Callable[[Any], Any]] = MappingProxyType({})
    """Conversions from other types to a declared one; they return None or raise ValueError."""
    keyword: str = ""
    """The word before the text in a filter: `timestamp "…"`; converts from text."""
    show: Callable[[Any], str] = repr
    """Return the value as the Tamis language writes it."""
    to_json: Callable[[Any], Any] | None = None
    """Return the value as JSON writes it; None is the value itself."""
    arrow: tuple[str, ...] = ()
    """The Arrow types that hold such values, the usual one first."""


TYPES: Final[Mapping[Type, TypeTraits]] = MappingProxyType(
    {
        Type.INT: TypeTraits(
            kind=Kind.NUMBER,
            cls=int,
            check=check_int,
            arrow=("int64", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64"),
        ),
        Type.FLOAT: TypeTraits(
            kind=Kind.NUMBER,
            cls=float,
            check=lambda value, _: float.__float__(value),
            trusted=True,
            conversions={Type.INT: exact_float},
            arrow=("float64", "float16", "float32"),
        ),
        Type.STR: TypeTraits(
            kind=Kind.TEXT,
            cls=str,
            check=check_text,
            show=lambda value: json.dumps(value, ensure_ascii=False),
            arrow=("string", "large_string", "string_view"),
        ),
        Type.BOOL: TypeTraits(
            kind=Kind.BOOLEAN,
            cls=bool,
            check=lambda value, _: value,
            trusted=True,
            show=lambda value: "true" if value else "false",
            arrow=("bool",),
        ),
        Type.TIMESTAMP: TypeTraits(
            kind=Kind.TIMESTAMP,
            cls=datetime,
            check=check_datetime,
            conversions={Type.STR: parse_timestamp},
            keyword="timestamp",
            show=lambda value: f'timestamp "{format_timestamp(value)}"',
            to_json=format_timestamp,
            arrow=("timestamp[us]", "date32", "date64"),
        ),
        Type.BITS: TypeTraits(
            kind=Kind.BITS,
            cls=Bits,
            check=lambda value, _: value if type(value) is Bits else Bits(value),
            trusted=True,
            conversions={Type.INT: mask_bits},
            show=lambda value: f"{value.mask:#b}",
            to_json=lambda value: value.mask,
        ),
        # After timestamps: a datetime is a date for Python, but not here.
        Type.DATE: TypeTraits(
            kind=Kind.DATE,
            cls=date,
            check=lambda v, _: v if type(v) is date else date(v.year, v.month, v.day),
            trusted=True,
            conversions={Type.STR: parse_date, Type.TIMESTAMP: day_at_midnight},
            keyword="date",
            show=lambda value: f'date "{value.isoformat()}"',
            to_json=date.isoformat,
        ),
        Type.UUID: TypeTraits(
            kind=Kind.UUID,
            cls=UUID,
            check=lambda value, _: value if type(value) is UUID else UUID(int=value.int),
            trusted=True,
            conversions={Type.STR: parse_uuid, Type.BYTES: uuid_of_bytes},
            keyword="uuid",
            show=lambda value: f'uuid "{value}"',
            to_json=str,
        ),
        Type.BYTES: TypeTraits(
            kind=Kind.BYTES,
            cls=bytes,
            check=lambda value, _: bytes(value),
            trusted=True,
            conversions={Type.STR: parse_base64},
            keyword="bytes",
            show=lambda value: f'bytes "{format_base64(value)}"',
            to_json=format_base64,
            arrow=("binary", "large_binary", "binary_view"),
        ),
    }
)

KIND_OF_TYPE: Final = {type_: traits.kind for type_, traits in TYPES.items()}
TYPE_OF_CLASS: Final[dict[type, Type]] = {traits.cls: type_ for type_, traits in TYPES.items()}
TRAITS_OF_CLASS: Final[dict[type, TypeTraits]] = {t.cls: t for t in TYPES.values()}
TYPE_OF_KEYWORD: Final = {t.keyword: type_ for type_, t in TYPES.items() if t.keyword}
KIND_OF_CLASS: Final = {traits.cls: traits.kind for traits in TYPES.values()}

# Classes whose instances stand for a value of one of the types.
STAND_INS: Final[Mapping[type, Callable[[Any], object]]] = MappingProxyType(
    {
        Decimal: nearest_number,
        Enum: lambda member: member.value if is_value(member.value) else member.name,
        bytearray: bytes,
        memoryview: bytes,
    }
)


def kind_of(value: Value) -> Kind | None:
    """Return the kind of a checked value; NaN has none, so no comparison can hold for it."""
    if value != value:  # noqa: PLR0124 - only NaN differs from itself
        return None
    return KIND_OF_CLASS[type(value)]


def traits_of(value: object) -> TypeTraits | None:
    """Return the traits of the type that an object's class is, or is derived from, if any."""
    traits = TRAITS_OF_CLASS.get(type(value))
    if traits is not None:
        return traits
    return next((traits for traits in TYPES.values() if isinstance(value, traits.cls)), None)


def check_value(value: object, place: str = "") -> Value:
    """Return `value` as one of the known types, or say why it is none of them."""
    traits = TRAITS_OF_CLASS.get(type(value)) or traits_of(value)
    if traits is None:
        value = _plain(value)
        traits = TRAITS_OF_CLASS.get(type(value)) or traits_of(value)
    if traits is None:
        raise EventError(_unknown(value), place=place)
    checked: Value = traits.check(value, place)
    return checked


# Of NumPy: booleans, signed and unsigned integers, floats. Not dates: they have no zone.
_SCALAR_DTYPES: Final = frozenset("biuf")


def is_value(value: object) -> bool:
    """Return whether an object is of one of the known types, or stands for a value of one."""
    if traits_of(value) is not None or isinstance(value, tuple(STAND_INS)):
        return True
    return _plain_scalar(value) is not value


def _plain(value: object) -> object:
    """Return the value that an object stands for, the object itself if it is no stand-in."""
    for cls, convert in STAND_INS.items():
        if isinstance(value, cls):
            # The value of a member may be a stand-in itself.
            return _plain(convert(value))
    return _plain_scalar(value)


def _plain_scalar(value: object) -> object:
    """Return a number or truth value of NumPy as Python's, which is exactly the same."""
    cls = type(value)
    # Of its class: other people's `__getattr__` may raise, or answer anything.
    if not hasattr(cls, "dtype") or not hasattr(cls, "shape"):
        return value
    if value.shape != () or getattr(value.dtype, "kind", "") not in _SCALAR_DTYPES:  # type: ignore[attr-defined]
        return value
    return value.item()  # type: ignore[attr-defined]


def _unknown(value: object) -> str:
    *names, last = (traits.cls.__name__ for traits in TYPES.values())
    return (
        f"a value of type {type(value).__name__!r} is not one that Tamis knows; "
        f"use {', '.join(names)} or {last}"
    )


def identity_of(value: Value) -> tuple[type, Value | None]:
    """Return a key by which values are the same event: not 1, 1.0 and True, but NaN and NaN."""
    return type(value), (value if value == value else None)  # noqa: PLR0124


def types_from(type_: Type) -> tuple[Type, ...]:
    """Return the types that a schema may declare for values of a type."""
    return type_, *(t for t, traits in TYPES.items() if type_ in traits.conversions)
