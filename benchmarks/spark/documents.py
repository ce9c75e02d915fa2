"""XML on Spark: `python -m benchmarks.spark.documents [--subscriptions 20000] [--documents 10000]`.

Subscriptions and publications are those of `benchmarks.xml_residue`. Tamis matches a column of
texts and a folder of files, each with the exact check in the same pass, beside a function that
loops over all subscriptions as compiled XPaths of lxml; it gets fewer documents, as many as it can
handle in some seconds. A run is a whole job on `local[2]` whose sink keeps nothing; what counts is
its processor time, of Java and of all workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from benchmarks.harness import Contender, agree, measure, options, step
from benchmarks.reporting import Sheet, bars, file_name, rates, report
from benchmarks.spark.document_contenders import DocumentPlace, by_loops, in_column, in_files
from benchmarks.spark.processor_time import processor_time
from benchmarks.workloads.motion import Motion
from tamis.spark import local_session

TITLE = "XML on Spark"
SUBSCRIPTIONS: Final = 20_000
DOCUMENTS: Final = 10_000
LOOPED: Final = 60
REPEATS: Final = 5
ASKED_RATIO: Final = 200


def counts_of(results: DataFrame, by: str) -> NDArray[np.int64]:
    """Return how many subscriptions each document matches."""
    rows = results.select(by, "matches").orderBy(by).collect()
    return np.array([row["matches"] for row in rows], np.int64)


def drain(results: DataFrame) -> None:
    """Compute all rows, and keep none."""
    results.write.format("noop").mode("overwrite").save()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    chosen = options(
        __doc__,
        arguments,
        subscriptions=SUBSCRIPTIONS,
        documents=DOCUMENTS,
        looped=LOOPED,
        repeats=REPEATS,
    )
    motion = Motion(seed=1)
    texts = [str(motion.artefact()) for _ in range(chosen.documents)]
    subscriptions = [motion.subscription() for _ in range(chosen.subscriptions)]
    spark = local_session("local[2]")
    with TemporaryDirectory() as folder:
        with step("compiled"):
            place = DocumentPlace.make(spark, Path(folder), subscriptions, texts)
        agree(
            {
                "column": counts_of(in_column(spark, place), "number"),
                "files": counts_of(in_files(spark, place), "file"),
                "loops": counts_of(by_loops(spark, place, chosen.looped), "number"),
            }
        )
        ways = {
            "every query, by lxml": (partial(by_loops, spark, place, chosen.looped), chosen.looped),
            "column of texts": (partial(in_column, spark, place), chosen.documents),
            "files": (partial(in_files, spark, place), chosen.documents),
        }
        contenders = [
            Contender(name, lambda make=make: drain(make()), count)  # type: ignore[misc]
            for name, (make, count) in ways.items()
        ]
        # Of all processes together, so that other load can be left out.
        rows = measure(contenders, chosen.repeats, processor_time)
    spark.stop()
    required = Sheet(
        ("required", "found", "asked"),
        [
            (f"{row.name} / {rows[0].name}", f"{row.ratio:,.0f}", f"≥ {ASKED_RATIO}")
            for row in rows[1:]
        ],
    )
    sizes = (chosen.subscriptions, chosen.documents)
    usual = sizes == (SUBSCRIPTIONS, DOCUMENTS)
    name = "spark_documents" if usual else file_name("spark_documents", sizes)
    sheets = [rates("documents", rows), required]
    figure = bars(TITLE, "documents", rows)
    report(name, TITLE, sheets, figure, folder=chosen.out, repeats=chosen.repeats)


if __name__ == "__main__":
    main()
