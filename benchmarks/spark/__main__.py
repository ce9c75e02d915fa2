"""On Spark: `python -m benchmarks.spark [--events 2000000] [--subscriptions 100000]`.

Workload A through `mapInArrow` and from files that workers read, beside an identity `mapInArrow`
over the same events, and on one core beside two; the paper's workload; alternatives without Tamis,
on a size they can handle; and what the workers share of a large library. A run is a whole
job with a sink that keeps nothing, on `local[2]` where nothing else is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import numpy as np

from benchmarks.engines import Case
from benchmarks.harness import Contender, DisagreementError, Row, measure, options, step
from benchmarks.reporting import Sheet, bars, file_name, label, rates, report
from benchmarks.spark.contenders import (
    Make,
    by_expressions,
    by_pandas,
    counts_by_matches,
    counts_by_subscription,
    drain,
    handed_over,
    joined_by_hash,
    joined_by_loops,
    matched,
    matched_in_files,
    matched_in_sql,
    rows_of,
)
from benchmarks.spark.data import Numbers, Place, Truth, settle, truth_of, write_rules
from benchmarks.spark.memory import Mapped, processes_that_map
from benchmarks.spark.sites import Site, open_site
from benchmarks.workloads import conjunctions, paper
from tamis.filters import Mode

TITLE = "On Spark"
WORKLOAD = conjunctions.workload_a

ALL_COLUMNS: Final = "identity, 8 columns"
USED_COLUMNS: Final = "identity, the 3 that filters use"
IDENTITIES: Final[Mapping[str, Make]] = {
    ALL_COLUMNS: handed_over,
    USED_COLUMNS: partial(handed_over, columns=("f0", "f1", "f2")),
}
SQL: Final = "function of SQL, ids"
IDS: Final[Mapping[str, Make]] = {
    "mapInArrow, ids, 8 columns kept": partial(matched, output="ids", keep=None),
    "mapInArrow, ids": partial(matched, output="ids"),
    "files, ids": partial(matched_in_files, output="ids"),
    SQL: matched_in_sql,
}
COUNTS: Final[Mapping[str, Make]] = {
    "mapInArrow, counts": partial(matched, output="counts"),
    "files, counts": partial(matched_in_files, output="counts"),
}
HASH_JOIN: Final = "hash join, for equalities alone"
ON_ONE_CORE: Final = ("mapInArrow, ids", "mapInArrow, counts", "files, ids", "files, counts")

ALTERNATIVES: Final[Mapping[str, Make]] = {
    "Tamis, mapInArrow, ids": partial(matched, output="ids"),
    "Tamis, mapInArrow, pairs": partial(matched, output="pairs"),
    "Tamis, files, ids": partial(matched_in_files, output="ids"),
    "cross join with bounds": joined_by_loops,
    "filters as SQL expressions": by_expressions,
    "pandas_udf with a loop": by_pandas,
    HASH_JOIN: joined_by_hash,
}


class Sites(NamedTuple):
    """Sessions on one core and on two."""

    one: Site
    two: Site


@contextmanager
def open_sites() -> Iterator[Sites]:
    """Start both sessions, and end them afterwards."""
    with open_site("local[1]") as one, open_site("local[2]") as two:
        yield Sites(one, two)


class Jobs(NamedTuple):
    """Whole jobs on the events of a place, as alternatives."""

    site: Site
    place: Place
    events: int
    group: str

    def of(self, makes: Mapping[str, Make]) -> list[Contender]:
        """Return the ways to go from events to matches, each as a job."""
        return [
            Contender(
                name, partial(self.site.ask, drain, make, self.place), self.events, self.group
            )
            for name, make in makes.items()
        ]


# --- agreement -----------------------------------------------------------------------------------


def require_equal(name: str, found: Numbers, wanted: Numbers) -> None:
    """Refuse what does not find what it should."""
    if not np.array_equal(found, wanted):
        raise DisagreementError(f"{name} finds other matches than it should")


def require_matches(truth: Truth) -> None:
    """Refuse data in which there is nothing to find."""
    if not truth.by_subscription.any():
        raise DisagreementError("no event matches any subscription")


def check_ids(site: Site, makes: Mapping[str, Make], place: Place, truth: Truth) -> None:
    """Refuse alternatives that do not find each subscription as often as it matches."""
    require_matches(truth)
    for name, make in makes.items():
        found = site.ask(
            counts_by_subscription, make, place, subscriptions=len(truth.by_subscription)
        )
        require_equal(name, found, truth.by_subscription)


def check_counts(site: Site, makes: Mapping[str, Make], place: Place, wanted: Numbers) -> None:
    """Refuse alternatives that differ in the number of events per number of matches."""
    for name, make in makes.items():
        require_equal(name, site.ask(counts_by_matches, make, place), wanted)


def check_rows(site: Site, makes: Mapping[str, Make], place: Place, events: int) -> None:
    """Refuse identities that lose rows."""
    for name, make in makes.items():
        require_equal(name, np.array([site.ask(rows_of, make, place)]), np.array([events]))


# --- workload A ----------------------------------------------------------------------------------


class Conjunctions(NamedTuple):
    """The figures of workload A."""

    rows: list[Row]
    on_one_core: list[Row]


def measure_conjunctions(sites: Sites, place: Place, events: int, name: str) -> Conjunctions:
    """Measure the ways to match rows, and the identities, some of them on one core too."""
    makes = {**IDENTITIES, **IDS, **COUNTS, HASH_JOIN: joined_by_hash}
    again = {one: makes[one] for one in ON_ONE_CORE}
    on_two = Jobs(sites.two, place, events, name).of(makes)
    on_one = Jobs(sites.one, place, events, f"{name}, one core").of(again)
    found = measure([*on_two, *on_one])
    return Conjunctions(found[: len(makes)], found[len(makes) :])


def conjunctions_of(sites: Sites, folder: Path, subscriptions: int, events: int) -> Conjunctions:
    """Write workload A, see that all agree, and measure."""
    work = WORKLOAD(subscriptions, 1)
    place = settle(folder / "conjunctions", sites.two, work, events)
    write_rules(place, work)
    truth = truth_of(work, place)
    with step("compared what is found"):
        check_rows(sites.two, IDENTITIES, place, events)
        check_ids(sites.two, {**IDS, HASH_JOIN: joined_by_hash}, place, truth)
        check_counts(sites.two, COUNTS, place, truth.by_matches)
    return measure_conjunctions(sites, place, events, f"A, {subscriptions:,}")


def beside_identities(rows: Sequence[Row]) -> Sheet:
    """Return the rates with their ratios to both identities."""
    named = {row.name: row.rate for row in rows}
    return Sheet(
        (rows[0].group, "events/s, median", "lowest to highest", "to 8 columns", "to 3 columns"),
        [
            (
                row.name,
                f"{row.rate:,.0f}",
                f"{row.low:,.0f} to {row.high:,.0f}",
                f"{row.rate / named[ALL_COLUMNS]:.2f}",
                f"{row.rate / named[USED_COLUMNS]:.2f}",
            )
            for row in rows
        ],
    )


def beside_one_core(found: Conjunctions) -> Sheet:
    """Return the rates on one core and on two."""
    on_two = {row.name: row.rate for row in found.rows}
    return Sheet(
        ("events/s, median", "local[1]", "local[2]", "ratio"),
        [
            (
                row.name,
                f"{row.rate:,.0f}",
                f"{on_two[row.name]:,.0f}",
                f"{on_two[row.name] / row.rate:.2f}",
            )
            for row in found.on_one_core
        ],
    )


# --- the paper's workload ------------------------------------------------------------------------


def paper_of(site: Site, folder: Path, subscriptions: int, events: int) -> list[Row]:
    """Write the paper's workload with total messages, see that both ways agree, and measure."""
    work = paper.subscriptions(subscriptions, 1)
    case = Case(paper.subscriptions, work.schema, Mode.TOTAL)
    place = settle(folder / "paper", site, work, events, case)
    with step("compared what is found"):
        wanted = site.ask(counts_by_matches, COUNTS["mapInArrow, counts"], place)
        if wanted.sum() != events or not wanted[1:].any():
            raise DisagreementError("the paper's messages get lost, or match nothing")
        check_counts(site, COUNTS, place, wanted)
    return measure(Jobs(site, place, events, f"paper, {subscriptions:,}").of(COUNTS))


# --- without Tamis -------------------------------------------------------------------------------


def alternatives_of(site: Site, folder: Path, subscriptions: int, events: int) -> list[Row]:
    """Measure what one would do without Tamis, where an event matches about ten rules."""
    work = conjunctions.growth(subscriptions, 1)
    place = settle(folder / "alternatives", site, work, events)
    write_rules(place, work)
    with step("compared what is found"):
        check_ids(site, ALTERNATIVES, place, truth_of(work, place))
    return measure(
        Jobs(site, place, events, f"{subscriptions:,} subscriptions, {events:,} events").of(
            ALTERNATIVES
        )
    )


def times_as_slow(rows: Sequence[Row]) -> Sheet:
    """Return the rates, and how many times Tamis is as fast."""
    return Sheet(
        (rows[0].group, "events/s, median", "lowest to highest", f"{rows[0].name} / this"),
        [
            (
                row.name,
                f"{row.rate:,.0f}",
                f"{row.low:,.0f} to {row.high:,.0f}",
                f"{rows[0].rate / row.rate:,.2f}",
            )
            for row in rows
        ],
    )


# --- memory --------------------------------------------------------------------------------------


def memory_of(site: Site, folder: Path, subscriptions: int, events: int) -> list[Mapped]:
    """Match with a large library, and look at the workers that have it open."""
    place = settle(folder / "memory", site, WORKLOAD(subscriptions, 1), events)
    site.ask(drain, COUNTS["mapInArrow, counts"], place)
    found = processes_that_map(place.library)
    if not found:
        raise DisagreementError(f"no worker has the library {place.library} in its memory")
    return found


def memory_sheet(found: Sequence[Mapped], subscriptions: int) -> Sheet:
    """Return what each worker has of the library, and what all have together."""
    together = [sum(column) for column in zip(*(worker[1:] for worker in found), strict=True)]
    named = [(f"worker {number}", worker[1:]) for number, worker in enumerate(found, 1)]
    return Sheet(
        (
            f"MB, {subscriptions:,} subscriptions",
            *("mapped", "resident (Rss)", "share (Pss)", "private of it", "private in all"),
        ),
        [
            (name, *(f"{size / 1e6:,.1f}" for size in sizes))
            for name, sizes in (*named, ("together", together))
        ],
    )


# --- what was asked for --------------------------------------------------------------------------


def requirements(found: Conjunctions, papers: Sequence[Row], memory: Sequence[Mapped]) -> Sheet:
    """Return the figures that were asked for, beside what was asked."""
    rate = {row.name: row.rate for row in found.rows}
    alone = {row.name: row.rate for row in found.on_one_core}
    identity = rate[ALL_COLUMNS]
    lines = [
        (f"{name} / {ALL_COLUMNS}", f"{rate[name] / identity:.2f}", "≥ 0.35, aim 0.60")
        for name in ("mapInArrow, ids, 8 columns kept", "mapInArrow, ids", "mapInArrow, counts")
    ]
    lines += [
        (f"{name} / {ALL_COLUMNS}", f"{rate[name] / identity:.2f}", "> 1")
        for name in ("files, ids", "files, counts")
    ]
    by_rows = rate["mapInArrow, ids, 8 columns kept"]
    lines += [(f"{SQL} / mapInArrow, ids, 8 columns kept", f"{rate[SQL] / by_rows:.2f}", "≥ 0.80")]
    lines += [
        (f"{name}, local[2] / local[1]", f"{rate[name] / alone[name]:.2f}", "≥ 1.70")
        for name in ON_ONE_CORE
    ]
    lines += [(label(row), f"{row.rate:,.0f} events/s", "≥ 60,000") for row in papers]
    shared = sum(worker.share for worker in memory) / sum(worker.resident for worker in memory)
    lines += [("library: shares / resident, all workers", f"{shared:.2f}", "1 / workers")]
    return Sheet(("required", "found", "asked"), lines)


def run(chosen: argparse.Namespace, folder: Path) -> None:
    """Measure, print and write the tables."""
    with open_sites() as sites:
        found = conjunctions_of(sites, folder, chosen.subscriptions, chosen.events)
        papers = paper_of(sites.two, folder, chosen.subscriptions, chosen.paper_events)
        others = alternatives_of(sites.two, folder, chosen.few_subscriptions, chosen.few_events)
        memory = memory_of(sites.two, folder, chosen.many_subscriptions, chosen.few_events)
    sheets = [
        beside_identities(found.rows),
        beside_one_core(found),
        rates("events", papers),
        times_as_slow(others),
        memory_sheet(memory, chosen.many_subscriptions),
        requirements(found, papers, memory),
    ]
    plot = bars(TITLE, "events", [*found.rows, *found.on_one_core, *papers, *others])
    report(file_name("spark", (chosen.subscriptions,)), TITLE, sheets, plot, folder=chosen.out)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run with the data in a temporary folder."""
    chosen = options(
        __doc__,
        arguments,
        subscriptions=100_000,
        events=2_000_000,
        paper_events=200_000,
        few_subscriptions=1_000,
        few_events=50_000,
        many_subscriptions=300_000,
    )
    with TemporaryDirectory(prefix="tamis-spark-") as folder:
        run(chosen, Path(folder))


if __name__ == "__main__":
    main()
