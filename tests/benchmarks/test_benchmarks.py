"""The benchmarks in the small: each runs, its alternatives agree, and no nothing is measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from benchmarks.doors import __main__ as doors
from benchmarks.engines import engine_of, fill
from benchmarks.harness import (
    Contender,
    DisagreementError,
    Latency,
    agree,
    fitting,
    lasting,
    measure,
)
from benchmarks.reporting import crossed, latencies
from benchmarks.workloads import conjunctions as conjunctive

from benchmarks import (
    boolean,
    building,
    churn,
    conjunctions,
    covering,
    growth,
    harness,
    imports,
    objects,
    overlay,
    paper,
    plans,
    queries,
    sigma,
    xml_residue,
)
from tamis.filters.build import comparison_of
from tamis.matching import Engine, Subscription

SMALL: dict[str, tuple[Callable[[Sequence[str]], None], str, Sequence[str]]] = {
    "boolean": (boolean.main, "--subscriptions 300 --shapes 20", ["A-Tree", "vs default"]),
    "building": (
        building.main,
        "--filters 200 --subscriptions 300",
        ["conjunctions A, from text", "memory, loaded", "save", "remove one"],
    ),
    "churn": (churn.main, "--subscriptions 300", ["churning", "remove"]),
    "conjunctions": (conjunctions.main, "--subscriptions 500 900", ["C, 900: Tamis, JSON"]),
    "covering": (covering.main, "--filters 40", ["market, 40: covering index", "abe, 40: remove"]),
    "doors": (
        doors.main,
        "--divide 1000 --only A texts C",
        ["A, 1,000: counting, from Arrow", "texts, 100: one dict at a time", "dicts / Arrow"],
    ),
    "imports": (imports.main, "--repeats 1", ["tamis --help", "times of import typer"]),
    "objects": (
        objects.main,
        "--largest 10 --repeats 1",
        ["20(b): messages/s, by s", "dynamic with look-up", "combined, times as fast as"],
    ),
    "xml_residue": (
        xml_residue.main,
        "--subscriptions 100 200 --publications 40 --repeats 1",
        ["with keys", "engine and exact check", "every query, by lxml"],
    ),
    "growth": (growth.main, "--largest 30000", ["slope", "30,000: counting"]),
    "queries": (
        queries.main,
        "--brokers 5 8",
        ["star of 8, much overlap", "random tree of 5, little overlap", "messages per query"],
    ),
    "overlay": (
        overlay.main,
        "--brokers 5 8",
        ["star of 8, much overlap", "random tree of 5, little overlap", "links per event"],
    ),
    "sigma": (
        sigma.main,
        "--rules 150 --events 300",
        ["SQLite, a query for each rule", "Tamis, Arrow", "pairs not asked"],
    ),
    "plans": (plans.main, "--subscriptions 300", ["uneven growth, 300", "at most 1.2", "counting"]),
    "paper": (paper.main, "--filters 300", ["Tamis / plain", "density 7.7%: MVEvalBDD, split"]),
}
# Almost a minute of these is the compilation of other algorithms' kernels.
SLOW = {
    "boolean",
    "building",
    "churn",
    "conjunctions",
    "covering",
    "doors",
    "growth",
    "objects",
    "paper",
    "plans",
    "sigma",
    "xml_residue",
}
BENCHMARKS = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SMALL]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "REPEATS", 1)
    monkeypatch.setattr(harness, "SECONDS_PER_RUN", 0.01)
    monkeypatch.setattr(building, "CHANGES", 5)
    for module in (boolean, conjunctions, doors, growth, plans):
        monkeypatch.setattr(module, "EVENTS", 256)
    monkeypatch.setattr(paper, "MESSAGES", 256)
    monkeypatch.setattr(objects, "MESSAGES", 64)
    monkeypatch.setattr(objects, "CALLS", 50)
    for name in ("ARGUMENTS", "ONE_IN", "NESTING", "DISTINCT"):
        monkeypatch.setattr(objects, name, getattr(objects, name)[:2])
    monkeypatch.setattr(churn, "EVENTS", 180)
    monkeypatch.setattr(covering, "PAIRS", 10)
    monkeypatch.setattr(covering, "COMPARED", 10)
    # Workload A has matches only where there are many subscriptions, or many events.
    workloads = {"grown": conjunctive.growth, "C": conjunctive.workload_c}
    monkeypatch.setattr(conjunctions, "WORKLOADS", workloads)
    few = {name: plans.WORKLOADS[name] for name in ("C", "growth", "uneven growth", "Boolean")}
    monkeypatch.setattr(plans, "WORKLOADS", few)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_writes_a_table_and_a_plot(name: str, tmp_path: Path) -> None:
    main, options, expected = SMALL[name]
    main([*options.split(), "--out", str(tmp_path)])
    table = next(tmp_path.glob(f"{name}*.md")).read_text(encoding="utf-8")
    assert all(words in table for words in expected)
    assert "nan" not in table
    assert next(tmp_path.glob(f"{name}*.svg")).stat().st_size > 1000


def counts(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    "found",
    [
        {"one": counts(0, 0), "other": counts(0, 0)},
        {"one": counts(1, 2), "other": counts(1, 3)},
        {"one": counts(1, 2), "other": counts(2, 1)},
        {"one": counts(1, 2), "other": counts()},
        {"short": counts(2), "one": counts(1, 2)},
    ],
)
def test_alternatives_that_differ_or_find_nothing_are_refused(found: dict[str, np.ndarray]) -> None:
    with pytest.raises(DisagreementError):
        agree(found)


def test_alternatives_may_count_fewer_events() -> None:
    agree({"short": counts(0), "one": counts(0, 2)})


@pytest.mark.slow
def test_a_benchmark_refuses_an_engine_that_misses_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_one(work: conjunctive.Conjunctions) -> Engine:
        engine = engine_of(work)
        for id_ in engine.match(work.events(1, 2).dicts()[0])[:1]:
            engine.remove(id_)
        return engine

    monkeypatch.setattr(conjunctions, "engine_of", without_one)
    with pytest.raises(DisagreementError, match="Tamis, Arrow finds"):
        conjunctions.measured("B", conjunctive.workload_b(300, 1))


def test_a_rejected_filter_is_no_part_of_a_benchmark() -> None:
    engine = Engine()
    engine.add_many([Subscription(0, comparison_of("a", "=", 1))])
    with pytest.raises(ValueError, match="1 filters were rejected"):
        fill(engine, [comparison_of("a", "=", 1)])


def test_ratios_are_to_the_first_of_each_group() -> None:
    def contender(name: str, group: str) -> Contender:
        return Contender(name, lambda: sum(range(1000)), 10, group)

    rows = measure([contender("x", "one"), contender("y", "one"), contender("x", "other")])
    assert rows[0].ratio == rows[2].ratio == 1
    assert rows[1].ratio == rows[1].rate / rows[0].rate
    assert crossed("", rows, lambda row: row.group).lines == [
        ("one", "one", "one"),
        ("other", "other", ""),
    ]


def test_a_run_does_as_much_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr(harness, "SECONDS_PER_RUN", 60)
    assert fitting(done.append, 100) == 100
    assert done == [1, 1, 2, 4, 8, 16, 32, 64]
    monkeypatch.setattr(harness, "SECONDS_PER_RUN", 0)
    assert fitting(done.append, 100) == 1


def test_what_is_over_too_soon_is_repeated_and_counted_as_often() -> None:
    done: list[int] = []
    quick = lasting(Contender("quick", partial(done.append, 1), 7))
    times = quick.things // 7
    assert times > 100
    done.clear()
    quick.run()
    assert len(done) == times
    slow = lasting(Contender("slow", partial(time.sleep, 0.3), 7))  # longer than it has to last
    assert slow.things == 7


def test_latencies_are_in_microseconds() -> None:
    sheet = latencies([Latency("add", [0.001] * 99 + [0.5])])
    assert sheet.lines == [("add", "1,000", "5,990", "500,000", "100")]


@pytest.mark.parametrize("module", [boolean, building, churn, conjunctions, growth, imports, paper])
def test_help_says_what_a_benchmark_does(
    module: object, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        module.main(["--help"])  # type: ignore[attr-defined]
    assert "python -m benchmarks." in capsys.readouterr().out
