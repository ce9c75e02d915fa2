"""A driver to be killed: streams a site to its end, and tells how many tasks failed on the way.

python -m spark.stream_driver SITE MASTER FORMAT FILES_PER_BATCH [PLANT]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.planted import PLANTS
from spark.streams import Site
from tamis.spark import local_session

FAILED_TASKS = "failed-tasks.json"


def main(site: str, master: str, format_: str, files_per_batch: str, plant: str = "") -> None:
    if plant:
        PLANTS[plant](pytest.MonkeyPatch())
    spark = local_session(master, settings={"spark.sql.shuffle.partitions": "2"})
    query = Site(Path(site)).start(spark, format_=format_, files_per_batch=int(files_per_batch))
    query.awaitTermination()
    failed = json.dumps(failed_tasks(spark, str(query.runId)))
    (Path(site) / FAILED_TASKS).write_text(failed, encoding="utf-8")
    spark.stop()


def failed_tasks(spark: SparkSession, group: str) -> int:
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


if __name__ == "__main__":
    main(*sys.argv[1:])
