"""Times in rows as Spark hands them to Python: in the zone of the process, without naming it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa

ValueConversion = Callable[[Any], Any]


def zoned_values(type_: pa.DataType) -> ValueConversion | None:
    """Return what gives the times in a value their zone; None if values of a type need nothing.

    Structs, lists and maps may hold times; structs are mappings. What has no zone in Arrow has
    none in Spark either.
    """
    if pa.types.is_timestamp(type_):
        return None if type_.tz is None else zoned
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _in_list(zoned_values(type_.value_type))
    if pa.types.is_struct(type_):
        return _in_struct({field.name: zoned_values(field.type) for field in type_})
    if pa.types.is_map(type_):
        return _in_map(zoned_values(type_.key_type), zoned_values(type_.item_type))
    return None


def zoned(time: datetime | None) -> datetime | None:
    """Return a time of this process with its offset from UTC.

    >>> zoned(datetime(2024, 6, 1, 12)).tzinfo is not None
    True
    """
    if time is None or time.tzinfo is not None:
        return time
    try:
        return time.astimezone()
    except (OverflowError, ValueError):
        # The first and the last day that Python knows may be in other years in UTC.
        inner = timedelta(days=2) if time.year == 1 else timedelta(days=-2)
        offset = (time + inner).astimezone().utcoffset()
        return time.replace(tzinfo=timezone(offset or timedelta(0)))


def _in_list(convert: ValueConversion | None) -> ValueConversion | None:
    if convert is None:
        return None
    return lambda values: None if values is None else [convert(value) for value in values]


def _in_struct(conversions: dict[str, ValueConversion | None]) -> ValueConversion | None:
    needed = {name: convert for name, convert in conversions.items() if convert is not None}
    if not needed:
        return None

    def convert_fields(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        return value | {name: convert(value[name]) for name, convert in needed.items()}

    return convert_fields


def _in_map(
    of_keys: ValueConversion | None, of_items: ValueConversion | None
) -> ValueConversion | None:
    if of_keys is None and of_items is None:
        return None

    def convert_entries(entries: dict[Any, Any] | None) -> list[tuple[Any, Any]] | None:
        if entries is None:
            return None
        return [
            (of_keys(key) if of_keys else key, of_items(item) if of_items else item)
            for key, item in entries.items()
        ]

    return convert_entries
