"""The broker applies its schema once to an event, and again if it needs what the event says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from broker.authorization_fixture import (
    broker_fixture,
    encoded,
    fetched,
    refusal,
    run_async,
    subscribe,
)
from tamis import Engine, Event, Schema, SchemaError
from tamis.broker.match import snapshots
from tamis.broker.publish.payloads import Payload, PayloadDecoder
from tamis.broker.sessions.publishing import MIN_CHECKED_TOGETHER

POLICIES = {
    "open": "[roles.reader]\nsee = true\n",
    "restricted": "[roles.reader]\nsee = 'price < 100'\n",
}


@contextmanager
def counting() -> Iterator[Mock]:
    with patch.object(Schema, "conform", autospec=True, side_effect=Schema.conform) as conform:
        yield conform


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text('{"price": "float", "name": "str"}')
    return path


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("count", [1, 10])
@run_async
async def test_a_published_event_is_checked_once(
    tmp_path: Path, schema: Path, policy: str, count: int
) -> None:
    async with broker_fixture(tmp_path, POLICIES[policy], schema_file=schema) as fixture:
        ann = await fixture.login("ann", "reader")
        await subscribe(ann, "price < 10", "d")
        with counting() as conform:
            await fixture.publish(*[{"price": n % 5} for n in range(count)])
            assert len(await fetched(ann, "d")) == count
        # A scan vouches for many events; rights need all that an event says, and more than once.
        once = 0 if count >= MIN_CHECKED_TOGETHER else count
        assert conform.call_count == (once if policy == "open" else 2 * count)
        with counting() as conform:
            page = await ann.history("price < 10")
            assert len(page.events) == count
        assert conform.call_count == count


@run_async
async def test_an_engine_from_a_file_checks_no_event_again(
    tmp_path: Path, schema: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "MIN_CHANGED_SUBSCRIPTIONS", 1)
    for number in range(2):
        async with broker_fixture(tmp_path, POLICIES["open"], schema_file=schema) as fixture:
            ann = await fixture.login("ann", "reader")
            await subscribe(ann, "price < 10", "d")
            with counting() as conform:
                await fixture.publish({"price": number})
            assert conform.call_count == 1
    with counting() as conform:
        async with broker_fixture(tmp_path, POLICIES["open"], schema_file=schema) as fixture:
            ann = await fixture.login("ann", "reader")
            await subscribe(ann, "price < 9", "from the start", start="earliest")
            assert len(await fetched(ann, "from the start", wait=10.0)) == 2
    # Once for the replay, once at most for the delivery.
    assert conform.call_count <= 4


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), ('{"a": {"typ": "int"}}', 'a: "typ" is not a key')],
)
@run_async
async def test_a_schema_that_cannot_be_used_is_named(
    tmp_path: Path, content: str | None, words: str
) -> None:
    path = tmp_path / "schema.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SchemaError, match=rf"schema\.json: .*{words}"):
        async with broker_fixture(tmp_path, POLICIES["open"], schema_file=path):
            pass


def test_an_engine_trusts_only_its_own_schema() -> None:
    engine = Engine(Schema({"price": "float", "code": "str"}))
    engine.add("cheap", "price < 10")
    foreign = Schema({"price": "int"}).conform(Event({"price": 5, "code": 7}))
    with pytest.raises(Exception, match="code"):
        engine.match(foreign)
    assert engine.match_batch([foreign]).errors
    assert engine.match(Schema({"code": "int"}).conform(Event({"price": 5}))) == ["cheap"]


@run_async
async def test_a_large_publication_is_refused_without_decoding_on_the_event_loop(
    tmp_path: Path, schema: Path
) -> None:
    threads: list[int] = []

    def record(self: PayloadDecoder, text: bytes, format_: str) -> Payload:
        threads.append(threading.get_ident())
        return decode_stored(self, text, format_)

    decode_stored = PayloadDecoder.decode_stored
    async with broker_fixture(tmp_path, POLICIES["open"], schema_file=schema) as fixture:
        feed = await fixture.login("feed", "feed")
        good = [{"price": 1, "name": "n" * 1000}] * 50
        with patch.object(PayloadDecoder, "decode_stored", record):
            reason = await refusal(feed.publish(encoded([*good, {"price": "high"}])))
    assert reason.startswith("bad_event: price:")
    # The last is decoded again without the schema, to find out what the reason may reveal.
    assert len(threads) == len(good) + 2
    assert threading.get_ident() not in threads
