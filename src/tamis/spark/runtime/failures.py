"""Errors of Spark as one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException

from tamis.errors import SparkError

# The last line of a Python traceback: the class of the error, and its message.
_RAISED: Final = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception): (?P<message>.+)$")
_CONDITION: Final = re.compile(r"^\[[A-Z_.]+\] ")


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn an error of Spark into a `SparkError` that gives only the reason."""
    try:
        yield
    except PySparkException as error:
        raise SparkError(f"Spark failed: {reason_of(str(error))}") from error


def reason_of(text: str) -> str:
    r"""Return the reason from an error of Spark, which is mostly stack traces.

    >>> reason_of("Job aborted.\nTraceback (most recent call last):\n  ...\nE.XError: it is cut")
    'it is cut'
    >>> reason_of("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03")
    'Path does not exist: file:/x.'
    """
    raised = [match for line in text.splitlines() if (match := _RAISED.match(line.strip()))]
    if raised:
        return raised[-1]["message"]
    first = text.strip().partition("\n")[0]
    return _CONDITION.sub("", first).partition(" SQLSTATE")[0]
