"""Many subscriptions in one call: each is created, resumed or refused by itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tamis.errors import DisconnectedError, OptionError
from tamis.filters import FilterLimits
from tamis.languages import parse
from tamis.protocol.management import NewSubscription
from waiting import let_others_run

from .buses import Connect, events_of, on_every_bus, topic

COUNT = 1_200
"""More than one request takes."""


@on_every_bus
async def test_each_of_many_subscriptions_has_a_result_of_its_own(connect: Connect) -> None:
    name = topic()
    wanted = f"topic = '{name}'"
    async with connect() as bus:
        new = [
            NewSubscription(id=f"{name}-1", filter=f"{wanted} and n = 1"),
            NewSubscription(id=f"{name}-2", filter=f"{wanted} and"),
            NewSubscription(id=f"{name}-1", filter=f"{wanted} and n = 2"),
            NewSubscription(filter=f"{wanted} and n = 3"),
        ]
        first, bad, other, unnamed = await bus.create_subscriptions(new)
        assert (first.id, first.resumed, first.code) == (f"{name}-1", False, None)
        assert (bad.id, bad.code) == (f"{name}-2", "bad_filter")
        assert "and" in str(bad.message)
        assert (other.id, other.code) == (f"{name}-1", "conflict")
        assert unnamed.code is None
        [again] = await bus.create_subscriptions(new[:1])
        assert (again.resumed, again.code) == (True, None)
        await bus.publish_many([{"topic": name, "n": n} for n in (1, 2, 3)])
        consumer = await bus.subscribe(f"{wanted} and n = 1", durable=f"{name}-1")
        assert [event["n"] for event in await events_of(consumer, 1)] == [1]
        for one in (first, unnamed):
            await bus.delete(one.id)


@on_every_bus
async def test_very_many_take_several_requests_and_one_that_comes_again_is_resumed(
    connect: Connect,
) -> None:
    name = topic()
    async with connect() as bus:
        new = [NewSubscription(id=f"{name}-{n}", filter=f"{name} = {n}") for n in range(COUNT)]
        new.extend(new[:30])
        results = await bus.create_subscriptions(new)
        assert [one.id for one in results] == [one.id for one in new]
        assert {one.code for one in results} == {None}
        assert [one.resumed for one in results] == [False] * COUNT + [True] * 30
        assert len([one for one in await bus.subscriptions() if one.id.startswith(name)]) == COUNT
        assert await bus.create_subscriptions([]) == []


@on_every_bus
async def test_a_request_that_fails_ends_the_others(connect: Connect) -> None:
    asked, ended = list[int](), list[int]()

    async def fail_first(_: object) -> Any:
        asked.append(len(asked))
        if len(asked) == 1:
            await let_others_run(3)
            raise DisconnectedError("the broker is gone")
        try:
            await asyncio.Future[None]()
        finally:
            ended.append(len(asked) - 1)

    new = [NewSubscription(filter=f"a = {n}") for n in range(3_500)]
    async with connect() as bus:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(bus, "call", fail_first)
            with pytest.raises(DisconnectedError, match="is gone"):
                await bus.create_subscriptions(new)
    assert (asked, ended) == ([0, 1], [1])


WRONG_ROWS: list[tuple[Any, str]] = [
    ({"start": "yesterday"}, ".start is 'yesterday'; it must be 'latest', 'earliest', a sequence"),
    ({"start": -1}, ".start is -1; it must be 'latest'"),
    (
        {"id": "a/b"},
        ".id is 'a/b'; it must be a text of 1 to 200 printable characters and no slash",
    ),
    ({"id": ""}, ".id is ''; it must be a text of 1 to 200"),
    ({"id": 7}, ".id is 7; it must be a text of 1 to 200"),
    ({"lifetime": "soon"}, ".lifetime is 'soon'; it must be a duration"),
    ({"lifetime": -1}, ".lifetime is -1; it must be more than 0 s"),
    ({"language": "sql"}, ".language is 'sql'; it must be"),
    ({"mode": "sq"}, ".mode is 'sq'; it must be"),
    ({"filter": 5}, ".filter is 5; it must be a text or a Filter"),
    ({"filter": "a" * (FilterLimits().text + 1)}, ".filter must be a text of at most"),
    ({"filter": "\ud800"}, ".filter has a lone surrogate (U+D800, character 1)"),
    ({"max_attempts": -1}, ".max_attempts is -1; it must be a whole number from 0 to"),
]


@on_every_bus
async def test_one_wrong_row_is_located_in_the_list_and_nothing_is_stored(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        for wrong, sentence in WRONG_ROWS:
            new = [NewSubscription(id=f"{name}-{n}", filter="a = 1") for n in range(COUNT)]
            fields = {"filter": "a = 1", **wrong}
            new[COUNT - 50] = NewSubscription(**fields)
            with pytest.raises(OptionError) as caught:
                await bus.create_subscriptions(iter(new))
            assert str(caught.value).startswith(f"subscriptions[{COUNT - 50}]{sentence}")
        assert not [one for one in await bus.subscriptions() if one.id.startswith(name)]


@on_every_bus
async def test_what_is_no_list_of_subscriptions_is_named_in_a_sentence(connect: Connect) -> None:
    one: Any = NewSubscription(id="x", filter="a = 1")
    wrong: list[tuple[Any, str]] = [
        (one, "subscriptions is NewSubscription("),
        ({"filter": "a = 1"}, "subscriptions is {'filter': 'a = 1'}; it must be a list of"),
        (5, "subscriptions is 5; it must be a list of NewSubscription or of mappings"),
        (["a = 1"], "subscriptions[0] is 'a = 1'; it must be a NewSubscription or a mapping"),
        ([{"id": "x"}], 'subscriptions[0] lacks the field "filter"'),
        (
            [{"filter": "a = 1", "lifetme": 5}],
            "subscriptions[0] is not valid: 'lifetme' is not a field of NewSubscription; did you",
        ),
    ]
    async with connect() as bus:
        for given, sentence in wrong:
            with pytest.raises(OptionError) as caught:
                await bus.create_subscriptions(given)
            assert str(caught.value).startswith(sentence)
        with pytest.raises(OptionError, match="; put it in a list"):
            await bus.create_subscriptions(one)


def test_a_wrong_field_of_a_new_subscription_gets_a_hint() -> None:
    with pytest.raises(TypeError, match='not a field of NewSubscription; did you mean "lifetime"'):
        NewSubscription(filter="a = 1", lifetme=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not a field of NewSubscription; they are filter, id, "):
        NewSubscription(filter="a = 1", xyz=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="filter"):
        NewSubscription()  # type: ignore[call-arg]


@on_every_bus
async def test_rows_take_what_subscribe_takes(connect: Connect) -> None:
    name = topic()
    async with connect() as bus:
        await bus.publish({"topic": name})
        given: list[NewSubscription | dict[str, Any]] = [
            NewSubscription(id=f"{name} 1", filter=f"topic = '{name}'", lifetime="1h", start="1h"),
            {"id": f"{name}-ü", "filter": parse("a = 1"), "lifetime": timedelta(days=1)},
        ]
        results = await bus.create_subscriptions(given)
        assert [(one.id, one.code) for one in results] == [
            (f"{name} 1", None),
            (f"{name}-ü", None),
        ]
        for lifetime, one in zip((3_600, 86_400), results, strict=True):
            view = await bus.subscription(one.id)
            assert view.expires_at is not None
            assert view.expires_at - view.created_at == pytest.approx(lifetime)
        consumer = await bus.subscribe(f"topic = '{name}'", durable=f"{name} 1")
        assert [event["topic"] for event in await events_of(consumer, 1)] == [name]
