"""JSON lines as columns: only the attributes that somebody wants, all of the text checked.

A kernel scans the text (`json_kernels`) and declines what it does not handle; the strict reader
(`json_text`) then decides, event by event.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import Binding
from tamis.errors import TamisError
from tamis.events.batch import Admission, EventBatch
from tamis.events.column_kernels import number_texts, order_by_path
from tamis.events.columns import Column, Entries, integer_entries, joined_columns, split_integers
from tamis.events.event import Event, EventLimits
from tamis.events.gathering import gather_checked
from tamis.events.json_kernels import (
    ESCAPED_TEXT,
    FALSE,
    FLOAT,
    INTEGER,
    TEXT,
    TRUE,
    BoundScan,
    ScanLimits,
    ScannedValues,
    ScanWorkspace,
    WantedPaths,
    scan_bound,
    scan_lines,
)
from tamis.events.json_scans import scan_limits, scan_workspace, scanned_values, wanted_paths
from tamis.events.json_text import decode_json
from tamis.events.kinds import TYPE_OF_CLASS, Kind, Type, Value
from tamis.events.schema import Attribute, Schema
from tamis.events.undecoded_texts import UndecodedTexts

_MAX_EXACT_INTEGER: Final = 1 << 53
# What a declared type accepts as it is.
_FORMS_OF_TYPE: Final[Mapping[Type, tuple[int, ...]]] = {
    Type.INT: (INTEGER,),
    Type.FLOAT: (FLOAT,),
    Type.STR: (TEXT, ESCAPED_TEXT),
    Type.BOOL: (FALSE, TRUE),
}
_VALUES_PER_EVENT: Final = 4
"""Room for values of lists, beside one value of each attribute."""
_MIN_VALUE_BYTES: Final = 6
"""A value takes so much with its name; in lists, events with more are left to the strict reader."""
_MOST: Final = 1_024
"""Wanted values of a single event; those with more are left to the strict reader."""
_KEPT_WORKSPACES: Final = 4


class JsonColumnReader:
    """Reads JSON events into columns of the wanted attributes; for any thread."""

    def __init__(
        self,
        wanted: Iterable[str],
        schema: Schema | None = None,
        *,
        total: bool = False,
        limits: EventLimits | None = None,
        any_text: bool = False,
    ) -> None:
        """Make a reader; with `any_text`, the attribute "" has the texts of all others."""
        # Everything that a schema declares is checked, wanted or not.
        wanted = sorted({*wanted, *(schema or ())})
        self._any_text: Final = any_text
        self._names: Final = [*wanted, ""] if any_text else wanted
        self._limits: Final = limits or EventLimits()
        self._schema = schema
        self._admission = Admission(schema, total=total)
        self._paths = wanted_paths(wanted, any_text=any_text)
        self._scan_limits = scan_limits(self._limits)
        # Fresh memory comes from the system page by page, which takes as long as the scan itself.
        self._free: deque[tuple[ScanWorkspace, ScannedValues]] = deque(maxlen=_KEPT_WORKSPACES)
        self._single: deque[_SingleScan] = deque(maxlen=_KEPT_WORKSPACES)

    def read(
        self,
        data: bytes | memoryview,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        original: Callable[[int], str | bytes] | None = None,
    ) -> EventBatch:
        """Return the events that stand at these places of a text.

        Args:
            data: The text of all events, in UTF-8.
            starts: Where each begins.
            ends: Where each ends.
            original: Returns the text of an event as it was given, if that was not UTF-8.
        """
        columns, suspects = self._scan(data, starts, ends)
        if not suspects.any():
            return EventBatch(len(starts), columns)
        given = original or (lambda number: bytes(data[starts[number] : ends[number]]))
        return self._with_strict(given, columns, suspects)

    def is_sure_of(self, texts: Sequence[bytes]) -> bool:
        """Return whether all texts are events beyond doubt; others are for the strict reader."""
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        _, suspects = self._scan(b"".join(texts), starts, ends)
        return not suspects.any()

    def _scan(
        self, data: bytes | memoryview, starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[dict[str, Column], NDArray[np.bool_]]:
        """Return the columns of events, and which of them the strict reader has to judge."""
        count = len(starts)
        text = np.frombuffer(data, np.uint8)
        text.flags.writeable = False  # as that of bytes: kernels are compiled for one of both
        work, found = self._room(count, int((ends - starts).sum()))
        declined = np.zeros(count, np.bool_)
        size = scan_lines(text, starts, ends, self._paths, self._scan_limits, work, found, declined)
        columns, suspects = self._columns(text, found.some(slice(size)), count)
        self._free.append((work, found))
        suspects |= declined
        return columns, suspects

    def read_strictly(self, text: str | bytes) -> Event:
        """Return one event with all its attributes, or raise an error."""
        return self._admission.admit(decode_json(text, schema=self._schema, limits=self._limits))

    def read_event(self, text: str | bytes) -> Event:
        """Return one event with its wanted attributes, or raise an error."""
        try:
            data = text if isinstance(text, bytes) else text.encode()
        except UnicodeEncodeError:
            return self.read_strictly(text)
        try:
            memory = self._single.pop()
        except IndexError:
            work, found = scan_workspace(self._limits), scanned_values(_MOST)
            memory = _SingleScan(self._paths, self._scan_limits, work, found)
        values = memory.scan(data, self._names)
        self._single.append(memory)
        if values is None or not self._conforms(values):
            return self.read_strictly(text)
        event = Event.of_checked(values)
        event.conforms_to = self._schema
        return event

    def _conforms(self, values: Mapping[str, tuple[Value, ...]]) -> bool:
        """Return whether values are as declared without any conversion."""
        if self._schema is None:
            return True
        if self._admission.total and any(name not in values for name in self._schema):
            return False
        for name, held in values.items():
            declared = self._schema.get(name)
            if declared is not None and (
                (len(held) > 1 and not declared.many)
                or any(TYPE_OF_CLASS[type(value)] is not declared.type for value in held)
            ):
                return False
        return True

    def _room(self, count: int, bytes_: int) -> tuple[ScanWorkspace, ScannedValues]:
        """Return memory for the scan of some events."""
        size = bytes_ // _MIN_VALUE_BYTES + _VALUES_PER_EVENT
        if not self._any_text:
            size = min(size, count * (len(self._names) + _VALUES_PER_EVENT))
        try:
            work, found = self._free.pop()
        except IndexError:
            work, found = scan_workspace(self._limits), scanned_values(size)
        return work, found if len(found.events) >= size else scanned_values(size)

    # --- from values to columns ------------------------------------------------------------------

    def _columns(
        self, text: NDArray[np.uint8], found: ScannedValues, count: int
    ) -> tuple[dict[str, Column], NDArray[np.bool_]]:
        """Return the columns, and which events the schema may refuse or convert."""
        columns: dict[str, Column] = {}
        suspects = np.zeros(count, np.bool_)
        order = np.empty(len(found.paths), np.int64)
        starts = np.empty(len(self._names) + 1, np.int64)
        order_by_path(found.paths, starts, order)
        bounds = starts.tolist()
        for number, name in enumerate(self._names):
            places = order[bounds[number] : bounds[number + 1]]
            declared = None if self._schema is None else self._schema.get(name)
            if declared is not None:
                if declared.type is Type.FLOAT:
                    _make_floats(found, places)
                _suspect(found, places, declared, suspects)
                if self._admission.total:
                    missing = np.ones(count, np.bool_)
                    missing[found.events[places]] = False
                    suspects |= missing
            if len(places):
                columns[name] = _column(text, found, places)
        return columns, suspects

    # --- what is left to the strict reader -------------------------------------------------------

    def _with_strict(
        self,
        given: Callable[[int], str | bytes],
        columns: Mapping[str, Column],
        suspects: NDArray[np.bool_],
    ) -> EventBatch:
        """Replace what was found of some events by what the strict reader finds."""
        errors: dict[int, TamisError] = {}
        read: dict[int, Event] = {}
        for number in np.flatnonzero(suspects).tolist():
            try:
                read[number] = self.read_strictly(given(number))
            except TamisError as error:
                errors[number] = error
        strict = gather_checked(
            read.values(), list(read), None if self._any_text else {*self._names}
        )
        kept = {name: column.without(suspects) for name, column in columns.items()}
        names = dict.fromkeys((*kept, *strict))
        both = {name: joined_columns(kept.get(name), strict.get(name)) for name in names}
        return EventBatch(len(suspects), both, errors)


class _SingleScan:
    """Memory for one event at a time, bound for the kernel."""

    def __init__(
        self, paths: WantedPaths, limits: ScanLimits, work: ScanWorkspace, found: ScannedValues
    ) -> None:
        self._binding = Binding(BoundScan(paths, np.array(limits, np.int64), work, found))
        # Single items of a view are read twice as fast as those of an array.
        views: Any = [memoryview(array) for array in found[1:]]  # type: ignore[arg-type]
        self._paths, self._forms, self._integers, self._floats, self._lengths = views

    def scan(self, data: bytes, names: list[str]) -> dict[str, tuple[Value, ...]] | None:
        """Return the wanted values of an event; None if it is declined."""
        count = scan_bound(self._binding.address, data)
        if count < 0:
            return None
        values: dict[str, tuple[Value, ...]] = {}
        for at in range(count):
            name, value = names[self._paths[at]], self._value(data, at)
            values[name] = (*values[name], value) if name in values else (value,)
        return values

    def _value(self, data: bytes, at: int) -> Value:
        form: int = self._forms[at]
        integer: int = self._integers[at]
        if form == INTEGER:
            return integer
        if form == FLOAT:
            return float(self._floats[at])
        if form in (TRUE, FALSE):
            return form == TRUE
        text = str(data[integer : integer + self._lengths[at]], "utf-8")
        return text if form == TEXT else str(json.loads(f'"{text}"'))


def _make_floats(found: ScannedValues, places: NDArray[np.int64]) -> None:
    """Convert integers to floats where that does not change them."""
    integers = found.integers[places]
    exact = (found.forms[places] == INTEGER) & (np.abs(integers) <= _MAX_EXACT_INTEGER)
    found.floats[places[exact]] = integers[exact]
    found.forms[places[exact]] = FLOAT


def _suspect(
    found: ScannedValues,
    places: NDArray[np.int64],
    declared: Attribute,
    suspects: NDArray[np.bool_],
) -> None:
    """Mark the events whose values are not of the declared type, or are too many."""
    events = found.events[places]
    fine = np.isin(found.forms[places], _FORMS_OF_TYPE.get(declared.type, ()))
    suspects[events[~fine]] = True
    if not declared.many:
        suspects[events[1:][events[1:] == events[:-1]]] = True


def _column(
    text: NDArray[np.uint8],
    found: ScannedValues,
    places: NDArray[np.int64],
) -> Column:
    forms, events = found.forms[places], found.events[places]
    is_single = bool((events[1:] > events[:-1]).all())
    lowest, highest = forms.min(), forms.max()
    if highest == INTEGER:
        return Column({Kind.NUMBER: integer_entries(events, found.integers[places])}, is_single)
    if lowest == highest == FLOAT:
        return Column({Kind.NUMBER: Entries(events, found.floats[places])}, is_single)
    entries: dict[Kind | None, Entries] = {}
    for kind, chosen in {
        Kind.NUMBER: forms <= FLOAT,
        Kind.TEXT: (forms == TEXT) | (forms == ESCAPED_TEXT),
        Kind.BOOLEAN: forms >= FALSE,
    }.items():
        if chosen.any():
            some = found.some(places[chosen])
            entries[kind] = _entries(kind, text, some)
    return Column(entries, is_single)


def _entries(kind: Kind, text: NDArray[np.uint8], values: ScannedValues) -> Entries:
    match kind:
        case Kind.NUMBER:
            return _number_entries(values)
        case Kind.TEXT:
            return _text_entries(text, values)
        case _:
            return Entries(values.events, values.forms == TRUE)


def _number_entries(values: ScannedValues) -> Entries:
    whole = values.forms == INTEGER
    floats, residues = split_integers(np.where(whole, values.integers, 0))
    return Entries(values.events, np.where(whole, floats, values.floats), residues, whole)


def _text_entries(text: NDArray[np.uint8], values: ScannedValues) -> Entries:
    count = len(values.events)
    codes, firsts = np.empty(count, np.int32), np.empty(count, np.int32)
    slots = np.full(1 << (2 * count).bit_length(), -1, np.int32)
    different = number_texts(text, values.integers, values.lengths, slots, codes, firsts)
    first = firsts[:different]
    starts = values.integers[first]
    undecoded = UndecodedTexts(text, starts, starts + values.lengths[first])
    escaped = values.forms[first] == ESCAPED_TEXT
    texts: Sequence[str] = undecoded
    if escaped.any():
        # The same text may be written with escapes and without.
        texts = list(undecoded)
        for at in np.flatnonzero(escaped).tolist():
            texts[at] = json.loads(f'"{texts[at]}"')
        known = {each: code for code, each in enumerate(dict.fromkeys(texts))}
        codes = np.array([known[each] for each in texts], np.int32)[codes]
        texts = list(known)
    return Entries(values.events, codes, texts=texts)
