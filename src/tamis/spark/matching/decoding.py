"""Events as they come to a worker, made into a batch: the columns of a table, or texts of JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import pyarrow as pa

from tamis.errors import EventError, JSONError, TamisError
from tamis.events import EventLimits, Schema
from tamis.events.arrow import batch_of_arrow
from tamis.events.batch import EventBatch
from tamis.events.json_text import kind_of_json, parse_json


class Decoder(NamedTuple):
    """Makes batches of events, all held against one schema."""

    schema: Schema | None
    total: bool
    wanted: Collection[str]
    limits: EventLimits = EventLimits()

    def of_columns(self, rows: pa.RecordBatch) -> EventBatch:
        """Make a batch of the rows of a table."""
        return batch_of_arrow(rows, self.schema, total=self.total, wanted=self.wanted)

    def of_texts(self, texts: Iterable[str | bytes | None]) -> EventBatch:
        """Make a batch of texts that hold a JSON object each."""
        events: list[dict[str, object]] = []
        errors: dict[int, TamisError] = {}
        for number, text in enumerate(texts):
            try:
                events.append(self._object(text))
            except TamisError as error:
                errors[number] = error
                events.append({})
        batch = EventBatch.of_events(events, self.schema, total=self.total)
        return EventBatch(len(batch), batch.columns, dict(sorted((batch.errors | errors).items())))

    def _object(self, text: str | bytes | None) -> dict[str, object]:
        if text is None:
            raise EventError("there is no event: the text is null")
        data = parse_json(text, self.limits)
        if not isinstance(data, dict):
            raise JSONError(
                f"an event is a JSON object, not {kind_of_json(data)}", place="top level"
            )
        return data
