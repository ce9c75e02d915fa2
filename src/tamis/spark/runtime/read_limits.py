"""The limits that Spark gives a source for each batch since 4.2, and stand-ins for older ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.spark.runtime.versions import SPARK

if TYPE_CHECKING or SPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit, which older versions never give."""

    class ReadAllAvailable(ReadLimit):
        """No limit."""

    class ReadMaxRows(ReadLimit):
        """A number of rows."""

    class SupportsTriggerAvailableNow:
        """A mark that older versions do not look for: they ask for the end once by themselves."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
