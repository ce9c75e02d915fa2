"""Counts in Spark's own pages: a line of the page of queries, also in the history server.

Spark shows counters of its operators there, and what an observation finds nowhere. So a query
without work is run, whose description is what is to be seen.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import SparkSession

_DESCRIPTION: Final = "spark.job.description"


def show_in_ui(text: str) -> None:
    """Show a line in the pages of the active session, if it has any."""
    session = SparkSession.getActiveSession()
    if session is None or not has_ui(session):
        return
    context: Any = session.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{_first_line(before)}: {text}" if before else text)
    try:
        session.range(0).limit(0).collect()
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def has_ui(session: SparkSession) -> bool:
    """Return whether anybody can see the pages of a session, now or later."""
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return False
    return context.uiWebUrl is not None or context.getConf().get("spark.eventLog.enabled") == "true"


def _first_line(text: str) -> str:
    """Return the name of a stream, from what Spark says of its batches."""
    return text.partition("\n")[0].partition("<br")[0]
