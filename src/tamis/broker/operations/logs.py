"""Log lines: JSON for programs, or coloured lines for people."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from tamis.broker.operations.settings import BrokerSettings

MAX_LINES_PER_SECOND: Final = 50
"""Of one kind: by its logger and its event, not by the fields."""
MAX_KINDS: Final = 1_000

_SHARED: Final[tuple[Any, ...]] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger that sends its lines, and their fields, to `logging`.

    So an application with an in-process bus receives what it configures in `logging`, and no more,
    however it uses structlog itself.
    """
    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.render_to_log_kwargs,
        ],
    )
    return logger


class LineLimit(logging.Filter):
    """Passes so many lines of each kind per second; the next one says how many were left out.

    A client that is refused can try again as fast as it likes, and must not fill a disk with that.
    """

    def __init__(
        self, most: int = MAX_LINES_PER_SECOND, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._most = most
        self._clock = clock
        self._since = clock()
        self._passed = Counter[tuple[str, object]]()
        self._left_out = Counter[tuple[str, object]]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line passes."""
        now, kind = self._clock(), (record.name, record.msg)
        if now - self._since >= 1.0:
            self._since = now
            self._passed.clear()
        self._passed[kind] += 1
        if self._passed[kind] > self._most and len(self._left_out) < MAX_KINDS:
            self._left_out[kind] += 1
            return False
        if count := self._left_out.pop(kind, 0):
            record.left_out = count
        return True


def configure_logs(settings: BrokerSettings, stream: TextIO = sys.stderr) -> None:
    """Send all log lines, of Tamis and of its libraries, to one stream."""
    as_json = settings.log_format == "json" or (
        settings.log_format == "auto" and not stream.isatty()
    )
    level = getattr(logging, settings.log_level.upper())
    handler = logging.StreamHandler(stream)
    handler.addFilter(LineLimit())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(as_json=as_json, colors=stream.isatty()),
            ],
        )
    )
    logging.basicConfig(handlers=[handler], level=level, force=True)
    # The frontend logs requests, because it knows the principal; the lines of the server are
    # details.
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "websockets", "asyncio"):
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


def _renderers(*, as_json: bool, colors: bool) -> tuple[Any, ...]:
    if as_json:
        return (structlog.processors.format_exc_info, structlog.processors.JSONRenderer())
    return (structlog.dev.ConsoleRenderer(colors=colors),)
