"""What the broker logs, while a test looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def log_lines() -> Iterator[list[logging.LogRecord]]:
    """Give all that is logged by Tamis, with its fields."""
    logger, keeping = logging.getLogger("tamis"), _Keeping()
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(keeping)
    try:
        yield keeping.records
    finally:
        logger.removeHandler(keeping)
        logger.setLevel(level)
