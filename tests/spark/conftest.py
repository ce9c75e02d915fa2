"""One Spark session for each process that runs tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tamis.spark import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_session("local[2]", settings={"spark.sql.shuffle.partitions": "2"})
    yield session
    session.stop()
