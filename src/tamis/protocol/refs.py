"""The number of a request that is otherwise wrong, so that it can be refused alone."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tamis.protocol.frames import FRAME_ERRORS, Number

# Finding it takes no longer than some 10 ms.
MAX_TOKENS: Final = 25_000

_TOKEN: Final = re.compile(rb'[\[{]+|[\]}]+|"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""Brackets, or a text; one that does not end goes to the end."""
_VALUE: Final = re.compile(rb"\s*:\s*(?:(-?[0-9]{1,18})\s*[,}])?")
"""What follows the name of a member; its value, if that is a number."""


class _NumberedRequest(msgspec.Struct):
    """What every request with a number has; the rest of it, and its type, may be wrong."""

    type: str
    ref: Number


_numbered_requests: Final = msgspec.json.Decoder(_NumberedRequest)


def find_ref(text: bytes) -> int | None:
    """Return the number of a request that is otherwise wrong; None if it cannot be told.

    >>> find_ref(b'{"type":"subscribe","ref":7,"filter":5}'), find_ref(b'{"ref":7')
    (7, None)
    """
    # Texts elsewhere may have lone surrogates: other characters do as well.
    text = text.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
    try:
        return _numbered_requests.decode(text).ref
    except RecursionError:
        return _find_deep(text)
    except FRAME_ERRORS:
        return None


def _find_deep(text: bytes) -> int | None:
    """Return the number of a request that is nested too deeply for the decoder.

    >>> _find_deep(b'{"publisher": "ref", "events": [{"ref": 1}, "ref"], "ref": 7}')
    7
    """
    depth = 0
    for count, token in enumerate(_TOKEN.finditer(text)):
        found = token[0]
        if count == MAX_TOKENS:
            break
        if found[0] in b"[{":
            depth += len(found)
        elif found[0] in b"]}":
            depth -= len(found)
        elif depth == 1 and found == b'"ref"':
            value = _VALUE.match(text, token.end())
            if value is not None:
                return None if value[1] is None else int(value[1])
    return None
