"""The forms in which matches leave a worker, each as Arrow columns beside the kept ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import TamisError
from tamis.events.batch import EventSource
from tamis.matching import Matches
from tamis.spark.matching.shard_cache import OpenShard

Int64Array = NDArray[np.int64]


class Output(StrEnum):
    """What a result says about the matches of an event."""

    IDS = "ids"
    """The ids, in an array."""
    PAIRS = "pairs"
    """One row for each event and subscription."""
    PACKED = "packed"
    """The numbers of the subscriptions, 4 bytes each, little-endian."""
    BITMAP = "bitmap"
    """A bit per subscription: bit n % 8 of byte n // 8 belongs to number n."""
    COUNTS = "counts"
    """Only how many."""


class SubscriptionNumbers(NamedTuple):
    """How subscriptions are numbered across shards."""

    firsts: tuple[int, ...]
    """The first number of each shard."""
    total: int
    id_type: str
    """`bigint` or `string`."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the Arrow type of ids."""
        return pa.int64() if self.id_type == "bigint" else pa.string()

    @property
    def spark_type(self) -> T.DataType:
        """Return the Spark type of ids."""
        return T.LongType() if self.id_type == "bigint" else T.StringType()


class RowEvents(EventSource, Protocol):
    """The events of some rows, and those that are rejected."""

    @property
    def errors(self) -> Mapping[int, TamisError]:
        """Return why rows are rejected."""

    def __len__(self) -> int: ...


class ShardMatches:
    """The matches of a batch of events in all shards, ordered by event, then by shard."""

    def __init__(self, batch: RowEvents, shards: Sequence[OpenShard], now: float) -> None:
        self.length: Final = len(batch)
        self.errors: Final[Mapping[int, TamisError]] = batch.errors
        self._shards = shards
        self._matches: list[Matches] = [
            shard.engine.match_batch(batch, now=now) for shard in shards
        ]

    @cached_property
    def undecided(self) -> dict[int, str]:
        """Return the events on which some query was too much work, each with the id of one."""
        found: dict[int, str] = {}
        for shard, matches in zip(self._shards, self._matches, strict=True):
            for event, numbers in matches.undecided.items():
                found.setdefault(event, str(shard.ids[int(numbers[0])].as_py()))
        return found

    @cached_property
    def counts(self) -> Int64Array:
        """Return how many subscriptions each event satisfies."""
        none = np.zeros(self.length, np.int64)
        return sum((matches.counts() for matches in self._matches), start=none)

    @cached_property
    def starts(self) -> Int64Array:
        """Return where the matches of each event begin, and where the last end."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    @cached_property
    def _pairs(self) -> list[tuple[Int64Array, NDArray[np.int32]]]:
        """Return for each shard the events that match, and the numbers of what they match."""
        return [matches.numbers() for matches in self._matches]

    @cached_property
    def _order(self) -> NDArray[np.intp] | None:
        """Return the order that groups matches by event; None if they are in it already."""
        if len(self._pairs) < 2:
            return None
        return np.argsort(np.concatenate([events for events, _ in self._pairs]), kind="stable")

    def numbers(self, firsts: Sequence[int]) -> Int64Array:
        """Return all matches as numbers of subscriptions, given each shard's first number."""
        pairs = zip(self._pairs, firsts, strict=True)
        parts = [numbers + np.int64(first) for (_, numbers), first in pairs]
        joined = np.concatenate([np.empty(0, np.int64), *parts])
        return joined if self._order is None else joined[self._order]

    def ids(self, type_: pa.DataType) -> pa.Array[Any]:
        """Return all matches as ids of subscriptions."""
        parts = [
            shard.ids.take(pa.array(numbers))
            for shard, (_, numbers) in zip(self._shards, self._pairs, strict=True)
        ]
        if not parts:
            return pa.array([], type_)
        return parts[0] if self._order is None else pa.concat_arrays(parts).take(self._order)


def result_fields(output: Output, numbers: SubscriptionNumbers) -> list[T.StructField]:
    """Return the columns that an output adds, the error last."""
    return [
        *_subscription_fields(output, numbers.spark_type),
        T.StructField("nth" if output is Output.PAIRS else "matches", T.IntegerType()),
        T.StructField("error", T.StringType()),
    ]


def _subscription_fields(output: Output, id_: T.DataType) -> list[T.StructField]:
    match output:
        case Output.COUNTS:
            return []
        case Output.PAIRS:
            return [T.StructField("subscription", id_)]
        case Output.IDS:
            return [T.StructField("subscriptions", T.ArrayType(id_))]
        case _:
            return [T.StructField("subscriptions", T.BinaryType())]


def result_size(found: ShardMatches, output: Output, numbers: SubscriptionNumbers) -> int:
    """Return the size of a result, in the room that one match takes."""
    if output is Output.COUNTS:
        return 0
    matches = int(found.counts.sum())
    return matches + found.length * numbers.total // 64 if output is Output.BITMAP else matches


class ResultColumns(NamedTuple):
    """The columns that an output adds, and the event that each of their rows belongs to."""

    columns: list[pa.Array[Any]]
    rows: NDArray[np.intp] | None = None
    """None if there is one row per event, in order."""


def result_columns(
    found: ShardMatches, output: Output, numbers: SubscriptionNumbers, *, unmatched: bool
) -> ResultColumns:
    """Return matches in the form of an output, with or without events that matched nothing."""
    if output is Output.PAIRS:
        return _pairs(found, numbers, unmatched=unmatched)
    added = [form(found, numbers) for form in _FORMS[output]]
    columns = [*added, _matches(found), _errors(found)]
    if unmatched or not (found.counts == 0).any():
        return ResultColumns(columns)
    rows = np.flatnonzero((found.counts > 0) | _is_rejected(found))
    return ResultColumns([column.take(pa.array(rows)) for column in columns], rows)


# --- one row per event --------------------------------------------------------------------


def _lists(found: ShardMatches, numbers: SubscriptionNumbers) -> pa.Array[Any]:
    ids = found.ids(numbers.arrow_type)
    return pa.ListArray.from_arrays(_offsets(found.starts), ids, mask=_null_where_rejected(found))


def _packed(found: ShardMatches, numbers: SubscriptionNumbers) -> pa.Array[Any]:
    data = found.numbers(numbers.firsts).astype("<i4")
    return _binary(found, _offsets(found.starts * 4), data)


def _bitmaps(found: ShardMatches, numbers: SubscriptionNumbers) -> pa.Array[Any]:
    width = -(-numbers.total // 8)
    bits = found.numbers(numbers.firsts)
    events = np.repeat(np.arange(found.length), found.counts)
    data = np.zeros(found.length * width, np.uint8)
    np.bitwise_or.at(data, events * width + (bits >> 3), np.uint8(1) << (bits & 7).astype(np.uint8))
    return _binary(found, _offsets(np.arange(found.length + 1) * width), data)


_ColumnMaker = Callable[[ShardMatches, SubscriptionNumbers], "pa.Array[Any]"]
_FORMS: Final[dict[Output, Sequence[_ColumnMaker]]] = {
    Output.IDS: (_lists,),
    Output.PACKED: (_packed,),
    Output.BITMAP: (_bitmaps,),
    Output.COUNTS: (),
}


def _binary(found: ShardMatches, offsets: pa.Array[Any], data: NDArray[Any]) -> pa.Array[Any]:
    mask = _null_where_rejected(found)
    validity = None
    if mask is not None:
        present = ~np.asarray(mask)
        validity = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    buffers = [validity, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), found.length, buffers)


def _matches(found: ShardMatches) -> pa.Array[Any]:
    return pa.array(found.counts.astype(np.int32), mask=_rejected_or_none(found))


def _errors(found: ShardMatches) -> pa.Array[Any]:
    if not found.errors:
        return pa.nulls(found.length, pa.string())
    return pa.array([_sentence(found, row) for row in range(found.length)], pa.string())


def _sentence(found: ShardMatches, row: int) -> str | None:
    return str(found.errors[row]) if row in found.errors else None


def _is_rejected(found: ShardMatches) -> NDArray[np.bool_]:
    rejected = np.zeros(found.length, np.bool_)
    rejected[list(found.errors)] = True
    return rejected


def _rejected_or_none(found: ShardMatches) -> NDArray[np.bool_] | None:
    return _is_rejected(found) if found.errors else None


def _null_where_rejected(found: ShardMatches) -> pa.Array[Any] | None:
    return pa.array(_is_rejected(found)) if found.errors else None


def _offsets(starts: Int64Array) -> pa.Array[Any]:
    return pa.array(starts.astype(np.int32))


# --- one row per match --------------------------------------------------------------------


def _pairs(found: ShardMatches, numbers: SubscriptionNumbers, *, unmatched: bool) -> ResultColumns:
    """Return a row per match, and one for each rejected or, if wanted, unmatched event."""
    alone = _is_rejected(found) if not unmatched else found.counts == 0
    rows = np.maximum(found.counts, alone)
    events = np.repeat(np.arange(found.length), rows)
    starts = np.cumsum(rows) - rows
    matched = np.repeat(found.counts > 0, rows)
    nth = np.where(matched, np.arange(len(events)) - np.repeat(starts, rows) + 1, 0)
    ids = found.ids(numbers.arrow_type)
    if not matched.all():
        places = np.where(matched, np.cumsum(matched) - 1, 0)
        ids = ids.take(pa.array(places, mask=~matched))
    return ResultColumns([ids, pa.array(nth.astype(np.int32)), _errors_of(found, events)], events)


def _errors_of(found: ShardMatches, events: NDArray[np.intp]) -> pa.Array[Any]:
    if not found.errors:
        return pa.nulls(len(events), pa.string())
    return _errors(found).take(pa.array(events))
