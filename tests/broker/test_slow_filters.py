"""A filter that could stall matching is refused when somebody subscribes with it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from broker.authorization_fixture import broker_fixture, run_async, subscribe
from tamis.broker import Broker, BrokerSettings
from tamis.errors import RefusedError
from tamis.filters.atoms import Regex
from tamis.protocol.management import ExplainFilter

ALL = "[roles.reader]\nsee = true\n"


@pytest.mark.parametrize(
    "filter_",
    [
        "t matches 'a.{80}b'",
        "t matches 'a.{30}b' or u matches 'c.{30}d'",
        f"t like '%{'a_' * 70}b%'",
    ],
)
@run_async
async def test_a_filter_that_could_take_long_is_refused(tmp_path: Path, filter_: str) -> None:
    async with broker_fixture(tmp_path, ALL) as fixture:
        ann = await fixture.login("ann", "reader")
        with pytest.raises(RefusedError, match="exceeds the limit of"):
            await subscribe(ann, filter_, "slow")
        await subscribe(ann, "t matches '^[a-z0-9._]+@[a-z0-9.-]+$'", "usual")
        await subscribe(ann, f"t like '{'%x' * 7000}'", "long")


@pytest.mark.timing
@run_async
async def test_an_explanation_that_would_take_minutes_is_cut_off(tmp_path: Path) -> None:
    names = range(200)
    filter_ = " and ".join(f"a{n} + b{n} > {n}" for n in names)
    event = {f"{letter}{n}": [*range(11)] for letter in "ab" for n in names}
    async with await Broker.open(BrokerSettings(data=tmp_path / "data")) as broker:
        session = await broker.authenticate(None)
        started = time.monotonic()
        call = ExplainFilter(filter_=filter_, event=msgspec.Raw(json.dumps(event).encode()))
        found = await session.perform(call)
        assert time.monotonic() - started < 20
    assert found.matched is False
    assert found.explanation.endswith("took too long and was cut off.")


@run_async
async def test_an_explanation_is_given_in_pieces_and_tests_each_atom_once(tmp_path: Path) -> None:
    filter_ = " and ".join(f"t matches 'a.*{n}'" for n in range(9))
    tested, accepts = list[str](), Regex.accepts

    def count(atom: Regex, text: str) -> bool:
        tested.append(atom.pattern)
        return accepts(atom, text)

    async with await Broker.open(BrokerSettings(data=tmp_path / "data")) as broker:
        session = await broker.authenticate(None)
        # There is no time to look for a change.
        session._lateness = lambda: lambda: True  # type: ignore[method-assign]
        event = msgspec.Raw(json.dumps({"t": "a 5 7"}).encode())
        with patch.object(Regex, "accepts", count):
            pieces = session._explain(None, filter_, "tamis", None, event)
            counts = [len(tested) for _ in pieces]
            found = await session.explain(filter_=filter_, event=event)
    assert len(tested) == 18
    assert max(after - before for before, after in pairwise(counts)) == 1
    assert found.matched is False
    assert found.explanation.endswith("took too long and was cut off.")


def test_the_process_ends_although_a_thread_computes() -> None:
    program = """
import asyncio, time
from tamis.broker.frontend.server import end_without_threads
from tamis.ports import ThreadExecutor

async def main():
    executor = ThreadExecutor("client")
    working = asyncio.create_task(executor.run(time.sleep, 300))
    await asyncio.sleep(0.1)  # time to begin
    working.cancel()
    executor.close()

asyncio.run(main())
end_without_threads(0.1)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)  # noqa: S603
    assert ended.returncode == 0
