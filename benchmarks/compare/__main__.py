"""Compare the speed of two checkouts: `python -m benchmarks.compare OLD NEW [CASE …]`.

Both checkouts read the same inputs, which are drawn once. For each case (parsing, relations, paper,
boolean, conjunctions, single, growth, churn, building, storage, spark, broker, beside, stalled,
restart) a process per checkout sets itself up; then the two take turns, row by row, and the order
within a turn alternates. `--processes` repeats that with fresh processes, because the layout of
memory differs from one to the next. A row is refused if the checkouts do not compute the same. All
cases take about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.compare import cases
from benchmarks.compare.inputs import FULL, write_inputs
from benchmarks.harness import RESULTS, DisagreementError, Row, step
from benchmarks.reporting import Sheet, bars, report

TITLE = "Two checkouts"
REPEATS = 5
PROCESSES = 2
SHORTEST_RUN_SECONDS = 0.2
ROOT = Path(__file__).parents[2]


class Result(NamedTuple):
    """Things per second, and the checksum of the first run."""

    rate: float
    checksum: int


class Child:
    """A process that measures one checkout."""

    def __init__(self, process: subprocess.Popen[str], tree: Path, log: Path) -> None:
        self._process = process
        self._log = log
        found = self._answer()
        if not Path(found["tamis"]).is_relative_to(tree):
            raise DisagreementError(f"{found['tamis']} was measured, not {tree}")
        self.things: dict[str, int] = found["rows"]

    def run(self, row: str, loops: int = 1) -> Result:
        """Run a row some times over; return the rate, and the checksum of the first time."""
        assert self._process.stdin  # noqa: S101 - it is a pipe
        self._process.stdin.write(json.dumps([row, loops]) + "\n")
        self._process.stdin.flush()
        found = self._answer()
        return Result(loops * self.things[row] / found["seconds"], found["checksum"])

    def loops(self, row: str) -> int:
        """Return how often a row has to run to take long enough to be measured."""
        return max(1, round(SHORTEST_RUN_SECONDS * self.run(row).rate / self.things[row]))

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout  # noqa: S101 - it is a pipe
        line = self._process.stdout.readline()
        if not line:
            lines = self._log.read_text("utf-8", errors="replace").strip().splitlines()
            raise UnavailableError(lines[-1] if lines else "the process ended")
        found: dict[str, Any] = json.loads(line)
        return found


class UnavailableError(Exception):
    """A checkout cannot run a case."""


@contextmanager
def child(case: str, tree: Path, inputs: Path, scratch: Path) -> Iterator[Child]:
    """Start a process for one case of one checkout, and end it."""
    scratch.mkdir(parents=True)
    log = scratch / "log"
    command = [sys.executable, "-P", "-m", cases.__name__, case, str(inputs), str(scratch)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT)))}
    with (
        log.open("wb") as errors,
        subprocess.Popen(  # noqa: S603
            command,
            cwd=scratch,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield Child(process, tree, log)
        # Its loop ends with its input, which `with` closes.


class Compared(NamedTuple):
    """The rates of one row in both checkouts, in things per second, turn by turn."""

    case: str
    row: str
    old: list[float]
    new: list[float]

    @property
    def ratio(self) -> float:
        """Return how many times as fast the new checkout is."""
        return median(self.new) / median(self.old)

    def line(self) -> tuple[str, ...]:
        """Return the line of a table."""
        return (
            f"{self.case}: {self.row}",
            *(cell for rates in (self.old, self.new) for cell in (_middle(rates), _spread(rates))),
            f"{self.ratio:.2f}",
        )

    def bar(self) -> Row:
        """Return the ratio with its spread over the turns."""
        turns = [new / old for old, new in zip(self.old, self.new, strict=True)]
        ratio = self.ratio
        return Row(self.case, self.row, ratio, min(ratio, *turns), max(ratio, *turns), ratio)


def _middle(rates: Sequence[float]) -> str:
    return f"{median(rates):,.0f}"


def _spread(rates: Sequence[float]) -> str:
    return f"{min(rates):,.0f} to {max(rates):,.0f}"


def compare(
    case: str, trees: Sequence[Path], inputs: Path, scratch: Path, repeats: int
) -> dict[str, Compared]:
    """Set up one case in both checkouts and measure them in turns."""
    with ExitStack() as stack:
        # One after the other: each has the machine to itself while it is set up.
        old, new = (
            stack.enter_context(child(case, tree, inputs, scratch / name))
            for name, tree in zip(("old", "new"), trees, strict=True)
        )
        found = {row: Compared(case, row, [], []) for row in old.things}
        for row in found:
            check(f"{case}, {row}", old.run(row), new.run(row))
        # Another warm-up of both; the old checkout decides for both.
        loops = {row: (old.loops(row), new.loops(row))[0] for row in found}
        for turn in range(repeats):
            for row, rates in found.items():
                pairs = [(old, rates.old), (new, rates.new)]
                for each, into in pairs if turn % 2 == 0 else reversed(pairs):
                    into.append(each.run(row, loops[row]).rate)
    return found


def check(row: str, old: Result, new: Result) -> None:
    """Refuse to compare checkouts that do not compute the same."""
    if old.checksum != new.checksum:
        raise DisagreementError(
            f"{row}: the old checkout finds {old.checksum:,}, the new one {new.checksum:,}"
        )


def compare_all(
    names: Sequence[str], trees: Sequence[Path], scratch: Path, chosen: argparse.Namespace
) -> tuple[list[Compared], list[str]]:
    """Compare the cases; return their rows, and why some have none."""
    inputs = scratch / "inputs"
    inputs.mkdir()
    with step("drew the inputs"):
        write_inputs(inputs, FULL.divided(chosen.divide) if chosen.divide > 1 else FULL)
    rows: dict[tuple[str, str], Compared] = {}
    notes = []
    for case in names:
        with step(f"compared {case}") as show:
            try:
                for number in range(chosen.processes):
                    show(f"processes {number + 1} of {chosen.processes}")
                    place = scratch / f"{case}-{number}"
                    for row, found in compare(case, trees, inputs, place, chosen.repeats).items():
                        kept = rows.setdefault((case, row), Compared(case, row, [], []))
                        kept.old.extend(found.old)
                        kept.new.extend(found.new)
            except (DisagreementError, UnavailableError) as error:
                notes.append(f"Not compared: {case}: {error}")
    return list(rows.values()), notes


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare, print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a checkout to compare with")
    parser.add_argument("new", type=Path, help="the checkout to compare")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all of them")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="turns of each process")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="per case and checkout")
    parser.add_argument("--divide", type=int, default=1, help="make all inputs smaller")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the folder for results")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.cases) - set(cases.CASES)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: the cases are {', '.join(cases.CASES)}")
    trees = [chosen.old.resolve(), chosen.new.resolve()]
    chosen.out.mkdir(parents=True, exist_ok=True)
    # Next to the results: the folder for temporary files may be in memory.
    with TemporaryDirectory(prefix="compare-", dir=chosen.out) as scratch:
        names = chosen.cases or list(cases.CASES)
        rows, notes = compare_all(names, trees, Path(scratch).resolve(), chosen)
    columns = ("per second", "old, median", "lowest to highest", "new, median", "lowest to highest")
    table = Sheet((*columns, "new / old"), [row.line() for row in rows])
    figure = bars(TITLE, "", [row.bar() for row in rows])
    figure.axes[0].set_xlabel("new / old; above 1 is faster")
    notes = [f"Old: {trees[0]}; new: {trees[1]}.", *notes]
    turns = chosen.repeats * chosen.processes
    report("compare", TITLE, [table], figure, notes=notes, folder=chosen.out, repeats=turns)


if __name__ == "__main__":
    main()
