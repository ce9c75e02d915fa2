from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from broker.server import ServerProcess, make_token, running

POLICY = """
[roles.admin]
admin = true
publish = true
see = true

[roles.trader]
publish = { filter = "level < 3" }
see = { filter = "level < 3", hide = ["secret"] }
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that asks nobody for a token."""
    with running(tmp_path_factory.mktemp("server"), hello_timeout=1, ping_interval=2) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


class Guarded(NamedTuple):
    """A server with a policy, and tokens for it."""

    server: ServerProcess
    admin: str
    trader: str


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A server that asks everybody for a token."""
    folder = tmp_path_factory.mktemp("guarded")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    admin = make_token(folder, policy, "root", "admin")
    trader = make_token(folder, policy, "ann", "trader")
    with running(folder, policy=policy) as server:
        yield Guarded(server, admin, trader)
