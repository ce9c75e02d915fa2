"""Log messages about the plan, collected for a report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGER: Final = logging.getLogger("tamis.spark")


class _Notes(logging.Handler):
    """Keeps each message once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.messages: Final[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if record.getMessage() not in self.messages:
            self.messages.append(record.getMessage())


@contextmanager
def collect_notes() -> Iterator[list[str]]:
    """Yield a list of the messages logged inside, whatever the logging level is."""
    notes, level = _Notes(), _LOGGER.level
    _LOGGER.addHandler(notes)
    _LOGGER.setLevel(min(logging.INFO, _LOGGER.getEffectiveLevel()))
    try:
        yield notes.messages
    finally:
        _LOGGER.removeHandler(notes)
        _LOGGER.setLevel(level)
