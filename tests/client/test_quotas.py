"""Quotas: a batch may be no larger than what is allowed in a second, and a client keeps to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest

import tamis
from broker.server import ServerProcess, make_token, running
from tamis.protocol import Code

from .buses import run

POLICY = """
[roles.feed]
publish = true
quotas = { publications = 50, bytes = 5000 }
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, list[str]]]:
    folder = tmp_path_factory.mktemp("quotas")
    policy = folder / "policy.toml"
    policy.write_text(POLICY)
    tokens = [make_token(folder / "server", policy, f"feed-{n}", "feed") for n in range(4)]
    with running(folder / "server", policy=policy) as server:
        yield server, tokens


Limited = tuple[ServerProcess, list[str]]


def test_a_batch_larger_than_the_quota_is_refused_and_costs_nothing(limited: Limited) -> None:
    server, tokens = limited
    headers = {"Authorization": f"Bearer {tokens[0]}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:

        def publish(count: int, text: str = "") -> httpx.Response:
            return client.post("/v1/events", json=[{"n": n, "t": text} for n in range(count)])

        large = publish(51)
        assert (large.status_code, large.json()["code"]) == (413, "too_large")
        sentence = "51 events at once exceed the quota of 50 events a second; publish at most 50"
        assert sentence in large.json()["detail"]
        large = publish(2, "x" * 3000)
        assert large.status_code == 413
        assert "bytes at once exceed the quota of 5,000 bytes a second" in large.json()["detail"]
        assert publish(50).status_code == 200
        # What was refused cost nothing, and the next batch need not wait longer than a second.
        refused = publish(50)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")


def test_one_event_larger_than_the_quota_of_bytes_passes_and_is_paid_off(limited: Limited) -> None:
    server, tokens = limited
    headers = {"Authorization": f"Bearer {tokens[1]}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        assert client.post("/v1/events", json={"t": "x" * 9000}).status_code == 200
        refused = client.post("/v1/events", json={"t": "y"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")


def test_a_client_sends_batches_that_its_quota_allows(limited: Limited) -> None:
    server, tokens = limited

    async def main() -> None:
        async with tamis.connect(server.url, token=tokens[2], patient=True) as bus:
            receipt = await bus.publish_many({"n": n} for n in range(120))
            assert receipt.count == 120
            receipt = await bus.publish_many({"n": n, "t": "x" * 900} for n in range(8))
            assert receipt.count == 8
            alone = [bus.publish({"n": n}) for n in range(120)]
            assert sum(one.count for one in await asyncio.gather(*alone)) == 120

    run(main())


def test_an_impatient_client_learns_when_to_try_again(limited: Limited) -> None:
    server, tokens = limited

    async def main() -> None:
        async with tamis.connect(server.url, token=tokens[3]) as bus:
            with pytest.raises(tamis.RefusedError) as caught:
                await bus.publish_many({"n": n} for n in range(500))
            assert caught.value.code == Code.TOO_MANY
            assert caught.value.retry_after is not None
            assert 0 < caught.value.retry_after <= 1

    run(main())
