"""A link passes what the role of the peer allows, in each direction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.server import ServerProcess, make_token
from waiting import eventually

from .brokers import QUICK

ADMIN = "[roles.admin]\nadmin = true\npublish = true\nsee = true\n"
HUB = f"""{ADMIN}
[roles.branch]
peer = true
see = {{ filter = "level < 3", hide = ["salary"] }}
publish = 'kind = "order"'

[roles.desk]
see = true
"""
BRANCH = f"""{ADMIN}
[roles.hub]
peer = true
see = true
publish = true
"""


class Guarded:
    """Two brokers with policies, and an administrator's client for each."""

    def __init__(self, folder: Path) -> None:
        self.servers: dict[str, ServerProcess] = {}
        self.tokens: dict[str, str] = {}
        for name, text in (("hub", HUB), ("branch", BRANCH)):
            policy = folder / f"{name}.toml"
            policy.write_text(text)
            self.tokens[name] = make_token(folder / name, policy, "root", "admin")
            settings = {"name": name, "policy": policy, **QUICK}
            self.servers[name] = ServerProcess(folder / name, settings)
        self.hub_token = folder / "hub.token"
        self.desk_token = folder / "desk.token"
        for file, role in ((self.hub_token, "branch"), (self.desk_token, "desk")):
            file.write_text(make_token(folder / "hub", folder / "hub.toml", role, role))
        self.servers["hub"].start()

    def start_branch(self, token: Path) -> None:
        address = self.servers["hub"].url
        self.servers["branch"].settings["peers"] = f"{address} token_file={token} role=hub"
        self.servers["branch"].start()

    def client(self, name: str) -> httpx.Client:
        return self.servers[name].client(self.tokens[name])


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    brokers = Guarded(tmp_path)
    yield brokers
    for server in brokers.servers.values():
        if server.process is not None:
            server.kill()


def events_of(client: httpx.Client) -> list[Any]:
    body = {"wait": 1, "limit": 100}
    events = client.post("/v1/subscriptions/all/fetch", json=body).json()["events"]
    return [event["data"] for event in events]


def events_until(client: httpx.Client, last: object) -> list[Any]:
    """Return all events up to one."""
    found: list[Any] = []

    def has_last() -> bool:
        found.extend(events_of(client))
        return last in found

    eventually(has_last)
    return found


def link_of(client: httpx.Client) -> dict[str, Any]:
    links = client.get("/v1/peers").json()["peers"]
    return links[0] if links else {}


def test_a_peer_sees_and_publishes_no_more_than_its_role_says(guarded: Guarded) -> None:
    guarded.start_branch(guarded.hub_token)
    with guarded.client("hub") as hub, guarded.client("branch") as branch:
        for client in (hub, branch):
            wanted = {"id": "all", "filter": "number > 0"}
            assert client.post("/v1/subscriptions", json=wanted).is_success
        eventually(lambda: link_of(hub).get("routes") and link_of(branch).get("routes"))
        secret = {"number": 1, "level": 5}
        shown = {"number": 2, "level": 1, "salary": 9}
        assert hub.post("/v1/events", json=[secret, shown]).is_success
        gossip, order = {"number": 3, "kind": "gossip"}, {"number": 4, "kind": "order"}
        assert branch.post("/v1/events", json=[gossip, order]).is_success
        less = {"number": 2, "level": 1}
        at_hub, at_branch = events_until(hub, order), events_until(branch, less)
        assert at_hub == [secret, shown, order]
        assert [one for one in at_branch if one not in (gossip, order)] == [less]
        assert link_of(hub)["refused"] == 1


def test_a_token_without_the_right_to_link_is_refused_with_a_sentence(guarded: Guarded) -> None:
    guarded.start_branch(guarded.desk_token)
    with guarded.client("branch") as branch:
        eventually(lambda: "may not link brokers" in link_of(branch).get("problem", ""))
    assert "none of its roles has peer = true" in guarded.servers["hub"].log
