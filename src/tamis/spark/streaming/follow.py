"""A feed of changes, read as a stream: every batch of it publishes a version of a library.

::

    checkpoint/tamis/stream.json     the feed that owns the checkpoint
                     applied.json    the last batch that was applied, and its version

A version remembers the last batch of each feed that is in it. So a batch that runs again, because
the driver died before it made the record, is not applied to what others have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from tamis.errors import FilterError, SchemaError
from tamis.events.schema import did_you_mean
from tamis.spark.library.changes import (
    ChangeReport,
    ChangeRow,
    FeedBatch,
    apply_changes,
    require_id_type,
    rows_of_changes,
)
from tamis.spark.library.library import Library
from tamis.spark.library.subscription_table import id_type
from tamis.spark.matching.columns import quoted
from tamis.spark.runtime.records import read_record, write_record
from tamis.spark.streaming.checkpoint import Checkpoint
from tamis.spark.streaming.source_names import source_names
from tamis.spark.streaming.triggers import check_trigger, start_batches

_APPLIED: Final = "tamis/applied.json"
_CHANGE: Final = "change"
# The change feed of Delta: its column, and what it says; a row before its update changes nothing.
_DELTA_CHANGE: Final = "_change_type"
_DELTA: Final = {"update_postimage": "update"}
_BEFORE: Final = "update_preimage"
# Spark has recorded what is in the batch, and reads the same again whatever the options are.
_TOO_MANY: Final = (
    "compile all subscriptions, and follow the feed with a new checkpoint and an option by which a "
    "batch has fewer, such as maxFilesPerTrigger"
)


def follow_changes(
    feed: DataFrame,
    library: Library | str | PathLike[str],
    *,
    checkpoint: str | PathLike[str],
    change: str = _CHANGE,
    order: Sequence[str] | str = (),
    every: float | None = None,
    once: bool = False,
    on_version: Callable[[ChangeReport], None] | None = None,
) -> StreamingQuery:
    """Publish a version of a library for every batch of a stream of changes.

    The rows are those of `change_subscriptions`; `change` names the column that says insert, update
    or delete, in which those of Delta's change feed will do as well. If an id may change more than
    once in a batch, `order` names the columns by which the last change is known, such as the offset
    of a topic. A stream that matches with the library takes each version at its next batch.
    """
    check_trigger(every=every, once=once)
    target = library if isinstance(library, Library) else Library(library)
    columns = [order] if isinstance(order, str) else list(order)
    for name in (change, *columns):
        if name not in feed.columns:
            hint = did_you_mean(name, feed.columns)
            raise SchemaError(f"the feed has no column {name!r}{'; ' + hint if hint else ''}")
    require_id_type(id_type(feed, ("id",)), target.latest())
    place = Checkpoint(checkpoint)
    claim = place.claim(
        {
            "source": source_names(feed),
            "library": target.location,
            "column of changes": change,
        }
    )
    place.keep(claim)
    batches = _ChangeBatches(target, place, claim.stream, change, columns, on_version)
    return start_batches(feed, batches.run, place.location, every=every, once=once)


class _Applied(msgspec.Struct, frozen=True):
    """The last batch that was applied."""

    batch: int
    version: int


class _ChangeBatches(NamedTuple):
    """Applies the batches of a feed; Spark calls it again for an unfinished batch."""

    library: Library
    checkpoint: Checkpoint
    feed: str
    change: str
    order: list[str]
    on_version: Callable[[ChangeReport], None] | None

    def run(self, batch: DataFrame, number: int) -> None:
        """Apply a batch, unless it is known to be applied or changes nothing."""
        self.checkpoint.require_last_run()
        applied = read_record(self.checkpoint.folder, _APPLIED, _Applied)
        if applied is not None and applied.batch >= number:
            return
        this = FeedBatch(self.feed, number)
        if this.is_in(self.library.latest().manifest):
            return
        rows = self._rows(batch)
        if not rows:
            return
        report = apply_changes(self.library, rows, in_order=True, of=this)
        record = _Applied(number, report.version.number)
        write_record(self.checkpoint.folder, _APPLIED, record)
        if self.on_version is not None:
            self.on_version(report)

    def _rows(self, batch: DataFrame) -> list[ChangeRow]:
        what = F.lower(F.col(quoted(self.change)))
        ours = what
        for theirs, name in _DELTA.items():
            ours = F.when(what == theirs, name).otherwise(ours)
        # Under names of their own, so that no column of a subscription can be meant.
        order = {f"_order{at}": F.col(quoted(name)) for at, name in enumerate(self.order)}
        changes = batch.withColumns({**order, _CHANGE: ours}).filter(
            F.col(_CHANGE).isNull() | (F.col(_CHANGE) != _BEFORE)
        )
        rows = rows_of_changes(changes, *order, instead=_TOO_MANY)
        return ordered_changes(rows, list(order), by_commit=self.change == _DELTA_CHANGE)


def ordered_changes(
    rows: list[ChangeRow], order: Sequence[str], *, by_commit: bool = False
) -> list[ChangeRow]:
    """Return changes in their order, without the columns of it; raise if an id has two at once.

    What a commit of Delta deletes and inserts is in one place of the order, and was deleted first.

    >>> ordered_changes([{"id": 1, "n": 2, "change": "delete"}, {"id": 1, "n": 1}], ["n"])
    [{'id': 1}, {'id': 1, 'change': 'delete'}]
    """

    def moment(row: ChangeRow) -> tuple[object, ...]:
        place = tuple((row[name] is not None, row[name]) for name in order)
        return (*place, row.get(_CHANGE) != "delete") if by_commit and order else place

    seen = set()
    for row in rows:
        # A row without an id will be rejected, however many there are.
        if row["id"] is not None and (row["id"], moment(row)) in seen:
            known = "in the same place of the order" if order else "and no column orders them"
            raise FilterError(
                f"the subscription {row['id']!r} changes twice in a batch, {known}; name the "
                "columns by which the last change is known, as order=, and start the feed again"
            )
        seen.add((row["id"], moment(row)))
    left_out = {*order}
    return [
        {name: value for name, value in row.items() if name not in left_out}
        for row in sorted(rows, key=moment)
    ]
