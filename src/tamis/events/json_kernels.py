"""Kernels that scan JSON objects: they check everything, and keep only the wanted attributes.

They accept less than the strict reader (`json_text`), never more: whatever is rare or difficult is
declined, and the strict reader decides. Declined are events with

- names that contain a backslash, or a dot beside a nested object, or that repeat in one object;
- integers of more than 18 digits, and wanted floats that one rounding cannot compute;
- lone surrogates and other escapes that may be wrong;
- everything that is not JSON, or exceeds a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tamis.bindings import bytes_as_array, reader
from tamis.events.token_kernels import skip_text, skip_utf8, skip_word
from tamis.jit import borrowing, inlined, mixed_in

INTEGER = 0
FLOAT = 1
TEXT = 2
ESCAPED_TEXT = 3
FALSE = 4
TRUE = 5

_QUOTE = 34
_PLUS = 43
_COMMA = 44
_MINUS = 45
_DOT = 46
_ZERO = 48
_NINE = 57
_COLON = 58
_UPPER_E = 69
_OPEN_ARRAY = 91
_BACKSLASH = 92
_CLOSE_ARRAY = 93
_LOWER_E = 101
_LOWER_N = 110
_LOWER_T = 116
_OPEN_OBJECT = 123
_CLOSE_OBJECT = 125

_MAX_DIGITS = 18
"""An integer of so many digits fits in 64 bits."""
_MAX_EXACT = 1 << 53
_MAX_POWER = 22
"""10 to this power is exact as a float."""
_MAX_SURE_DIGITS = 100
_MAX_SURE_EXPONENT = 200
"""A float with fewer digits and a smaller exponent is certainly finite."""
_MAX_NAMES = 64
"""Names of one object that are compared with each other."""
_FAILED = -1


class WantedPaths(NamedTuple):
    """The dotted names to look for, in a hash table."""

    slots: NDArray[np.int32]
    """The number of a path, or -1; a power of two of them."""
    hashes: NDArray[np.int64]
    """Of each path."""
    starts: NDArray[np.int64]
    """Where each path begins in `text`, and where the last ends."""
    text: NDArray[np.uint8]
    any_text: NDArray[np.int32]
    """The number that the texts of all other attributes get, in an array of one; -1: none."""


class ScanLimits(NamedTuple):
    """Bounds on one event; beyond them it is declined."""

    size: int
    depth: int
    attributes: int
    name: int


class ScannedValues(NamedTuple):
    """The wanted values, in the order of the text."""

    events: NDArray[np.int32]
    paths: NDArray[np.int32]
    forms: NDArray[np.int8]
    integers: NDArray[np.int64]
    """The value of an integer; of a text, where it begins, without the quotes."""
    floats: NDArray[np.float64]
    """The value of a float."""
    lengths: NDArray[np.int32]
    """The length of a text in bytes."""

    def some(self, places: Any) -> ScannedValues:
        """Return the values at some places."""
        arrays: Any = (array[places] for array in self)
        return ScannedValues(*arrays)


class ExpectedNames(NamedTuple):
    """The names of the last event, in order: the next event probably has the same.

    To recognize one of them is faster than to look it up and to compare it with those before it.
    """

    number: NDArray[np.int64]
    """How many there are, in an array of one."""
    starts: NDArray[np.int64]
    """Where each begins in `text`, and where the last ends."""
    text: NDArray[np.uint8]
    hashes: NDArray[np.int64]
    paths: NDArray[np.int32]
    has_dot: NDArray[np.bool_]


class ScanWorkspace(NamedTuple):
    """Memory for one scan."""

    is_array: NDArray[np.bool_]
    """For each open object or array, which it is."""
    hashes: NDArray[np.int64]
    """The hash of the path to each."""
    sizes: NDArray[np.int64]
    """The length of the path to each."""
    paths: NDArray[np.int32]
    """The number of the path to each, or -1."""
    first_names: NDArray[np.int64]
    """Where the names of each begin in `names`."""
    names: NDArray[np.int64]
    """The hashes of the names of all open objects."""
    path: NDArray[np.uint8]
    """The path to the current value."""
    powers: NDArray[np.float64]
    """The powers of ten that are exact."""
    expected: ExpectedNames


@borrowing
def hash_path(text: NDArray[np.uint8], start: int, end: int) -> int:
    """Return the hash of a path."""
    mixed = 0
    for at in range(start, end):
        mixed = mixed_in(mixed, text[at])
    return mixed


@borrowing
def fill_slots(wanted: WantedPaths) -> None:
    """Enter the paths in the hash table."""
    last = len(wanted.slots) - 1
    for path in range(len(wanted.hashes)):
        mixed = hash_path(wanted.text, wanted.starts[path], wanted.starts[path + 1])
        wanted.hashes[path] = mixed
        slot = (mixed ^ (mixed >> 20)) & last
        while wanted.slots[slot] >= 0:
            slot = (slot + 1) & last
        wanted.slots[slot] = path


@inlined
def _find_path(wanted: WantedPaths, mixed: int, path: NDArray[np.uint8], size: int) -> int:
    """Return the number of a path, or -1 if nobody wants it."""
    last = len(wanted.slots) - 1
    slot = (mixed ^ (mixed >> 20)) & last
    found = -1
    while wanted.slots[slot] >= 0:
        candidate = wanted.slots[slot]
        start = wanted.starts[candidate]
        if wanted.hashes[candidate] == mixed and wanted.starts[candidate + 1] - start == size:
            same = True
            for at in range(size):
                if wanted.text[start + at] != path[at]:
                    same = False
                    break
            if same:
                found = candidate
                break
        slot = (slot + 1) & last
    return found


@inlined
def _skip_space(data: NDArray[np.uint8], at: int, end: int) -> int:
    while at < end and (data[at] == 32 or data[at] == 9 or data[at] == 10 or data[at] == 13):
        at += 1
    return at


@borrowing
def _scan_number(
    data: NDArray[np.uint8], at: int, end: int, powers: NDArray[np.float64]
) -> tuple[int, int, int, float]:
    """Return the end of a number, its form, and its value; -1 as the end if it is declined.

    A float whose value one rounding cannot compute has the form -1: it is valid and finite.
    """
    declined = (_FAILED, INTEGER, 0, 0.0)
    negative = data[at] == _MINUS
    if negative:
        at += 1
    first = at
    whole = np.int64(0)
    while at < end and _ZERO <= data[at] <= _NINE:
        if at - first < _MAX_DIGITS:
            whole = whole * 10 + np.int64(data[at] - _ZERO)
        at += 1
    digits = at - first
    if digits == 0 or (digits > 1 and data[first] == _ZERO):
        return declined
    is_float = at < end and (data[at] == _DOT or data[at] == _LOWER_E or data[at] == _UPPER_E)
    if not is_float:
        if digits > _MAX_DIGITS:
            return declined
        return at, INTEGER, int(-whole if negative else whole), 0.0
    exponent = 0
    if data[at] == _DOT:
        at += 1
        point = at
        while at < end and _ZERO <= data[at] <= _NINE:
            if digits < _MAX_DIGITS:
                whole = whole * 10 + np.int64(data[at] - _ZERO)
            digits += 1
            at += 1
        if at == point:
            return declined
        exponent = point - at
    if at < end and (data[at] == _LOWER_E or data[at] == _UPPER_E):
        at += 1
        sign = 1
        if at < end and (data[at] == _PLUS or data[at] == _MINUS):
            sign = -1 if data[at] == _MINUS else 1
            at += 1
        begun, given = at, 0
        while at < end and _ZERO <= data[at] <= _NINE:
            if given < 100_000:
                given = given * 10 + int(data[at] - _ZERO)
            at += 1
        if at == begun:
            return declined
        exponent += sign * given
    if digits > _MAX_SURE_DIGITS or exponent > _MAX_SURE_EXPONENT:
        return declined
    if digits > _MAX_DIGITS or whole > _MAX_EXACT or not -_MAX_POWER <= exponent <= _MAX_POWER:
        return at, -1, 0, 0.0
    value = float(whole)
    value = value * powers[exponent] if exponent >= 0 else value / powers[-exponent]
    return at, FLOAT, 0, -value if negative else value


@inlined
def _expected_end(
    data: NDArray[np.uint8], at: int, end: int, names: ExpectedNames, nth: int
) -> int:
    """Return where the nth expected name ends if it stands here, at its quote; else -1."""
    if nth >= names.number[0]:
        return _FAILED
    start = names.starts[nth]
    size = int(names.starts[nth + 1] - start)
    if at + size >= end or data[at + size] != _QUOTE:
        return _FAILED
    for offset in range(size):
        if data[at + offset] != names.text[start + offset]:
            return _FAILED
    return at + size


@borrowing
def _expect(
    names: ExpectedNames, nth: int, path: NDArray[np.uint8], size: int, mixed: int, number: int
) -> None:
    """Expect a name in the next event, at the nth place and last.

    Expected names are not compared with one another again: those before must be of the same event.
    """
    if nth > names.number[0]:
        # One of those before did not fit.
        return
    start = names.starts[nth]
    if nth >= len(names.hashes) or start + size > len(names.text):
        names.number[0] = nth
        return
    has_dot = False
    for offset in range(size):
        names.text[start + offset] = path[offset]
        has_dot |= path[offset] == _DOT
    names.starts[nth + 1] = start + size
    names.hashes[nth], names.paths[nth], names.has_dot[nth] = mixed, number, has_dot
    names.number[0] = nth + 1


@borrowing
def _scan_name(
    data: NDArray[np.uint8],
    at: int,
    end: int,
    mixed: int,
    size: int,
    most: int,
    work: ScanWorkspace,
) -> tuple[int, int, int, bool]:
    """Append a name to the path; return where it ends, hash and size of the path, and any dot.

    It ends at -1 if it is declined.
    """
    declined = (_FAILED, 0, 0, False)
    if size:
        work.path[size] = _DOT
        size += 1
        mixed = mixed_in(mixed, _DOT)
    begun, has_dot = at, False
    while at < end and data[at] != _QUOTE:
        byte = data[at]
        after = at + 1
        if byte >= 0x80:
            after = skip_utf8(data, at, end)
        if byte < 32 or byte == _BACKSLASH or after < 0 or size + after - at > most:
            return declined
        has_dot |= byte == _DOT
        while at < after:
            work.path[size] = data[at]
            mixed = mixed_in(mixed, data[at])
            size += 1
            at += 1
    return declined if at >= end or at == begun else (at, mixed, size, has_dot)


@borrowing
def _is_new(names: NDArray[np.int64], first: int, last: int, mixed: int) -> bool:
    """Return whether a name is surely not among the names of an object so far; then add it."""
    if last - first >= _MAX_NAMES or last >= len(names):
        return False
    for other in range(first, last):
        if names[other] == mixed:
            return False
    names[last] = mixed
    return True


@borrowing
def scan_event(
    data: NDArray[np.uint8],
    start: int,
    end: int,
    event: int,
    wanted: WantedPaths,
    limits: ScanLimits,
    work: ScanWorkspace,
    found: ScannedValues,
    count: int,
) -> int:
    """Scan one event and append its wanted values; return their number so far, -1 if declined."""
    at = _skip_space(data, start, end)
    if end - start > limits.size or limits.depth < 1 or at >= end or data[at] != _OPEN_OBJECT:
        return _FAILED
    at += 1
    depth, names, leaves = 1, 0, 0
    has_dots, is_nested, is_first, as_expected = False, False, True, True
    work.is_array[0], work.hashes[0], work.sizes[0], work.first_names[0] = False, 0, 0, 0
    mixed, size, path, name = 0, 0, -1, 0
    while depth > 0:
        level = depth - 1
        at = _skip_space(data, at, end)
        if at >= end:
            return _FAILED
        in_array = work.is_array[level]
        closing = _CLOSE_ARRAY if in_array else _CLOSE_OBJECT
        if data[at] == closing:
            at += 1
            names, depth, is_first = work.first_names[level], level, False
            continue
        if not is_first:
            if data[at] != _COMMA:
                return _FAILED
            at = _skip_space(data, at + 1, end)
            if at >= end:
                return _FAILED
        is_first = False
        if in_array:
            mixed, size, path = work.hashes[level], work.sizes[level], work.paths[level]
        else:
            if data[at] != _QUOTE:
                return _FAILED
            name = at + 1
            at = _FAILED
            if depth == 1 and as_expected:
                at = _expected_end(data, name, end, work.expected, names)
                as_expected = at >= 0
                if as_expected:
                    mixed, path = work.expected.hashes[names], work.expected.paths[names]
                    has_dots |= work.expected.has_dot[names]
                    size = at - name
                    names += 1
                else:
                    for place in range(names):
                        work.names[place] = work.expected.hashes[place]
            if at < 0:
                at, mixed, size, has_dot = _scan_name(
                    data, name, end, work.hashes[level], work.sizes[level], limits.name, work
                )
                if at < 0 or not _is_new(work.names, work.first_names[level], names, mixed):
                    return _FAILED
                has_dots |= has_dot
                path = _find_path(wanted, mixed, work.path, size)
                if depth == 1:
                    _expect(work.expected, names, work.path, size, mixed, path)
                names += 1
            at = _skip_space(data, at + 1, end)
            if at >= end or data[at] != _COLON:
                return _FAILED
            at = _skip_space(data, at + 1, end)
            if at >= end:
                return _FAILED
        byte = data[at]
        if byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
            if depth >= limits.depth:
                return _FAILED
            if depth == 1 and as_expected:
                for offset in range(size):
                    work.path[offset] = data[name + offset]
            is_nested |= byte == _OPEN_OBJECT
            work.is_array[depth], work.first_names[depth] = byte == _OPEN_ARRAY, names
            work.hashes[depth], work.sizes[depth], work.paths[depth] = mixed, size, path
            depth += 1
            at += 1
            is_first = True
            continue
        leaves += 1
        is_wanted = path >= 0
        if leaves > limits.attributes or (is_wanted and count >= len(found.events)):
            return _FAILED
        if is_wanted:
            found.events[count], found.paths[count] = event, path
        if byte == _QUOTE:
            text = at + 1
            at, is_escaped = skip_text(data, text, end)
            if at < 0:
                return _FAILED
            if not is_wanted and wanted.any_text[0] >= 0:
                if count >= len(found.events):
                    return _FAILED
                is_wanted = True
                found.events[count], found.paths[count] = event, wanted.any_text[0]
            if is_wanted:
                found.forms[count] = ESCAPED_TEXT if is_escaped else TEXT
                found.integers[count], found.lengths[count] = text, at - text
                count += 1
            at += 1
        elif byte == _MINUS or _ZERO <= byte <= _NINE:
            at, form, integer, number = _scan_number(data, at, end, work.powers)
            if at < 0 or (is_wanted and form < 0):
                return _FAILED
            if is_wanted:
                found.forms[count] = form
                found.integers[count], found.floats[count] = integer, number
                count += 1
        else:
            at = skip_word(data, at, end)
            if at < 0:
                return _FAILED
            if is_wanted and byte != _LOWER_N:
                found.forms[count] = TRUE if byte == _LOWER_T else FALSE
                count += 1
    if has_dots and is_nested:
        return _FAILED
    return count if _skip_space(data, at, end) == end else _FAILED


class BoundScan(NamedTuple):
    """All that a scan needs besides the text."""

    wanted: WantedPaths
    limits: NDArray[np.int64]
    """The fields of `ScanLimits`."""
    work: ScanWorkspace
    found: ScannedValues


_bound_scan = reader(BoundScan)

as_variable = cast("Callable[[int], int]", np.int64)
"""Makes a number that a kernel is given as any other; for a literal it is compiled anew."""


@borrowing
def scan_bound(address: Any, text: bytes) -> int:
    """Scan a single event; return how many values were found, -1 if it is declined."""
    bound, data = _bound_scan(address), bytes_as_array(text)
    size, depth, attributes, name = bound.limits
    limits = ScanLimits(size, depth, attributes, name)
    none = as_variable(0)
    return scan_event(
        data, none, len(data), none, bound.wanted, limits, bound.work, bound.found, none
    )


@borrowing
def scan_lines(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    wanted: WantedPaths,
    limits: ScanLimits,
    work: ScanWorkspace,
    found: ScannedValues,
    is_declined: NDArray[np.bool_],
) -> int:
    """Scan many events; return how many values were found."""
    count = as_variable(0)
    for event in range(len(starts)):
        after = scan_event(
            data, starts[event], ends[event], event, wanted, limits, work, found, count
        )
        is_declined[event] = after < 0
        count = max(count, after)
    return count
