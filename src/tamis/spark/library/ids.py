"""The ids of a shard's subscriptions, by number, in a file that is mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tamis.errors import LibraryError


def write_ids(path: Path, ids: pa.Array) -> None:
    """Write ids in a format that can be mapped into memory."""
    batch = pa.record_batch({"id": ids})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read_ids(path: Path) -> pa.Array[Any]:
    """Map ids into memory."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise LibraryError(path, f"the ids cannot be read: {error}") from None
    return table.column("id").combine_chunks()
