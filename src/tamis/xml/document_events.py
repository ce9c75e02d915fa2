"""Many documents as a source of events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tamis.errors import EventError, TamisError
from tamis.events.batch import EventBatch, Projection
from tamis.events.event import Event
from tamis.events.gathering import gather_checked
from tamis.xml.documents import Document, XMLLimits, columns_of

DOCUMENTS_PER_BATCH: Final = 512
CHARACTERS_PER_BATCH: Final = 8 * 1024 * 1024
"""Trees take some ten times as much memory as their texts, and a batch is in memory at once."""


class DocumentEvents:
    """Documents, or their texts one by one; a text that is no document is an error of its own."""

    def __init__(
        self, texts: Iterable[str | bytes | Document | None], limits: XMLLimits | None = None
    ) -> None:
        self._texts = texts
        self._limits = limits

    def event_batches(self, projection: Projection) -> Iterator[EventBatch]:
        """Yield the documents as events, some hundreds at a time."""
        for texts in _batches(_one_by_one(self._texts)):
            taken: list[object] = []
            errors: dict[int, TamisError] = {}
            for number, text in enumerate(texts):
                try:
                    taken.append(_document(text, self._limits))
                except TamisError as error:
                    taken.append(text)
                    errors[number] = error
            columns = _columns(taken, projection)
            yield EventBatch(len(taken), columns, errors, taken.__getitem__)


def _columns(taken: Sequence[object], projection: Projection) -> dict[str, Any]:
    numbers = [number for number, each in enumerate(taken) if isinstance(each, Document)]
    wanted, named = projection.wanted, projection.named
    if wanted is not None and not named:
        documents = [each for each in taken if isinstance(each, Document)]
        return columns_of(documents, numbers, wanted)
    events = [_event(taken[number], wanted, named) for number in numbers]
    return gather_checked(events, numbers, wanted)


def _event(document: Any, wanted: frozenset[str] | None, named: frozenset[str] | None) -> Event:
    found = document.__attributes__(wanted)
    if named:
        found = {**found, **document.__attributes__(named)}
    return Event.of_checked(found)


def _document(given: object, limits: XMLLimits | None) -> Document:
    if isinstance(given, Document):
        return given
    if isinstance(given, str | bytes):
        return Document.parse(given, limits=limits)
    if given is None:
        raise EventError("there is no document: the text is null")
    raise EventError(f"a document is a Document or a text, not {given!r:.60}")


def _one_by_one(texts: Any) -> Iterator[object]:
    """Yield texts; a column of Arrow is converted some at a time."""
    if not hasattr(texts, "to_pylist"):
        yield from texts
        return
    for first in range(0, len(texts), DOCUMENTS_PER_BATCH):
        yield from texts.slice(first, DOCUMENTS_PER_BATCH).to_pylist()


def _batches(texts: Iterator[object]) -> Iterator[list[object]]:
    batch: list[object] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text) if isinstance(text, str | bytes) else 0
        if len(batch) == DOCUMENTS_PER_BATCH or size >= CHARACTERS_PER_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
