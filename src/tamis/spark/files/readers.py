"""Reading splits in a worker: rows with the file and the position that each comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis.events import read_lines
from tamis.spark.files.splits import Split

# Larger than Spark's batches: nothing is handed over here, and kernels prefer long columns.
ROWS_PER_BATCH: Final = 32_768
LINES_PER_BATCH: Final = 10_000
_BYTES_PER_SKIP: Final = 64 * 1024


class ParquetColumns(NamedTuple):
    """The columns to read from a Parquet file, by purpose."""

    read: tuple[str, ...]
    """Names of columns, or dotted paths of fields in them."""
    kept: tuple[tuple[str, pa.DataType], ...]
    """The columns that the results repeat, and the type that Spark expects of each."""
    event: tuple[str, ...]
    """The columns that hold the event."""
    dictionaries: tuple[str, ...]
    """Text columns to read as dictionaries, so that each distinct text is examined once."""


def read_parquet(splits: Iterable[Split], columns: ParquetColumns) -> Iterator[pa.RecordBatch]:
    """Yield the rows of splits: file, position, kept columns, then the event's."""
    for split in splits:
        file = pq.ParquetFile(split.path, read_dictionary=list(columns.dictionaries))
        groups = list(range(split.first, split.last))
        position = split.position
        for batch in file.iter_batches(
            ROWS_PER_BATCH, row_groups=groups, columns=list(columns.read), use_threads=False
        ):
            yield _located(batch, split.path, position, columns)
            position += batch.num_rows


def _located(
    batch: pa.RecordBatch, path: str, position: int, columns: ParquetColumns
) -> pa.RecordBatch:
    length = batch.num_rows
    kept = [_cast(batch.column(name), type_) for name, type_ in columns.kept]
    event = [batch.column(name) for name in columns.event]
    places = pa.array(np.arange(position, position + length))
    arrays = [pa.repeat(path, length), places, *kept, *event]
    return pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])


def _cast(column: pa.Array[Any], type_: pa.DataType) -> pa.Array[Any]:
    return column if column.type == type_ else pc.cast(column, type_)


def read_json_lines(splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
    """Yield the lines of splits: file, position, text."""
    for split in splits:
        with open(split.path, "rb") as stream:
            lines = _lines(stream, split)
            while chunk := list(islice(lines, LINES_PER_BATCH)):
                positions, texts = zip(*chunk, strict=True)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(split.path, len(chunk)),
                        pa.array(positions, pa.int64()),
                        pa.array(texts, pa.binary()),
                    ],
                    ["c0", "c1", "c2"],
                )


def _lines(stream: BinaryIO, split: Split) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in a split, except blank ones."""
    if split.first:
        stream.seek(split.first - 1)
        _skip_line(stream)
    position = stream.tell()
    lines = read_lines(stream)
    while position < split.last and (line := next(lines, None)) is not None:
        if line.strip():
            yield position, line.removesuffix(b"\n").removesuffix(b"\r")
        position = stream.tell()


def _skip_line(stream: BinaryIO) -> None:
    while (part := stream.readline(_BYTES_PER_SKIP)) and not part.endswith(b"\n"):
        pass
