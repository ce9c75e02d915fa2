"""`make demo`: generate a market's subscriptions and events, compile, match and report.

These are the commands a user would type. They run in one process here, so that Spark starts once.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

from tamis.cli.app import app


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--subscriptions", type=int, default=100_000)
    options.add_argument("--events", type=int, default=2_000_000)
    options.add_argument("--to", type=Path, default=Path("demo"))
    given = options.parse_args()
    started = time.monotonic()
    for command in commands(given.to, given.subscriptions, given.events):
        run(command)
    print(f"\nThat took {time.monotonic() - started:.0f} seconds, including the start of Spark.")
    print(f"The report is {(given.to / 'report.html').absolute()}")


def commands(folder: Path, subscriptions: int, events: int) -> list[str]:
    library, report = f"{folder}/library", f"{folder}/report.html"
    sizes = f"--subscriptions {subscriptions} --events {events}"
    return [
        f"generate market {sizes} --to {folder} --overwrite",
        f"compile {folder}/subscriptions --schema {folder}/schema.json -L {library}",
        f"match {folder}/events -L {library} --to {folder}/matches --report {report} --overwrite",
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
