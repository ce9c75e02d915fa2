"""One principal makes thousands of subscriptions at a linked broker: everybody else goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from broker.server import ServerProcess, make_token
from waiting import eventually

POLICY = """
[roles.user]
see = true
publish = true
admin = true

[roles.link]
peer = true
see = true
publish = true
"""
SUBSCRIPTIONS = 6_000
AT_ONCE = 100
QUIET = 12
SECONDS = 15.0
"""What a subscription of somebody else may take to be routed, on a busy machine."""

SHAPES: tuple[Callable[[Random, int], str], ...] = (
    lambda rng, n: f"(a = {n} or b contains 'x{n}') and c < {rng.randrange(99)}",
    lambda rng, n: f"p * q{n % 7} > {n} and r in ({n}, {rng.randrange(9_999)})",
    lambda _, n: " or ".join(f"k{(n + m) % 50} = {n} and k{(n * m) % 50} > {m}" for m in range(8)),
    lambda rng, n: f"s like '%{n}%' and not (t ~= 'v{rng.randrange(99)}' or u between {n} and 1e9)",
)


def link_of(client: httpx.Client) -> dict[str, Any]:
    links = client.get("/v1/peers").json()["peers"]
    return links[0] if links else {}


@contextmanager
def running(folder: Path) -> Iterator[tuple[ServerProcess, ServerProcess, dict[str, str]]]:
    """Run two linked brokers, and yield the tokens of their users."""
    servers: dict[str, ServerProcess] = {}
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    tokens = {}
    for name in ("hub", "branch"):
        for user in ("noisy", "quiet"):
            tokens[f"{user}@{name}"] = make_token(folder / name, policy, user, "user")
        servers[name] = ServerProcess(folder / name, {"name": name, "policy": policy})
    token = folder / "link.token"
    token.write_text(make_token(folder / "hub", policy, "branch", "link"))
    hub, branch = servers["hub"], servers["branch"]
    try:
        hub.start()
        branch.settings["peers"] = f"{hub.url} token_file={token} role=link"
        branch.start()
        yield hub, branch, tokens
    finally:
        for server in servers.values():
            if server.process is not None:
                server.kill()


def flood(client: httpx.Client) -> None:
    rng = Random(4)
    for begin in range(0, SUBSCRIPTIONS, AT_ONCE):
        many = [
            {"id": f"s{n}", "filter": SHAPES[n % len(SHAPES)](rng, n)}
            for n in range(begin, begin + AT_ONCE)
        ]
        answer = client.post("/v1/subscriptions/batch", json={"subscriptions": many}, timeout=120)
        assert answer.is_success, answer.text[:500]


def seconds_until_routed(number: int, there: httpx.Client, here: httpx.Client) -> float:
    """Return how long it takes until a new subscription gets what is published elsewhere."""
    begin = time.monotonic()
    wanted = {"id": f"quiet-{number}", "filter": f"quiet = {number}"}
    assert here.post("/v1/subscriptions", json=wanted, timeout=60).is_success

    def has_come() -> bool:
        assert there.post("/v1/events", json=[{"quiet": number}], timeout=60).is_success
        body = {"limit": 10, "wait": 0.2}
        path = f"/v1/subscriptions/quiet-{number}/fetch"
        return bool(here.post(path, json=body, timeout=60).json()["events"])

    eventually(has_come, timeout=120)
    return time.monotonic() - begin


@pytest.mark.slow
def test_thousands_of_subscriptions_of_one_principal_hold_up_nobody_else(tmp_path: Path) -> None:
    with running(tmp_path) as (hub, branch, tokens):
        with (
            branch.client(tokens["noisy@branch"]) as noisy,
            branch.client(tokens["quiet@branch"]) as here,
            hub.client(tokens["quiet@hub"]) as there,
        ):
            eventually(lambda: link_of(here).get("connected"))
            calm = seconds_until_routed(0, there, here)
            attack = threading.Thread(target=flood, args=(noisy,))
            begin = time.monotonic()
            attack.start()
            taken, down = list[float](), 0
            for number in range(1, QUIET + 1):
                taken.append(seconds_until_routed(number, there, here))
                down += not (link_of(here).get("connected") and link_of(there).get("connected"))
            attack.join()
            made = time.monotonic() - begin
            eventually(lambda: link_of(there).get("routes", 0) >= SUBSCRIPTIONS, timeout=900)
            routed = time.monotonic() - begin
            last = seconds_until_routed(QUIET + 1, there, here)
        print(
            f"\nrouted in {calm:.2f} s before, {max(taken):.2f} s at most during the attack, "
            f"{last:.2f} s after it; {SUBSCRIPTIONS:,} made in {made:.0f} s, routed in "
            f"{routed:.0f} s"
        )
        assert not down, "a link was down"
        assert max(*taken, last) < SECONDS
        for server in (hub, branch):
            assert "silent" not in server.errors, server.errors[-2000:]
