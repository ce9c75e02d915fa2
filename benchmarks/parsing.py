"""How fast filters of eight atoms are parsed: `python -m benchmarks.parsing`.

Every filter is a different text, with different constants, so nothing is found in a cache. As a
sense of scale the same conditions as Python expressions go through Python's own parser, which is
written in C and does not check types or build filters.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from functools import partial
from random import Random

from benchmarks.harness import Contender, measure, options
from benchmarks.reporting import bars, rates, report
from tamis.languages import parse

TITLE = "Parsing filters"
COUNT = 2_000


def _word(rng: Random) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))


def tamis_filter(rng: Random) -> str:
    """Return a mixed filter of eight atoms."""
    return (
        f'company = "{_word(rng)}" and price <= {rng.randrange(10_000)} and '
        f'(product contains "{_word(rng)}" or product starts with "{_word(rng)}") and '
        f'year > {rng.randrange(2_000)} and not (name = "{_word(rng)}") and '
        f"weight between {rng.random():.3f} and {rng.randrange(1, 99)} and "
        f"stock != {rng.randrange(100)}"
    )


def comparisons(rng: Random) -> str:
    """Return eight plain comparisons joined by and."""
    return " and ".join(
        f"a{number} {rng.choice(('=', '<', '>='))} {rng.randrange(10_000)}" for number in range(8)
    )


def jms_selector(rng: Random) -> str:
    """Return eight atoms of a selector."""
    return (
        f"company = '{_word(rng)}' AND price <= {rng.randrange(10_000)} AND "
        f"(product LIKE '%{_word(rng)}%' OR product LIKE '{_word(rng)}%') AND "
        f"year > {rng.randrange(2_000)} AND NOT (name = '{_word(rng)}') AND "
        f"weight BETWEEN {rng.random():.3f} AND {rng.randrange(1, 99)} AND "
        f"stock <> {rng.randrange(100)}"
    )


def siena_triples(rng: Random) -> str:
    """Return eight triples as JSON."""
    return json.dumps(
        [[f"a{number}", rng.choice(("=", "<", ">=")), rng.randrange(10_000)] for number in range(8)]
    )


def python_expression(rng: Random) -> str:
    """Return eight comparisons in Python syntax."""
    return comparisons(rng).replace(" = ", " == ")


def parse_all(texts: list[str], language: str) -> None:
    """Parse every text."""
    for text in texts:
        parse(text, language)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and write the table."""
    folder = options(__doc__, arguments).out
    rng = Random(7)
    texts = {
        "tamis, eight atoms of all sorts": [tamis_filter(rng) for _ in range(COUNT)],
        "tamis, eight plain comparisons": [comparisons(rng) for _ in range(COUNT)],
        "jms, eight atoms of all sorts": [jms_selector(rng) for _ in range(COUNT)],
        "siena, eight triples as JSON": [siena_triples(rng) for _ in range(COUNT)],
    }
    python = [python_expression(rng) for _ in range(COUNT)]
    contenders = [
        Contender(name, partial(parse_all, found, name.split(",")[0]), COUNT)
        for name, found in texts.items()
    ]
    contenders.append(
        Contender("Python's ast.parse, for scale", lambda: [ast.parse(x) for x in python], COUNT)
    )
    rows = measure(contenders)
    report("parsing", TITLE, [rates("filters", rows)], bars(TITLE, "filters", rows), folder=folder)


if __name__ == "__main__":
    main()
