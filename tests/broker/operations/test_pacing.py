"""While the broker is late or busy and others are active, a principal gets only its share."""

from __future__ import annotations

import asyncio
import time

import pytest

from broker.authorization_fixture import run_async
from tamis.broker.operations.activity import RATE_SECONDS
from tamis.broker.operations.pacing import (
    AGAIN_SECONDS,
    BURST_SECONDS,
    BUSY_SHARE,
    FAIR_FACTOR,
    LATE_SECONDS,
    LONG_SECONDS,
    LOOK_SECONDS,
    MAX_KNOWN,
    MAX_WAIT_SECONDS,
    PACED_SECONDS,
    PACED_SHARE,
    REFUSED_SECONDS,
    SECONDS_PER_BYTE,
    SHORT_SECONDS,
    STRANGER_BURST_SECONDS,
    STRANGER_SECONDS,
    STRANGER_SHARE,
    PrincipalPacing,
    Strangers,
    _PacedTime,
)
from tamis.errors import RefusedError
from waiting import eventually_async, let_others_run

REQUEST_SECONDS = 0.0004


def be_active(pacing: PrincipalPacing, *principals: str) -> None:
    """Let principals ask for so much that they are active for some seconds."""
    for _ in range(200):
        for principal in principals:
            pacing.note(principal)


async def work_for(seconds: float) -> None:
    """Keep the event loop busy, as when it handles requests."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def make_late(pacing: PrincipalPacing, principal: str = "ann") -> None:
    """Keep the event loop busy for so long that the pacing notices, while two others are active."""
    be_active(pacing, "bob", "cid")
    for _ in range(2):
        pacing.charge(principal, 5 * LOOK_SECONDS)
        await work_for(5 * LOOK_SECONDS)
        await asyncio.sleep(3 * LOOK_SECONDS)  # until the look that was late


async def ask(pacing: PrincipalPacing, principal: str, *, size: int = 0) -> float:
    """Make a request; return how long it waited for its turn."""
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    begun = time.monotonic()
    await pacing.wait_for_turn(principal, closed, size=size, changes=False)
    return time.monotonic() - begun


async def work() -> None:
    await let_others_run()
    until = time.thread_time() + REQUEST_SECONDS
    while time.thread_time() < until:
        pass


async def requests_in(pacing: PrincipalPacing, principal: str, seconds: float) -> int:
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await ask(pacing, principal)
        await pacing.metered(principal, work())
        count += 1
    return count


@pytest.mark.timing
@run_async
async def test_a_principal_gets_its_share_of_a_late_loop_while_another_is_active() -> None:
    pacing, seconds = PrincipalPacing(time.monotonic), 1.0
    await make_late(pacing)
    floods = [asyncio.create_task(requests_in(pacing, "ann", seconds)) for _ in range(10)]
    waits = []
    for _ in range(20):
        await asyncio.sleep(0.02)  # now and then
        waits.append(await ask(pacing, "bob"))
    most = (BURST_SECONDS + (seconds + 0.5) * PACED_SHARE) / REQUEST_SECONDS + len(floods)
    assert sum(await asyncio.gather(*floods)) <= most
    assert max(waits) < 0.1


@pytest.mark.timing
@run_async
async def test_a_principal_that_is_alone_does_not_wait() -> None:
    pacing = PrincipalPacing(time.monotonic)
    be_active(pacing, "ann")
    await work_for(5 * LOOK_SECONDS)  # The loop is late, but for nobody else.
    await asyncio.sleep(3 * LOOK_SECONDS)  # until the look that was late
    assert max([await ask(pacing, "ann", size=10_000_000) for _ in range(50)]) < 0.1


@pytest.mark.timing
@run_async
async def test_a_principal_does_not_wait_while_the_loop_is_on_time() -> None:
    pacing = PrincipalPacing(time.monotonic)
    await ask(pacing, "bob")
    assert sum([await ask(pacing, "ann") for _ in range(500)]) < 0.5


@pytest.mark.timing
@run_async
async def test_who_asks_seldom_does_not_wait() -> None:
    pacing = PrincipalPacing(time.monotonic)
    await make_late(pacing)
    assert await ask(pacing, "ann") < 0.1


@pytest.mark.timing
@run_async
async def test_a_large_body_is_paid_for_before_it_is_read() -> None:
    pacing = PrincipalPacing(time.monotonic)
    await make_late(pacing)
    await ask(pacing, "ann", size=10_000_000)
    assert await ask(pacing, "ann") > 0.1
    assert await ask(pacing, "bob") < 0.1


@pytest.mark.timing
@run_async
async def test_more_than_a_principal_could_ever_pay_for_is_refused() -> None:
    pacing = PrincipalPacing(time.monotonic)
    await make_late(pacing)
    await ask(pacing, "ann", size=round(2 * MAX_WAIT_SECONDS * PACED_SHARE / SECONDS_PER_BYTE))
    with pytest.raises(RefusedError, match="more than its share while others are served") as found:
        await ask(pacing, "ann")
    assert found.value.retry_after == MAX_WAIT_SECONDS


@run_async
async def test_the_clock_of_the_loop_does_not_decide_how_late_it_is() -> None:
    """That of uvloop counts milliseconds, and stands still while a turn of the loop lasts."""
    pacing = PrincipalPacing(lambda: 1.5 * time.monotonic(), thread_time=time.monotonic)
    be_active(pacing, "bob", "cid")

    def is_paced() -> bool:
        pacing.charge("bob", LOOK_SECONDS)
        return pacing.is_paced("bob")

    await eventually_async(is_paced)


@pytest.mark.timing
@run_async
async def test_nobody_looks_how_late_the_loop_is_when_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tamis.broker.operations.pacing.IDLE_SECONDS", 2 * LOOK_SECONDS)
    pacing = PrincipalPacing(time.monotonic)
    await ask(pacing, "ann")
    assert pacing._next_look is not None
    await asyncio.sleep(10 * LOOK_SECONDS)  # longer than anybody is active
    assert pacing._next_look is None


@run_async
async def test_metered_work_returns_raises_and_is_cancelled_like_the_work_itself() -> None:
    pacing = PrincipalPacing(time.monotonic)

    async def fail() -> None:
        await let_others_run()
        raise ValueError("so")

    async def answer() -> int:
        await let_others_run()
        return 7

    assert await pacing.metered("ann", answer()) == 7
    with pytest.raises(ValueError, match="so"):
        await pacing.metered("ann", fail())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pacing.metered("ann", asyncio.Event().wait())


@pytest.mark.timing
@run_async
async def test_frames_of_a_websocket_wait_for_their_turn() -> None:
    pacing = PrincipalPacing(time.monotonic)
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    await make_late(pacing)
    begun = time.monotonic()
    for _ in range(1_000):
        await pacing.wait_for_frame("ann", closed, 100)
    assert time.monotonic() - begun > 0.1
    begun = time.monotonic()
    await pacing.wait_for_frame("bob", closed, 100)
    assert time.monotonic() - begun < 0.1


@run_async
async def test_whoever_is_alone_does_not_pause_unless_alone() -> None:
    pacing = PrincipalPacing(time.monotonic)
    be_active(pacing, "ann")
    assert pacing.pause_unless_alone("ann", 1.0) == 0
    assert pacing.pause_after("ann", 1.0) == 1
    be_active(pacing, "bob")
    assert pacing.pause_unless_alone("ann", 1.0) == 1
    await make_late(pacing)
    pacing.charge("ann", 0.1)
    owed = (0.1 - BURST_SECONDS) / PACED_SHARE
    assert pacing.pause_unless_alone("ann", 0.5) == pytest.approx(owed, rel=0.1)
    # One budget for all of its work: here it pauses for what it did elsewhere.
    assert pacing.pause_after("ann", 0.5) == pytest.approx(owed, rel=0.1)


def pace(pacing: PrincipalPacing, now: float, *principals: str) -> None:
    """Pace principals with the least share, for longer than a test takes."""
    for principal in principals:
        pacing._paced[principal] = _PacedTime(1e9, now + 1e9)
    pacing.paced_until = 1e9


class Machine:
    """A clock that stands still, and a processor that is used as much as a test says."""

    def __init__(self) -> None:
        self.now = self.used = 0.0
        self.pacing = PrincipalPacing(
            lambda: self.now, thread_time=lambda: self.used, process_time=lambda: self.used
        )
        be_active(self.pacing, "bob", "ann")

    def look(self, seconds: float, share: float) -> None:
        """Let time pass in which a part of the processor is used; then the loop looks, in time."""
        self.now += seconds
        self.used += seconds * share
        self.pacing._look(self.now)

    def pause(self, principal: str) -> float:
        return self.pacing.pause_after(principal, 0.0)


@run_async
async def test_the_price_of_a_piece_of_work_grows_with_the_square_of_its_length() -> None:
    long, short = Machine(), Machine()
    for machine in (long, short):
        pace(machine.pacing, 0.0, "ann", "bob")
    long.pacing.charge_piece("ann", 20 * SHORT_SECONDS)
    for _ in range(400):
        short.pacing.charge_piece("ann", SHORT_SECONDS)
    assert long.pause("ann") == pytest.approx(short.pause("ann"))
    assert long.pause("ann") > 0.1
    assert long.pause("bob") == 0


@run_async
async def test_one_long_piece_of_work_paces_whoever_is_not_alone_and_counts() -> None:
    machine = Machine()
    machine.pacing.charge_piece("ann", LONG_SECONDS)
    assert not machine.pacing.is_paced("ann")
    machine.pacing.charge_piece("ann", 3 * LATE_SECONDS)
    assert machine.pacing.is_paced("ann")
    assert machine.pause("ann") > 0.1
    machine = Machine()
    machine.now += 10 * RATE_SECONDS
    be_active(machine.pacing, "ann")
    machine.pacing.charge_piece("ann", 1.5 * LATE_SECONDS)
    assert not machine.pacing.is_paced("ann")


@run_async
async def test_a_busy_broker_paces_although_its_loop_is_never_late() -> None:
    machine = Machine()

    def work(share: float) -> None:
        machine.pacing.charge("ann", share * LOOK_SECONDS)
        machine.look(LOOK_SECONDS, share)

    for _ in range(20):
        work(0.5 * BUSY_SHARE)
    work(1.5)  # a moment
    assert not machine.pacing.is_paced("ann")
    for _ in range(20):
        work(1.1 * BUSY_SHARE)
    assert machine.pacing.is_paced("ann")


@run_async
async def test_who_makes_the_broker_late_again_soon_is_paced_twice_as_long() -> None:
    machine, lengths = Machine(), []
    for _ in range(5):
        be_active(machine.pacing, "ann", "bob")
        machine.pacing.charge_piece("ann", 1.5 * LONG_SECONDS)
        # What is on its way when pacing begins does not make it last longer.
        machine.pacing.charge_piece("ann", 1.5 * LONG_SECONDS)
        lengths.append(machine.pacing._paced["ann"].until - machine.now)
        machine.now += lengths[-1] + 0.9 * AGAIN_SECONDS
        be_active(machine.pacing, "ann", "bob")
        assert not machine.pacing.is_paced("ann")
    assert lengths == pytest.approx([20, 40, 80, 160, 160])
    machine.now += AGAIN_SECONDS
    be_active(machine.pacing, "ann", "bob")
    machine.pacing.charge_piece("ann", 1.5 * LONG_SECONDS)
    assert machine.pacing._paced["ann"].seconds == PACED_SECONDS


@run_async
async def test_those_who_were_to_blame_are_forgotten_when_they_are_many() -> None:
    machine = Machine()
    for number in range(2 * MAX_KNOWN):
        machine.pacing.charge_piece(f"cid-{number}", 3 * LATE_SECONDS)
    assert len(machine.pacing._paced) == MAX_KNOWN
    assert len(machine.pacing._free_at) <= MAX_KNOWN


@run_async
async def test_what_a_long_piece_costs_beyond_what_it_took_is_nobody_elses_blame() -> None:
    machine = Machine()
    be_active(machine.pacing, "cid")
    for _ in range(20):
        machine.pacing.charge("ann", 0.5 * LOOK_SECONDS)
        # By its price it would be the heaviest.
        machine.pacing.charge_piece("bob", 0.9 * LONG_SECONDS)
        machine.look(LOOK_SECONDS, share=1.1 * BUSY_SHARE)
    assert machine.pacing.is_paced("ann")
    assert not machine.pacing.is_paced("bob")


@run_async
async def test_who_was_not_the_cause_is_not_paced() -> None:
    machine = Machine()
    be_active(machine.pacing, "cid")
    for _ in range(20):
        machine.pacing.charge("ann", 0.5 * LOOK_SECONDS)
        machine.pacing.charge("bob", 0.2 * LOOK_SECONDS)
        machine.look(LOOK_SECONDS, share=1.2 * BUSY_SHARE)
    assert machine.pacing.is_paced("ann")
    assert not machine.pacing.is_paced("bob")
    assert machine.pause("bob") == machine.pause("cid") == 0


@run_async
async def test_nobody_is_paced_for_work_that_was_for_nobody() -> None:
    machine = Machine()
    for _ in range(20):
        machine.pacing.charge("ann", 0.1 * LOOK_SECONDS)
        machine.look(LOOK_SECONDS, share=1.5)
    assert not machine.pacing.is_paced("ann")


@run_async
async def test_frames_that_are_not_noted_one_by_one_count() -> None:
    machine = Machine()
    for _ in range(20):
        machine.pacing.note("ann")
        # Those of a connection that is alone in sending for a moment.
        machine.pacing.unnoted_seconds += 0.7 * LOOK_SECONDS
        machine.pacing.note("bob")
        machine.look(LOOK_SECONDS, share=1.1 * BUSY_SHARE)
    assert machine.pacing.is_paced("ann")
    assert not machine.pacing.is_paced("bob")


@run_async
async def test_two_that_do_alike_do_not_make_each_other_do_less_and_less() -> None:
    machine = Machine()
    done = {"ann": 0, "bob": 0}
    while machine.now < 60.0:
        for principal in done:
            if machine.pause(principal) == 0:
                machine.pacing.note(principal)
                machine.pacing.charge(principal, 0.4 * LOOK_SECONDS)
                done[principal] += 1
        machine.look(LOOK_SECONDS, share=1.1 * BUSY_SHARE)
    assert machine.pacing.paced_until > machine.now
    assert min(done.values()) > 0.9 * machine.now / LOOK_SECONDS


@run_async
async def test_who_stays_within_its_share_waits_at_no_time() -> None:
    machine = Machine()
    pace(machine.pacing, 0.0, "ann")
    for _ in range(20):
        be_active(machine.pacing, "ann", "bob")
        assert machine.pause("ann") == 0
        # As much at once as may be, and then nothing until that is paid for.
        machine.pacing.charge("ann", 0.9 * BURST_SECONDS)
        machine.now += BURST_SECONDS / PACED_SHARE


@run_async
async def test_within_a_request_that_has_had_its_turn_nobody_pauses_for_its_debts() -> None:
    machine = Machine()
    pace(machine.pacing, 0.0, "ann")
    machine.pacing.charge("ann", 10 * BURST_SECONDS)
    assert machine.pause("ann") > 1
    assert machine.pacing.pause_in_turn("ann", 0.0005) == 0.0005
    machine.now += 10 * RATE_SECONDS
    assert machine.pacing.pause_in_turn("ann", 0.0005) == 0


@run_async
async def test_whoever_gets_a_large_share_saves_up_no_more_work_for_one_moment() -> None:
    machine = Machine()
    pace(machine.pacing, 0.0, "ann", "bob", "cid")
    for _ in range(2_000):
        machine.pacing.note("ann")
        machine.pacing.note("bob")
        machine.pacing.charge("bob", 0.004)
        machine.now += 0.01
    # Bob uses 0.4 of a processor, and Ann may use more.
    machine.pacing.charge("ann", 3 * BURST_SECONDS)
    assert machine.pause("ann") == pytest.approx(2 * BURST_SECONDS / (FAIR_FACTOR * 0.4), rel=0.1)


@run_async
async def test_a_broker_that_is_busy_for_one_principal_paces_nobody() -> None:
    machine = Machine()
    machine.now += 10 * RATE_SECONDS
    be_active(machine.pacing, "ann")
    for _ in range(20):
        machine.look(LOOK_SECONDS, share=2.0)
    assert machine.pacing.paced_until < machine.now


@pytest.mark.timing
@run_async
async def test_work_while_nobody_is_paced_is_not_paid_for_later() -> None:
    pacing = PrincipalPacing(time.monotonic)
    for _ in range(100):
        await ask(pacing, "ann", size=100_000_000)
    await make_late(pacing)
    assert await ask(pacing, "ann") < 0.1


@pytest.mark.timing
@run_async
async def test_a_wait_ends_with_the_pacing() -> None:
    pacing = PrincipalPacing(time.monotonic)
    await make_late(pacing)
    await ask(pacing, "ann", size=round(5 * PACED_SHARE / SECONDS_PER_BYTE))
    waiting = asyncio.create_task(ask(pacing, "ann"))
    await asyncio.sleep(0.1)  # so that it waits
    assert not waiting.done()
    pacing._paced.clear()
    assert await waiting < 3


async def answers_in(pacing: PrincipalPacing, seconds: float) -> int:
    until, count = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await pacing.wait_as_stranger()
        await let_others_run()
        count += 1
    return count


@pytest.mark.timing
@run_async
async def test_strangers_are_answered_slowly_also_while_nobody_else_is_active() -> None:
    pacing, seconds = PrincipalPacing(time.monotonic), 1.0
    floods = [asyncio.create_task(answers_in(pacing, seconds)) for _ in range(20)]
    waits = []
    for _ in range(20):
        await asyncio.sleep(0.02)  # now and then
        waits.append(await ask(pacing, "bob"))
    spent = STRANGER_BURST_SECONDS + (seconds + 0.5) * STRANGER_SHARE
    assert sum(await asyncio.gather(*floods)) <= spent / STRANGER_SECONDS + len(floods)
    assert max(waits) < 0.1


@run_async
async def test_probes_do_not_wait_for_other_strangers() -> None:
    pacing = PrincipalPacing(time.monotonic)
    others = [asyncio.create_task(pacing.wait_as_stranger()) for _ in range(1_000)]
    await let_others_run()
    begun = time.monotonic()
    await pacing.wait_as_stranger(Strangers.PROBES)
    assert time.monotonic() - begun < 0.5
    for task in others:
        task.cancel()


@pytest.mark.timing
@run_async
async def test_a_loop_that_is_late_once_paces_nobody() -> None:
    pacing = PrincipalPacing(time.monotonic)
    be_active(pacing, "ann", "bob")
    await work_for(5 * LOOK_SECONDS)
    await asyncio.sleep(3 * LOOK_SECONDS)  # until the look that was late
    assert not pacing.is_paced("ann")


@run_async
async def test_some_strangers_are_answered_at_once() -> None:
    pacing = PrincipalPacing(time.monotonic)
    begun = time.monotonic()
    for _ in range(50):
        await pacing.wait_as_stranger()
    assert time.monotonic() - begun < 1.0


@pytest.mark.timing
@run_async
async def test_strangers_and_those_who_ask_seldom_hold_up_nobody() -> None:
    pacing = PrincipalPacing(time.monotonic)
    be_active(pacing, "ann")
    pacing.note("carl")
    for _ in range(20):
        await pacing.wait_as_stranger()
    await work_for(5 * LOOK_SECONDS)
    await asyncio.sleep(3 * LOOK_SECONDS)  # until the look that was late
    assert max([await ask(pacing, "ann", size=10_000_000) for _ in range(50)]) < 0.1


@pytest.mark.timing
@run_async
async def test_what_others_take_of_the_machine_paces_nobody() -> None:
    pacing = PrincipalPacing(time.monotonic)
    be_active(pacing, "ann", "bob")
    time.sleep(5 * LOOK_SECONDS)  # The processor does something else.
    await asyncio.sleep(3 * LOOK_SECONDS)  # until the look that was late
    assert not pacing.is_paced("ann")


@run_async
async def test_principals_that_use_alike_do_not_wait_for_each_other() -> None:
    machine = Machine()
    pace(machine.pacing, 0.0, "ann", "bob", "cid")
    for _ in range(2_000):
        for principal in ("ann", "bob"):
            machine.pacing.note(principal)
            machine.pacing.charge(principal, 0.001)
        machine.now += 0.01
    assert machine.pause("ann") == machine.pause("bob") == 0


@run_async
async def test_who_uses_much_more_than_others_waits() -> None:
    machine = Machine()
    pace(machine.pacing, 0.0, "ann", "bob", "cid")
    for _ in range(2_000):
        for principal, seconds in (("ann", 0.001), ("bob", 0.0002), ("cid", 0.001)):
            machine.pacing.note(principal)
            machine.pacing.charge(principal, seconds)
        machine.now += 0.01
    assert machine.pause("bob") == 0
    assert machine.pause("ann") > 1
    # Two that help each other get no more.
    assert machine.pause("cid") > 1


@run_async
async def test_who_asks_too_much_is_told_later_while_others_are_active() -> None:
    pacing = PrincipalPacing(time.monotonic)
    closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    be_active(pacing, "ann")
    begun = time.monotonic()
    await pacing.wait_to_refuse("ann", closed)
    assert time.monotonic() - begun < REFUSED_SECONDS / 2
    be_active(pacing, "bob")
    waiting = asyncio.create_task(pacing.wait_to_refuse("ann", closed))
    await asyncio.sleep(REFUSED_SECONDS / 10)  # for less long than it waits
    assert not waiting.done()
    closed.set_result("revoked")
    await waiting
