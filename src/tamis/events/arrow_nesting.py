"""Nested Arrow arrays taken apart: into flat ones with a dotted name, or into Python's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import types as arrow_types

from tamis.errors import EventError, LimitError
from tamis.events import places
from tamis.events.arrow_values import (
    Events,
    fixed_width,
    is_present,
    is_text,
    refuse_type,
    texts_of,
    to_microseconds,
    type_of_arrow,
)
from tamis.events.limits import EventLimits
from tamis.events.strict_json import RejectedValue
from tamis.events.values import Type

Keys = tuple[str, ...]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NESTED: Final = {
    pa.struct([]).id,
    pa.list_(pa.null()).id,
    pa.large_list(pa.null()).id,
    pa.list_(pa.null(), 1).id,
    pa.list_view(pa.null()).id,
    pa.large_list_view(pa.null()).id,
}


class AttributeSelection:
    """Which attributes are read: some, or all."""

    def __init__(self, names: Collection[str] | None) -> None:
        self._names = None if names is None else frozenset(names)
        self._ways = {*(names or ()), *(way for name in names or () for way in _ways(name))}

    def reads(self, name: str) -> bool:
        """Tell whether an attribute is read."""
        return self._names is None or name in self._names

    def enters(self, name: str) -> bool:
        """Tell whether an attribute is read, or one that is nested in it."""
        return self._names is None or name in self._ways


def _ways(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


class FlatArray(NamedTuple):
    """What an attribute holds in one stretch of the table: flat values, and the event of each."""

    array: pa.Array
    events: Events
    repeated: bool
    """Whether it lies in a list, so that an event may hold several."""


class FlatArrays:
    """The flat arrays of a table, found by going into all that is nested."""

    def __init__(self, selection: AttributeSelection, limits: EventLimits) -> None:
        self.found: Final[dict[Keys, list[FlatArray]]] = {}
        self.too_deep: Final[list[Events]] = []
        """The events in which something is nested deeper than the limit."""
        self._selection = selection
        self._limits = limits

    def walk(
        self, keys: Keys, array: pa.Array, events: Events, *, depth: int = 1, repeated: bool = False
    ) -> None:
        """Go into an array that lies `depth` steps below the event."""
        name = ".".join(keys)
        if not self._selection.enters(name):
            return
        self._check_name(keys, name)
        if arrow_types.is_null(array.type):
            return
        array = unpacked(array)
        if is_nested(array.type):
            if depth >= self._limits.depth:
                self.too_deep.append(events[is_present(array)])
            elif arrow_types.is_struct(array.type):
                for key, field in fields_of(array, keys):
                    self.walk((*keys, key), field, events, depth=depth + 1, repeated=repeated)
            else:
                items, parents = items_of(array)
                self.walk(keys, items, events[parents], depth=depth + 1, repeated=True)
        elif self._selection.reads(name):
            if type_of_arrow(array.type) is None:
                raise refuse_type(array.type, places.path(keys))
            self.found.setdefault(keys, []).append(FlatArray(array, events, repeated))

    def _check_name(self, keys: Keys, name: str) -> None:
        if not keys[-1]:
            raise EventError("'' is not an attribute name: a name is a text, and not empty")
        if len(name) > self._limits.name:
            what = f"{places.path(keys)}: characters of the name"
            raise LimitError(what, actual=len(name), limit=self._limits.name)


def joined(flats: list[FlatArray]) -> FlatArray:
    """Return the stretches of an attribute as one."""
    if len(flats) == 1:
        return flats[0]
    arrays = [_decoded(flat.array) for flat in flats]
    if is_text(arrays[0].type):
        # Together they may be longer than small offsets reach.
        arrays = [array.cast(pa.large_string()) for array in arrays]
    events = np.concatenate([flat.events for flat in flats])
    return FlatArray(pa.concat_arrays(arrays), events, flats[0].repeated)


# --- steps into an array ---------------------------------------------------------------------


def is_nested(type_: pa.DataType) -> bool:
    """Tell whether an Arrow type has more inside that Tamis can go into."""
    return type_.id in _NESTED


def unpacked(array: pa.Array) -> pa.Array:
    """Return an array without an encoding; texts stay as codes, unless a code can mean null."""
    while arrow_types.is_run_end_encoded(array.type) or arrow_types.is_dictionary(array.type):
        if arrow_types.is_run_end_encoded(array.type):
            array = pc.run_end_decode(array)
        elif is_text(array.type.value_type) and not array.dictionary.null_count:
            return array
        else:
            array = _decoded(array)
    return array


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if arrow_types.is_dictionary(array.type) else array


def fields_of(array: pa.Array, keys: Keys) -> list[tuple[str, pa.Array]]:
    """Return the fields of a struct, null where it is null itself."""
    names = [field.name for field in array.type]
    check_distinct(names, keys)
    return list(zip(names, array.flatten(), strict=True))


def check_distinct(names: list[str], keys: Keys = ()) -> None:
    """Refuse a struct or table with two fields of one name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise EventError("the name is given to two columns", place=places.path((*keys, name)))


def items_of(array: pa.Array) -> tuple[pa.Array, NDArray[np.int32]]:
    """Return the items of all lists, and the list of each."""
    # Not `list_parent_indices`: it counts what a null list hides, and `list_flatten` does not.
    everyone = np.arange(len(array), dtype=np.int32)
    lengths, lists = fixed_width(pc.list_value_length(array), everyone)
    return pc.list_flatten(array), np.repeat(lists, lengths)


# --- Python's values -------------------------------------------------------------------------


def to_python(
    keys: Keys, array: pa.Array, selection: AttributeSelection, *, depth: int
) -> list[Any]:
    """Return the values of an array, `RejectedValue` for those that Python cannot hold.

    What lies `depth` steps inside is cut off: it is enough to see that there is something.
    """
    name = ".".join(keys)
    if not selection.enters(name) or arrow_types.is_null(array.type):
        return [None] * len(array)
    array = unpacked(array)
    if arrow_types.is_struct(array.type):
        return _mappings(keys, array, selection, depth=depth)
    if is_nested(array.type):
        return _lists(keys, array, selection, depth=depth)
    return _flat(array) if selection.reads(name) else [None] * len(array)


def _mappings(
    keys: Keys, array: pa.Array, selection: AttributeSelection, *, depth: int
) -> list[Any]:
    mappings: list[Any] = [{} if present else None for present in is_present(array)]
    for key, field in fields_of(array, keys) if depth > 1 else ():
        values = to_python((*keys, key), field, selection, depth=depth - 1)
        for mapping, value in zip(mappings, values, strict=True):
            if mapping is not None:
                mapping[key] = value
    return mappings


def _lists(keys: Keys, array: pa.Array, selection: AttributeSelection, *, depth: int) -> list[Any]:
    lists: list[Any] = [[] if present else None for present in is_present(array)]
    items, parents = items_of(array)
    values = to_python(keys, items, selection, depth=depth - 1) if depth > 1 else []
    for value, parent in zip(values, parents.tolist(), strict=depth > 1):
        lists[parent].append(value)
    return lists


def _flat(array: pa.Array) -> list[Any]:
    match type_of_arrow(array.type):
        case Type.TIMESTAMP:
            return _moments(array)
        case Type.STR:
            return texts_of(array)
        case _:
            return array.to_pylist()  # type: ignore[no-any-return]


def _moments(array: pa.Array) -> list[Any]:
    moments: list[Any] = [None] * len(array)
    values, present = fixed_width(array, np.arange(len(array), dtype=np.int32))
    instants, outside = to_microseconds(values, array.type)
    for place, instant, out, value in zip(present, instants, outside, values, strict=True):
        moments[place] = (
            RejectedValue(f"{value} of type {array.type} lies outside of the years 1 to 9999")
            if out
            else _EPOCH + timedelta(microseconds=int(instant))
        )
    return moments
