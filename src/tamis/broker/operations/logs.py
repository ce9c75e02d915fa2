"""Log lines: JSON for programs, or coloured lines for people."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TextIO

import structlog

from tamis.broker.operations.settings import BrokerSettings

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


def configure_logs(settings: BrokerSettings, stream: TextIO = sys.stderr) -> None:
    """Send all log lines, of Tamis and of its libraries, to one stream."""
    as_json = settings.log_format == "json" or (
        settings.log_format == "auto" and not stream.isatty()
    )
    level = getattr(logging, settings.log_level.upper())
    handler = logging.StreamHandler(stream)
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
