"""The ways through the package are short, and docs/architecture.md lists them as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tamis import Engine, Subscription
from tracing import Trace, tracing

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
MAX_FUNCTIONS = 35
MAX_FILES = 20

# Too many nodes for a diagram, so it is evaluated as a graph.
WIDE = " or ".join(
    f"(x{n} < 1 and x{(7 * n + 3) % 30} > 2 and x{(11 * n + 5) % 30} > {n})" for n in range(60)
)


def listed(heading: str) -> list[str]:
    """Return the functions that the page lists under a heading."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    block = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert block, f"docs/architecture.md has no list under {heading!r}"
    return block[1].splitlines()


def subscriptions() -> Iterator[Subscription]:
    yield Subscription("wide", WIDE)
    for n in range(300):
        yield Subscription(f"{n}", f'symbol = "S{n}" and price < {n}')
        yield Subscription(f"{n} up", f"price between {n} and {n + 3} or volume > {n}")
        yield Subscription(f"{n} news", f'headline contains "c{n}" and not volume = {n}')
        yield Subscription(f"{n} early", f'headline starts with "a{n}" or price is absent')


def trace_batch() -> Trace:
    """Follow the second batch through an engine whose kernels and indexes the first has loaded."""
    engine = Engine()
    engine.add_many(subscriptions())
    rows = range(200)
    table = pa.table(
        {
            "symbol": [f"S{n}" for n in rows],
            "price": [n * 1.5 for n in rows],
            "volume": [n % 7 for n in rows],
            "headline": [f"a{n} b{n} c{n}" for n in rows],
            "x1": [n % 3 for n in rows],
        }
    )
    first = engine.match_batch(table).to_arrow()
    with tracing() as trace:
        trace.recording = True
        second = engine.match_batch(table).to_arrow()
        trace.recording = False
    assert second == first
    assert "10 news" in first[10].as_py()
    return trace


def test_a_batch_goes_a_short_way_from_arrow_to_ids() -> None:
    trace = trace_batch()
    assert len(trace.functions) <= MAX_FUNCTIONS, "\n".join(trace.functions)
    assert len(trace.files) <= MAX_FILES, "\n".join(trace.files)
    assert listed("One Arrow batch, from `match_batch` to ids") == trace.functions
