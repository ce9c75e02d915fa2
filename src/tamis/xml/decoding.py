"""The text of a document that comes as bytes, and its bytes again."""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

from tamis.errors import XMLError

_DECLARED: Final = re.compile(
    r"""\ufeff?\s*<\?xml[^>]{0,100}?\sencoding\s*=\s*["'](?P<name>[A-Za-z0-9._-]{1,40})["']""",
    re.ASCII,
)
_LONGEST_DECLARATION: Final = 200
_ENCODINGS: Final = ("utf-8", "us-ascii", "iso-8859-1", "iso-8859-15", "windows-1252")
# What people and libraries write as well, without a doubt about what they mean.
_ALIASES: Final = {"utf8": "utf-8", "ascii": "us-ascii", "latin1": "iso-8859-1"}
_UTF_16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF_32_MARKS: Final = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def decode_document(given: bytes, encoding: str | None = None) -> str:
    r"""Return bytes as text: as their mark says, or by this encoding, or as their declaration says.

    With none of these they are UTF-8. That a mark decides before all else is from RFC 7303.

    >>> decode_document(b"<?xml version='1.0' encoding='iso-8859-1'?><a>\xe4</a>")[-5:]
    'ä</a>'
    """
    chosen = _marked(given) or _known(encoding or _declared(given) or "utf-8")
    try:
        return given.decode(chosen)
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1:,}"
        raise XMLError(f"this is not {chosen}: {error.reason}", place=place) from None


class EncodedDocument(NamedTuple):
    """The bytes of a document, and how to read them."""

    content: bytes
    charset: str


def encode_document(text: str) -> EncodedDocument:
    r"""Return a document as bytes that are what its declaration says, without one UTF-8.

    A declaration that cannot be true, of an encoding that lacks a character, becomes UTF-8.

    >>> encode_document("<?xml version='1.0' encoding='iso-8859-1'?><a>ä</a>").content[-5:]
    b'\xe4</a>'
    >>> encode_document("<?xml version='1.0' encoding='iso-8859-1'?><a>€</a>").content[:41]
    b"<?xml version='1.0' encoding='UTF-8'?><a>"
    """
    declared = _DECLARED.match(text[:_LONGEST_DECLARATION])
    if declared is None:
        return EncodedDocument(text.encode(), "utf-8")
    name = declared["name"].lower()
    encoding = _ALIASES.get(name, name)
    if encoding == "utf-16":
        return EncodedDocument(text.removeprefix("\ufeff").encode(encoding), encoding)
    if encoding in _ENCODINGS:
        try:
            return EncodedDocument(text.encode(encoding), encoding)
        except UnicodeEncodeError:
            pass
    start, end = declared.span("name")
    return EncodedDocument(f"{text[:start]}UTF-8{text[end:]}".encode(), "utf-8")


def _marked(given: bytes) -> str | None:
    """Return what the first bytes say, whatever else is said."""
    if given.startswith(_UTF_32_MARKS):
        raise XMLError("UTF-32 is not read; send the document as UTF-8")
    if given.startswith(_UTF_16_MARKS):
        return "utf-16"
    if given.startswith((b"<\0", b"\0<")):
        raise XMLError(
            "this is UTF-16 without its mark: write the bytes FF FE before it if the low byte of "
            "a character comes first, otherwise FE FF; or send it as UTF-8"
        )
    return "utf-8" if given.startswith(codecs.BOM_UTF8) else None


def _declared(given: bytes) -> str | None:
    found = _DECLARED.match(given[:_LONGEST_DECLARATION].decode("latin-1"))
    return None if found is None else found["name"]


def _known(name: str) -> str:
    encoding = _ALIASES.get(name.lower(), name.lower())
    if encoding not in _ENCODINGS:
        known = ", ".join(_ENCODINGS)
        raise XMLError(
            f'the encoding "{encoding}" is not read; use {known}, or UTF-16 with its mark'
        )
    return encoding
