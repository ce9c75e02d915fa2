"""A job of matching as a worker runs it: batches of rows in, batches of results out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from tamis.events import schema_of
from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.spark.library.library import Shard
from tamis.spark.matching.decoding import Decoder
from tamis.spark.matching.finding import Found
from tamis.spark.matching.outputs import Numbering, Output, result_fields, result_of, weight
from tamis.spark.matching.worker import SHELF, OpenShard

# More matches than this at a time are told in pieces, so that memory stays within some 100 MB.
MOST_MATCHES: Final = 2_000_000


class Layout(NamedTuple):
    """What the columns of the rows are for, by their places."""

    kept: tuple[tuple[str, int], ...]
    """The columns that come out again, under these names."""
    attributes: tuple[tuple[str, int], ...] = ()
    text: int | None = None
    """The column with the whole event as JSON, if there is one."""
    share: int | None = None
    """The column that says which of the shares of the shards a row is to meet."""


class Job(NamedTuple):
    """All that a worker must know."""

    folder: str
    shards: tuple[Shard, ...]
    numbering: Numbering
    schema: dict[str, Any] | None
    mode: str
    wanted: frozenset[str]
    output: Output
    unmatched: bool
    now: float
    layout: Layout
    shares: tuple[tuple[int, ...], ...] = ()
    """Which shards belong together; a row meets one share, or all shards if it names none."""

    def decoder(self) -> Decoder:
        """Return what makes batches of the rows."""
        schema = None if self.schema is None else schema_of(self.schema)
        return Decoder(schema, self.mode == Mode.TOTAL, self.wanted)


def match_rows(batches: Iterable[pa.RecordBatch], job: Job) -> Iterator[pa.RecordBatch]:
    """Match the rows of a partition."""
    run = Run(job)
    for batch in batches:
        yield from run.results(batch)


class Run:
    """One partition's share of a job."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._decoder = job.decoder()
        told = result_fields(job.output, job.numbering)
        self._names = [*(name for name, _ in job.layout.kept), *(field.name for field in told)]

    def results(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the results of some rows, in pieces if there are very many."""
        if not rows.num_rows:
            return
        SHELF.clock.now = self._job.now
        shards, numbering = self._shards(rows)
        found = Found(self._events(rows), shards)
        heavy = -(-weight(found, self._job.output, numbering) // MOST_MATCHES)
        if heavy > 1 < rows.num_rows:
            size = -(-rows.num_rows // heavy)
            for start in range(0, rows.num_rows, size):
                yield from self.results(rows.slice(start, size))
        else:
            yield self._told(rows, found, numbering)

    def _events(self, rows: pa.RecordBatch) -> EventBatch:
        layout = self._job.layout
        if layout.text is not None:
            return self._decoder.of_texts(rows.column(layout.text).to_pylist())
        names = [name for name, _ in layout.attributes]
        if not names:
            return EventBatch(rows.num_rows, {})
        columns = [rows.column(place) for _, place in layout.attributes]
        return self._decoder.of_columns(pa.RecordBatch.from_arrays(columns, names))

    def _shards(self, rows: pa.RecordBatch) -> tuple[list[OpenShard], Numbering]:
        job = self._job
        if job.layout.share is None:
            return SHELF.open(job.folder, job.shards), job.numbering
        # Rows were dealt out by it, so all in a batch have the same.
        chosen = job.shares[rows.column(job.layout.share)[0].as_py()]
        firsts = tuple(job.numbering.firsts[at] for at in chosen)
        opened = SHELF.open(job.folder, [job.shards[at] for at in chosen])
        return opened, job.numbering._replace(firsts=firsts)

    def _told(self, rows: pa.RecordBatch, found: Found, numbering: Numbering) -> pa.RecordBatch:
        job = self._job
        result = result_of(found, job.output, numbering, unmatched=job.unmatched)
        kept = [rows.column(place) for _, place in job.layout.kept]
        if result.rows is not None:
            places = pa.array(result.rows)
            kept = [column.take(places) for column in kept]
        return pa.RecordBatch.from_arrays([*kept, *result.columns], self._names)
