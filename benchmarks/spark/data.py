"""Workloads as a Spark job finds them: Parquet with events, and a library of subscriptions."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from benchmarks.engines import Case, Workload, filters_in_parts
from benchmarks.harness import step
from benchmarks.spark.sites import Site
from benchmarks.workloads import conjunctions
from tamis.spark import compile_subscriptions

# Four for each core, so that neither of two waits long for the other.
FILES: Final = 8

Numbers = NDArray[np.int64]


class Place(NamedTuple):
    """Where the data of a workload are."""

    folder: Path

    @property
    def events(self) -> str:
        """Return the folder with the events."""
        return str(self.folder / "events")

    @property
    def subscriptions(self) -> str:
        """Return the table of subscriptions."""
        return str(self.folder / "subscriptions.parquet")

    @property
    def rules(self) -> str:
        """Return the table with the three values that each subscription asks for."""
        return str(self.folder / "rules.parquet")

    @property
    def library(self) -> str:
        """Return the folder with the compiled subscriptions."""
        return str(self.folder / "library")

    @property
    def bytes_per_file(self) -> int:
        """Return what a task reads if there is one for each file."""
        return max(file.stat().st_size for file in Path(self.events).iterdir())


def settle(
    folder: Path, site: Site, work: Workload, events: int, case: Case | None = None
) -> Place:
    """Write a workload to a new folder, and compile its subscriptions."""
    place = Place(folder)
    Path(place.events).mkdir(parents=True)
    with step(f"wrote {events:,} events"):
        _write_events(place, work, events)
    _write_subscriptions(place, work)
    with step(f"compiled {len(work.programs):,} subscriptions on Spark"):
        taken = site.ask(_compile, place, case)
    if taken != len(work.programs):
        raise ValueError(f"of {len(work.programs):,} subscriptions only {taken:,} were taken")
    return place


def _write_events(place: Place, work: Workload, events: int) -> None:
    for number in range(FILES):
        count = events * (number + 1) // FILES - events * number // FILES
        batch = work.events(count, 2 + number).record_batch()
        pq.write_table(pa.Table.from_batches([batch]), Path(place.events, f"{number}.parquet"))


def _write_subscriptions(place: Place, work: Workload) -> None:
    count = len(work.programs)
    texts = [str(filter_) for filter_ in filters_in_parts(work, count)]
    pq.write_table(pa.table({"id": np.arange(count), "filter": texts}), place.subscriptions)


def _compile(spark: SparkSession, place: Place, case: Case | None) -> int:
    schema, mode = (case.schema, case.mode) if case else (None, "sql")
    report = compile_subscriptions(
        place.subscriptions, place.library, schema=schema, mode=mode, spark=spark
    )
    return report.subscriptions


# --- three equalities, without an engine ---------------------------------------------------------


class Truth(NamedTuple):
    """What must be found, looked up by NumPy."""

    by_subscription: Numbers
    """How many events match each subscription."""
    by_matches: Numbers
    """How many events have no match, one match, two and so on."""


def write_rules(place: Place, work: conjunctions.Conjunctions) -> None:
    """Write the three values of each subscription, as a table to join with."""
    values = asked_values(work)
    columns = {f"s{field}": values[:, field] for field in range(3)}
    pq.write_table(pa.table({"id": np.arange(len(values)), **columns}), place.rules)


def asked_values(work: conjunctions.Conjunctions) -> Numbers:
    """Return the values that each subscription asks for, a row each."""
    return np.asarray(work.predicates.low[work.terms], np.int64)


def truth_of(work: conjunctions.Conjunctions, place: Place) -> Truth:
    """Count by the number that encodes three values."""
    table = pq.read_table(place.events, columns=["f0", "f1", "f2"])
    held = np.stack([column.to_numpy() for column in table.columns], axis=1)
    three = [field.cardinality for field in work.fields[:3]]
    weights, size = np.cumprod((1, *three[:2])), int(np.prod(three))
    asked, events = asked_values(work) @ weights, held @ weights
    matches = np.bincount(asked, minlength=size)[events]
    return Truth(np.bincount(events, minlength=size)[asked], np.bincount(matches))
