"""What is known of a request that is otherwise wrong, so that it can be refused alone."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from tamis.protocol.frame_base import Number
from tamis.protocol.frames import FRAME_ERRORS

# Finding it takes no longer than some 10 ms.
MAX_TOKENS: Final = 25_000

_TOKEN: Final = re.compile(rb'[\[{]+|[\]}]+|"(?:[^"\\]++|\\.?)*+(?:"|\Z)', re.DOTALL)
"""Brackets, or a text; one that does not end goes to the end."""
_VALUE: Final = re.compile(rb'\s*:\s*(-?[0-9]{1,18}(?=\s*[,}])|"(?:[^"\\]++|\\.)*+"|)', re.DOTALL)
"""What follows a name: a number or a text, else nothing of interest."""


class WrongRequest(msgspec.Struct):
    """A request with a number of its own; the rest of it, and its type, may be wrong."""

    type: str
    ref: Number
    publisher: str = ""
    sequence: Number = 0
    """The number of its first event, if it is a publication; those that follow must wait."""


_wrong_requests: Final = msgspec.json.Decoder(WrongRequest)
_FIELDS: Final = {f'"{name}"'.encode(): name for name in WrongRequest.__struct_fields__}


def find_request(text: bytes) -> WrongRequest | None:
    """Return what is known of a request; None if its number cannot be read.

    >>> find_request(b'{"type":"subscribe","ref":7,"filter":5}').ref, find_request(b'{"ref":7')
    (7, None)
    """
    # Texts elsewhere may have lone surrogates: other characters do as well.
    text = text.replace(b"\\ud", b"\\u0").replace(b"\\uD", b"\\u0")
    try:
        return _wrong_requests.decode(text)
    except RecursionError:
        return _find_deep(text)
    except FRAME_ERRORS:
        return None


def _find_deep(text: bytes) -> WrongRequest | None:
    """Return what is known of a request that is nested too deeply for the decoder.

    >>> _find_deep(b'{"type":"publish","publisher":"ref","events":[{"ref":1},"ref"],"ref":7}').ref
    7
    """
    depth, members = 0, list[bytes]()
    for count, token in enumerate(_TOKEN.finditer(text)):
        found = token[0]
        if count == MAX_TOKENS:
            return None
        if found[0] in b"[{":
            depth += len(found)
        elif found[0] in b"]}":
            depth -= len(found)
        elif depth == 1 and found in _FIELDS:
            value = _VALUE.match(text, token.end())
            if value is not None:
                members.append(found + b":" + (value[1] or b"null"))
    try:
        return _wrong_requests.decode(b"{" + b",".join(members) + b"}")
    except FRAME_ERRORS:
        return None
