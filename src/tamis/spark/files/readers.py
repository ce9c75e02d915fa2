"""Reading splits in a worker: rows with the file and the position that each comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis.events import EventLimits
from tamis.events.column_kernels import copy_spans
from tamis.events.json_source import LineBlock, lines_of
from tamis.spark.files.splits import Split

# Larger than Spark's batches: nothing is handed over here, and kernels prefer long columns.
ROWS_PER_FILE_READ: Final = 32_768
BYTES_PER_BLOCK: Final = 2 * 1024 * 1024
# As long as the limit, and the end of the line.
LONGEST_LINE_BYTES: Final = EventLimits().size + len(b"\r\n")
_BYTES_PER_SKIP: Final = 64 * 1024
# More than any document may have, in whichever encoding.
LARGEST_DOCUMENT_BYTES: Final = 4 * 1024 * 1024 + 1
_DOCUMENTS_PER_READ: Final = 4_096


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
            ROWS_PER_FILE_READ, row_groups=groups, columns=list(columns.read), use_threads=False
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
    """Yield the lines of splits, except blank ones: file, position, text."""
    for split in splits:
        with open(split.path, "rb") as stream:
            for block in _blocks(stream, split):
                count = len(block.lines.starts)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.repeat(split.path, count),
                        pa.array(block.position + block.lines.starts),
                        _texts(block.lines),
                    ],
                    ["c0", "c1", "c2"],
                )


def read_documents(splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
    """Yield files as documents, some at a time: file, position, text."""
    for together in _batched(splits):
        texts = [_document(split) for split in together]
        paths = pa.array([split.path for split in together], pa.string())
        zeros = pa.array(np.zeros(len(texts), np.int64))
        columns = [paths, zeros, pa.array(texts, pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2"])


def _document(split: Split) -> bytes:
    """Return a file; of one that is too large, also if it has grown since, as much as tells."""
    # Without a buffer, which would be as large as the limit, and take longer than a small file.
    with open(split.path, "rb", buffering=0) as stream:
        data = stream.read(min(split.size + 1, LARGEST_DOCUMENT_BYTES))
        # One byte less than that is the end; anything else is a file that has changed.
        while len(data) != split.size and len(data) < LARGEST_DOCUMENT_BYTES:
            more = stream.read(LARGEST_DOCUMENT_BYTES - len(data))
            if not more:
                break
            data += more
    return data


def _batched(splits: Iterable[Split]) -> Iterator[list[Split]]:
    batch: list[Split] = []
    size = 0
    for split in splits:
        batch.append(split)
        size += split.size
        if len(batch) == _DOCUMENTS_PER_READ or size > BYTES_PER_BLOCK:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _PlacedLines(NamedTuple):
    """Lines of a file, and where in the file their text begins."""

    lines: LineBlock
    position: int


def _blocks(stream: BinaryIO, split: Split) -> Iterator[_PlacedLines]:
    """Yield the lines that begin in a split; a longer one than the limit is cut off."""
    if split.first:
        stream.seek(split.first - 1)
        _skip_line(stream)
    position, data = stream.tell(), b""
    while position < split.last:
        left = split.last - position - len(data)
        read = stream.read(min(left, BYTES_PER_BLOCK) if left > 0 else _BYTES_PER_SKIP)
        data += read
        end = data.rfind(b"\n") + 1 if read else len(data)
        if not end and len(data) > LONGEST_LINE_BYTES:
            _skip_line(stream)
            end = len(data)
        found = lines_of(data[:end], LONGEST_LINE_BYTES)
        inside = int(np.searchsorted(found.starts, split.last - position))
        if inside:
            yield _PlacedLines(found.part(0, inside), position)
        if not read:
            return
        position = stream.tell() if end == len(data) else position + end
        data = data[end:]


def _texts(lines: LineBlock) -> pa.Array[Any]:
    offsets = np.zeros(len(lines.starts) + 1, np.int32)
    np.cumsum(lines.ends - lines.starts, out=offsets[1:])
    texts = np.empty(offsets[-1], np.uint8)
    copy_spans(np.frombuffer(lines.data, np.uint8), lines.starts, lines.ends, texts)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.binary(), len(lines.starts), buffers)


def _skip_line(stream: BinaryIO) -> None:
    while (part := stream.readline(_BYTES_PER_SKIP)) and not part.endswith(b"\n"):
        pass
