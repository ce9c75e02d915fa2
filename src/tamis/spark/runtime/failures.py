"""What went wrong inside Spark, as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from tamis.errors import SparkError

# The last line of a Python traceback: the class of the error, and what it says.
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception): (?P<message>.+)$")
_CONDITION: Final = re.compile(r"^\[[A-Z_.]+\] ")


@contextmanager
def told_in_a_sentence() -> Iterator[None]:
    """Let an error of Spark come out as a `SparkError` with the reason alone."""
    try:
        yield
    except PySparkException as error:
        raise SparkError(f"Spark gave up: {reason_of(str(error))}") from error


def reason_of(text: str) -> str:
    r"""Return the reason in what Spark says, which is mostly about where it was said.

    >>> reason_of("Job aborted.\nTraceback (most recent call last):\n  ...\nE.XError: it is cut")
    'it is cut'
    >>> reason_of("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")
    'Path does not exist: file:/x.'
    """
    raised = [found for line in text.splitlines() if (found := _RAISED.match(line.strip()))]
    if raised:
        return raised[-1]["message"]
    first = text.strip().partition("\n")[0]
    return _CONDITION.sub("", first).partition(" SQLSTATE")[0]
