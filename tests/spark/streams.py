"""Streams for tests: files moved into a folder, streams run to the end of them, crashes."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tamis.spark import Library, Pin, read_batches, read_results, stream_files, total
from tamis.spark.files.match_files import EventFiles, match_event_files
from tamis.spark.matching.request import MatchOptions
from tamis.spark.streaming.checkpoint import Checkpoint

TIMEOUT = 300

Event = Mapping[str, object] | str


def add_file(folder: Path, name: str, events: Iterable[Event]) -> Path:
    """Move a file of JSON lines into a folder, as one must: all of it at once."""
    folder.mkdir(exist_ok=True)
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    draft = folder / f"_{name}"
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return draft.rename(folder / name)


def wait_until(condition: Callable[[], object], seconds: float = TIMEOUT) -> None:
    """Wait for a condition, looking often."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{condition} did not come about"
        time.sleep(0.002)  # between two looks


class Site:
    """A folder of events, a library, a checkpoint and a folder of results, all in one place."""

    def __init__(self, path: Path) -> None:
        self.events = path / "events"
        self.library = path / "library"
        self.checkpoint = path / "checkpoint"
        self.results = path / "results"
        self.events.mkdir(parents=True, exist_ok=True)

    @classmethod
    def with_library(cls, path: Path, library: Path) -> Site:
        """Return a site with a copy of a library."""
        site = cls(path)
        shutil.copytree(library, site.library)
        return site

    def run(self, spark: SparkSession, **options: Any) -> None:
        """Stream what is there, to its end."""
        assert self.start(spark, **options).awaitTermination(TIMEOUT)

    def start(self, spark: SparkSession, **options: Any) -> StreamingQuery:
        """Start to stream what is there."""
        where = {"to": self.results, "checkpoint": self.checkpoint}
        given: dict[str, Any] = {**where, "format_": "json", **options}
        return stream_files(spark, self.library, self.events, once=True, **given)

    def rows(self, spark: SparkSession, *columns: str) -> list[tuple[Any, ...]]:
        """Return results in some order that is always the same."""
        found = read_results(spark, self.results).select(*columns).collect()
        return sorted((tuple(row) for row in found), key=repr)

    def pins(self) -> list[Pin]:
        return Checkpoint(self.checkpoint).pins()


# --- compared with a clean run -------------------------------------------------------------------

COMPARED = ("batch", "version", "outcome", "file", "position", "subscriptions", "error")


class Difference(Counter[str]):
    """How many rows are missing, and how many are too many, as multisets; empty if none."""


def compare_with_a_clean_run(spark: SparkSession, site: Site, format_: str) -> Difference:
    """Match every batch anew as it was pinned, and compare all rows."""
    results = read_results(spark, site.results)
    files = _files_by_batch(results)
    given = sorted(path for path in site.events.iterdir() if path.name[0] not in "._")
    assert sorted(path for paths in files.values() for path in paths) == given
    pins = {pin.batch: pin for pin in site.pins()}
    assert pins.keys() == files.keys()
    clean = [_clean(spark, site, pins[batch], paths, format_) for batch, paths in files.items()]
    return _difference(results.select(*COMPARED), clean)


def _files_by_batch(results: DataFrame) -> dict[int, list[Path]]:
    found: dict[int, list[Path]] = {}
    for row in results.select("batch", "file").distinct().collect():
        found.setdefault(row["batch"], []).append(Path(row["file"]))
    return found


def _clean(spark: SparkSession, site: Site, pin: Pin, paths: list[Path], format_: str) -> DataFrame:
    request = MatchOptions().request(Library(site.library).version(pin.version), pin.now)
    files = EventFiles(site.events, sorted(paths), all=False)
    results = match_event_files(spark, request, files, keep=(), format_=format_)
    outcome = (
        "CASE WHEN error IS NOT NULL THEN 'rejected' WHEN matches = 0 THEN 'unmatched' "
        "ELSE 'matched' END AS outcome"
    )
    return results.selectExpr(
        f"{pin.batch} AS batch",
        f"{pin.version} AS version",
        outcome,
        "file",
        "position",
        "subscriptions",
        "error",
    )


def _difference(results: DataFrame, clean: list[DataFrame]) -> Difference:
    expected = clean[0]
    for more in clean[1:]:
        expected = expected.unionAll(more)
    difference = Difference()
    for name, rows in (
        ("missing", expected.exceptAll(results)),
        ("too many", results.exceptAll(expected)),
    ):
        if found := rows.count():
            difference[name] = found
    return difference


def assert_all_are_counted(spark: SparkSession, site: Site, events: int) -> None:
    """Check that every event is in one outcome of one batch, by the records and by the rows."""
    batches = read_batches(site.results)
    for batch in batches:
        assert batch.events == batch.matched + batch.unmatched + batch.rejected
    counts = total(batches)
    assert counts.events == events
    rows = read_results(spark, site.results).groupBy("outcome").count().collect()
    reported = {row["outcome"]: row["count"] for row in rows}
    assert reported.get("matched", 0) == counts.matched
    assert reported.get("unmatched", 0) == counts.unmatched
    assert reported.get("rejected", 0) == counts.rejected
