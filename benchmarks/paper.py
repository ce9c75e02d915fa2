"""Section 8 of the paper, then and now: `python -m benchmarks.paper [--filters 25000 100000]`.

The paper's BDD is built as it describes, plain and restricted, and evaluated one message at a
time by EvalBDD and, on partial messages, by MVEvalBDD. The engine evaluates 16,384 messages as one
batch, as bits of every subscription. Mode `total` stands for SiSL, `strict` for StSL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from benchmarks.baselines.plain_bdd import Bdd, Builder
from benchmarks.engines import compiled_of
from benchmarks.harness import Contender, DisagreementError, Row, fitting, measure, options, step
from benchmarks.reporting import Point, Sheet, crossed, file_name, lines, point, rates, report
from benchmarks.workloads import paper
from benchmarks.workloads.events import Events
from tamis.events.batch import EventBatch
from tamis.filters import Mode
from tamis.matching.evaluate.evaluator import Evaluator

TITLE = "The paper's section 8"
MESSAGES = 16_384
COMPARED = 8
CORE_TURNS = 25

TOTAL: Final = "total messages"


class Engines(NamedTuple):
    """The same filters in every form."""

    work: paper.PaperWorkload
    plain: Bdd
    restricted: Bdd
    total: Evaluator
    strict: Evaluator

    @property
    def filters(self) -> int:
        """Return the number of filters."""
        return len(self.work.programs)


def engines_of(count: int) -> Engines:
    """Build everything for a number of filters."""
    work = paper.subscriptions(count, seed=1)
    with step(f"built the paper's BDD of {count:,} filters"):
        builder = Builder(work.programs, every=True)
        plain = builder.bdd()
        builder.restrict()
        restricted = builder.bdd()
    total, strict = (
        Evaluator(compiled_of(work, mode, work.schema)) for mode in (Mode.TOTAL, Mode.STRICT)
    )
    return Engines(work, plain, restricted, total, strict)


# --- agreement -------------------------------------------------------------------------------


def check(engines: Engines, density: float) -> None:
    """Refuse engines that differ on total messages, or on partial ones where they must agree.

    MVEvalBDD may match more: an attribute that has cancelled out of the BDD is not required.
    """
    events = engines.work.events(COMPARED, 3, density)
    is_total = density == 1
    batch = EventBatch.of_events(events.dicts(), engines.work.schema)
    ours = [_rows(engines.strict, batch)]
    theirs = [_matches(engines.plain, events, is_partial=True)]
    if is_total:
        ours.append(_rows(engines.total, batch))
        theirs += [
            _matches(bdd, events, split=split)
            for bdd in (engines.plain, engines.restricted)
            for split in (False, True)
        ]
    for found in (*ours, *theirs):
        missed = ours[0] & ~found
        if missed.any() or (is_total and not np.array_equal(found, ours[0])):
            raise DisagreementError(f"the engines differ on messages of density {density:.1%}")
    if is_total and not ours[0].any():
        raise DisagreementError("nothing matches")


def _rows(evaluator: Evaluator, batch: EventBatch) -> NDArray[np.bool_]:
    """Return for each message and filter whether they match."""
    found = evaluator.evaluate(batch)
    whole = found.whole_bitmap(evaluator.compiled.count)
    bits = np.unpackbits(whole.view(np.uint8), axis=1, bitorder="little")
    matched: NDArray[np.bool_] = bits[:, : len(batch)].T.astype(np.bool_)
    return matched


def _matches(
    bdd: Bdd, events: Events, *, is_partial: bool = False, split: bool = False
) -> NDArray[np.bool_]:
    matched = np.zeros((len(events), len(bdd.diagram.output)), np.bool_)
    for event in range(len(events)):
        bdd.evaluate(events.rows.part(event, event + 1), partial=is_partial, split=split)
        matched[event, bdd.matches(split=split)] = True
    return matched


# --- figures ---------------------------------------------------------------------------------


def measured(engines: Engines, density: float | None) -> list[Row]:
    """Measure the alternatives on messages of one density; None is for SiSL."""
    messages = engines.work.events(MESSAGES, 2, density or 1)
    few = fitting(
        lambda n: engines.plain.evaluate(messages.rows.part(0, n), partial=density is not None),
        MESSAGES,
    )
    rows = messages.rows.part(0, few)
    batch = EventBatch.of_events(messages.dicts(), engines.work.schema)
    ours = engines.total if density is None else engines.strict
    plain = engines.plain.evaluate
    runs = (
        {
            "EvalBDD": partial(plain, rows),
            "EvalBDD, split": partial(plain, rows, split=True),
            "EvalBDD, restricted": partial(engines.restricted.evaluate, rows),
            "EvalBDD, restricted, split": partial(engines.restricted.evaluate, rows, split=True),
        }
        if density is None
        else {
            "MVEvalBDD": partial(plain, rows, partial=True),
            "MVEvalBDD, split": partial(plain, rows, partial=True, split=True),
        }
    )
    group = f"{engines.filters:,}, {_density(density)}"
    contenders = [Contender(name, run, few, group) for name, run in runs.items()]
    contenders.append(Contender("Tamis", partial(ours.evaluate, batch), MESSAGES, group))
    # Cores are compared separately, because the others take seconds between their turns; and
    # more often, because other users of the machine occupy the second core first.
    cores = [
        Contender("Tamis, one core", partial(ours.evaluate, batch), MESSAGES, group),
        Contender("Tamis, two cores", partial(ours.evaluate, batch, 2), MESSAGES, group),
    ]
    return [*measure(contenders), *measure(cores, CORE_TURNS)]


def _density(density: float | None) -> str:
    return TOTAL if density is None else f"density {density:.1%}"


def nodes(engines: Engines) -> tuple[str, ...]:
    """Return the line of a table of nodes per filter."""
    counts = (engines.plain.node_count, engines.restricted.node_count, engines.total.compiled.nodes)
    ours = counts[-1]
    return (
        f"{engines.filters:,}",
        *(f"{count / engines.filters:.2f}" for count in counts),
        *(f"{ours / count:.2f}" for count in counts[:-1]),
    )


NODE_COLUMNS: Final = (
    "nodes per filter",
    *("plain", "restricted", "Tamis", "Tamis / plain", "Tamis / restricted"),
)


def plot(found: dict[int, dict[float | None, list[Row]]]) -> Figure:
    """Draw the time of each alternative over the density of the messages."""
    panels: dict[str, dict[str, list[Point]]] = {}
    for count, by_density in found.items():
        series = panels.setdefault(f"{count:,} filters", {})
        for density, rows in by_density.items():
            for row in rows:
                name = f"{row.name}, total" if density is None else row.name
                series.setdefault(name, []).append(point(100 * (density or 1), row, 1e6))
    return lines(TITLE, panels, "density of messages, %", "ms for 1,000 messages")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the tables."""
    chosen = options(__doc__, arguments, filters=(25_000, 100_000))
    found: dict[int, dict[float | None, list[Row]]] = {}
    node_lines = []
    for count in chosen.filters:
        engines = engines_of(count)
        for density in paper.DENSITIES:
            check(engines, density)
        node_lines.append(nodes(engines))
        found[count] = {density: measured(engines, density) for density in (None, *paper.DENSITIES)}
    rows = [row for each in found.values() for group in each.values() for row in group]
    sheets = [
        Sheet(NODE_COLUMNS, node_lines),
        crossed("ms for 1,000 messages", rows, lambda row: f"{1e6 / row.rate:,.1f}"),
        rates("messages", rows),
    ]
    report(file_name("paper", chosen.filters), TITLE, sheets, plot(found), folder=chosen.out)


if __name__ == "__main__":
    main()
