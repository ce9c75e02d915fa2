"""The density experiment of the paper's section 8, as Spark jobs of any size.

Events have each attribute with a certain probability, their density, and are matched in mode
`strict`, the paper's StSL; events with every attribute are also matched in mode `total`, its SiSL.
The time is that of a whole job: reading files, matching events and counting matches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import SparkSession

from tamis.errors import SparkError
from tamis.filters import Mode
from tamis.spark.files.generate import event_rows, subscription_rows
from tamis.spark.files.match_files import match_files
from tamis.spark.library.compile import compile_subscriptions
from tamis.spark.library.library import Version
from tamis.spark.matching.counts import Tally
from tamis.spark.matching.outputs import Output
from tamis.spark.report.experiment_tables import Measurement, write_tables
from tamis.workloads import Workload

DENSITIES: Final = (0.077, 0.154, 0.231, 0.308, 1.0)
# Several tasks per core, so that no core waits long for the last.
_EVENTS_PER_FILE: Final = 25_000
_MAX_FILES: Final = 400


class ExperimentCase(NamedTuple):
    """Events of one density, and one version of a library."""

    version: Version
    density: float
    events: Path

    @property
    def mode(self) -> str:
        """Return the mode of the filters."""
        return self.version.manifest.mode


def density_experiment(
    spark: SparkSession,
    workload: Workload | str | Path,
    to: str | PathLike[str],
    *,
    filters: Sequence[int],
    events: int,
    densities: Sequence[float] = DENSITIES,
    seed: int = 1,
    repeat: int = 5,
) -> list[Measurement]:
    """Generate, compile and match; write a table and a plot to a folder, and return the table."""
    folder = Path(to)
    source = workload if isinstance(workload, Workload) else Workload.load(workload)
    cases = list(ExperimentSetup(spark, source, folder, seed).cases(filters, events, densities))
    seconds: list[list[float]] = [[] for _ in cases]
    matches = [_run(spark, case, events)[1] for case in cases]
    # In turns, so that whatever slows the machine down slows all cases alike.
    for _ in range(repeat):
        for case, times in zip(cases, seconds, strict=True):
            times.append(_run(spark, case, events)[0])
    measurements = [
        _measurement(case, events, times, count)
        for case, times, count in zip(cases, seconds, matches, strict=True)
    ]
    write_tables(measurements, folder, source.source)
    return measurements


class ExperimentSetup(NamedTuple):
    """The setup that all cases share."""

    spark: SparkSession
    workload: Workload
    folder: Path
    seed: int

    def cases(
        self, filters: Sequence[int], events: int, densities: Sequence[float]
    ) -> Iterator[ExperimentCase]:
        """Generate events, compile filters, and yield the cases."""
        paths = {density: self._events(events, density) for density in densities}
        for count in filters:
            for mode in (Mode.STRICT, Mode.TOTAL):
                version = self._version(count, mode)
                for density, path in paths.items():
                    if mode is Mode.STRICT or density == 1:
                        yield ExperimentCase(version, density, path)

    def _events(self, count: int, density: float) -> Path:
        path = self.folder / f"data/events-{density:.3f}"
        tasks = min(-(-count // _EVENTS_PER_FILE), _MAX_FILES)
        rows = event_rows(
            self.spark, self.workload, count, seed=self.seed, density=density, tasks=tasks
        )
        rows.write.mode("overwrite").parquet(str(path))
        return path

    def _version(self, count: int, mode: Mode) -> Version:
        table = subscription_rows(self.spark, self.workload, count, seed=self.seed)
        library = self.folder / f"data/library-{count}-{mode}"
        schema = self.workload.schema
        return compile_subscriptions(table, library, schema=schema, mode=mode).version


def _run(spark: SparkSession, case: ExperimentCase, events: int) -> tuple[float, int]:
    """Return the seconds of a job, and the number of its matches."""
    started, tally = time.monotonic(), Tally()
    results = match_files(
        spark,
        case.version,
        case.events,
        output=Output.COUNTS,
        tally=tally,
        split_size=1,
    )
    results.write.format("noop").mode("overwrite").save()
    seconds, counts = time.monotonic() - started, tally.counts()
    if (counts.events, counts.rejected) != (events, 0):
        raise SparkError(f"the job should have matched {events:,} events: {counts}")
    return seconds, counts.matches


def _measurement(
    case: ExperimentCase, events: int, seconds: Sequence[float], matches: int
) -> Measurement:
    return Measurement(
        filters=case.version.subscriptions,
        mode=case.mode,
        density=case.density,
        events=events,
        matches=matches,
        seconds=float(np.median(seconds)),
        fastest=min(seconds),
        slowest=max(seconds),
    )
