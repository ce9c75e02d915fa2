"""What Tamis says of the plan while it makes one, kept for a report."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOGGER: Final = logging.getLogger("tamis.spark")


class _Notes(logging.Handler):
    """Keeps messages, each once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: Final[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if record.getMessage() not in self.said:
            self.said.append(record.getMessage())


@contextmanager
def overhearing() -> Iterator[list[str]]:
    """Give a list that gets all that is said inside, whether or not it is logged elsewhere."""
    notes, level = _Notes(), _LOGGER.level
    _LOGGER.addHandler(notes)
    _LOGGER.setLevel(min(logging.INFO, _LOGGER.getEffectiveLevel()))
    try:
        yield notes.said
    finally:
        _LOGGER.removeHandler(notes)
        _LOGGER.setLevel(level)
