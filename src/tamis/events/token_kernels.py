"""Kernels that check the texts and words of JSON, and find where they end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.jit import borrowing

_QUOTE = 34
_ZERO = 48
_NINE = 57
_BACKSLASH = 92
_LOWER_U = 117
_FAILED = -1


@borrowing
def _hex_digit(byte: int) -> int:
    """Return the value of a hexadecimal digit, or -1."""
    if _ZERO <= byte <= _NINE:
        return byte - _ZERO
    lower = byte | 32
    return lower - 87 if 97 <= lower <= 102 else -1


@borrowing
def _code_unit(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the code of a Unicode escape that begins at a backslash; -1 if there is none."""
    if at + 6 > end or data[at] != _BACKSLASH or data[at + 1] != _LOWER_U:
        return _FAILED
    code = 0
    for place in range(at + 2, at + 6):
        digit = _hex_digit(int(data[place]))
        if digit < 0:
            return _FAILED
        code = code * 16 + digit
    return code


@borrowing
def _skip_escape(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where an escape ends that begins at a backslash; -1 if it is wrong."""
    if at + 1 >= end:
        return _FAILED
    byte = data[at + 1]
    if byte in (34, 92, 47, 98, 102, 110, 114, 116):
        return at + 2
    code = _code_unit(data, at, end)
    if code < 0 or 0xDC00 <= code <= 0xDFFF:
        return _FAILED
    if code >= 0xD800:
        if code > 0xDBFF:
            return at + 6
        # The first half of a pair.
        return at + 12 if 0xDC00 <= _code_unit(data, at + 6, end) <= 0xDFFF else _FAILED
    return at + 6


@borrowing
def unescape(data: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8]) -> int:
    """Write a text that was scanned without its escapes, as UTF-8; return its length."""
    at, size = start, 0
    while at < end:
        if data[at] != _BACKSLASH:
            out[size] = data[at]
            at, size = at + 1, size + 1
            continue
        code = _code_unit(data, at, end)
        if code < 0:
            out[size] = _escaped_byte(int(data[at + 1]))
            at, size = at + 2, size + 1
            continue
        at += 6
        if 0xD800 <= code <= 0xDBFF:
            code = 0x10000 + ((code - 0xD800) << 10) + _code_unit(data, at, end) - 0xDC00
            at += 6
        size = _write_utf8(code, out, size)
    return size


@borrowing
def _escaped_byte(byte: int) -> int:
    """Return what a letter after a backslash stands for."""
    if byte == 98:
        return 8
    if byte == 102:
        return 12
    if byte == 110:
        return 10
    if byte == 114:
        return 13
    return 9 if byte == 116 else byte


@borrowing
def _write_utf8(code: int, out: NDArray[np.uint8], size: int) -> int:
    """Append a character; return the length of the text."""
    if code < 0x80:
        out[size] = code
        return size + 1
    more = 1 if code < 0x800 else 2 if code < 0x10000 else 3
    lead = 0xC0 if more == 1 else 0xE0 if more == 2 else 0xF0
    out[size] = lead | code >> 6 * more
    for place in range(1, more + 1):
        out[size + place] = 0x80 | code >> 6 * (more - place) & 0x3F
    return size + 1 + more


@borrowing
def skip_utf8(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return where a character of several bytes ends; -1 if it is not valid UTF-8."""
    first = data[at]
    low, high = 0x80, 0xBF
    if 0xC2 <= first <= 0xDF:
        more = 1
    elif 0xE0 <= first <= 0xEF:
        more = 2
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more = 3
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return _FAILED
    if at + more >= end or not low <= data[at + 1] <= high:
        return _FAILED
    for place in range(at + 2, at + 1 + more):
        if not 0x80 <= data[place] <= 0xBF:
            return _FAILED
    return at + 1 + more


@borrowing
def skip_text(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, bool]:
    """Return the place of the closing quote, -1 if there is none, and whether there are escapes."""
    escaped = False
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            return at, escaped
        if byte == _BACKSLASH:
            escaped = True
            at = _skip_escape(data, at, end)
        elif byte >= 0x80:
            at = skip_utf8(data, at, end)
        elif byte < 32:
            return _FAILED, escaped
        else:
            at += 1
        if at < 0:
            return _FAILED, escaped
    return _FAILED, escaped


@borrowing
def skip_word(data: NDArray[np.uint8], at: int, end: int) -> int:
    """Return the end of true, false or null; -1 if it is none of them."""
    if at + 4 <= end:
        a, b, c, d = data[at], data[at + 1], data[at + 2], data[at + 3]
        if a == 116 and b == 114 and c == 117 and d == 101:
            return at + 4
        if a == 110 and b == 117 and c == 108 and d == 108:
            return at + 4
        if a == 102 and b == 97 and c == 108 and d == 115 and at + 5 <= end and data[at + 4] == 101:
            return at + 5
    return _FAILED
