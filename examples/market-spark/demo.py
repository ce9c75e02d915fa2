"""`make demo`: a market's subscriptions and events, generated, compiled, matched and reported.

The commands are those that a user types; they run in one process here, so that Spark starts once.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from tamis.cli import app

AGAIN = "--overwrite"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--events", type=int, default=2_000_000)
    options.add_argument("--to", type=Path, default=Path("demo"))
    given = options.parse_args()
    started = time.monotonic()
    for command in commands(given.to, given.subscriptions, given.events):
        run(command)
    print(f"\nThat took {time.monotonic() - started:.0f} seconds, Spark's start included.")
    print(f"The report is {(given.to / 'report.html').absolute()}")


def commands(folder: Path, subscriptions: int, events: int) -> list[str]:
    library, report = f"{folder}/library", f"{folder}/report.html"
    return [
        f"generate market --subscriptions {subscriptions} --events {events} --to {folder} {AGAIN}",
        f"compile {folder}/subscriptions --schema {folder}/schema.json -L {library}",
        f"match {folder}/events -L {library} --to {folder}/matches --report {report} {AGAIN}",
    ]


def run(command: str) -> None:
    print(f"\n$ tamis spark {command}", flush=True)
    try:
        app(["spark", *shlex.split(command)], prog_name="tamis")
    except SystemExit as left:
        if left.code:
            sys.exit(left.code)


if __name__ == "__main__":
    main()
