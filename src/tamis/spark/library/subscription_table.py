"""Tables of subscriptions as Spark reads them, with checked columns and numbered rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from tamis.errors import FilterError, LibraryError
from tamis.events.schema import did_you_mean
from tamis.spark.runtime.addresses import escape_glob, is_remote

FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}

# Options of Spark's readers. Filters contain quotes and line ends, which CSV quotes.
_OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "parquet": {},
    "csv": {"header": True, "escape": '"', "multiLine": True},
    "json": {"columnNameOfCorruptRecord": "broken"},
}
_OPTIONAL: Final = ("language", "mode", "expires_at", "broken")
_INTEGERS: Final = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
# `monotonically_increasing_id` holds the partition above these bits, the row in it below.
_PLACE_BITS: Final = 33


def read_table(
    spark: SparkSession, path: str | PathLike[str], format_: str | None = None
) -> DataFrame:
    """Return the table of subscriptions in a file or folder of Parquet, CSV or JSON lines."""
    kind = format_ or format_of(path)
    if kind not in _OPTIONS:
        raise FilterError(f"{kind!r} is not a format of tables; they are {', '.join(_OPTIONS)}")
    reader = spark.read.options(**_OPTIONS[kind]).format(kind)
    if is_remote(path) or "://" in str(path):
        # Only Spark sees what is there, so it may as well be a pattern.
        return reader.load(str(path))
    if not Path(path).exists():
        raise LibraryError(path, "there is no such file or folder of subscriptions")
    place = escape_glob(path)
    if kind == "csv" and place != str(path):
        raise LibraryError(
            path,
            "Spark takes such a name of a file of CSV for a pattern; name it without [ ] { } * ?",
        )
    return reader.load(place)


def format_of(path: str | PathLike[str]) -> str:
    """Return the format that the name of a file, or of the first file in a folder, implies."""
    place = Path(path)
    names = [place, *(sorted(place.iterdir()) if place.is_dir() else ())]
    for name in names:
        if name.suffix in FORMATS and not name.name.startswith(("_", ".")):
            return FORMATS[name.suffix]
    raise FilterError(
        f"the name {place.name!r} does not imply a format; name one of {', '.join(_OPTIONS)}"
    )


def id_type(table: DataFrame, required: Sequence[str] = ("id", "filter")) -> str:
    """Return `bigint` or `string`, or raise if the columns of a table are wrong."""
    for name in required:
        if name not in table.columns:
            hint = did_you_mean(name, table.columns)
            raise FilterError(
                f'the table of subscriptions has no column "{name}"; it needs id and filter, and '
                f"may have language, mode and expires_at{'; ' + hint if hint else ''}"
            )
    type_ = table.schema["id"].dataType
    if isinstance(type_, T.StringType):
        return "string"
    if isinstance(type_, _INTEGERS):
        return "bigint"
    raise FilterError(
        f'the column "id" should hold texts or integers, but has the type {type_.simpleString()}'
    )


def numbered(table: DataFrame) -> tuple[DataFrame, int]:
    """Return the relevant columns, each row's number, and that of the first row with its id.

    Rows are numbered from 1 in the order in which Spark reads them.
    """
    kind = id_type(table)
    chosen = table.select(
        F.col("id").cast(kind).alias("id"),
        F.col("filter"),
        *(F.col(name) for name in _OPTIONAL if name in table.columns),
        F.monotonically_increasing_id().alias("place"),
    )
    counts: dict[int, int] = dict(
        chosen.groupBy(F.shiftright("place", _PLACE_BITS).cast("int")).count().toLocalIterator()
    )
    sizes = [counts.get(partition, 0) for partition in range(max(counts, default=0) + 1)]
    rows = chosen.withColumn("row", _row(sizes)).drop("place")
    same = Window.partitionBy("id")
    return rows.withColumn("first", F.min("row").over(same)), sum(sizes)


def _row(sizes: list[int]) -> Any:
    """Return the number of a row, from the sizes of the partitions before its own."""
    starts = list(accumulate(sizes, initial=1))
    partition = F.shiftright("place", _PLACE_BITS).cast("int")
    place = F.col("place").bitwiseAND(F.lit(2**_PLACE_BITS - 1))
    return place + F.element_at(F.lit(starts), partition + 1)
