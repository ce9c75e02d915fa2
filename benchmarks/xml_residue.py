"""Queries over XML documents, as in figure 5 of the paper: `python -m benchmarks.xml_residue`.

Subscriptions are made from profiles of users, communities and artefacts, publications are
artefacts. *Matched* are the pairs of a subscription and a publication that the engine lets through,
*residue* those that are left to check; the check drops the negative residue. Keys tell which values
lie in one element, so that less is left. Then the engine with the exact check, from the text of a
document on, beside
every subscription as a compiled XPath of lxml.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from lxml import etree
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.harness import Contender, Row, agree, fitting, measure, options, step
from benchmarks.reporting import Sheet, bars, file_name, rates, report
from benchmarks.workloads.motion import Motion, MotionSubscription
from tamis import Engine
from tamis.filters.translations import Residual, SettledResidual, Translation
from tamis.xml import Document, query

TITLE = "Queries over XML documents"
REPEATS: Final = 5
SUBSCRIPTIONS: Final = (5_000, 10_000, 15_000, 20_000)
PUBLICATIONS: Final = 1_000
RACED: Final = 20_000
"""Subscriptions of the race with lxml, if there are so many."""
ASKED: Final = {False: 3.15, True: 0.5}
ASKED_RATIO: Final = 200


class _GivenTranslation(NamedTuple):
    """A translation that an engine takes as it is."""

    translation: Translation

    def __translation__(self) -> Translation:
        return self.translation


class Residue(NamedTuple):
    """Pairs of a subscription and a publication."""

    matched: int
    left: int
    """Of these, those that are left to check."""
    dropped: int
    """Of these, those that the check drops."""

    def percent(self, count: int) -> str:
        return f"{100 * count / max(self.matched, 1):.2f} %"


class GrowingEngine:
    """An engine that lets through what translations do, and what is left to check of them."""

    def __init__(self, *, correlated: bool) -> None:
        self._correlated = correlated
        self._engine = Engine()
        self._left: dict[int, Residual] = {}

    def add(self, subscriptions: Sequence[MotionSubscription]) -> None:
        """Add subscriptions, numbered from 0; of exact ones, nothing is kept but the filter."""
        first = len(self._engine)
        for number, each in enumerate(subscriptions, first):
            found = query(each.xql).translation(correlated=self._correlated)
            self._engine.add(number, _GivenTranslation(Translation(found.filter)))
            if found.residual is not None:
                self._left[number] = found.residual

    def residue(self, documents: Sequence[Document]) -> Residue:
        """Count what the engine lets through, and what is left of it."""
        found = self._engine.match_xml_batch(documents)
        matched = left = dropped = 0
        for number, document in enumerate(documents):
            for id_ in map(int, found[number]):
                matched += 1
                residual = self._left.get(id_)
                if residual is None:
                    continue
                if isinstance(residual, SettledResidual) and residual.is_settled(document):
                    continue
                left += 1
                dropped += not residual.holds(document)
        return Residue(matched, left, dropped)


def counted(
    run: Callable[[Sequence[str]], Sequence[int]], texts: Sequence[str]
) -> NDArray[np.int64]:
    return np.array(run(texts), np.int64)


def contenders(
    subscriptions: Sequence[MotionSubscription], texts: Sequence[str]
) -> list[Contender]:
    """Return the engine, and all queries one by one, both from the texts of documents on."""
    engine = Engine()
    for number, each in enumerate(subscriptions):
        engine.add(number, each.xql, language="xql")
    compiled = [etree.XPath(f"boolean({each.xpath})") for each in subscriptions]

    def by_engine(given: Sequence[str]) -> list[int]:
        found = engine.match_xml_batch(given)
        return [len(found[number]) for number in range(len(given))]

    def by_lxml(given: Sequence[str]) -> list[int]:
        trees = [etree.fromstring(text) for text in given]
        return [sum(bool(each(tree)) for each in compiled) for tree in trees]

    engine.compact()
    few = fitting(lambda count: by_lxml(texts[:count]), 20)
    agree({"engine": counted(by_engine, texts), "lxml": counted(by_lxml, texts[:few])})
    return [
        Contender("every query, by lxml", partial(by_lxml, texts[:few]), few),
        Contender("engine and exact check", partial(by_engine, texts), len(texts)),
    ]


def residue_sheet(sizes: Sequence[int], found: dict[tuple[int, bool], Residue]) -> Sheet:
    """Return the columns of the paper, without and with keys."""
    lines = [
        (
            f"{size:,}",
            "with keys" if correlated else "as in the paper",
            f"{one.matched:,}",
            one.percent(one.left),
            one.percent(one.dropped),
            one.percent(one.left - one.dropped),
            f"≤ {ASKED[correlated]} %",
        )
        for size in sizes
        for correlated in (False, True)
        for one in (found[size, correlated],)
    ]
    columns = ("total", "correlation", "matched", "res.", "- res.", "+ res.", "asked of - res.")
    return Sheet(columns, lines)


def plot(
    sizes: Sequence[int], found: dict[tuple[int, bool], Residue], rows: Sequence[Row]
) -> Figure:
    """Draw the negative residue by subscriptions; without sizes, the rates."""
    if not sizes:
        return bars(TITLE, "documents", rows)
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for correlated, name in ((False, "as in the paper"), (True, "with keys")):
        shares = [found[size, correlated] for size in sizes]
        axes.plot(sizes, [100 * s.dropped / max(s.matched, 1) for s in shares], "o-", label=name)
        axes.axhline(ASKED[correlated], ls=":", color="gray")
    axes.set(xlabel="subscriptions", ylabel="negative residue, % of matched", ylim=(0, None))
    axes.legend()
    figure.suptitle(TITLE)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(
        __doc__,
        arguments,
        subscriptions=SUBSCRIPTIONS,
        publications=PUBLICATIONS,
        repeats=REPEATS,
    )
    sizes = sorted(chosen.subscriptions)
    motion = Motion(seed=1)
    texts = [str(motion.artefact()) for _ in range(chosen.publications)]
    documents = [Document.parse(text) for text in texts]
    subscriptions = [motion.subscription() for _ in range(sizes[-1])]
    found = {}
    for correlated in (False, True):
        engine, before = GrowingEngine(correlated=correlated), 0
        for size in sizes:
            with step(f"{size:,} subscriptions{', with keys' if correlated else ''}"):
                engine.add(subscriptions[before:size])
                found[size, correlated], before = engine.residue(documents), size
        del engine
    # One thread of this process does it all, so that other load can be left out.
    raced = contenders(subscriptions[:RACED], texts)
    rows = measure(raced, chosen.repeats, time.process_time)
    required = Sheet(
        ("required", "found", "asked"),
        [(f"{rows[1].name} / {rows[0].name}", f"{rows[1].ratio:,.0f}", f"≥ {ASKED_RATIO}")],
    )
    sheets = [residue_sheet(sizes, found), rates("documents", rows), required]
    usual = (tuple(sizes), chosen.publications) == (SUBSCRIPTIONS, PUBLICATIONS)
    name = "xml_residue" if usual else file_name("xml_residue", (*sizes, chosen.publications))
    report(name, TITLE, sheets, plot(sizes, found, rows), folder=chosen.out, repeats=chosen.repeats)


if __name__ == "__main__":
    main()
