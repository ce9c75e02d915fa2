"""The broker's benchmark in the small: it runs, and refuses figures of what loses something."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.broker import __main__ as broker
from benchmarks.broker import beside, many, stalled
from benchmarks.broker.fleet import Account
from benchmarks.broker.servers import MissingError, package, program
from benchmarks.broker.workers import worker
from benchmarks.harness import DisagreementError

from benchmarks import harness
from tamis.languages import parse

SMALL = {
    "many": (
        "--subscriptions 30 --events 1000",
        ["30 subscriptions / 1 subscription", "installing"],
    ),
    "restart": (
        "--subscriptions 1200",
        ["with what was compiled before", "all compiled anew", "ms, median"],
    ),
    "beside": (
        "--events 500 --paces 200 --paced-seconds 1",
        ["Tamis, durable", "200 events/s: Tamis", "before they are acknowledged"],
    ),
    "stalled": (
        "--subscribers 40 --rate 40 --stalled-seconds 1",
        ["a tenth stalled", "4 of 40 stalled / none", "memory"],
    ),
    "install": (
        "--subscriptions 1500",
        ["1,000 in a request", "bytes of memory", "100,000 subscriptions"],
    ),
    "noisy": (
        "--noisy-rate 50 --noisy-seconds 1",
        ["8 trials at a time", "dead letters", "their ratio"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", SMALL)
def test_a_part_writes_a_table_and_a_plot(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "REPEATS", 1)
    monkeypatch.setattr(stalled, "FILLING", 100)
    monkeypatch.setattr(stalled, "FLOODS", 1)
    options, expected = SMALL[part]
    broker.main([f"--{part}", *options.split(), "--out", str(tmp_path)])
    table = next(tmp_path.glob(f"broker-{part}*.md")).read_text(encoding="utf-8")
    assert all(words in table for words in expected)
    assert "nan" not in table
    assert next(tmp_path.glob(f"broker-{part}*.svg")).stat().st_size > 1000


def test_the_planted_filter_matches_every_event_and_no_other_does() -> None:
    planted = parse(many.text(many.PLANTED))
    others = [parse(text) for text in many.others(300)]
    for event in many.events(20):
        assert planted.matches(event)
        assert not any(other.matches(event) for other in others)


def test_events_share_values_with_other_filters_as_in_the_workload() -> None:
    found = [text.split(" and ") for text in many.others(100_000)]
    shares = [sum(f"f{place} = 0" in terms for terms in found) for place in range(3)]
    assert 50 < shares[0] < 150
    assert all(800 < share < 1200 for share in shares[1:])


def test_one_event_in_a_hundred_is_wanted_and_so_is_the_last() -> None:
    wanted, events = parse(beside.WANTED), beside.drawn(20_000)
    assert 150 < sum(map(wanted.matches, events)) < 250
    assert wanted.matches(events[-1])
    assert [event["n"] for event in events] == [*range(20_000)]


@pytest.mark.parametrize(
    "account",
    [
        Account("wait", 10, 0, was_ended=False),
        Account("drop", 7, 3, was_ended=False),
        Account("disconnect", 4, 0, was_ended=True),
    ],
)
def test_a_stall_that_kept_its_promise_counts(account: Account) -> None:
    stalled.check(account, 10)


@pytest.mark.parametrize(
    "account",
    [
        Account("wait", 9, 0, was_ended=False),
        Account("wait", 9, 1, was_ended=False),
        Account("drop", 7, 2, was_ended=False),
        Account("drop", 10, 0, was_ended=False),
        Account("disconnect", 10, 0, was_ended=False),
    ],
)
def test_a_stall_that_lost_something_or_was_none_is_refused(account: Account) -> None:
    with pytest.raises(DisagreementError, match=account.overflow):
        stalled.check(account, 10)


def test_missing_requirements_are_reported_in_one_sentence() -> None:
    with pytest.raises(MissingError, match="apt-get install no-such-server"):
        program("no-such-server")
    with pytest.raises(MissingError, match="pip install no-such-client"):
        package("no-such-client", "no_such_client")


class Divider:
    def __init__(self, by: int) -> None:
        self._by = 1 // by

    def divide(self, number: int) -> float:
        return number / self._by


def test_an_object_lives_in_another_process_and_its_errors_come_back() -> None:
    with worker(Divider, 1) as divider:
        assert divider.call("divide", 6) == 6
        with pytest.raises(RuntimeError, match="TypeError"):
            divider.call("divide", "six")
        assert divider.call("divide", 7) == 7
    with pytest.raises(RuntimeError, match="ZeroDivisionError"), worker(Divider, 0):
        pass


def test_help_says_what_the_benchmark_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        broker.main(["--help"])
    assert "python -m benchmarks.broker" in capsys.readouterr().out
