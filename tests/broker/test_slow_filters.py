"""A filter that could stall matching is refused when somebody subscribes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.authorization_fixture import broker_fixture, run_async, subscribe
from tamis.errors import RefusedError

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
