"""The broker's benchmark in the small: it runs, and refuses figures of what loses something."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from benchmarks.broker import __main__ as broker
from benchmarks.broker import beside, many, stalled, systems, timeline
from benchmarks.broker.fleet import Account
from benchmarks.broker.servers import MissingError, package, program
from benchmarks.broker.workers import worker
from benchmarks.harness import DisagreementError, Row

import tamis
from benchmarks import harness
from tamis.languages import parse

from .where import Where

ROOT = Path(__file__).parents[2]
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
        f"--events 500 --paces 200 --paced-seconds 1 --earlier {ROOT}",
        ["Tamis, durable", "200 events/s: Tamis", "acknowledged", "now / earlier checkout"],
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


def test_an_earlier_checkout_is_compared_by_all_events_and_by_turns() -> None:
    times = {"Tamis": [[1.0, 2.0, 3.0], [2.0]], "Tamis, earlier checkout": [[4.0], [5.0, 8.0]]}
    found = beside.BesideResult(
        [Row("", name, rate, rate, rate, 1.0) for name, rate in zip(times, (30, 20), strict=True)],
        [beside.PacedTurns(name, 500, turns) for name, turns in times.items()],
        [],
    )
    rate, middle, _ = beside.since(found).lines
    assert rate == ("events/s, more is better", "1.50", "")
    assert middle == ("500 events/s: time, median, less is better", "0.40", "0.31 to 0.50")


def test_a_client_of_another_checkout_than_the_one_named_is_not_measured(tmp_path: Path) -> None:
    beside.require_checkout(ROOT)
    with pytest.raises(DisagreementError, match="would be measured, not"):
        beside.require_checkout(tmp_path)


CHECKOUT = {
    "__init__.py": "",
    "cli.py": """
import socket, sys
port = next(int(word.rpartition("=")[2]) for word in sys.argv if word.startswith("--set=port="))
with socket.create_server(("127.0.0.1", port)) as server:
    while True:
        with server.accept()[0] as one:
            one.sendall(__file__.encode())
""",
}
"""What answers with the place that it was imported from."""


def test_broker_and_clients_are_those_of_the_earlier_checkout(tmp_path: Path) -> None:
    package = tmp_path / "src" / "tamis"
    package.mkdir(parents=True)
    for name, text in CHECKOUT.items():
        (package / name).write_text(text, encoding="utf-8")
    system = systems.earlier(tmp_path)
    with (
        system.serve(tmp_path / "data") as server,
        socket.create_connection(("127.0.0.1", server.port)) as asking,
    ):
        assert asking.recv(1_000).decode() == str(package / "cli.py")
    with worker(Where, checkout=system.checkout) as where:
        assert where.call("is_tamis") == str(package / "__init__.py")
    with worker(Where) as where:
        assert where.call("is_tamis") == tamis.__file__


def test_a_folder_that_is_no_checkout_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="is no checkout"),
        systems.earlier(tmp_path).serve(tmp_path),
    ):
        pass


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


# --- the timeline --------------------------------------------------------------------------------

TRACE = """\
# tracer: nop
 python-30  [001] .....   1.000010: sys_enter: NR 44 (b, 7f87069fb930, b9, 0, 0, 0)
 python-30  [001] .....   1.000030: sys_exit: NR 44 = 185
 python-10  [001] .....   1.000040: sys_exit: NR 0 = 185
 python-11  [000] .....   1.000100: sys_enter: NR 18 (19, 7ff305fd8ae0, a2, 6e09e, 0, 0)
 python-11  [000] .....   1.000110: sys_exit: NR 18 = 162
 python-11  [000] .....   1.000111: sys_enter: NR 75 (19, 0, 0, 5584edfdc840, 1, 0)
 python-99  [000] .....   1.000200: sys_exit: NR 0 = 500
 python-11  [000] .....   1.000311: sys_exit: NR 75 = 0
 python-10  [001] .....   1.000320: sys_exit: NR 0 = 8
 python-10  [001] .....   1.000361: sys_enter: NR 1 (17, 7ff305ff15b0, fd, 0, 0, 7ff3179f36)
 python-20  [001] .....   1.000380: sys_exit: NR 232 = 1
 python-20  [001] .....   1.000450: sys_exit: NR 45 = 253
 python-20  [001] .....   1.000900: sys_exit: NR 45 = 56
"""
THREADS = {10: "broker", 11: "broker", 20: "subscriber", 30: "publisher"}


def test_the_timeline_follows_an_event_back_to_its_publisher() -> None:
    calls = timeline.calls_of(TRACE.splitlines(), THREADS)
    [moments] = timeline.moments_of(calls)
    passed = {name: round(1e6 * (time - 1)) for name, time in moments.items()}
    expected = [10, 40, 100, 111, 311, 361, 380, 450]
    assert [passed[name] for name in timeline.STAGES] == expected


def test_the_timeline_leaves_out_an_event_whose_beginning_was_not_traced() -> None:
    lines = TRACE.splitlines()[3:]
    assert timeline.moments_of(timeline.calls_of(lines, THREADS)) == []
