"""The calendar of expiries: one entry for each subscription, whatever happens to it."""

from __future__ import annotations

from math import inf
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from broker.authorization_fixture import broker_fixture, run_async, subscribe
from tamis.broker.subscribe.expiries import ExpiryCalendar

NUMBERS = st.integers(1, 5)
TIMES = st.one_of(st.floats(0.0, 30.0), st.just(inf), st.floats(1e8, 1e9))
STEPS = st.one_of(
    st.tuples(st.just("put"), NUMBERS, TIMES),
    st.tuples(st.just("discard"), NUMBERS, st.just(0.0)),
    st.tuples(st.just("take"), st.just(0), st.floats(0.0, 40.0)),
)


@given(st.lists(STEPS, max_size=30))
def test_what_has_expired_is_taken_once_whatever_the_clock_does(
    steps: list[tuple[str, int, float]],
) -> None:
    calendar, wanted = ExpiryCalendar(), dict[int, float]()
    for step, number, time in steps:
        match step:
            case "put":
                calendar.put(number, time)
                wanted[number] = time
            case "discard":
                calendar.discard(number)
                wanted.pop(number, None)
            case _:
                expired = {one for one, at in wanted.items() if at <= time}
                assert sorted(calendar.take_expired(time)) == sorted(expired)
                wanted = {one: at for one, at in wanted.items() if one not in expired}
        wanted = {one: at for one, at in wanted.items() if at != inf}
        assert len(calendar) == len(wanted)


@run_async
async def test_renewals_and_deletions_leave_nothing_behind(tmp_path: Path) -> None:
    async with broker_fixture(tmp_path, "[roles.reader]\nsee = true\n") as fixture:
        ann, manager = await fixture.login("ann", "reader"), fixture.broker.subscription_manager
        await subscribe(ann, "n > 0", "s", lifetime=1e6)
        for lifetime in range(20, 0, -1):
            await ann.renew("s", lifetime * 1e6)
        assert len(manager._expiries) == 1
        await ann.renew("s", None)
        assert len(manager._expiries) == 0
        await ann.renew("s", 100.0)
        await ann.delete("s")
        assert len(manager._expiries) == 0
