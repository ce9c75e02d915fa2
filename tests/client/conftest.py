from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.server import ServerProcess, running

from .places import Place, at_server, in_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("broker"), backoff_first="0.05") as server:
        yield server


@pytest.fixture(params=["network", "in process"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "in process":
        return in_process
    return at_server(request.getfixturevalue("server"))


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Tasks and futures whose end nobody saw are logged by asyncio, which is not to happen."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert complaints == []
