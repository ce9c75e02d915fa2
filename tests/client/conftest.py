from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.server import ServerProcess, running

from .buses import OpenBuses, buses_of_server, local_buses


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running(tmp_path_factory.mktemp("broker"), backoff_first="0.05") as server:
        yield server


@pytest.fixture(params=["network", "in process"])
def open_buses(request: pytest.FixtureRequest) -> OpenBuses:
    if request.param == "in process":
        return local_buses
    return buses_of_server(request.getfixturevalue("server"))


@pytest.fixture(autouse=True)
def nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if asyncio logs a task or future that was never awaited."""
    yield
    complaints = [
        record.getMessage()
        for record in caplog.get_records("call")
        if record.name == "asyncio" and record.levelno >= logging.ERROR
    ]
    assert complaints == []
