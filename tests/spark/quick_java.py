"""A JVM that starts in half of the time: it maps the classes that an earlier one has loaded.

A test that starts many drivers first runs one, the rehearsal, which does everything once. When its
JVM ends, it writes an archive of its classes, for JVMs with the same class path. So jars belong on
that path (`spark.driver.extraClassPath`), since classes from `spark.jars` have another loader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tamis.spark import local_session
from tamis.spark.runtime.session import JAVA_OPTIONS

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:cds=error"
# Compiling a query takes longer than running it on a few rows.
WITHOUT_CODE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


def java_options(archive: Path) -> str:
    """Return options that use an archive if it is there, and otherwise write it at the end."""
    use = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
    return f"{JAVA_OPTIONS} {QUICK} -XX:{use}={archive}"


def quick_session(
    archive: Path, jars: Sequence[str], settings: Mapping[str, str], cores: int = 1
) -> SparkSession:
    """Return a session on a JVM that starts quickly, or one that writes the archive for others."""
    quick = {
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.driver.extraJavaOptions": java_options(archive),
        **WITHOUT_CODE,
    }
    # Without the second number, Spark gives up when the first task fails.
    return local_session(f"local[{cores},4]", settings={**quick, **settings})


def end_java(spark: SparkSession) -> None:
    """Stop a session, and wait for the end of its JVM, which may write an archive."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    # It ends when nobody can write to it any more.
    gateway.proc.stdin.close()
    gateway.proc.wait()
