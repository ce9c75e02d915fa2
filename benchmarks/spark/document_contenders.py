"""What the benchmark of XML on Spark compares: ways from documents to counts of matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from lxml import etree
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.workloads.motion import MotionSubscription
from tamis.spark import Library, compile_subscriptions, match, match_files

_LOOPED_SCHEMA: Final = "number long, matches int"


class DocumentPlace(NamedTuple):
    """Where the data of a run lies."""

    library: str
    column: str
    files: str
    paths: str

    @classmethod
    def make(
        cls,
        spark: SparkSession,
        folder: Path,
        subscriptions: Sequence[MotionSubscription],
        texts: Sequence[str],
    ) -> DocumentPlace:
        """Write subscriptions and documents."""
        place = cls(*(str(folder / name) for name in ("library", "column", "files", "paths")))
        rows = [(number, each.xql, "xql") for number, each in enumerate(subscriptions)]
        table = spark.createDataFrame(rows, "id long, filter string, language string")
        compile_subscriptions(table, Library(place.library), shards=1)
        events = spark.createDataFrame([*enumerate(texts)], "number long, text string")
        events.repartition(2).write.parquet(place.column)
        Path(place.files).mkdir()
        for number, text in enumerate(texts):
            Path(place.files, f"{number:06}.xml").write_text(text, encoding="utf-8")
        Path(place.paths).write_text("\n".join(each.xpath for each in subscriptions))
        return place


def in_column(spark: SparkSession, place: DocumentPlace) -> DataFrame:
    """Match a column of texts."""
    events = spark.read.parquet(place.column)
    return events.transform(match(place.library, xml="text", keep=["number"], output="counts"))


def in_files(spark: SparkSession, place: DocumentPlace) -> DataFrame:
    """Match files, each of them a document."""
    return match_files(spark, place.library, place.files, output="counts")


@cache
def _compiled(paths: str) -> list[Any]:
    lines = Path(paths).read_text().splitlines()
    return [etree.XPath(f"boolean({line})") for line in lines]


def by_loops(spark: SparkSession, place: DocumentPlace, count: int) -> DataFrame:
    """Evaluate every XPath on every document."""
    paths = place.paths

    def looped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled = _compiled(paths)
        for batch in batches:
            trees = map(etree.fromstring, batch.column("text").to_pylist())
            found = [sum(bool(each(tree)) for each in compiled) for tree in trees]
            columns = [batch.column("number"), pa.array(found, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, ["number", "matches"])

    events = spark.read.parquet(place.column).where(F.col("number") < count)
    return events.repartition(2).mapInArrow(looped, _LOOPED_SCHEMA)
