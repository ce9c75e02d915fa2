"""Documents and queries at a broker: on no path does anybody get what does not match exactly."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from broker.authorization_clients import Collector
from broker.authorization_fixture import (
    broker_fixture,
    encoded,
    exhaust_attempts,
    refusal,
    run_async,
    subscribe,
)
from broker.document_cases import (
    CHAIRS,
    ITEMS,
    MANY_CHAIRS,
    RIGHT_ITEMS,
    TABLES,
    WRONG_ITEMS,
    Asked,
    as_event,
    order,
    publish_documents,
    random_asked,
    random_published,
    texts_of,
)
from seeds import seeds
from tamis.broker import Broker, BrokerSettings, Session
from tamis.broker.deliver import exact_checks
from tamis.errors import LimitError
from tamis.filters import Filter
from tamis.languages.exactness import satisfies_exactly
from waiting import eventually_async


@asynccontextmanager
async def broker_of(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, Session]]:
    """Open a broker, and a session of it."""
    async with await Broker.open(BrokerSettings(data=folder / "data", **settings)) as broker:
        session = await broker.authenticate(None)
        yield broker, session
        await session.close()


async def settled(broker: Broker) -> None:
    """Return when everything is stored and matched."""
    await broker.committer.drained()
    await broker.matcher.drained()
    await broker.acknowledgement_writer.settled()


WANTED = [
    pytest.param(MANY_CHAIRS, "xql", id="xql"),
    pytest.param("order/line[sku = 'chair' and not(quantity < 5)]", "xpath", id="xpath"),
]


@pytest.mark.parametrize(("text", "language"), WANTED)
@run_async
async def test_only_documents_that_match_exactly_are_fetched(
    tmp_path: Path, text: str, language: str
) -> None:
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, text, "s", language=language)
        await publish_documents(session, TABLES, CHAIRS, TABLES)
        await settled(broker)
        assert (await session.subscription("s")).pending == 3
        got = await session.fetch("s")
        assert texts_of(got) == [CHAIRS]
        assert [(one.sequence, one.format) for one in got] == [(2, "xml")]
        view = await session.subscription("s")
        assert (view.residue, view.dropped, view.in_flight) == (2, 0, 1)
        await broker.acknowledgement_writer.settled()
        assert (await session.subscription("s")).pending == 1


@run_async
async def test_only_elements_that_match_exactly_are_fetched(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        await subscribe(session, ITEMS, "s")
        # Names with dots are not elements.
        flat = {"items.sku": "a", "items.quantity": 9}
        await session.publish(encoded([WRONG_ITEMS, flat, RIGHT_ITEMS]))
        assert texts_of(await session.fetch("s", wait=20)) == [RIGHT_ITEMS]
        assert (await session.subscription("s")).residue == 2


@pytest.mark.parametrize("acknowledge", ["auto", "manual"])
@run_async
async def test_a_connection_gets_only_what_matches_exactly(
    tmp_path: Path, acknowledge: str
) -> None:
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, MANY_CHAIRS, "s", language="xql")
        live = Collector()
        await session.attach("s", live, credit=2, acknowledge=acknowledge)
        await publish_documents(session, *[TABLES] * 5, CHAIRS, *[TABLES] * 5, CHAIRS)
        # What is dropped takes no credit.
        await eventually_async(lambda: len(live.got) == 2)
        assert [one["data"] for one in live.got] == [CHAIRS, CHAIRS]
        assert (await session.subscription("s")).residue == 10
        assert (
            "tamis_residue_events_total 10.0" in generate_latest(broker.metrics.registry).decode()
        )


@run_async
async def test_members_of_a_group_get_only_what_matches_exactly(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        key = "/order/@number"
        await subscribe(session, MANY_CHAIRS, "g", language="xql", group=True, ordering_key=key)
        await publish_documents(
            session,
            *(order(("chair", 9), number=n) for n in (1, 1, 2)),
            *(order(("chair", 1), ("table", 9), number=n) for n in (1, 2)),
        )
        got: list[int] = []
        while len(got) < 3:
            some = await session.fetch("g", limit=1, wait=20)
            # The second event with the number 1 waits for the first.
            assert [one.sequence for one in some] != [2] or 1 in got
            got += [one.sequence for one in some]
            await session.acknowledge("g", [one.sequence for one in some])
        assert sorted(got) == [1, 2, 3]
        assert await session.fetch("g") == []


@run_async
async def test_history_and_replay_have_only_what_matches_exactly(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        await publish_documents(session, TABLES, CHAIRS)
        await session.publish(encoded([WRONG_ITEMS, RIGHT_ITEMS]))
        found = await session.history(MANY_CHAIRS, language="xql")
        assert texts_of(found.events) == [CHAIRS]
        assert texts_of((await session.history(ITEMS)).events) == [RIGHT_ITEMS]
        everything = await session.history("true")
        assert texts_of(everything.events) == [TABLES, CHAIRS, WRONG_ITEMS, RIGHT_ITEMS]
        await subscribe(session, MANY_CHAIRS, "s", language="xql", start="earliest")
        await subscribe(session, ITEMS, "t", start="earliest")
        assert texts_of(await session.fetch("s", wait=20)) == [CHAIRS]
        assert texts_of(await session.fetch("t", wait=20)) == [RIGHT_ITEMS]


@run_async
async def test_a_restarted_broker_checks_what_waits(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, MANY_CHAIRS, "s", language="xql")
        await subscribe(session, ITEMS, "t")
        await publish_documents(session, TABLES, CHAIRS)
        await session.publish(encoded([WRONG_ITEMS, RIGHT_ITEMS]))
        await settled(broker)
    async with broker_of(tmp_path) as (broker, session):
        await publish_documents(session, CHAIRS, TABLES)
        await settled(broker)
        assert texts_of(await session.fetch("s", wait=20)) == [CHAIRS, CHAIRS]
        assert texts_of(await session.fetch("t", wait=20)) == [RIGHT_ITEMS]


@run_async
async def test_dead_letters_are_what_matches_exactly(tmp_path: Path) -> None:
    async with broker_of(tmp_path, max_attempts=1) as (broker, session):
        await subscribe(session, MANY_CHAIRS, "s", language="xql")
        await publish_documents(session, TABLES, CHAIRS)
        await settled(broker)
        # One that is rejected while it is prepared was never shown, and must not be afterwards.
        subscription = session._find("s")
        [taken] = await subscription.queue.take(1, 0.0, 1e300, session.rights.digest)
        assert taken.sequence == 1
        await session.reject("s", 1)
        await exhaust_attempts(session, "s")
        letters = await session.dead_letters("s")
        assert texts_of(letters) == [CHAIRS]
        assert [one.format for one in letters] == ["xml"]
        assert await session.requeue("s", [1, 2]) == 1
        assert texts_of(await session.fetch("s", wait=20)) == [CHAIRS]


@run_async
async def test_a_replaced_query_holds_from_its_change_on(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, "true", "s")
        await publish_documents(session, TABLES)
        await session.update("s", MANY_CHAIRS, language="xql")
        await publish_documents(session, TABLES, CHAIRS)
        await settled(broker)
        await session.update("s", "true")
        await publish_documents(session, TABLES)
        await settled(broker)
        assert texts_of(await session.fetch("s", wait=20)) == [TABLES, CHAIRS, TABLES]


@run_async
async def test_a_query_is_the_same_if_its_text_and_language_are(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        # Both become the same filter over attributes.
        await subscribe(session, "order/line[0]/sku = 'chair'", "s", language="xql")
        await subscribe(session, "order/line[0]/sku = 'chair'", "s", language="xql")
        other = subscribe(session, "order/line[1]/sku = 'chair'", "s", language="xql")
        assert "has another filter" in await refusal(other)
        assert "has another filter" in await refusal(
            subscribe(session, "order/line[0]/sku = 'chair'", "s", language="xpath")
        )


@run_async
async def test_a_query_finds_documents_and_no_other_events(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        # This one becomes a filter that says all: nothing is left to check.
        await subscribe(session, "order[@number = 17]", "s", language="xql")
        await session.publish(encoded([{"/order/@number": 17}]))
        await publish_documents(session, CHAIRS)
        assert texts_of(await session.fetch("s", wait=20)) == [CHAIRS]


@run_async
async def test_filters_over_attributes_find_documents_by_their_paths(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        await subscribe(session, '`//sku` = "chair" and `/order/@number` < 20', "s")
        await publish_documents(session, CHAIRS, order(("table", 1)))
        assert texts_of(await session.fetch("s", wait=20)) == [CHAIRS]


REFUSED = [
    (b'"<order"', "bad_event", "not well-formed"),
    (b'"<!DOCTYPE a [<!ENTITY x SYSTEM \\"file:///etc/passwd\\">]><a>&x;</a>"', "bad_event", "DOC"),
    (b'{"a": 1}', "bad_event", "a JSON string with the text"),
    (as_event("<a>" * 100 + "</a>" * 100), "too_large", "elements inside each other"),
    (as_event("<a>" + "<b/>" * 200_000 + "</a>"), "too_large", "bytes exceeds the limit"),
    (as_event(""), "bad_event", "it is empty"),
]


@pytest.mark.parametrize(("text", "code", "sentence"), REFUSED)
@run_async
async def test_what_is_no_document_is_refused_with_a_sentence(
    tmp_path: Path, text: bytes, code: str, sentence: str
) -> None:
    async with broker_of(tmp_path) as (_, session):
        said = await refusal(session.publish([text], format="xml"))
        assert said.startswith(code)
        assert sentence in said


@run_async
async def test_a_document_is_as_large_as_its_own_bytes(tmp_path: Path) -> None:
    text = "<a>" + '"\n' * 200 + "</a>"
    async with broker_of(tmp_path, largest_event=len(text)) as (_, session):
        await subscribe(session, "a", "s", language="xql")
        await publish_documents(session, text)
        assert texts_of(await session.fetch("s", wait=20)) == [text]
        said = await refusal(session.publish([as_event(text + " ")], format="xml"))
        assert "an event of 408 bytes exceeds the limit of 407" in said
        # JSON is as large as it is sent.
        large = json.dumps({"a": text}).encode()
        said = await refusal(session.publish([large]))
        assert f"an event of {len(large)} bytes exceeds the limit of 407" in said
    with pytest.MonkeyPatch.context() as patched:
        # Whatever is sent to a subscriber has to fit into a frame.
        patched.setattr("tamis.broker.publish.payloads.FRAME_OVERHEAD_BYTES", 4 * 1024**2 - 500)
        async with broker_of(tmp_path, largest_event=len(text)) as (_, session):
            said = await refusal(session.publish([as_event(text)], format="xml"))
            assert f"an event of {len(as_event(text))} bytes" in said


@run_async
async def test_a_broker_without_lxml_names_the_extra_that_its_documents_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_of(tmp_path) as (broker, session):
        await publish_documents(session, CHAIRS)
        await settled(broker)
    monkeypatch.setitem(sys.modules, "lxml", None)
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, "true", "s", start="earliest")
        await eventually_async(lambda: bool(broker.health.problems))
        assert "pip install 'tamis[xml]'" in str(broker.health.problems)
        monkeypatch.delitem(sys.modules, "tamis.xml")
        broker.decoder.documents.load()
        assert "tamis.xml" not in sys.modules


@run_async
async def test_the_residue_is_told_also_if_there_is_none(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        view = await subscribe(session, "a", "s", language="xql")
        assert msgspec.to_builtins(view)["residue"] == 0


@run_async
async def test_a_query_with_declared_prefixes_is_checked_by_the_broker(tmp_path: Path) -> None:
    text = 'declare namespace n = "urn:n"; n:order/n:line[0] = 5'
    async with broker_of(tmp_path) as (_, session):
        await subscribe(session, text, "s", language="xql")
        found = "<x:order xmlns:x='urn:n'><x:line>5</x:line></x:order>"
        wrong = "<order xmlns='urn:n'><line>4</line><line>5</line></order>"
        await publish_documents(session, wrong, found, found.replace("urn:n", "urn:m"))
        assert texts_of(await session.fetch("s", wait=20)) == [found]


REFUSED_QUERIES = [
    ({"filter": "order/line[", "language": "xql"}, "bad_filter"),
    ({"filter": "order", "language": "xql", "mode": "strict"}, "leave it out"),
    ({"filter": "order", "language": "xquery"}, "'xpath'"),
    ({"filter": "a" * 20_000, "language": "xql"}, "characters in the filter"),
]


@pytest.mark.parametrize(("given", "sentence"), REFUSED_QUERIES)
@run_async
async def test_a_wrong_query_is_refused_with_a_sentence(
    tmp_path: Path, given: dict[str, str], sentence: str
) -> None:
    async with broker_of(tmp_path) as (_, session):
        text = given.pop("filter")
        assert sentence in await refusal(subscribe(session, text, "s", **given))


@run_async
async def test_a_broker_with_a_schema_takes_no_documents(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"a": "float"}))
    async with broker_of(tmp_path, schema_file=schema) as (_, session):
        said = await refusal(session.publish([as_event("<a/>")], format="xml"))
        assert "schema" in said
        assert "schema" in await refusal(subscribe(session, "a", "s", language="xql"))


@run_async
async def test_what_takes_too_long_to_check_is_told_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def give_up(*_: object) -> bool:
        raise LimitError("work", actual=None, limit=1)

    async with broker_of(tmp_path) as (_, session):
        await subscribe(session, MANY_CHAIRS, "s", language="xql")
        monkeypatch.setattr(exact_checks, "satisfies_exactly", give_up)
        await publish_documents(session, CHAIRS)
        got = await session.fetch("s", wait=20)
        assert (list(got), got.dropped) == ([], 1)
        assert (await session.history(MANY_CHAIRS, language="xql")).events == []


@pytest.mark.parametrize("group", [False, True])
@run_async
async def test_a_fetch_keeps_its_wait_while_checks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    check, checks, loop = satisfies_exactly, 0, asyncio.get_running_loop()
    time = loop.time

    def slowly(*given: Any) -> bool:
        nonlocal checks
        checks += 1
        return check(*given)

    # Each check seems to take 0.4 seconds.
    monkeypatch.setattr(loop, "time", lambda: time() + 0.4 * checks)

    monkeypatch.setattr(exact_checks, "satisfies_exactly", slowly)
    async with broker_of(tmp_path) as (broker, session):
        await subscribe(session, MANY_CHAIRS, "s", language="xql", group=group)
        found = [CHAIRS if number in {7, 8, 18} else TABLES for number in range(20)]
        await publish_documents(session, *found)
        await settled(broker)
        got: list[int] = []
        for fetched in range(1, 21):
            some = [one.sequence for one in await session.fetch("s", wait=1)]
            await session.acknowledge("s", some)
            got += some
            # Three checks take more than a second.
            assert checks <= 3 * fetched
            if len(got) == 3:
                break
        assert got == [8, 9, 19]
        assert checks < 21, "what was checked is not checked again"


@run_async
async def test_a_check_that_takes_long_delays_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "[roles.all]\nsee = true\npublish = true\n"
    free, check = threading.Event(), satisfies_exactly

    def slowly(filter_: Filter, *rest: Any) -> bool:
        if "slow" in str(filter_):
            free.wait()
        return check(filter_, *rest)

    monkeypatch.setattr(exact_checks, "satisfies_exactly", slowly)
    async with broker_fixture(tmp_path, policy) as fixture:
        ann, bob = await fixture.login("ann", "all"), await fixture.login("bob", "all")
        slow = "order/line[sku != 'slow' $and$ $not$ quantity < 5]"
        for name in "abc":
            await subscribe(ann, slow, name, language="xql")
        await subscribe(bob, MANY_CHAIRS, "quick", language="xql")
        await subscribe(bob, "`/order` is present", "plain")
        waiting = [asyncio.create_task(ann.fetch(name, wait=20)) for name in "abc"]
        try:
            for text in (TABLES, CHAIRS):
                await publish_documents(bob, text)
            await settled(fixture.broker)
            assert texts_of(await bob.fetch("quick", wait=20)) == [CHAIRS]
            assert texts_of(await bob.fetch("plain", wait=20)) == [TABLES, CHAIRS]
            assert texts_of((await bob.history(MANY_CHAIRS, language="xql")).events) == [CHAIRS]
        finally:
            free.set()
        assert [texts_of(one)[0] for one in await asyncio.gather(*waiting)] == [TABLES] * 3


@run_async
async def test_a_query_is_stopped_that_is_too_much_work(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        await subscribe(session, "//b[. = //c]", "s", language="xql")
        await publish_documents(session, "<a>" + "<b>1<c>x</c></b>" * 3_000 + "</a>")
        got = await session.fetch("s", wait=20)
        assert (list(got), got.dropped) == ([], 1)


@run_async
async def test_samples_are_tried_and_explained(tmp_path: Path) -> None:
    async with broker_of(tmp_path) as (_, session):
        samples = [as_event(CHAIRS), as_event(TABLES), b'{"a": 1}', as_event("<a")]
        tried = await session.try_filter(MANY_CHAIRS, language="xql", events=samples)
        assert [one.matches for one in tried] == [True, False, False, None]
        items = await session.try_filter(ITEMS, events=encoded([RIGHT_ITEMS, WRONG_ITEMS]))
        assert [one.matches for one in items] == [True, False]
        said = await session.explain(filter_=MANY_CHAIRS, language="xql", event=as_event(TABLES))
        assert not said.matched
        assert "does not hold exactly" in said.explanation
        absent, event = "not (`/a/b` = 1)", as_event("<a/>")
        assert (await session.explain(filter_=absent, mode="default", event=event)).matched
        assert not (await session.explain(filter_=absent, mode="sql", event=event)).matched


# --- against the oracle --------------------------------------------------------------------------


async def deliver_at_random(folder: Path, random: Random) -> None:
    """Publish random events to random subscriptions, and compare with what the oracle says."""
    asked = {f"s{number}": random_asked(random) for number in range(12)}
    published = [random_published(random) for _ in range(24)]
    cut = random.randrange(len(published))
    seen: dict[str, list[int]] = {name: [] for name in asked}

    async def take_all(session: Session) -> None:
        for name in asked:
            while got := await session.fetch(name, limit=random.randint(1, 9)):
                seen[name] += [one.sequence for one in got]
                await session.acknowledge(name, [one.sequence for one in got])

    async with broker_of(folder) as (broker, session):
        for name, (text, language) in asked.items():
            await subscribe(session, text, name, language=language)
        await publish_all(session, published[:cut], random)
        await settled(broker)
        if random.random() < 0.5:
            await take_all(session)
    async with broker_of(folder) as (broker, session):
        await publish_all(session, published[cut:], random)
        await settled(broker)
        await take_all(session)
        for name, one in asked.items():
            expected = expected_of(one, published)
            assert seen[name] == expected, (one, [published[n - 1] for n in expected])
            past = await session.history(one.text, language=one.language)
            assert [event.sequence for event in past.events] == expected, one


def expected_of(asked: Asked, published: list[str | dict[str, Any]]) -> list[int]:
    return [n for n, one in enumerate(published, start=1) if asked.is_satisfied(one)]


async def publish_all(session: Session, events: list[str | dict[str, Any]], random: Random) -> None:
    """Publish events in order, some of them together."""
    left = [*events]
    while left:
        together = [left.pop(0)]
        is_xml = isinstance(together[0], str)
        while left and isinstance(left[0], str) is is_xml and random.random() < 0.7:
            together.append(left.pop(0))
        texts = [json.dumps(one).encode() for one in together]
        await session.publish(texts, format="xml" if is_xml else "json")


@pytest.mark.parametrize("seed", seeds(300, by_default=3))
def test_delivered_is_what_the_oracle_says(seed: int, tmp_path: Path) -> None:
    asyncio.run(deliver_at_random(tmp_path, Random(seed)))


def test_a_check_that_is_left_out_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_checks, "has_passed", lambda *_: True)
    with pytest.raises(AssertionError):
        asyncio.run(deliver_often(tmp_path))


async def deliver_often(folder: Path) -> None:
    for seed in range(10):
        await deliver_at_random(folder / str(seed), Random(seed))
