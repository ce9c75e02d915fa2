"""The text of a document that comes as bytes."""

from __future__ import annotations

import re
from typing import Final

from tamis.errors import XMLError

_ENCODING: Final = re.compile(
    rb"""\s*<\?xml[^>]{0,100}?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']"""
)
_ENCODINGS: Final = ("utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252")


def decode_document(given: bytes, encoding: str | None = None) -> str:
    r"""Return bytes as text, by this encoding or as their declaration says, without one as UTF-8.

    >>> decode_document(b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xe4</a>")[-5:]
    'ä</a>'
    """
    if given.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        declared = _ENCODING.match(given.removeprefix(b"\xef\xbb\xbf")[:200])
        encoding = (encoding or (declared[1].decode() if declared else "utf-8")).lower()
        if encoding not in _ENCODINGS:
            known = ", ".join(_ENCODINGS)
            raise XMLError(
                f'the encoding "{encoding}" is not read; use {known}, or UTF-16 with its mark'
            )
    try:
        return given.decode(encoding)
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1:,}"
        raise XMLError(f"this is not {encoding}: {error.reason}", place=place) from None
