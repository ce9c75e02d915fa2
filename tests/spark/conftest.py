"""One Spark session for each process that runs tests, tuned for many small jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tamis.spark import local_session
from tamis.spark.runtime.session import JAVA_OPTIONS

SETTINGS = {
    "spark.default.parallelism": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Compiling a query takes longer than running it on a few rows, for Spark and for the JVM.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("local[2]", settings=SETTINGS)
    yield session
    session.stop()
