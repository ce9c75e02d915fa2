"""What every case of `benchmarks.compare` is made of: rows to measure, and inputs to read.

It is imported with `PYTHONPATH` set to the checkout that is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from tamis import Schema


class Timed(NamedTuple):
    """The result of a run that measures itself."""

    checksum: int
    seconds: float


class Run(NamedTuple):
    """One row: how many things a run does, and a function that does them and returns a checksum."""

    things: int
    call: Callable[[], int | Timed]


Rows = Mapping[str, Run]
Case = Callable[[Path, Path], AbstractContextManager[Rows]]


# --- inputs --------------------------------------------------------------------------------------


def texts(inputs: Path, name: str) -> list[str]:
    """Read a list of texts."""
    found: list[str] = json.loads((inputs / f"{name}.json").read_text("utf-8"))
    return found


def events(inputs: Path, name: str) -> pa.RecordBatch:
    """Read events as one batch."""
    (batch,) = pq.read_table(inputs / f"{name}.parquet").combine_chunks().to_batches()
    return batch


def dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return events as dicts without absent attributes."""
    return [{k: v for k, v in row.items() if v is not None} for row in batch.to_pylist()]


def schema(inputs: Path, name: str) -> Schema:
    """Read a schema."""
    return tamis.decode_schema((inputs / f"{name}.schema.json").read_text("utf-8"))
