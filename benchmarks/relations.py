"""How fast filters are compared: `python -m benchmarks.relations`.

Pairs of conjunctions as a router compares them, and random Boolean filters; and the oracle, which
answers for one event, for scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from benchmarks.harness import Contender, measure, options
from benchmarks.reporting import bars, rates, report
from tamis.diagrams import covers, intersects
from tamis.filters import Filter
from tamis.languages import parse

TITLE = "Comparing filters"
COUNT = 300


def conjunction(rng: Random) -> Filter:
    """Return four ranges and a word."""
    names = rng.sample("abcdefgh", 4)
    ranges = [f"{n} between {(low := rng.randrange(90))} and {low + 20}" for n in names]
    return parse(" and ".join([*ranges, f'word starts with "{rng.choice("xyz")}"']))


def mixture(rng: Random) -> Filter:
    """Return eight atoms under and, or and not."""

    def atom() -> str:
        return f"{rng.choice('abcd')} {rng.choice(('=', '<', '>='))} {rng.randrange(20)}"

    def pair() -> str:
        return f"{rng.choice(('', 'not '))}({atom()} {rng.choice(('and', 'or'))} {atom()})"

    return parse(f"({pair()} or {pair()}) and ({pair()} or {pair()})")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    folder = options(__doc__, arguments).out
    rng = Random(11)
    plain = [(conjunction(rng), conjunction(rng)) for _ in range(COUNT)]
    mixed = [(mixture(rng), mixture(rng)) for _ in range(COUNT)]
    event = dict.fromkeys("abcd", 5)
    rows = measure(
        [
            Contender("covers, conjunctions", lambda: [covers(a, b) for a, b in plain], COUNT),
            Contender("intersects, conjunctions", lambda: [intersects(*p) for p in plain], COUNT),
            Contender("covers, and/or/not of 8 atoms", lambda: [covers(*p) for p in mixed], COUNT),
            Contender("oracle, one event", lambda: [a.matches(event) for a, _ in mixed], COUNT),
        ]
    )
    report("relations", TITLE, [rates("pairs", rows)], bars(TITLE, "pairs", rows), folder=folder)


if __name__ == "__main__":
    main()
