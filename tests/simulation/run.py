"""Runs seeds: `python -m simulation.run --seed 7 --trace`, or `--seeds 0-5000`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from simulation.bugs import BUGS
from simulation.world import Outcome, simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--seeds", default="0-100", help="run a range of seeds, without its end")
    parser.add_argument("--trace", action="store_true", help="print the whole history")
    parser.add_argument("--bug", choices=sorted(BUGS), help="plant a bug first")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split("-"))
    seeds = range(first, last) if arguments.seed is None else [arguments.seed]
    started, violated, events, deliveries = time.perf_counter(), [], 0, 0
    for seed in seeds:
        try:
            outcome = run(seed, arguments.bug)
        except Exception:
            violated.append(seed)
            print(f"seed {seed}:", traceback.format_exc(), sep="\n", flush=True)
            continue
        events, deliveries = events + outcome.events, deliveries + outcome.deliveries
        if arguments.trace:
            print(*outcome.history, sep="\n")
        if outcome.violations:
            violated.append(seed)
            print(f"seed {seed}:", *outcome.violations[:5], sep="\n    ", flush=True)
    print(
        f"simulation: {len(seeds):,} seeds, {events:,} events, {deliveries:,} deliveries, "
        f"{len(violated):,} violated, {time.perf_counter() - started:.1f} s"
    )
    return 1 if violated else 0


def run(seed: int, bug: str | None) -> Outcome:
    if bug is None:
        return simulate(seed)
    with BUGS[bug]():
        return simulate(seed)


if __name__ == "__main__":
    sys.exit(main())
