"""A match job as a worker runs it: batches of rows in, batches of results out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.accumulators import Accumulator

from tamis.errors import EventError
from tamis.events import Event, Schema, decode_json, schema_of
from tamis.events.arrow import batch_of_arrow
from tamis.events.batch import EventBatch
from tamis.events.json_columns import JsonColumnReader
from tamis.filters import Mode
from tamis.filters.printing import ANY
from tamis.spark.library.manifests import Shard
from tamis.spark.library.places import LibraryPlace
from tamis.spark.matching.outputs import (
    Output,
    RowEvents,
    ShardMatches,
    SubscriptionNumbers,
    result_columns,
    result_fields,
    result_size,
)
from tamis.spark.matching.shard_cache import SHARDS, OpenShard

# Larger results leave in several batches, so that memory stays within some 100 MB.
MAX_MATCHES_PER_BATCH: Final = 2_000_000


class RowLayout(NamedTuple):
    """The purpose of each column of the rows, by position."""

    kept: tuple[tuple[str, int], ...]
    """The columns to return, and their names."""
    attributes: tuple[tuple[str, int], ...] = ()
    text: int | None = None
    """The column that holds the whole event as JSON, if any."""
    group: int | None = None
    """The column that names the shard group a row is to meet, if any."""
    xml: bool = False
    """Whether the column with the whole event holds XML."""


class MatchJob(NamedTuple):
    """Everything a worker must know."""

    place: LibraryPlace
    shards: tuple[Shard, ...]
    numbers: SubscriptionNumbers
    schema: dict[str, Any] | None
    mode: str
    wanted: frozenset[str]
    output: Output
    unmatched: bool
    now: float
    layout: RowLayout
    shard_groups: tuple[tuple[int, ...], ...] = ()
    """The shards to open together; a row meets the group it names, or else all shards."""
    live: Accumulator[tuple[int, int]] | None = None
    """Takes the events and matches of each batch, if somebody watches."""

    def decoder(self) -> EventDecoder:
        """Return a decoder for the rows."""
        schema = None if self.schema is None else schema_of(self.schema)
        return EventDecoder(schema, self.mode == Mode.TOTAL, self.wanted)


def match_rows(batches: Iterable[pa.RecordBatch], job: MatchJob) -> Iterator[pa.RecordBatch]:
    """Match the rows of a partition."""
    matcher = RowMatcher(job)
    for batch in batches:
        yield from matcher.results(batch)


class RowMatcher:
    """Runs a job on one partition."""

    def __init__(self, job: MatchJob) -> None:
        self._job = job
        self._decoder = job.decoder()
        added = result_fields(job.output, job.numbers)
        self._names = [*(name for name, _ in job.layout.kept), *(field.name for field in added)]

    def results(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of some rows, in several batches if there are very many."""
        for part in self._by_group(rows):
            layout = self._job.layout
            if layout.xml and layout.text is not None:
                # The extra `xml` is needed only here.
                from tamis.spark.matching.documents import document_slices  # noqa: PLC0415

                for first, count in document_slices(part.column(layout.text)):
                    yield from self._results(part.slice(first, count))
            else:
                yield from self._results(part)

    def _by_group(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows in parts that each name one shard group."""
        if self._job.layout.group is None or not rows.num_rows:
            yield from [rows] if rows.num_rows else ()
            return
        groups = rows.column(self._job.layout.group).to_numpy(zero_copy_only=False)
        ends = [*(np.flatnonzero(np.diff(groups)) + 1).tolist(), rows.num_rows]
        for first, last in pairwise([0, *ends]):
            yield rows.slice(first, last - first)

    def _results(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        shards, numbers = self._shards(rows)
        events = self._events(rows)
        found = ShardMatches(events, shards, self._job.now)
        if found.undecided and hasattr(events, "reject"):
            # What is not known must not look as if nothing matched.
            for row, id_ in found.undecided.items():
                events.reject(row, EventError(f"the query {id_!r} is too much work on it"))
            found = ShardMatches(events, shards, self._job.now)
        parts = -(-result_size(found, self._job.output, numbers) // MAX_MATCHES_PER_BATCH)
        if parts > 1 < rows.num_rows:
            size = -(-rows.num_rows // parts)
            for start in range(0, rows.num_rows, size):
                yield from self._results(rows.slice(start, size))
        else:
            if self._job.live is not None:
                self._job.live.add((rows.num_rows, int(found.counts.sum())))
            yield self._batch(rows, found, numbers)

    def _events(self, rows: pa.RecordBatch) -> RowEvents:
        layout = self._job.layout
        if layout.text is not None and layout.xml:
            from tamis.spark.matching.documents import DocumentRows  # noqa: PLC0415 - as above

            return DocumentRows(rows.column(layout.text))
        if layout.text is not None:
            return self._decoder.from_json(rows.column(layout.text))
        names = [name for name, _ in layout.attributes]
        if not names:
            return EventBatch(rows.num_rows, {})
        columns = [rows.column(place) for _, place in layout.attributes]
        return self._decoder.from_columns(pa.RecordBatch.from_arrays(columns, names))

    def _shards(self, rows: pa.RecordBatch) -> tuple[list[OpenShard], SubscriptionNumbers]:
        job = self._job
        if job.layout.group is None:
            return SHARDS.open(job.place, job.shards), job.numbers
        group = job.shard_groups[rows.column(job.layout.group)[0].as_py()]
        firsts = tuple(job.numbers.firsts[at] for at in group)
        opened = SHARDS.open(job.place, [job.shards[at] for at in group])
        return opened, job.numbers._replace(firsts=firsts)

    def _batch(
        self, rows: pa.RecordBatch, found: ShardMatches, numbers: SubscriptionNumbers
    ) -> pa.RecordBatch:
        job = self._job
        added = result_columns(found, job.output, numbers, unmatched=job.unmatched)
        kept = [rows.column(place) for _, place in job.layout.kept]
        if added.rows is not None:
            places = pa.array(added.rows)
            kept = [column.take(places) for column in kept]
        return pa.RecordBatch.from_arrays([*kept, *added.columns], self._names)


class EventDecoder:
    """Decodes rows to batches of events, checked against a schema."""

    def __init__(self, schema: Schema | None, total: bool, wanted: Collection[str]) -> None:
        self.schema: Final = schema
        self._total = total
        self._wanted = wanted

    def from_columns(self, rows: pa.RecordBatch) -> EventBatch:
        """Decode rows with a column per attribute."""
        return batch_of_arrow(rows, self.schema, total=self._total, wanted=self._wanted)

    def from_json(self, texts: pa.Array[Any]) -> EventBatch:
        """Decode texts, strings or binary, that each hold a JSON object."""
        data, starts, ends = _spans(texts)
        batch = self._reader.read(data, starts, ends)

        def given(row: int) -> Event:
            return decode_json(texts[row].as_py(), schema=self.schema)

        batch = EventBatch(len(batch), batch.columns, batch.errors, given)
        if not texts.null_count:
            return batch
        nulls = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
        missing = EventError("there is no event: the text is null")
        errors = batch.errors | dict.fromkeys(nulls, missing)
        return EventBatch(len(batch), batch.columns, dict(sorted(errors.items())), given)

    @cached_property
    def _reader(self) -> JsonColumnReader:
        any_text = ANY in self._wanted and self.schema is None
        wanted = {*self._wanted} - {ANY}
        return JsonColumnReader(wanted, self.schema, total=self._total, any_text=any_text)


def _spans(
    texts: pa.Array[Any],
) -> tuple[memoryview, NDArray[np.int64], NDArray[np.int64]]:
    """Return the data of an array of texts, and where each begins and ends; a null is empty."""
    array = texts.cast(pa.large_binary())
    _, offsets, data = array.buffers()
    count = len(array)
    places = np.zeros(1, np.int64)
    if count:
        places = np.frombuffer(offsets, np.int64)[array.offset : array.offset + count + 1]
    starts, ends = places[:-1], places[1:]
    if array.null_count:
        starts = np.where(array.is_valid().to_numpy(zero_copy_only=False), starts, ends)
    return memoryview(data if data is not None else b""), starts, ends
