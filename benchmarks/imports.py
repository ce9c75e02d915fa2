"""How long Tamis takes to start: `python -m benchmarks.imports [--repeats 15]`.

Whole processes: `import tamis` and `tamis --help` beside `import typer`, which the command line
needs in any case, and beside an interpreter that imports nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from benchmarks.harness import Contender, Row, measure, options
from benchmarks.reporting import Sheet, bars, report

TITLE = "Starting"
REPEATS = 15
MOST: Final = 3.0
"""How many times as long as `import typer` the others may take."""
YARDSTICK: Final = 'python -c "import typer"'

COMMANDS: Final = {
    YARDSTICK: ("-c", "import typer"),
    'python -c ""': ("-c", ""),
    'python -c "import tamis"': ("-c", "import tamis"),
    "tamis --help": ("-m", "tamis.cli", "--help"),
}


# A small process in between: the peak of a child begins with that of the process that started it.
PROBE: Final = """
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def run(arguments: Sequence[str]) -> None:
    """Run Python to its end."""
    command = [sys.executable, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def peak_megabytes(arguments: Sequence[str]) -> float:
    """Return the most memory that Python has on the way."""
    command = [sys.executable, "-c", PROBE, *arguments]
    done = subprocess.run(command, check=True, capture_output=True)  # noqa: S603
    return int(done.stdout) / 1024


def table(rows: Sequence[Row]) -> Sheet:
    """Return the time of each command, how it compares with the yardstick, and its memory."""
    return Sheet(
        ("", "ms, median", "lowest to highest", "times of import typer", "asked", "MB"),
        [
            (
                row.name,
                f"{1e3 / row.rate:,.0f}",
                f"{1e3 / row.high:,.0f} to {1e3 / row.low:,.0f}",
                f"{1 / row.ratio:.2f}",
                f"≤ {MOST:g}" if "tamis" in row.name else "",
                f"{peak_megabytes(COMMANDS[row.name]):,.0f}",
            )
            for row in rows
        ],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    chosen = options(__doc__, arguments, repeats=REPEATS)
    contenders = [Contender(name, partial(run, words), 1) for name, words in COMMANDS.items()]
    rows = measure(contenders, chosen.repeats)
    figure = bars(TITLE, "processes", rows)
    report("imports", TITLE, [table(rows)], figure, folder=chosen.out, repeats=chosen.repeats)


if __name__ == "__main__":
    main()
