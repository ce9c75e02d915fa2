"""The forms in which matches leave a worker, each as columns of Arrow beside the kept ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as T  # noqa: N812

from tamis.spark.matching.finding import Found, Numbers


class Output(StrEnum):
    """What is told of the matches of an event."""

    IDS = "ids"
    """The ids, in an array."""
    PAIRS = "pairs"
    """One row for each event and subscription."""
    PACKED = "packed"
    """The numbers of the subscriptions, 4 bytes each, little-endian."""
    BITMAP = "bitmap"
    """A bit for every subscription: bit n % 8 of byte n // 8 is that of number n."""
    COUNTS = "counts"
    """Only how many."""


class Numbering(NamedTuple):
    """How subscriptions are counted through all shards."""

    firsts: tuple[int, ...]
    total: int
    ids: str
    """`bigint` or `string`."""

    @property
    def arrow_type(self) -> pa.DataType:
        """Return the type of ids in Arrow."""
        return pa.int64() if self.ids == "bigint" else pa.string()

    @property
    def spark_type(self) -> T.DataType:
        """Return the type of ids in Spark."""
        return T.LongType() if self.ids == "bigint" else T.StringType()


def result_fields(output: Output, numbering: Numbering) -> list[T.StructField]:
    """Return the columns that an output adds, the error last."""
    return [
        *_told_fields(output, numbering.spark_type),
        T.StructField("nth" if output is Output.PAIRS else "matches", T.IntegerType()),
        T.StructField("error", T.StringType()),
    ]


def _told_fields(output: Output, id_: T.DataType) -> list[T.StructField]:
    match output:
        case Output.COUNTS:
            return []
        case Output.PAIRS:
            return [T.StructField("subscription", id_)]
        case Output.IDS:
            return [T.StructField("subscriptions", T.ArrayType(id_))]
        case _:
            return [T.StructField("subscriptions", T.BinaryType())]


def weight(found: Found, output: Output, numbering: Numbering) -> int:
    """Return how large a result would be, in matches told one by one."""
    if output is Output.COUNTS:
        return 0
    matches = int(found.counts.sum())
    return matches + found.length * numbering.total // 64 if output is Output.BITMAP else matches


class Result(NamedTuple):
    """Columns that an output adds, and the row of the events that each of its rows stands for."""

    columns: list[pa.Array[Any]]
    rows: NDArray[np.intp] | None = None
    """None if there is one for each event, in order."""


def result_of(found: Found, output: Output, numbering: Numbering, *, unmatched: bool) -> Result:
    """Return what was found in the form of an output, with or without what matched nothing."""
    if output is Output.PAIRS:
        return _pairs(found, numbering, unmatched=unmatched)
    told = [form(found, numbering) for form in _FORMS[output]]
    columns = [*told, _matches(found), _errors(found)]
    if unmatched or not (found.counts == 0).any():
        return Result(columns)
    rows = np.flatnonzero((found.counts > 0) | _is_refused(found))
    return Result([column.take(pa.array(rows)) for column in columns], rows)


# --- one row for each event --------------------------------------------------------------------


def _lists(found: Found, numbering: Numbering) -> pa.Array[Any]:
    ids = found.ids(numbering.arrow_type)
    return pa.ListArray.from_arrays(_offsets(found.starts), ids, mask=_null_where_refused(found))


def _packed(found: Found, numbering: Numbering) -> pa.Array[Any]:
    data = found.numbers(numbering.firsts).astype("<i4")
    return _binary(found, _offsets(found.starts * 4), data)


def _bitmaps(found: Found, numbering: Numbering) -> pa.Array[Any]:
    width = -(-numbering.total // 8)
    numbers = found.numbers(numbering.firsts)
    events = np.repeat(np.arange(found.length), found.counts)
    data = np.zeros(found.length * width, np.uint8)
    np.bitwise_or.at(
        data, events * width + (numbers >> 3), np.uint8(1) << (numbers & 7).astype(np.uint8)
    )
    return _binary(found, _offsets(np.arange(found.length + 1) * width), data)


_Form = Callable[[Found, Numbering], "pa.Array[Any]"]
_FORMS: Final[dict[Output, Sequence[_Form]]] = {
    Output.IDS: (_lists,),
    Output.PACKED: (_packed,),
    Output.BITMAP: (_bitmaps,),
    Output.COUNTS: (),
}


def _binary(found: Found, offsets: pa.Array[Any], data: NDArray[Any]) -> pa.Array[Any]:
    mask = _null_where_refused(found)
    validity = None
    if mask is not None:
        present = ~np.asarray(mask)
        validity = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
    buffers = [validity, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), found.length, buffers)


def _matches(found: Found) -> pa.Array[Any]:
    return pa.array(found.counts.astype(np.int32), mask=_refused_or_none(found))


def _errors(found: Found) -> pa.Array[Any]:
    if not found.errors:
        return pa.nulls(found.length, pa.string())
    return pa.array([_sentence(found, row) for row in range(found.length)], pa.string())


def _sentence(found: Found, row: int) -> str | None:
    return str(found.errors[row]) if row in found.errors else None


def _is_refused(found: Found) -> NDArray[np.bool_]:
    refused = np.zeros(found.length, np.bool_)
    refused[list(found.errors)] = True
    return refused


def _refused_or_none(found: Found) -> NDArray[np.bool_] | None:
    return _is_refused(found) if found.errors else None


def _null_where_refused(found: Found) -> pa.Array[Any] | None:
    return pa.array(_is_refused(found)) if found.errors else None


def _offsets(starts: Numbers) -> pa.Array[Any]:
    return pa.array(starts.astype(np.int32))


# --- one row for each match --------------------------------------------------------------------


def _pairs(found: Found, numbering: Numbering, *, unmatched: bool) -> Result:
    """Return matches as rows, and one row for each event without: refused, or matching nothing."""
    alone = _is_refused(found) if not unmatched else found.counts == 0
    rows = np.maximum(found.counts, alone)
    events = np.repeat(np.arange(found.length), rows)
    starts = np.cumsum(rows) - rows
    matched = np.repeat(found.counts > 0, rows)
    nth = np.where(matched, np.arange(len(events)) - np.repeat(starts, rows) + 1, 0)
    ids = found.ids(numbering.arrow_type)
    if not matched.all():
        places = np.where(matched, np.cumsum(matched) - 1, 0)
        ids = ids.take(pa.array(places, mask=~matched))
    return Result([ids, pa.array(nth.astype(np.int32)), _errors_of(found, events)], events)


def _errors_of(found: Found, events: NDArray[np.intp]) -> pa.Array[Any]:
    if not found.errors:
        return pa.nulls(len(events), pa.string())
    return _errors(found).take(pa.array(events))
