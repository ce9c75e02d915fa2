"""XML documents as they are published: the text as it was sent, in a JSON string.

So frames, links, the log and dead letters carry documents as they carry JSON.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from tamis.errors import EventError, MissingExtraError
from tamis.lazy import require_extra

if TYPE_CHECKING:
    from tamis.xml import Document

MAX_CACHED_BYTES: Final = 1024 * 1024
"""Of the texts of parsed documents, whose nodes may take a hundred times as much."""
MAX_CACHED: Final = 256

_texts: Final = msgspec.json.Decoder(str)


class DocumentReader:
    """Parses documents safely, and keeps the latest, which many ask for; for any thread."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parsed: OrderedDict[bytes, Document] = OrderedDict()
        self._bytes = 0
        self._keeping, self._building = Lock(), Lock()

    def load(self) -> None:
        """Load the parser, if it is installed.

        That takes a tenth of a second, which whoever sends the first document would be charged.
        """
        with suppress(MissingExtraError):
            import_module("tamis.xml")

    def read(self, text: bytes) -> Document:
        """Return the document in a JSON string, or say what is wrong with it."""
        with self._keeping:
            known = self._parsed.get(text)
            if known is not None:
                self._parsed.move_to_end(text)
                return known
        document = self._parse(text)
        with self._keeping:
            if text not in self._parsed:
                self._parsed[text] = document
                self._bytes += len(text)
            while self._bytes > MAX_CACHED_BYTES or len(self._parsed) > MAX_CACHED:
                oldest, _ = self._parsed.popitem(last=False)
                self._bytes -= len(oldest)
        return document

    def read_whole(self, text: bytes) -> Document:
        """Return a document with its nodes, for queries."""
        document = self.read(text)
        # Several threads may ask: all of them get the same nodes.
        with self._building:
            _ = document.nodes
        return document

    @property
    def missing(self) -> str:
        """Return what has to be installed to read documents; nothing if all is there."""
        try:
            require_extra("xml")
        except MissingExtraError as error:
            return str(error)
        return ""

    def _parse(self, text: bytes) -> Document:
        if self.missing:
            raise EventError(f"this broker reads no XML: {self.missing}")
        # The extra `xml` need not be installed.
        from tamis.xml import Document, XMLLimits  # noqa: PLC0415

        try:
            decoded = _texts.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise EventError(
                'an event of the format "xml" is a JSON string with the text of the document'
            ) from None
        return Document.parse(decoded, limits=XMLLimits(size=self._max_bytes))
