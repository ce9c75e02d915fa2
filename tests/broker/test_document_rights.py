"""Rights to documents: a reader sees all of one or nothing, and learns nothing else by queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.authorization_fixture import (
    BrokerFixture,
    broker_fixture,
    refusal,
    run_async,
    subscribe,
)
from broker.document_cases import as_event, texts_of
from tamis.access import FilterInMode
from tamis.access.documents import holds_for_document
from tamis.broker import Session
from tamis.filters import Mode
from tamis.languages import parse
from tamis.xml import Document

POLICY = """
[roles.hiding]
see = { hide = ["/order/secret"] }
[roles.showing]
see = { show = ["/order/@level"] }
[roles.low]
see = { filter = "`/order/@level` < 3" }
[roles.all]
see = true
[roles.lowfeed]
publish = { filter = "`/order/@level` < 3" }
[roles.narrowfeed]
publish = { forbid = ["secret"] }
"""
LOW = "<order level='1'><secret>s</secret></order>"
HIGH = "<order level='7'><secret>t</secret></order>"


async def publish(fixture: BrokerFixture, *texts: str) -> None:
    feed = await fixture.login("feed", "feed")
    for text in texts:
        await feed.publish([as_event(text)], format="xml")
    await feed.close()
    await fixture.broker.committer.drained()
    await fixture.broker.matcher.drained()
    await fixture.broker.acknowledgement_writer.settled()


async def seen_by(session: Session, name: str) -> list[str]:
    return texts_of(await session.fetch(name))


@pytest.mark.parametrize("role", ["hiding", "showing"])
@run_async
async def test_who_may_not_see_everything_may_not_ask_by_queries(tmp_path: Path, role: str) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", role)
        for language, text in (("xql", "order[secret = 's']"), ("xpath", "string-length(order)>9")):
            said = await refusal(subscribe(ann, text, "s", language=language))
            assert said.startswith("forbidden"), said
            assert "a query can ask for anything in a document" in said
            said = await refusal(ann.history(text, language=language))
            assert said.startswith("forbidden"), said


@pytest.mark.parametrize("role", ["hiding", "showing"])
@run_async
async def test_who_may_not_see_everything_sees_no_document(tmp_path: Path, role: str) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", role)
        await subscribe(ann, "`/order/@level` = 1", "s")
        await subscribe(ann, "true", "t")
        await publish(fixture, LOW, HIGH)
        for name in "st":
            assert await seen_by(ann, name) == []
            assert (await ann.subscription(name)).pending == 0
        for filter_ in ("true", "`/order/@level` = 1"):
            assert (await ann.history(filter_)).events == []


@run_async
async def test_a_role_with_a_filter_sees_whole_documents_or_none(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann, bob = await fixture.login("ann", "low"), await fixture.login("bob", "all")
        for session in (ann, bob):
            await subscribe(session, "order[$not$ secret = 'x']", "s", language="xql")
            await subscribe(session, "`/order` is present", "t")
        await publish(fixture, LOW, HIGH)
        for name in "st":
            assert await seen_by(ann, name) == [LOW]
            assert await seen_by(bob, name) == [LOW, HIGH]
        assert texts_of((await ann.history("order", language="xql")).events) == [LOW]


@run_async
async def test_a_query_ends_when_its_owner_may_no_longer_see_everything(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        ann = await fixture.login("ann", "low")
        await subscribe(ann, "order", "s", language="xql")
        await publish(fixture, LOW)
        narrower = '{ filter = "`/order/@level` < 3", hide = ["x"] }'
        await fixture.change_policy(
            POLICY.replace('{ filter = "`/order/@level` < 3" }', narrower, 1)
        )
        await publish(fixture, LOW)
        # It is suspended: what waits is not shown either.
        said = await refusal(ann.fetch("s"))
        assert said.startswith("forbidden"), said


@run_async
async def test_publishers_are_held_to_their_filters(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, POLICY) as fixture:
        low, narrow = await fixture.login("l", "lowfeed"), await fixture.login("n", "narrowfeed")
        await low.publish([as_event(LOW)], format="xml")
        two = "<order level='1'><order level='7'/></order>"
        await low.publish([as_event(two)], format="xml")
        for session, text in ((low, HIGH), (low, "<a/>"), (narrow, LOW)):
            said = await refusal(session.publish([as_event(text)], format="xml"))
            assert said == "forbidden: this is not an event that you may publish"


RIGHTS = [
    # The text and the number of a node are one value.
    ("`/a/@n` < 3", "<a n='2'/>", True),
    ("`/a/@n` = '2'", "<a n='2'/>", True),
    ("`/a/@n` < 3", "<a n='7'/>", False),
    ("not (`/a/@n` = 3)", "<a n='3.0'/>", False),
    ("not (`/a/@n` = 3)", "<a n='4'/>", True),
    ("`/a/@n` < 3", "<a/>", False),
    ("`/a/@n` is absent", "<a/>", True),
    # Whichever node one looks at.
    ("`/a/b` = 'x'", "<a><b>x</b><b>x</b></a>", True),
    ("`/a/b` = 'x'", "<a><b>x</b><b>y</b></a>", False),
    ("`/a/b` < 3", "<a><b>2</b><b>02</b></a>", True),
    ("not (`/a/b` = 2)", "<a><b>7</b><b>02</b></a>", False),
    ("`//b` = 'x'", "<a><b>x</b><c><b>x</b></c></a>", True),
    ("`//b` = 'x'", "<a><b>x</b><c><b>y</b></c></a>", False),
    # What attributes do not say completely holds for no document.
    ("not (`/a` contains 'z')", f"<a>{'x' * 5_000}z</a>", False),
    ("not (any contains 'z')", "<a>x</a>", False),
    ("level = 1", "<a level='1'/>", False),
]


@pytest.mark.parametrize(("right", "document", "expected"), RIGHTS)
@pytest.mark.parametrize("mode", [Mode.SQL, Mode.DEFAULT, Mode.STRICT])
def test_a_right_holds_whichever_node_one_looks_at(
    right: str, document: str, expected: bool, mode: Mode
) -> None:
    found = holds_for_document(FilterInMode(parse(right), mode), Document.parse(document))
    assert found is expected
