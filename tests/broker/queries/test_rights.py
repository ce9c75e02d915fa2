"""Queries under a policy: who may ask, who may answer, and what is seen of rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

import tamis
from broker.authorization_fixture import run_async
from broker.server import make_token
from tamis.access import Principal
from tamis.broker.local import LocalBus
from tamis.broker.operations.settings import BrokerSettings
from tamis.broker.queries.link_queries import LinkQueries
from tamis.broker.queries.row_checks import RowChecker
from tamis.client import SourceRequest
from tamis.filters import Filter, attr
from tamis.filters.structure import to_structure
from tamis.languages import parse
from tamis.protocol import Code
from tamis.protocol.management import IssueToken
from tamis.routing.queries import ABOUT_HIDDEN
from tamis.routing.query_messages import DataHeld, QueryAsked
from waiting import eventually_async

POLICY = """
[roles.boss]
see = true
serve = true
publish = true
admin = true

[roles.reader]
see = { filter = "level < 3", hide = ["secret"] }

[roles.writer]
publish = true

[roles.shelf]
serve = { filter = "level < 5", forbid = ["password"] }
"""
ROWS: list[dict[str, Any]] = [
    {"level": 1, "price": 10, "secret": "a"},
    {"level": 2, "price": 20, "secret": "a"},
    {"level": 4, "price": 40, "secret": "b"},
]


class QueryFixture:
    """A broker with a policy, and clients of it by role."""

    def __init__(self, folder: Path) -> None:
        self.policy = folder / "policy.toml"
        self.policy.write_text(POLICY)
        self._settings = BrokerSettings(data=folder / "data", policy=self.policy)
        self.bus: LocalBus
        self._folder = folder

    async def __aenter__(self) -> Self:
        token = await asyncio.to_thread(make_token, self._folder, self.policy, "root", "boss")
        self.bus = tamis.open_bus(settings=self._settings, token=token)
        await self.bus.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.bus.close()

    async def client(self, name: str, role: str) -> tamis.Bus:
        issued = await self.bus.call(IssueToken(principal=name, roles=[role]))
        return self.bus.connect(token=issued.text)


def everything(_: SourceRequest) -> list[dict[str, Any]]:
    return ROWS


@run_async
async def test_of_rows_one_sees_what_ones_roles_show(tmp_path: Path) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        await fixture.client("ann", "reader") as ann,
        fixture.bus.serve("level > 0", everything),
    ):
        assert await fixture.bus.query("price > 0").all() == ROWS
        seen = await ann.query("price > 0").all()
        assert seen == [{"level": 1, "price": 10}, {"level": 2, "price": 20}]
        # What is not seen does not count, either.
        assert await ann.query("price > 0", aggregate="count").value() == 2
        assert await ann.query("price > 0", aggregate="sum price").value() == 30
        assert await ann.query("price > 0", aggregate="max price").value() == 20
        assert await ann.query("price > 0", limit=2).all() == seen
        for wanted, options in (
            ("secret = 'a'", {}),
            ("price > 0", {"aggregate": "min secret"}),
            ("any contains 'a'", {}),
        ):
            with pytest.raises(tamis.RefusedError) as refused:
                await ann.query(wanted, **options).all()  # type: ignore[arg-type]
            assert refused.value.code == Code.FORBIDDEN


@run_async
async def test_nobody_is_told_of_a_hidden_attribute_by_a_guess(tmp_path: Path) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        await fixture.client("ann", "reader") as ann,
        fixture.bus.serve("level > 0 and secret is present", everything),
    ):
        for bus, hint in ((fixture.bus, 'did you mean "secret"?'), (ann, "")):
            result = bus.query("secre = 'a'")
            assert await result.all() == []
            assert result.hint.endswith(hint)
            assert bool(result.hint) is bool(hint)


@pytest.mark.parametrize(
    ("wanted", "seen", "is_answered"),
    [
        (attr("price") > 5, [{"level": 1, "price": 10}, {"level": 2, "price": 20}], True),
        # Rows that match tell what is hidden, also if it is not shown. So does who is asked.
        (attr("secret") == "a", [], False),
        (attr("secret") == "c", [], False),
        (parse("any contains 'a'"), [], False),
    ],
)
@run_async
async def test_a_peer_cannot_ask_about_what_its_roles_hide(
    tmp_path: Path, wanted: Filter, seen: list[dict[str, Any]], *, is_answered: bool
) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        fixture.bus.serve("level > 0 and secret in ('a', 'b')", everything),
    ):
        broker = fixture.bus.broker
        sent: list[dict[str, Any]] = []
        peers = LinkQueries(
            broker.queries,
            broker.decoder,
            broker._services.decode_executor,
            RowChecker(broker.decoder, None, 100_000),
            post=lambda _, message: sent.append(json.loads(message)),
            end=lambda _, reason: pytest.fail(reason),
            rights_of=lambda _: broker.access_control.rights(Principal("branch", ("reader",))),
            title_of=str,
        )
        peers.link_opened("branch")
        asked = QueryAsked(query=1, filter=to_structure(wanted), seconds=9, credit=10_000)
        await peers.take("branch", msgspec.json.encode(asked))
        await eventually_async(lambda: any(one["type"] == "querydone" for one in sent))
        rows = [row for one in sent if one["type"] == "queryrows" for row in one["rows"]]
        assert rows == seen
        assert bool(sent[-1].get("answered")) is is_answered
        assert ABOUT_HIDDEN in [*sent[-1].get("missing", {}).values()] or is_answered


@run_async
async def test_a_peer_is_not_told_which_values_of_hidden_attributes_there_are(
    tmp_path: Path,
) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        fixture.bus.serve("level > 0 and secret in ('a', 'b')", everything),
        fixture.bus.serve("other = 1 and not secret = 'c'", everything),
    ):
        broker = fixture.bus.broker
        sent: list[dict[str, Any]] = []
        role = "reader"
        peers = LinkQueries(
            broker.queries,
            broker.decoder,
            broker._services.decode_executor,
            RowChecker(broker.decoder, None, 100_000),
            post=lambda _, message: sent.append(json.loads(message)),
            end=lambda _, reason: pytest.fail(reason),
            rights_of=lambda _: broker.access_control.rights(Principal("branch", (role,))),
            title_of=str,
        )

        async def told() -> list[Any]:
            sent.clear()
            peers.link_opened("branch")
            await peers.take("branch", msgspec.json.encode(DataHeld()))
            return [one["filter"] for one in sent if one["type"] == "dataadvertised"]

        assert await told() == [to_structure(parse(one)) for one in ("level > 0", "other = 1")]
        peers.link_removed("branch")
        role = "boss"
        assert str(await told()).count("secret") == 2


@run_async
async def test_answering_needs_a_right_for_every_row(tmp_path: Path) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        await fixture.client("wil", "writer") as wil,
        await fixture.client("sue", "shelf") as sue,
    ):
        with pytest.raises(tamis.RefusedError, match="do not allow you to answer queries"):
            await wil.serve("true", everything).start()
        with pytest.raises(tamis.RefusedError, match="allow you to see no events"):
            await sue.query("true").all()
        rows = [{"level": 1}, {"level": 4, "n": 2}]
        bad: list[dict[str, Any]] = [{"level": 9}]
        async with sue.serve("level > 0", lambda _: [*rows, *bad]):
            result = fixture.bus.query("level > 0")
            assert await result.all() == rows
            assert result.missing == {"sue": "it has rows that it is not allowed to answer with"}
            bad = [{"level": 1, "password": "x"}]
            assert await fixture.bus.query("level > 0").all() == rows
            bad = []
            result = fixture.bus.query("level > 0")
            assert await result.all() == rows
            assert result.is_complete


@run_async
async def test_a_query_ends_when_the_rights_of_whoever_asks_change(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def slowly(_: SourceRequest) -> AsyncIterator[dict[str, Any]]:
        yield ROWS[0]
        await more.wait()
        yield ROWS[1]

    async with (
        QueryFixture(tmp_path) as fixture,
        await fixture.client("ann", "reader") as ann,
        fixture.bus.serve("level > 0", slowly),
    ):
        result = ann.query("price > 0")
        first = await anext(aiter(result))
        assert first == {"level": 1, "price": 10}
        result = ann.query("price > 0")
        rows = aiter(result)
        assert await anext(rows) == {"level": 1, "price": 10}
        fixture.policy.write_text(POLICY.replace("level < 3", "level < 2"))
        [session] = [s for s in fixture.bus.broker._sessions if s.principal.name == "ann"]
        before = session.rights
        await eventually_async(lambda: session.rights is not before)
        more.set()
        assert [row async for row in rows] == []
        assert result.cut
        assert "your rights have changed" in str(result.missing)


@run_async
async def test_sources_end_with_the_credential(tmp_path: Path) -> None:
    async with (
        QueryFixture(tmp_path) as fixture,
        await fixture.client("sue", "shelf") as sue,
        sue.serve("level > 0", lambda _: [{"level": 1}]),
    ):
        assert await fixture.bus.query("level > 0").all() == [{"level": 1}]
        fixture.policy.write_text('blocked = ["sue"]\n' + POLICY)
        await eventually_async(lambda: fixture.bus.broker.queries.sources == 0)
        assert await fixture.bus.query("level > 0").all() == []
