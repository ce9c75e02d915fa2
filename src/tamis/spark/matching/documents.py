"""Rows of XML text as a source of events: each document is parsed once, for all shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EventError, TamisError
from tamis.events.batch import EventBatch, Projection
from tamis.xml import Document
from tamis.xml.document_events import (
    CHARACTERS_PER_BATCH,
    DOCUMENTS_PER_BATCH,
    DocumentEvents,
)


class DocumentRows:
    """Documents in a column, parsed; a text that is none is an error of its own."""

    def __init__(self, texts: pa.Array[Any]) -> None:
        self.errors: Final[dict[int, TamisError]] = {}
        self._documents = [self._parse(row, text) for row, text in enumerate(texts.to_pylist())]

    def __len__(self) -> int:
        return len(self._documents)

    def _parse(self, row: int, text: str | bytes | None) -> Document | None:
        try:
            if text is None:
                raise EventError("there is no document: the text is null")
            return Document.parse(text)
        except TamisError as error:
            self.errors[row] = error
            return None

    def reject(self, row: int, error: TamisError) -> None:
        """Reject a document that cannot be matched."""
        self._documents[row] = None
        self.errors[row] = error

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the documents as events; rejected ones match nothing."""
        return DocumentEvents(self._documents).event_batches(projection)


def document_slices(texts: pa.Array[Any]) -> Iterator[tuple[int, int]]:
    """Yield first rows and counts, so that the documents of each slice fit in memory together."""
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_pylist()
    first = size = 0
    for row, one in enumerate(sizes):
        full = row - first == DOCUMENTS_PER_BATCH or size + one > CHARACTERS_PER_BATCH
        if full and row > first:
            yield first, row - first
            first, size = row, 0
        size += one
    if len(sizes) > first:
        yield first, len(sizes) - first
