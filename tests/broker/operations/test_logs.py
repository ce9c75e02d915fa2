"""Log lines: none of them can be made to fill a disk."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from tamis.broker import BrokerSettings
from tamis.broker.operations.logs import (
    MAX_LINES_PER_SECOND,
    LineLimit,
    configure_logs,
    get_logger,
)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logs(BrokerSettings(log_format="json"), stream)
    yield stream
    root.handlers[:], root.level = handlers, level


def test_a_line_that_is_repeated_at_full_speed_is_left_out(stream: io.StringIO) -> None:
    log = get_logger("tamis.test")
    for number in range(100 * MAX_LINES_PER_SECOND):
        log.warning("refused", number=number)
    log.warning("something else")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    # A second may end in between.
    assert MAX_LINES_PER_SECOND < len(lines) < 10 * MAX_LINES_PER_SECOND
    assert lines[0]["number"] == 0
    assert lines[-1]["event"] == "something else"


def test_the_next_line_says_how_many_were_left_out() -> None:
    now = 0.0
    limit = LineLimit(most=2, clock=lambda: now)
    records = [logging.makeLogRecord({"name": "a", "msg": "refused"}) for _ in range(7)]
    assert [limit.filter(one) for one in records[:5]] == [True, True, False, False, False]
    assert limit.filter(logging.makeLogRecord({"name": "b", "msg": "refused"}))
    now = 1.0
    assert limit.filter(records[5])
    assert vars(records[5])["left_out"] == 3
    assert limit.filter(records[6])
    assert "left_out" not in vars(records[6])
