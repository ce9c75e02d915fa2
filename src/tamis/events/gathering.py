"""Columns from events one by one: dicts, other mappings, and `Event` objects.

Most events are flat dicts of plain values. Checking them one by one costs ten times as much as
checking each column, and the check of a column may be strict: an event that fails it is only
suspect, and is then checked on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tamis.errors import TamisError
from tamis.events.columns import (
    Column,
    Entries,
    entries_of,
    float_entries,
    integer_entries,
    joined_columns,
)
from tamis.events.event import NOTHING_NESTED, Event, EventLimits
from tamis.events.kinds import (
    STAND_INS,
    TYPE_OF_CLASS,
    TYPES,
    Kind,
    Type,
    Value,
    check_value,
    is_value,
    kind_of,
)
from tamis.events.schema import Attribute, Schema, fit
from tamis.events.values import INT64_MAX, INT64_MIN

LIMITS: Final = EventLimits()

_SCALAR: Final = frozenset({int, float, str, bool})
_MAX_EXACT_INTEGER: Final = 1 << 53
"""Below this, every integer is a float of its own."""


@runtime_checkable
class HoldsAttributes(Protocol):
    """An object that is an event in its own way; not a method, which would hide a member."""

    def __attributes__(self, wanted: Collection[str] | None) -> dict[str, tuple[Value, ...]]:
        """Return the wanted attributes that it has, or all."""
        ...


class ReadsObjects(Protocol):
    """Finds attributes in objects that are no mappings."""

    def begin_batch(self) -> None:
        """Forget what was read of the batch before."""
        ...

    def event(self, given: object, wanted: Collection[str] | None) -> Event:
        """Return an object as an event that has the wanted attributes."""
        ...

    def columns(
        self, objects: Sequence[object], numbers: NDArray[np.int32], wanted: Collection[str] | None
    ) -> dict[str, Column]:
        """Return the wanted attributes of objects, given the number of each."""
        ...


class Admission:
    """The checks that an event passes on its way into a batch."""

    def __init__(
        self, schema: Schema | None, *, total: bool, objects: ReadsObjects | None = None
    ) -> None:
        self.schema: Final = schema
        self.total: Final = total
        self.objects: Final = objects
        self._masks = schema.masks if schema is not None else frozenset[str]()

    def admit(self, event: Event | Mapping[str, object]) -> Event:
        """Return an event with its values as declared, or raise an error."""
        if type(event) is dict and self._is_plain(event):
            held = {name: (value,) for name, value in event.items()}
            checked = Event.of_checked(held, nested=NOTHING_NESTED)
            if self.total and self.schema is not None:
                self.schema.require_all(checked)
            return checked
        if type(event) is Event:
            checked = event
        elif isinstance(event, Mapping) and not isinstance(event, Event):
            checked = Event.of_data(event, LIMITS, masks=self._masks)
        else:
            checked = Event.of(event)
        if self.schema is not None:
            checked = self.schema.ensure_conforming(checked)
            if self.total:
                self.schema.require_all(checked)
        return checked

    def _is_plain(self, event: dict[str, Any]) -> bool:
        """Return whether an event is flat and certainly valid, as most are."""
        if len(event) > LIMITS.attributes:
            return False
        schema: Mapping[str, Attribute] = self.schema or {}
        for name, value in event.items():
            type_ = type(value)
            if type_ not in _SCALAR or not is_certainly_valid_name(name):
                return False
            declared = schema.get(name)
            if declared is not None and TYPE_OF_CLASS[type_] is not declared.type:
                return False
            if type_ is int and not INT64_MIN <= value <= INT64_MAX:
                return False
            if type_ is str and not is_unicode(value):
                return False
        return True


class GatheredEvents(NamedTuple):
    """The columns of all valid events, and the errors of the others."""

    columns: dict[str, Column]
    errors: dict[int, TamisError]


def gather(
    events: Sequence[Event | Mapping[str, object]],
    admission: Admission,
    wanted: Collection[str] | None = None,
) -> GatheredEvents:
    """Return the columns of some events; all or only the wanted ones, but all are checked."""
    flat = _FlatDicts(admission, wanted, len(events))
    if set(map(type, events)) == {dict}:
        flat.add(events, np.arange(len(events), dtype=np.int32))  # type: ignore[arg-type]
    else:
        if admission.objects is not None:
            strangers = [n for n, event in enumerate(events) if is_object(event)]
            if strangers:
                return _gather_with_objects(events, strangers, admission, wanted)
        dicts = [number for number, event in enumerate(events) if type(event) is dict]
        flat.is_left[:] = True
        flat.is_left[dicts] = False
        flat.add([events[number] for number in dicts], np.array(dicts, np.int32))  # type: ignore[misc]
    if not flat.is_left.any():
        return GatheredEvents(flat.columns, {})
    columns = {name: column.without(flat.is_left) for name, column in flat.columns.items()}
    left = _admitted(events, np.flatnonzero(flat.is_left), admission, wanted)
    names = dict.fromkeys((*columns, *left.columns))
    both = {name: joined_columns(columns.get(name), left.columns.get(name)) for name in names}
    return GatheredEvents({n: column for n, column in both.items() if column.entries}, left.errors)


def is_object(event: object) -> bool:
    """Return whether something may be an object with attributes: no mapping, and no plain data."""
    # An array of NumPy's may be a value or not, whatever its class.
    return _are_objects(type(event)) and (not hasattr(type(event), "dtype") or not is_value(event))


def _may_be_objects(cls: type) -> bool:
    if issubclass(cls, (Mapping, *STAND_INS)) or cls.__module__ == "builtins":
        return False
    if any(issubclass(cls, traits.cls) for traits in TYPES.values()):
        return False
    return not issubclass(cls, Sequence | AbstractSet) or hasattr(cls, "_fields")


# Of each class once: there may be thousands of objects in a batch, and only a few classes.
_are_objects: Final[Callable[[type], bool]] = lru_cache(maxsize=4096)(_may_be_objects)


def _are_events(cls: type) -> bool:
    return hasattr(cls, "__attributes__")


hold_attributes: Final[Callable[[type], bool]] = lru_cache(maxsize=4096)(_are_events)
"""Returns whether objects of a class are events in their own way."""


def _gather_with_objects(
    events: Sequence[Any],
    strangers: Sequence[int],
    admission: Admission,
    wanted: Collection[str] | None,
) -> GatheredEvents:
    """Return the columns of events of which some are objects."""
    reader = admission.objects
    assert reader is not None  # noqa: S101 - the caller looked
    is_strange = np.zeros(len(events), np.bool_)
    is_strange[strangers] = True
    plain = [{} if strange else event for event, strange in zip(events, is_strange, strict=True)]
    if admission.schema is not None or wanted is None:
        # What a schema declares is checked, wanted or not.
        asked = None if wanted is None else {*wanted, *(admission.schema or ())}
        converted = {number: reader.event(events[number], asked) for number in strangers}
        mixed = [converted.get(number, event) for number, event in enumerate(plain)]
        return gather(mixed, admission, wanted)
    numbers = np.flatnonzero(is_strange).astype(np.int32)
    found = reader.columns([events[number] for number in strangers], numbers, wanted)
    if len(strangers) == len(events):
        return GatheredEvents(found, {})
    columns, errors = gather(plain, admission, wanted)
    names = dict.fromkeys((*columns, *found))
    both = {name: joined_columns(columns.get(name), found.get(name)) for name in names}
    return GatheredEvents(both, errors)


def gather_checked(
    events: Iterable[Event], numbers: Sequence[int], wanted: Collection[str] | None = None
) -> dict[str, Column]:
    """Return the columns of events that need no checks, given the number of each."""
    columns: dict[str, Column] = {}
    held = [event.held for event in events]
    # Of a document, many attributes may have the very same values.
    known: dict[int, Column] = {}
    for name, found, tuples in _by_name(held, np.array(numbers, np.int32)):
        if wanted is not None and name not in wanted:
            continue
        column = known.get(id(tuples[0])) if len(held) == 1 else None
        if column is None:
            column = _checked_tuples(found, tuples)
            known[id(tuples[0])] = column
        if column.entries:
            columns[name] = column
    return columns


def _checked_tuples(events: NDArray[np.int32], tuples: Sequence[tuple[Value, ...]]) -> Column:
    values = list(chain.from_iterable(tuples))
    if not values:
        return Column({})
    if len(values) > len(tuples):
        events = np.repeat(events, list(map(len, tuples)))
    return plain_column(events, values, None) or mixed_column(events, values)


def _admitted(
    events: Sequence[Event | Mapping[str, object]],
    numbers: NDArray[np.intp],
    admission: Admission,
    wanted: Collection[str] | None,
) -> GatheredEvents:
    """Check some events on their own."""
    admitted: dict[int, Event] = {}
    errors: dict[int, TamisError] = {}
    for number in numbers.tolist():
        try:
            admitted[number] = admission.admit(events[number])
        except TamisError as error:
            errors[number] = error
    return GatheredEvents(gather_checked(admitted.values(), list(admitted), wanted), errors)


class _FlatDicts:
    """The columns of dicts, and which events are left to be checked on their own."""

    def __init__(self, admission: Admission, wanted: Collection[str] | None, count: int) -> None:
        self.columns: Final[dict[str, Column]] = {}
        self.is_left: Final = np.zeros(count, np.bool_)
        self._wanted = wanted
        self._schema: Mapping[str, Attribute] = admission.schema or {}
        required = self._schema if admission.total else ()
        self._lacking = {name: np.ones(count, np.bool_) for name in required}

    def add(self, dicts: Sequence[dict[str, Any]], numbers: NDArray[np.int32]) -> None:
        """Add the columns of some dicts."""
        for name, events, values in _by_name(dicts, numbers):
            self._add_column(name, events, values)
            if name in self._lacking:
                self._lacking[name][_present(events, values)] = False
        for lacking in self._lacking.values():
            self.is_left[numbers[lacking[numbers]]] = True
        if max(map(len, dicts), default=0) > LIMITS.attributes:
            self.is_left[numbers[[len(each) > LIMITS.attributes for each in dicts]]] = True

    def _add_column(self, name: str, events: NDArray[np.int32], values: list[Any]) -> None:
        if not is_certainly_valid_name(name):
            self.is_left[events] = True
            return
        declared = self._schema.get(name)
        if self._wanted is not None and name not in self._wanted and _are_plain(values, declared):
            return
        column = plain_column(events, values, declared)
        if column is None:
            column, left = _checked_column(name, events, values, declared)
            self.is_left[left] = True
        if column.entries and (self._wanted is None or name in self._wanted):
            self.columns[name] = column


def _present(events: NDArray[np.int32], values: list[Any]) -> NDArray[np.int32]:
    return events[[value is not None for value in values]]


# --- from dicts to one list for each name ----------------------------------------------------


def _by_name(
    dicts: Sequence[Mapping[str, Any]], numbers: NDArray[np.int32]
) -> Iterator[tuple[str, NDArray[np.int32], list[Any]]]:
    """Yield for each name the events that have it, ascending, and their values."""
    names: list[str] = list(chain.from_iterable(dicts))
    values: list[Any] = list(chain.from_iterable(each.values() for each in dicts))
    first = list(dicts[0]) if dicts else []
    # Names of a dict differ. So if all names together are those of the first again and again, then
    # every event has just these, in this order.
    if len(names) == len(first) * len(dicts) and names == first * len(dicts):
        for place, name in enumerate(first):
            yield name, numbers, values[place :: len(first)]
        return
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    codes = np.fromiter(map(known.__getitem__, names), np.int32, len(names))
    events = np.repeat(numbers, np.fromiter(map(len, dicts), np.int64, len(dicts)))
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(known) + 1)).tolist()
    events, ordered = events[order], np.fromiter(values, np.object_, len(values))[order].tolist()
    for number, name in enumerate(known):
        begin, end = bounds[number], bounds[number + 1]
        yield name, events[begin:end], ordered[begin:end]


# --- from lists to columns -------------------------------------------------------------------


def is_certainly_valid_name(name: object) -> bool:
    """Return whether a name is certainly valid."""
    return type(name) is str and 0 < len(name) <= LIMITS.name and is_unicode(name)


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogates."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _are_plain(values: list[Any], declared: Attribute | None) -> bool:
    """Return whether all values are certainly valid and of the declared type."""
    types = set(map(type, values))
    if not types <= _SCALAR or (declared and {TYPE_OF_CLASS[t] for t in types} != {declared.type}):
        return False
    if len(types) > 1:
        return False
    if int in types:
        try:
            np.array(values, np.int64)
        except OverflowError:
            return False
    return str not in types or all(map(is_unicode, values))


def plain_column(
    events: NDArray[np.int32], values: list[Any], declared: Attribute | None
) -> Column | None:
    """Return the column if all values are certainly valid and of the declared type."""
    types = set(map(type, values))
    if type(None) in types and len(types) > 1:
        present = [place for place, value in enumerate(values) if value is not None]
        events, values = events[present], [values[place] for place in present]
        types.discard(type(None))
    if types <= {int, float}:
        return _number_column(events, values, types, declared)
    if len(types) > 1:
        return None
    (type_,) = types
    if type_ not in _SCALAR or (declared and TYPE_OF_CLASS[type_] is not declared.type):
        return None
    kind = Kind.TEXT if type_ is str else Kind.BOOLEAN
    entries = entries_of(kind, events, values)
    return Column({kind: entries}) if all(map(is_unicode, entries.texts)) else None


def _number_column(
    events: NDArray[np.int32], values: list[Any], types: set[type], declared: Attribute | None
) -> Column | None:
    as_declared = None if declared is None else declared.type
    if types == {float} and as_declared in (None, Type.FLOAT):
        return Column(float_entries(events, np.array(values, np.float64)))
    if as_declared not in ((None, Type.FLOAT) if float in types else (None, Type.FLOAT, Type.INT)):
        return None
    try:
        if types == {int} and as_declared is not Type.FLOAT:
            return Column({Kind.NUMBER: integer_entries(events, np.array(values, np.int64))})
        floats = np.array(values, np.float64)
    except OverflowError:
        return None
    whole = np.fromiter((type(value) is int for value in values), np.bool_, len(values))
    if (np.abs(floats[whole]) >= _MAX_EXACT_INTEGER).any():
        return None
    if as_declared is Type.FLOAT:
        return Column(float_entries(events, floats))
    nan = np.isnan(floats)
    if nan.any():
        return None
    return Column({Kind.NUMBER: Entries(events, floats, None, whole)})


def _checked_column(
    name: str, events: NDArray[np.int32], values: list[Any], declared: Attribute | None
) -> tuple[Column, list[int]]:
    """Return the checked values, and the events of those that may be invalid."""
    kept: tuple[list[int], list[Any]] = ([], [])
    left: list[int] = []
    for event, value in zip(events.tolist(), values, strict=True):
        if value is None:
            continue
        if type(value) not in TYPE_OF_CLASS:
            # A list, a nested mapping, or a subclass: to try them here would cost an error each.
            left.append(event)
            continue
        try:
            checked = check_value(value)
            fitted = checked if declared is None else fit(checked, declared.type, name)
        except TamisError:
            left.append(event)
        else:
            kept[0].append(event)
            kept[1].append(fitted)
    numbers = np.array(kept[0], np.int32)
    if not kept[1]:
        return Column({}), left
    return plain_column(numbers, kept[1], None) or mixed_column(numbers, kept[1]), left


def mixed_column(events: NDArray[np.int32], values: list[Any]) -> Column:
    """Return a column of values of several kinds."""
    places: dict[Kind | None, list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(kind_of(value), []).append(place)
    return Column(
        {
            kind: entries_of(kind, events[held], [values[place] for place in held])
            for kind, held in places.items()
        }
    )
