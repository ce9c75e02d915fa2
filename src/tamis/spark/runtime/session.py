"""A Spark session on this machine, configured for Tamis."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from tamis.spark.runtime.java import provide_java

JAVA_OPTIONS: Final = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
SETTINGS: Final = {
    # Otherwise starting workers costs half of the time that matching batches saves.
    "spark.python.daemon.module": "tamis.spark.daemon",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    # Spark need not sort a table to write its three outcomes.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}


def local_session(
    master: str = "local[*]", *, name: str = "tamis", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a session on this machine, or the existing one."""
    provide_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # The host name of a laptop often has no address.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
