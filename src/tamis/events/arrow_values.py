"""The values of one flat Arrow array as entries of a column, without a loop over them.

Only this module and `arrow_numbers`, which reads many columns of numbers at once, read Arrow's
buffers: here numbers and instants as views, bitmaps unpacked, texts by code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import types as arrow_types

from tamis.errors import EventError
from tamis.events import places
from tamis.events.columns import Entries, entries_of, float_entries, split_integers
from tamis.events.kinds import KINDS, TYPES, Kind, Type
from tamis.events.values import INT64_MAX, UUID_BYTES, RejectedValue, microseconds

FIRST_MICROSECOND: Final = microseconds(datetime.min.replace(tzinfo=UTC))
LAST_MICROSECOND: Final = microseconds(datetime.max.replace(tzinfo=UTC))

# Microseconds per unit; a microsecond has a thousand nanoseconds.
_MICROSECONDS_PER_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NANOSECONDS_PER_MICROSECOND: Final = 1_000
_MICROSECONDS_PER_DAY: Final = 86_400_000_000

_TYPE_OF_ID: Final = {
    **{pa.type_for_alias(alias).id: t for t, traits in TYPES.items() for alias in traits.arrow},
    # It has no alias, because its size belongs to its name.
    pa.binary(1).id: Type.BYTES,
}

EventNumbers = NDArray[np.int32]


class ArrowValues(NamedTuple):
    """The entries of an array, and the events whose values are invalid."""

    entries: Mapping[Kind | None, Entries]
    wrong: EventNumbers | None = None


def type_of_arrow(type_: pa.DataType) -> Type | None:
    """Return the type of the values of a flat Arrow type, None if Tamis has no such type."""
    if arrow_types.is_dictionary(type_):
        return Type.STR if is_text(type_.value_type) else None
    return _TYPE_OF_ID.get(type_.id)


def is_surely(type_: pa.DataType, declared: Type) -> bool:
    """Return whether every value of an Arrow type is valid for a declared type."""
    return type_of_arrow(type_) is declared and not (
        arrow_types.is_uint64(type_) or declared is Type.TIMESTAMP
    )


def is_text(type_: pa.DataType) -> bool:
    """Return whether an Arrow type is a string type."""
    return _TYPE_OF_ID.get(type_.id) is Type.STR


def check_distinct(names: Sequence[str], keys: tuple[str, ...] = ()) -> None:
    """Refuse a struct or table with two fields of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise EventError("the name is given to two columns", place=places.path((*keys, name)))


def find_values(array: pa.Array, events: EventNumbers, declared: Type | None) -> ArrowValues:
    """Return the values of an array, converted to the declared type, given the event of each."""
    type_ = type_of_arrow(array.type)
    match type_:
        case Type.INT:
            return _integers(*fixed_width(array, events), declared)
        case Type.FLOAT:
            values, events = fixed_width(array, events)
            numbers = values.astype(np.float64, copy=False)
            entries: dict[Kind | None, Entries] = {Kind.NUMBER: Entries(events, numbers)}
            if np.isnan(numbers).any():
                entries = float_entries(events, numbers)
            wrong = None if declared in {None, Type.FLOAT} else events
            return ArrowValues(entries, wrong)
        case Type.BOOL:
            values, events = _present(array, _bits(array, 1), events)
            wrong = None if declared in {None, Type.BOOL} else events
            return ArrowValues({Kind.BOOLEAN: Entries(events, values)}, wrong)
        case Type.TIMESTAMP:
            if declared is Type.DATE:
                return _dates(array, events)
            return _instants(array, events, declared)
        case Type.BYTES:
            return _bytes(array, events, declared)
        case None | Type.STR:
            return _texts(array, events, declared)
        case _:
            # Any other type is stored in Arrow as in our columns.
            values, events = fixed_width(array, events)
            kind = TYPES[type_].kind
            stored = values.astype(KINDS[kind].dtype, copy=False)
            wrong = None if declared in {None, type_} else events
            return ArrowValues({kind: Entries(events, stored)}, wrong)


# --- numbers ---------------------------------------------------------------------------------


def _integers(values: NDArray[Any], events: EventNumbers, declared: Type | None) -> ArrowValues:
    if declared is Type.BITS:
        masks = Entries(events, values.astype(np.uint64))
        return ArrowValues({Kind.BITS: masks}, _where(values < 0, events))
    wrong = _where(values > INT64_MAX, events) if values.dtype == np.uint64 else None
    integers = values.astype(np.int64, copy=False)
    if declared is Type.FLOAT:
        floats, residues = split_integers(integers)
        inexact = None if residues is None else events[residues != 0]
        return ArrowValues({Kind.NUMBER: Entries(events, floats)}, _either(wrong, inexact))
    whole = np.ones(len(integers), np.bool_)
    entries = Entries(events, *split_integers(integers), whole)
    return ArrowValues({Kind.NUMBER: entries}, wrong if declared in {None, Type.INT} else events)


# --- instants --------------------------------------------------------------------------------


def _instants(array: pa.Array, events: EventNumbers, declared: Type | None) -> ArrowValues:
    values, events = fixed_width(array, events)
    instants, outside = to_microseconds(values, array.type)
    wrong = _where(outside, events) if declared in {None, Type.TIMESTAMP} else events
    return ArrowValues({Kind.TIMESTAMP: Entries(events, instants)}, wrong)


def to_microseconds(
    values: NDArray[Any], type_: pa.DataType
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return instants or dates in microseconds, and which of them no datetime can represent.

    With or without a zone, Arrow counts from 1970 in UTC. A date is its midnight in UTC.
    """
    if arrow_types.is_timestamp(type_) and type_.unit == "ns":
        # 64 bits of nanoseconds span only the years 1677 to 2262.
        return values // _NANOSECONDS_PER_MICROSECOND, np.zeros(len(values), np.bool_)
    if arrow_types.is_date64(type_):
        values, unit = values // 86_400_000, _MICROSECONDS_PER_DAY
    else:
        unit = (
            _MICROSECONDS_PER_UNIT[type_.unit]
            if arrow_types.is_timestamp(type_)
            else _MICROSECONDS_PER_DAY
        )
    outside = (values < FIRST_MICROSECOND // unit) | (values > LAST_MICROSECOND // unit)
    return values if unit == 1 else values.astype(np.int64) * unit, outside


def _dates(array: pa.Array, events: EventNumbers) -> ArrowValues:
    values, events = fixed_width(array, events)
    instants, outside = to_microseconds(values, array.type)
    days, time_of_day = np.divmod(np.where(outside, 0, instants), _MICROSECONDS_PER_DAY)
    stored = days.astype(KINDS[Kind.DATE].dtype)
    wrong = _where(outside | (time_of_day != 0), events)
    return ArrowValues({Kind.DATE: Entries(events, stored)}, wrong)


# --- bytes -----------------------------------------------------------------------------------


def _bytes(array: pa.Array, events: EventNumbers, declared: Type | None) -> ArrowValues:
    """Return bytes, of which a declared UUID has 16."""
    events = events[is_not_null(array)]
    values = [value for value in array.to_pylist() if value is not None]
    if declared is not Type.UUID:
        wrong = None if declared in {None, Type.BYTES} else events
        return ArrowValues({Kind.BYTES: entries_of(Kind.BYTES, events, values)}, wrong)
    fits = np.array([len(value) == UUID_BYTES for value in values], np.bool_)
    uuids = [UUID(bytes=value[:UUID_BYTES].ljust(UUID_BYTES)) for value in values]
    return ArrowValues({Kind.UUID: entries_of(Kind.UUID, events, uuids)}, _where(~fits, events))


# --- texts -----------------------------------------------------------------------------------


def _texts(array: pa.Array, events: EventNumbers, declared: Type | None) -> ArrowValues:
    """Return each text as a code into the distinct ones."""
    encoded = array if arrow_types.is_dictionary(array.type) else array.dictionary_encode()
    if encoded.dictionary.null_count or len(encoded.dictionary) > len(array):
        encoded = array.dictionary_decode().dictionary_encode()
    codes, events = fixed_width(encoded.indices, events)
    codes, dictionary = codes.astype(np.int32, copy=False), encoded.dictionary
    if encoded is array:
        # A given dictionary may hold the same text twice.
        distinct = dictionary.dictionary_encode()
        codes, dictionary = fixed_width(distinct.indices, codes)[0][codes], distinct.dictionary
    wrong = None
    try:
        texts = dictionary.to_pylist()
    except UnicodeDecodeError:
        # Arrow does not always check that a text is UTF-8.
        texts = texts_of(dictionary)
        broken = np.array([isinstance(text, RejectedValue) for text in texts])
        texts, wrong = [str(text) for text in texts], _where(broken[codes], events)
    if declared is not None and Type.STR in TYPES[declared].conversions:
        stored, unread = _converted(texts, declared)
        wrong = _either(wrong, _where(unread[codes], events))
        return ArrowValues({TYPES[declared].kind: Entries(events, stored[codes])}, wrong)
    wrong = wrong if declared in {None, Type.STR} else events
    return ArrowValues({Kind.TEXT: Entries(events, codes, texts=texts)}, wrong)


def texts_of(array: pa.Array) -> list[Any]:
    """Return the texts of an array, `RejectedValue` for those that are not UTF-8."""
    texts: list[Any] = []
    for text in array:
        try:
            texts.append(text.as_py())
        except UnicodeDecodeError:
            texts.append(RejectedValue("the text is not valid UTF-8"))
    return texts


def _converted(texts: list[str], declared: Type) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return texts converted to a declared type, as stored, and which of them are invalid."""
    convert, kind = TYPES[declared].conversions[Type.STR], KINDS[TYPES[declared].kind]
    store = kind.store or (lambda value: value)
    stored, unread = np.zeros(len(texts), kind.dtype), np.zeros(len(texts), np.bool_)
    for place, text in enumerate(texts):
        try:
            stored[place] = store(convert(text))
        except ValueError:
            unread[place] = True
    return stored, unread


# --- buffers ---------------------------------------------------------------------------------


def fixed_width(array: pa.Array, events: EventNumbers) -> tuple[NDArray[Any], EventNumbers]:
    """Return the values of a fixed-width array as a view, without nulls."""
    dtype = np.dtype(f"i{array.type.byte_width}")
    if arrow_types.is_integer(array.type) or arrow_types.is_floating(array.type):
        dtype = np.dtype(array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.empty(0, dtype), events[:0]
    values = np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
    return _present(array, values, events) if array.null_count else (values, events)


def _present(
    array: pa.Array, values: NDArray[Any], events: EventNumbers
) -> tuple[NDArray[Any], EventNumbers]:
    if not array.null_count:
        return values, events
    present = np.flatnonzero(is_not_null(array))
    return values[present], events[present]


def is_not_null(array: pa.Array) -> NDArray[np.bool_]:
    """Return for each item of an array whether it is not null."""
    return _bits(array, 0) if array.null_count else np.ones(len(array), np.bool_)


def _bits(array: pa.Array, buffer: int) -> NDArray[np.bool_]:
    """Return a bitmap of an array, unpacked."""
    bitmap = array.buffers()[buffer]
    if bitmap is None or not len(array):
        return np.zeros(len(array), np.bool_)
    first, skipped = divmod(array.offset, 8)
    packed = np.frombuffer(bitmap, np.uint8, -(-(skipped + len(array)) // 8), first)
    bits = np.unpackbits(packed, bitorder="little", count=skipped + len(array))
    return bits[skipped:].view(np.bool_)


def _where(wrong: NDArray[np.bool_], events: EventNumbers) -> EventNumbers | None:
    return events[wrong] if wrong.any() else None


def _either(one: EventNumbers | None, other: EventNumbers | None) -> EventNumbers | None:
    if one is None or other is None:
        return other if one is None else one
    return np.concatenate((one, other))


# --- what Tamis has no values for ------------------------------------------------------------

_ADVICE: Final = {
    arrow_types.is_decimal: "cast it to float64, or to string to keep every digit",
    arrow_types.is_duration: "cast it to int64",
    arrow_types.is_time: "cast it to string, or to an integer",
    arrow_types.is_map: "make it a struct, or a list of its values",
    arrow_types.is_union: "make it a struct with a field for each type",
}


def refuse_type(type_: pa.DataType, place: str) -> EventError:
    """Return the error for a column of an unsupported type."""
    advice = "cast it to a type that Tamis knows"
    for test, found in _ADVICE.items():
        advice = found if test(type_) else advice
    return EventError(
        f"the column has the Arrow type {type_}, and Tamis has no such values; {advice}, or leave "
        "the column out",
        place=place,
    )
