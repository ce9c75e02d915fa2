"""Building shards in a worker: rows in, snapshots and tables of rejected rows out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.analysis.lint import MAX_FILTERS, LintLimits
from tamis.errors import FilterError, FilterSyntaxError, TamisError
from tamis.events import Schema, schema_of
from tamis.events.values import parse_timestamp
from tamis.filters import Filter, Mode
from tamis.filters.modes import as_mode
from tamis.languages.exactness import QueryTest, is_approximated, over_attributes, read_filter
from tamis.matching import Engine
from tamis.matching.store.tables import rows_of
from tamis.spark.library.buckets import bucket_of_filter
from tamis.spark.library.ids import write_ids
from tamis.spark.library.manifests import REJECTED, Shard
from tamis.spark.library.places import Draft

FINDINGS: Final = "findings.parquet"

REJECTED_SCHEMA: Final = pa.schema(
    [
        ("row", pa.int64()),
        ("id", pa.string()),
        ("reason", pa.string()),
        ("line", pa.int32()),
        ("column", pa.int32()),
        ("filter", pa.string()),
    ]
)
FINDINGS_SCHEMA: Final = pa.schema(
    [("id", pa.string()), ("rule", pa.string()), ("message", pa.string()), ("other", pa.string())]
)


class ShardOptions(NamedTuple):
    """The options that all shards of a version share."""

    draft: Draft
    schema: dict[str, Any] | None
    mode: str
    id_type: str
    key: str | None = None
    buckets: int = 0
    lint: LintLimits | None = None
    """How far to look for mistakes in filters; None is not at all."""

    def event_schema(self) -> Schema | None:
        """Return the schema."""
        return None if self.schema is None else schema_of(self.schema)


class BuiltShard(msgspec.Struct, frozen=True):
    """A shard and its counts: rows = subscriptions + rejected."""

    shard: Shard
    rejected: int
    findings: int


class ShardBuilder:
    """A shard under construction."""

    def __init__(self, options: ShardOptions, number: int) -> None:
        self._options = options
        self._number = number
        self._schema = options.event_schema()
        self._engine = Engine(self._schema, options.mode)
        self._linted = Engine(self._schema, options.mode) if options.lint is not None else None
        self._lint = options.lint or LintLimits()
        self._ids: list[str | int] = []
        self._tests_elements = False
        self._attributes: set[str] = set()
        self._rejected: list[dict[str, object]] = []

    def add(self, row: dict[str, Any], number: int, first: int) -> bool:
        """Add a row, or record why it was rejected; return whether it was added."""
        try:
            if row.get("broken") is not None:
                raise FilterError("this line is not JSON")
            self._add(row, number, first)
        except TamisError as error:
            self.reject(row, number, error)
            return False
        return True

    def reject(self, row: dict[str, Any], number: int, error: TamisError) -> None:
        """Record why a row was rejected."""
        self._rejected.append(_rejection(row, number, error))

    def _add(self, row: dict[str, Any], number: int, first: int) -> None:
        if row["id"] is None:
            raise FilterError("the id is missing")
        if number != first:
            raise FilterError(f"the id {row['id']!r} is already that of row {first}")
        filter_, mode = parsed(row), row.get("mode")
        expires_at = _expiry(row.get("expires_at"))
        is_query = isinstance(filter_, QueryTest)
        self._engine.add(
            len(self._ids),
            row["filter"] if is_query else filter_,
            language=row["language"] if is_query else "tamis",
            mode=mode,
            expires_at=expires_at,
        )
        self._ids.append(row["id"])
        above, _ = over_attributes(filter_, as_mode(mode or self._options.mode))
        self._attributes |= above.attributes()
        if is_approximated(filter_):
            self._tests_elements |= not is_query
            return
        if self._linted is not None and len(self._ids) <= self._lint.get("filters", MAX_FILTERS):
            self._linted.add(row["id"], filter_, mode=mode)

    def write(self) -> BuiltShard:
        """Write the subscriptions and the rejected rows."""
        with self._options.draft.folder() as folder:
            return self._write(folder, f"shard-{self._number:04}")

    def _write(self, folder: Path, name: str) -> BuiltShard:
        snapshot, ids = folder / f"{name}.tamis", folder / f"{name}.ids.arrow"
        self._engine.save(snapshot)
        type_ = pa.int64() if self._options.id_type == "bigint" else pa.string()
        write_ids(ids, pa.array(self._ids, type_))
        if self._rejected:
            path = folder / REJECTED / f"{name}.parquet"
            _write_table(path, self._rejected, REJECTED_SCHEMA)
            self._options.draft.keep_table(path)
        attributes = tuple(sorted(self._attributes))
        bucket = self._number if self._number < self._options.buckets else None
        keep = self._options.draft.keep
        shard = Shard(
            self._number,
            len(self._ids),
            keep(snapshot),
            keep(ids),
            attributes,
            bucket,
            tests_elements=self._tests_elements,
        )
        return BuiltShard(shard, len(self._rejected), self._write_findings(folder, name))

    def _write_findings(self, folder: Path, name: str) -> int:
        if self._linted is None:
            return 0
        findings = [
            {"id": str(f.id), "rule": f.rule.value, "message": f.message, "other": _text(f.other)}
            for f in self._linted.lint(**self._lint)
        ]
        path = folder / FINDINGS / f"{name}.parquet"
        _write_table(path, findings, FINDINGS_SCHEMA)
        self._options.draft.keep_table(path)
        return len(findings)


# --- functions that Spark calls ----------------------------------------------------------------


def build_shards(
    batches: Iterable[pa.RecordBatch], options: ShardOptions
) -> Iterator[pa.RecordBatch]:
    """Build the shards of a partition; yield a description of each, as JSON."""
    builders: dict[int, ShardBuilder] = {}
    for batch in batches:
        shards, numbers, firsts = (batch.column(n).to_pylist() for n in ("shard", "row", "first"))
        for shard, row, number, first in zip(shards, _rows(batch), numbers, firsts, strict=True):
            if shard not in builders:
                builders[shard] = ShardBuilder(options, shard)
            builders[shard].add(row, number, first)
    built = [msgspec.json.encode(builder.write()).decode() for builder in builders.values()]
    yield pa.record_batch({"built": pa.array(built, pa.string())})


def add_buckets(
    batches: Iterable[pa.RecordBatch], options: ShardOptions
) -> Iterator[pa.RecordBatch]:
    """Add the bucket of each row; null if its filter may match events of several."""
    for batch in batches:
        buckets = [_bucket(row, options) for row in _rows(batch)]
        yield batch.append_column("bucket", pa.array(buckets, pa.int32()))


def _bucket(row: dict[str, Any], options: ShardOptions) -> int | None:
    # A default replaces an absent key, so such a filter matches events without it.
    if (row.get("mode") or options.mode) == Mode.DEFAULT or options.key is None:
        return None
    try:
        mode = as_mode(row.get("mode") or options.mode)
        above, _ = over_attributes(parsed(row), mode)
        return bucket_of_filter(above, options.key, options.buckets)
    except TamisError:
        # `ShardBuilder.add` rejects the row.
        return None


def parsed(row: dict[str, Any]) -> Filter:
    """Return the filter of a row."""
    if row["filter"] is None:
        raise FilterError("the filter is missing")
    return read_filter(row["filter"], row.get("language") or "tamis")


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Return rows as mappings, including columns that `rows_of` does not accept."""
    texts = {
        name: batch.column(name).to_pylist()
        for name in ("broken", "expires_at")
        if name in batch.schema.names
        # By a setting, Spark has another type for texts.
        and batch.schema.field(name).type in (pa.string(), pa.large_string())
    }
    known = batch.select([name for name in batch.schema.names if name not in texts])
    for place, row in enumerate(rows_of(known)):
        yield row | {name: values[place] for name, values in texts.items()}


def _expiry(given: float | str | None) -> float | datetime | None:
    if not isinstance(given, str):
        return given
    try:
        return float(given)
    except ValueError:
        pass
    try:
        return parse_timestamp(given)
    except ValueError as error:
        raise FilterError(f"expires_at: {error}") from None


# --- tables ----------------------------------------------------------------------------------


def _rejection(row: dict[str, Any], number: int, error: TamisError) -> dict[str, object]:
    line, column = (
        (error.line, error.column) if isinstance(error, FilterSyntaxError) else (None, None)
    )
    return {
        "row": number,
        "id": _text(row["id"]),
        "reason": str(error),
        "line": line,
        "column": column,
        "filter": row.get("broken") or row["filter"],
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _write_table(path: Path, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
